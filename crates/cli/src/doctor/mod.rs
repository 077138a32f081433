//! `doctor`: checks drivers, devices, and the results of their operations.

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
use model::ReferenceRun;

/// Check drivers and devices of this machine, and the results of their operations.
///
/// Checks the CPU, NVIDIA's driver and devices, the compiler NVRTC and the kernel cache, on macOS Metal's devices. Compiles
/// all kernels, and compares every operation of every device (of the CPU without a device) and the built-in model with a
/// simple reference. It takes some minutes. The line of a failed check has a remedy; the exit code is then 1.
#[derive(Args)]
pub(crate) struct DoctorArgs {
    /// Also write the results as Markdown, for example for a bug report.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

pub(crate) fn run(args: &DoctorArgs) -> Result<(), Failure> {
    if let Some(path) = &args.report {
        // Checked before minutes of work; an existing file keeps its content until the end.
        let opened = OpenOptions::new().create(true).append(true).open(path);
        opened.map_err(|error| unwritable(path, &error))?;
    }
    let today = clock::format(SystemTime::now(), "%F").unwrap_or_default();
    let title = format!("gristmill {} doctor, {today}", crate::VERSION.as_str());
    console::print_line(&title)?;
    let mut findings = Findings::default();
    cpu(&mut findings)?;
    let reference = ReferenceRun::new().map_err(|error| Failure::new(format!("the built-in model: {error}")))?;
    let devices = cuda::devices(&mut findings)?;
    for (name, device) in &devices {
        cuda::device(name, device, &reference, &mut findings)?;
    }
    #[cfg(target_os = "macos")]
    let metal = metal::devices(&reference, &mut findings)?;
    #[cfg(not(target_os = "macos"))]
    let metal = false;
    if devices.is_empty() && !metal {
        let threads = |threads| Cpu::backend(Level::best(), threads);
        ops::all("cpu", &threads, &mut findings)?;
        reference.check("cpu", Cpu::backend(Level::best(), machine::physical_cores()), &mut findings)?;
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
