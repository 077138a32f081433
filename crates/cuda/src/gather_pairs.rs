//! Rows of activations in the order of experts' pairs: the host side of `kernels/gather_pairs.cu`.

use super::Cuda;
use gristmill_gpu::product::{Product, word};
use gristmill_gpu::{Arg, Kernel, Launch, TensorMap, Unit, shared_struct};
use gristmill_kernels::act::ACT_BLOCK;
use gristmill_kernels::error::Result;
use gristmill_kernels::tensor::ViewMut;

const FILE: &str = "gather_pairs.cu";
const THREADS: u32 = 128;
/// Bytes that a thread copies at once.
const UNIT: usize = 16;

shared_struct! {
    pub(super) struct GatherPairsParams {
        // Units of 16 bytes in a row of X, and from a row of Y to the next.
        units: u32,
        y_stride: u32,
        // Pairs of experts that share a row of X.
        pairs_per_row: u32,
    }
}

pub(super) fn units() -> impl Iterator<Item = Unit> {
    [Unit::new(FILE, &[])].into_iter()
}

/// Bytes of a row of activations in bfloat16.
pub(super) fn activation_bytes(cols: usize) -> usize {
    cols.next_multiple_of(ACT_BLOCK) * TensorMap::ELEMENT
}

/// Bytes from a row of this memory to the next.
pub(super) fn stride(memory: &ViewMut<f32>) -> usize {
    memory.layout().stride() * size_of::<f32>()
}

/// Whether memory has room for the rows of a product's pairs.
pub(super) fn fits(product: &Product, memory: &ViewMut<f32>) -> bool {
    let stride = stride(memory);
    memory.rows() >= product.y.rows() && stride >= activation_bytes(product.x.cols()) && stride.is_multiple_of(UNIT)
}

/// Copies the row of X of each pair to a row of `to`, in the order of experts.
pub(super) fn gather(cuda: &Cuda, product: &Product, to: &ViewMut<f32>) -> Result<()> {
    let Product { op, x, rows, y, .. } = *product;
    let (_, pairs_per_row) = rows.strides();
    let params = GatherPairsParams {
        units: word(op, "columns", activation_bytes(x.cols()) / UNIT)?,
        y_stride: word(op, "columns", stride(to) / UNIT)?,
        pairs_per_row: word(op, "pairs of a row", pairs_per_row)?,
    };
    let [_, pairs, ..] = rows.args();
    let args = [product.bf16()?, pairs, Arg::write(to), Arg::params(&params)];
    let grid = [word(op, "rows of Y", y.rows())?, 1, 1];
    cuda.device.launch(&Launch::new(Kernel::plain(FILE, "gather_pairs"), grid, THREADS, &args))
}
