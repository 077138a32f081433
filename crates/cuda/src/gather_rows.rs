//! Rows of activations in the order in which a product reads them: the host side of `kernels/gather_rows.cu`.

use super::Cuda;
use gristmill_gpu::product::{Product, RowSelection, word};
use gristmill_gpu::{Arg, Kernel, Launch, TensorMap, Unit, shared_struct};
use gristmill_kernels::act::ACT_BLOCK;
use gristmill_kernels::error::Result;
use gristmill_kernels::tensor::ViewMut;

const FILE: &str = "gather_rows.cu";
const THREADS: u32 = 128;
/// Bytes that a thread copies at once.
const UNIT: usize = 16;

shared_struct! {
    pub(super) struct GatherRowsParams {
        ids_stride: u64,
        // Units of 16 bytes in a row of X, and from a row of Y to the next.
        units: u32,
        y_stride: u32,
        x_rows: u32,
        // Pairs of experts that share a row of X.
        ids_per_row: u32,
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

/// Copies the rows of X that a product chooses to `to`, `stride` bytes from each to the next.
pub(super) fn gather(cuda: &Cuda, product: &Product, to: Arg, stride: usize) -> Result<()> {
    let Product { op, x, rows, y, .. } = *product;
    let (ids_stride, ids_per_row) = match rows {
        RowSelection::Pairs { pairs_per_row, .. } => (1, pairs_per_row),
        RowSelection::All | RowSelection::Ids(_) => rows.strides(),
    };
    let params = GatherRowsParams {
        ids_stride: ids_stride as u64,
        units: word(op, "columns", activation_bytes(x.cols()) / UNIT)?,
        y_stride: word(op, "columns", stride / UNIT)?,
        x_rows: word(op, "rows of X", x.rows())?,
        ids_per_row: word(op, "pairs of a row", ids_per_row)?,
    };
    let [ids, pairs, ..] = rows.args();
    let ids = if matches!(rows, RowSelection::Ids(_)) { ids } else { pairs };
    let args = [product.bf16()?, ids, to, Arg::params(&params)];
    let grid = [word(op, "rows of Y", y.rows())?, 1, 1];
    cuda.device.launch(&Launch::new(Kernel::plain(FILE, "gather_rows"), grid, THREADS, &args))
}
