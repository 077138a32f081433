//! The op suite: every operation of a backend against the reference.

use std::panic;
use std::time::Instant;

use gristmill_cuda::CudaDevice;
use gristmill_kernels::Error;
use gristmill_suite::ops::ALL;
use gristmill_suite::run_dry;
use gristmill_suite::suite::{Make, Worst};

use super::checks::Checks;
use super::finding::Findings;
use crate::console;
use crate::failure::Failure;

/// Runs the suite on a backend, until it loses its device. Returns whether the device remains.
pub(super) fn all(name: &str, make: Make, checks: Checks, findings: &mut Findings) -> Result<bool, Failure> {
    quietly(|| parts(name, make, checks, findings))
}

/// Compiles the kernels that [`all`] launches, on all cores.
pub(super) fn compile(
    name: &str,
    device: &CudaDevice,
    Checks { extent, seed }: Checks,
    findings: &mut Findings,
) -> Result<(), Failure> {
    let start = Instant::now();
    let mut kernels = 0;
    let bar = console::bar("compiling kernels {wide_bar} {pos}/{len}");
    let mut work = |make: &dyn Fn() -> gristmill_kernels::Result<_>| {
        let failed = |reason| Error::Device { device: device.properties().id, what: "its operations".into(), reason };
        quietly(|| ALL.iter().try_for_each(|(_, part)| run_dry(*part, &|_| make(), seed, extent))).map_err(failed)
    };
    let ready = device.make_ready(&mut work, &mut |done, total| {
        kernels = total;
        bar.set_length(total as u64);
        bar.set_position(done as u64);
    });
    bar.finish_and_clear();
    let seconds = start.elapsed().as_secs_f64();
    let found = ready.map(|()| format!("{kernels} compiled in {seconds:.1} s, the others were in the cache"));
    findings.result(format_args!("{name}: kernels"), found)
}

/// Runs cases, whose panics become findings.
fn quietly<T>(work: impl FnOnce() -> T) -> T {
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| ()));
    let outcome = work();
    panic::set_hook(hook);
    outcome
}

fn parts(name: &str, make: Make, checks: Checks, findings: &mut Findings) -> Result<bool, Failure> {
    let bar = console::bar("comparing {msg:<20} {wide_bar} {pos}/{len}");
    bar.set_length(ALL.len() as u64);
    for (part, cases) in ALL {
        bar.set_message(*part);
        let start = Instant::now();
        let ran = gristmill_suite::run(*cases, make, checks.seed, checks.extent);
        let lost = ran.is_err();
        let seconds = start.elapsed().as_secs_f64();
        bar.suspend(|| findings.result(format_args!("{name}: {part}"), ran.map(|worst| describe(&worst, seconds))))?;
        bar.inc(1);
        if lost && let Err(error) = make(1).and_then(|backend| backend.alloc::<u32>(1, "a test")) {
            bar.finish_and_clear();
            findings
                .result(format_args!("{name}: the other operations"), Err::<String, _>(format!("not run: {error}")))?;
            return Ok(false);
        }
    }
    bar.finish_and_clear();
    Ok(true)
}

/// The time, and the error nearest to its bound.
fn describe(worst: &[Worst], seconds: f64) -> String {
    let nearest = worst.iter().max_by(|a, b| (a.nmse / a.bound).total_cmp(&(b.nmse / b.bound)));
    let error = nearest.map(|w| format!(", NMSE {:.1e} of {:.1e} ({})", w.nmse, w.bound, w.kind)).unwrap_or_default();
    format!("{seconds:.1} s{error}")
}
