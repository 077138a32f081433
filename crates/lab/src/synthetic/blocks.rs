//! Random tensor data at memory speed.
//!
//! Encoding 18 GB of floats would take minutes. So each tensor has a pool of blocks, encoded from random floats, and
//! its data are random runs of the pool: this works for every format, and scales and codes are distributed as in a real
//! tensor.

use super::shapes::{Popularity, TensorPlan, Values};
use crate::random::{Random, scale};
use gristmill_kernels::format::Format;
use gristmill_transcode::encode;

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
    /// The factors of rows, if they differ.
    rows: Option<Rows>,
}

/// Factors of a tensor's rows.
struct Rows {
    format: Format,
    columns: u64,
    factors: Vec<f32>,
}

impl Rows {
    /// The factors of a router's rows; which expert has which rank is random.
    fn new(tensor: &TensorPlan, popularity: Popularity, random: &mut Random) -> Rows {
        let columns = tensor.shape[0];
        let experts = tensor.shape[1..].iter().product::<u64>();
        let mut factors: Vec<f32> = (0..experts).map(|rank| popularity.factor(rank, experts)).collect();
        for last in (1..factors.len()).rev() {
            factors.swap(last, random.below(last as u64 + 1) as usize);
        }
        Rows { format: tensor.format, columns, factors }
    }

    /// Multiplies encoded values, the first of which is element `first` of the tensor.
    fn scale(&self, first: u64, bytes: &mut [u8]) {
        let mut values = vec![0.0; bytes.len() / self.format.block_bytes() * self.format.block_len()];
        let decoded = self.format.decode(bytes, &mut values);
        for (value, element) in values.iter_mut().zip(first..) {
            *value *= self.factors[(element / self.columns) as usize];
        }
        let encoded = encode(self.format, &values, bytes);
        debug_assert!(decoded.is_some() && encoded.is_some(), "a run is whole blocks");
    }
}

impl Pool {
    /// Mean and deviation of a tensor's values.
    fn distribution(tensor: &TensorPlan) -> (f32, f32) {
        match tensor.values {
            Values::Norm | Values::SignedNorm => (1.0, 0.1),
            Values::BranchNorm(branches) => ((branches as f32).powf(-0.5), 0.1 * (branches as f32).powf(-0.5)),
            Values::Decay => (-1.0, 0.1),
            Values::Embedding => (0.0, 1.0),
            Values::Weights | Values::Router(_) => (0.0, (tensor.shape[0] as f32).powf(-0.5)),
            Values::Branch(branches) => (0.0, (tensor.shape[0] as f32 * branches as f32).powf(-0.5)),
            Values::RouterBias => (0.0, 0.001),
        }
    }

    /// The deviation of a tensor's values.
    pub(super) fn deviation(tensor: &TensorPlan) -> f32 {
        Self::distribution(tensor).1
    }

    /// The pool of a tensor; equal for equal names.
    pub(super) fn new(tensor: &TensorPlan) -> Pool {
        let mut random = Random::named(&tensor.name);
        let (mean, deviation) = Self::distribution(tensor);
        let mut value = || mean + deviation * random.normal();
        let mut values: Vec<f32> = (0..POOL).map(|_| value()).collect();
        if tensor.values == Values::SignedNorm {
            values.iter_mut().for_each(|value| *value *= if random.below(2) == 0 { 1.0 } else { -1.0 });
        }
        let format = tensor.format;
        let mut bytes = vec![0; POOL / format.block_len() * format.block_bytes()];
        let encoded = encode(format, &values, &mut bytes);
        debug_assert!(encoded.is_some(), "a pool is whole blocks");
        let rows = match tensor.values {
            Values::Router(popularity) => Some(Rows::new(tensor, popularity, &mut random)),
            _ => None,
        };
        Pool { bytes, block: format.block_bytes(), run: run_bytes(format), picks: Random::new(random.next()), rows }
    }

    /// Fills `out` with the tensor's data from `first_run` on.
    pub(super) fn fill(&self, first_run: u64, out: &mut [u8]) {
        let starts = ((self.bytes.len() - self.run) / self.block + 1) as u64;
        for (i, run) in out.chunks_mut(self.run).enumerate() {
            let start = scale(self.picks.at(first_run + i as u64), starts) as usize * self.block;
            run.copy_from_slice(&self.bytes[start..start + run.len()]);
            if let Some(rows) = &self.rows {
                let run_elements = (self.run / self.block * rows.format.block_len()) as u64;
                rows.scale((first_run + i as u64) * run_elements, run);
            }
        }
    }
}

/// Bytes of a run: whole blocks.
pub(super) fn run_bytes(format: Format) -> usize {
    RUN.next_multiple_of(format.block_bytes())
}
