//! `doctor`: what is there, whether it can be used, and whether it computes right.

mod cuda;
mod finding;
#[cfg(target_os = "macos")]
mod metal;
mod model;
mod ops;

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use clap::Args;
use gristmill_cpu::{Cpu, Level};
use gristmill_engine::{clock, machine};

use crate::bench::machine::memory_rate;
use crate::console;
use crate::failure::Failure;
use finding::{Findings, Verdict};
use model::Truth;

/// Check what gristmill can use on this machine, and that it computes right.
///
/// Looks for the CPU's level, NVIDIA's driver and devices, the compiler NVRTC and the cache for what it compiles, on macOS for
/// Metal's devices; compiles all kernels, and compares every operation on every device, and the built-in model, with slow and simple
/// arithmetic (on the CPU where there is no device). It takes a minute or some. A check that fails is said with what to do about it, and makes the exit code 1.
#[derive(Args)]
pub(crate) struct DoctorArgs {
    /// Write the same as Markdown, for example to send it in.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

pub(crate) fn run(args: &DoctorArgs) -> Result<(), Failure> {
    if let Some(path) = &args.report {
        // Before minutes of work. What is there stays until then.
        let opened = OpenOptions::new().create(true).append(true).open(path);
        opened.map_err(|error| unwritable(path, &error))?;
    }
    // The format is known.
    let today = clock::format(SystemTime::now(), "%F").unwrap_or_default();
    let title = format!("gristmill {} doctor, {today}", crate::VERSION.as_str());
    console::print_line(&title)?;
    let mut findings = Findings::default();
    cpu(&mut findings)?;
    let truth = Truth::new().map_err(|error| Failure::new(format!("the built-in model: {error}")))?;
    let devices = cuda::devices(&mut findings)?;
    for (name, device) in &devices {
        cuda::device(name, device, &truth, &mut findings)?;
    }
    #[cfg(target_os = "macos")]
    let metal = metal::devices(&truth, &mut findings)?;
    #[cfg(not(target_os = "macos"))]
    let metal = false;
    if devices.is_empty() && !metal {
        let threads = |threads| Cpu::backend(Level::best(), threads);
        ops::all("cpu", &threads, &mut findings)?;
        truth.check("cpu", Cpu::backend(Level::best(), machine::physical_cores()), &mut findings)?;
    }
    if let Some(path) = &args.report {
        fs::write(path, findings.markdown(&title)).map_err(|error| unwritable(path, &error))?;
    }
    match findings.failed() {
        0 => console::print_line("everything that is here works"),
        1 => Err(Failure::new("1 check failed; its line says what to do")),
        failed => Err(Failure::new(format!("{failed} checks failed; their lines say what to do"))),
    }
}

fn unwritable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(format!("--report {}: {error}; name a file that can be written", path.display()))
}

/// The processor and its memory.
fn cpu(findings: &mut Findings) -> Result<(), Failure> {
    let (level, cores) = (Level::best(), machine::physical_cores());
    let name = machine::cpu_name().map(|name| format!("{name}, ")).unwrap_or_default();
    let found = format!("{name}{}, level {}, {cores} cores", std::env::consts::ARCH, level.name());
    findings.add(Verdict::Good, "CPU", found)?;
    let free = machine::available_memory().map(|free| format!("{} free, ", console::bytes(free))).unwrap_or_default();
    let rate = console::bytes(memory_rate(level, cores) as u64);
    findings.add(Verdict::Good, "memory", format!("{free}read at {rate}/s"))
}
