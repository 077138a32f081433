//! All checks, and their report.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use clap::Args;
use gristmill_cpu::{Cpu, Level};
use gristmill_engine::machine;
use gristmill_lab::bench::machine::memory_rate;
use gristmill_suite::Extent;
use gristmill_suite::rng::Rng;
use gristmill_text::clock;

use super::checks::Checks;
use super::finding::{Findings, Verdict};
use super::model::ReferenceRun;
use super::{cuda, ops};
use crate::args::KernelsArg;
use crate::console;
use crate::failure::Failure;

/// Check this machine's drivers and devices, and the results of their operations.
///
/// Checks the CPU, NVIDIA's driver and devices, the compiler NVRTC, the kernel cache and kernels that were compiled ahead. On
/// macOS, it checks Metal's devices. Compares every operation of every device (or of the CPU) and the built-in model with a
/// simple reference. By default, this compiles the kernels that the usual formats of weights need, and takes about a minute. If
/// a check fails, its line has a remedy, and the exit code is 1.
#[derive(Args)]
pub(crate) struct DoctorArgs {
    /// Compile all kernels, and compare the operations in all cases, with all formats of weights. This takes minutes.
    #[arg(long)]
    all: bool,
    /// Also write the results to this file as Markdown, for example for a bug report.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    #[command(flatten)]
    kernels: KernelsArg,
}

pub(crate) fn run(args: &DoctorArgs) -> Result<(), Failure> {
    if let Some(path) = &args.report {
        // Checked before minutes of work; an existing file keeps its content until the end.
        let opened = OpenOptions::new().create(true).append(true).open(path);
        opened.map_err(|error| unwritable(path, &error))?;
    }
    let kernels = args.kernels.folders()?;
    let today = clock::format(SystemTime::now(), "%F");
    let title = format!("gristmill {} doctor, {today}", crate::VERSION.as_str());
    console::print_report(format_args!("{title}\n"))?;
    let extent = if args.all { Extent::All } else { Extent::Quick };
    let checks = Checks { extent, seed: Rng::fresh_seed() };
    let mut findings = Findings::default();
    cpu(&mut findings)?;
    let reference = ReferenceRun::new().map_err(|error| Failure::new(format!("the built-in model: {error}")))?;
    let devices = cuda::devices(&kernels, &mut findings)?;
    for (name, device) in &devices {
        cuda::device(name, device, &reference, checks, &mut findings)?;
    }
    #[cfg(target_os = "macos")]
    let metal = super::metal::devices(&reference, checks, &mut findings)?;
    #[cfg(not(target_os = "macos"))]
    let metal = false;
    if devices.is_empty() && !metal {
        let threads = |threads| Cpu::backend(Level::best(), threads);
        ops::all("cpu", &threads, checks, &mut findings)?;
        reference.check("cpu", Cpu::backend(Level::best(), machine::physical_cores()), &mut findings)?;
    }
    if let Some(path) = &args.report {
        fs::write(path, findings.markdown(&title)).map_err(|error| unwritable(path, &error))?;
    }
    match findings.failed() {
        0 if args.all => console::print_report("everything that is here works\n"),
        0 => console::print_report(
            "everything that was checked works; --all checks all kernels and formats, in minutes\n",
        ),
        1 => Err(Failure::new("1 check failed; its line has a remedy")),
        failed => Err(Failure::new(format!("{failed} checks failed; their lines have remedies"))),
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
    if let Some(found) = Level::not_chosen() {
        let verdict = if found.refused { Verdict::Absent } else { Verdict::Good };
        findings.add(verdict, "CPU", format!("level {found}"))?;
    }
    let free = machine::available_memory().map(|free| format!("{} free, ", console::bytes(free))).unwrap_or_default();
    let rate = console::bytes(memory_rate(level, cores) as u64);
    findings.add(Verdict::Good, "memory", format!("{free}read at {rate}/s"))
}
