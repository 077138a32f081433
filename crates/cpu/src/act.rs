//! Activations: f32, int8 with one scale per 32 values, and bfloat16 if the level multiplies bfloat16.

use super::cpu::{Cpu, DEVICE};
use super::host;
use super::out::OutRows;
use super::quantise;
use gristmill_kernels::act::{ACT_BLOCK, Act, Int8Words, Precision};
use gristmill_kernels::error::{Error, Result};
use gristmill_kernels::ops::{Operation, PrepareActivations, elements};
pub(super) use gristmill_kernels::simd::Int8Block;
use gristmill_kernels::storage::Storage;
use gristmill_kernels::tensor::zeroed;

/// All representations of activations that a weight format can read.
#[derive(Debug)]
pub(super) struct CpuAct {
    /// rows × cols, contiguous.
    pub(super) exact: Vec<f32>,
    /// rows × ⌈cols / 32⌉. Empty at [`Precision::Exact`].
    pub(super) int8: Vec<Int8Block>,
    /// rows × ⌈cols / 2⌉ pairs of bfloat16, the even column in the lower half. An odd last column is paired with zero.
    /// Empty at [`Precision::Exact`], and if the level does not multiply bfloat16.
    pub(super) bf16: Vec<u32>,
}

on_cpu! { fill_act(PrepareActivations); }

impl Cpu {
    /// See [`gristmill_kernels::Backend::alloc_act`].
    pub(super) fn new_act(&self, precision: Precision, rows: usize, cols: usize) -> Result<Act> {
        let what = "activations";
        let fast = precision == Precision::Fast;
        let blocks = if fast { elements(what, &[rows, cols.div_ceil(ACT_BLOCK)])? } else { 0 };
        let pairs = if fast && self.level.has_bf16() { elements(what, &[blocks, ACT_BLOCK / 2])? } else { 0 };
        let exact = zeroed(elements(what, &[rows, cols])?, what)?;
        let storage = CpuAct { exact, int8: zeroed(blocks, what)?, bf16: zeroed(pairs, what)? };
        Ok(Act::new(DEVICE, precision, rows, cols, Storage::new(storage)))
    }

    /// Fills every allocated representation.
    pub(super) fn fill_act(&self, call: PrepareActivations) -> Result<()> {
        let PrepareActivations { x, act } = call;
        let (rows, cols) = (x.rows(), x.cols());
        let x = host::rows(PrepareActivations::NAME, x)?;
        let CpuAct { exact, int8, bf16 } = act.storage_mut(PrepareActivations::NAME)?;
        // A representation without memory has rows of zero elements.
        let blocks = if int8.is_empty() { 0 } else { cols.div_ceil(ACT_BLOCK) };
        let pairs = if bf16.is_empty() { 0 } else { cols.div_ceil(2) };
        let int8 = OutRows::contiguous(int8, rows, blocks);
        let outputs = (OutRows::contiguous(exact, rows, cols), (int8, OutRows::contiguous(bf16, rows, pairs)));
        self.each_row(outputs, cols, &|row, (exact, (int8, bf16))| {
            let x = x.row(row);
            exact.copy_from_slice(x);
            self.level.run(quantise::QuantiseRow { x, out: int8 });
            self.level.run(quantise::RoundRow { x, out: bf16 });
        });
        Ok(())
    }
}

/// See [`gristmill_kernels::offload::Offload::import_int8`].
pub(super) fn import(blocks: &[Int8Words], act: &mut Act) -> Result<()> {
    const OP: &str = "import_int8";
    let CpuAct { int8, .. } = act.storage_mut(OP)?;
    let what = "int8 blocks of the activations";
    let found = int8.len();
    let own = int8.get_mut(..blocks.len()).ok_or(Error::TooSmall { op: OP, what, found, needed: blocks.len() })?;
    for (own, &[q @ .., scale, sum, first, second, first_scaled, second_scaled, _, _]) in own.iter_mut().zip(blocks) {
        let half_sums = [first, second].map(|sum| sum as i32);
        *own = Int8Block {
            q: q.map(|word: u32| word as i32),
            scale: f32::from_bits(scale),
            sum: f32::from_bits(sum),
            half_sums,
            scaled_half_sums: [first_scaled, second_scaled].map(f32::from_bits),
            half_sum_pair: quantise::half_sum_pair(half_sums),
        };
    }
    Ok(())
}
