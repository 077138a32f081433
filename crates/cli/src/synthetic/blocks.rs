//! Random tensor data at memory speed.
//!
//! Encoding 18 GB of floats would take minutes. So each tensor has a pool of blocks, encoded from random floats, and
//! its data are random runs of the pool: this works for every format, and scales and codes are distributed as in a real
//! tensor.

use super::rng::{Random, scale};
use super::shapes::{TensorPlan, Values};
use gristmill_cpu::Level;
use gristmill_kernels::format::Format;

/// Elements in a pool: whole blocks of every format, within the L1 or L2 cache.
const POOL: usize = 32_768;
/// The least bytes of a run.
const RUN: usize = 256;

/// The pool of one tensor.
pub(super) struct Pool {
    bytes: Vec<u8>,
    block: usize,
    run: usize,
    /// Random number `i` selects run `i`.
    picks: Random,
}

impl Pool {
    /// The pool of a tensor; equal for equal names.
    pub(super) fn new(tensor: &TensorPlan) -> Pool {
        let mut random = Random::named(&tensor.name);
        let (mean, deviation) = match tensor.values {
            Values::Norm => (1.0, 0.1),
            Values::Decay => (-1.0, 0.1),
            Values::Weights => (0.0, (tensor.shape[0] as f32).powf(-0.5)),
        };
        let values: Vec<f32> = (0..POOL).map(|_| mean + deviation * random.normal()).collect();
        let format = tensor.format;
        let mut bytes = vec![0; POOL / format.block_len() * format.block_bytes()];
        let encoded = Level::best().encode(format, &values, &mut bytes);
        debug_assert!(encoded.is_some(), "a pool is whole blocks");
        Pool { bytes, block: format.block_bytes(), run: run_bytes(format), picks: Random::new(random.next()) }
    }

    /// Fills `out` with the tensor's data from `first_run` on.
    pub(super) fn fill(&self, first_run: u64, out: &mut [u8]) {
        let starts = ((self.bytes.len() - self.run) / self.block + 1) as u64;
        for (i, run) in out.chunks_mut(self.run).enumerate() {
            let start = scale(self.picks.at(first_run + i as u64), starts) as usize * self.block;
            run.copy_from_slice(&self.bytes[start..start + run.len()]);
        }
    }
}

/// Bytes of a run: whole blocks.
pub(super) fn run_bytes(format: Format) -> usize {
    RUN.next_multiple_of(format.block_bytes())
}
