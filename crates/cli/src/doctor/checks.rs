//! What is checked of a device.

use std::time::Instant;

use gristmill_gpu::precompile::parallel_map;
use gristmill_kernels::Error;
use gristmill_suite::Extent;

use super::finding::{Findings, Verdict};
use crate::console;
use crate::failure::Failure;

/// The cases of operations that run.
#[derive(Clone, Copy)]
pub(super) struct Checks {
    pub(super) extent: Extent,
    pub(super) seed: u64,
}

/// Kernels that fail to compile and are listed.
const MAX_LISTED: usize = 5;

/// Compiles all kernel sources for a device.
pub(super) fn compile<U: Sync>(
    device: &str,
    units: &[U],
    prepare: impl Fn(&U) -> Result<(), Error> + Sync,
    findings: &mut Findings,
) -> Result<(), Failure> {
    let start = Instant::now();
    let bar = console::bar("compiling kernels {wide_bar} {pos}/{len}");
    bar.set_length(units.len() as u64);
    let prepared = parallel_map(units, prepare, |done| bar.set_position(done as u64));
    bar.finish_and_clear();
    let failures: Vec<Error> = prepared.into_iter().filter_map(Result::err).collect();
    for error in failures.iter().take(MAX_LISTED) {
        findings.add(Verdict::Bad, format_args!("{device}: a kernel"), error)?;
    }
    let all = units.len();
    let compiled = units.len() - failures.len();
    let seconds = start.elapsed().as_secs_f64();
    let verdict = if failures.is_empty() { Verdict::Good } else { Verdict::Bad };
    let found = format!("{compiled} of {all} kernel sources compiled, or found in the cache, in {seconds:.1} s");
    findings.add(verdict, format_args!("{device}: kernels"), found)
}
