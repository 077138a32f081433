//! Rows as activations: `kernels/activations.gpu`.

use crate::product::word;
use crate::storage::ActOutput;
use gristmill_kernels::error::Result;

use crate::{Arg, Device, Kernel, Launch};
use gristmill_kernels::ops::{Operation, PrepareActivations, elements};
use gristmill_kernels::tensor::View;

shared_struct! {
    pub(super) struct QuantiseParams {
        // Elements from a row of X to the next.
        x_stride: u64,
        rows: u32,
        cols: u32,
        // Rows of X and of the copy can be read by four elements.
        aligned: u32,
        // Which parts are written, of ActPart.
        parts: u32,
    }
}

/// Threads of a block: eight for 32 elements of a row.
pub(super) const THREADS: usize = 128;

/// [`PrepareActivations`].
pub fn prepare_activations(device: &Device, x: View<f32>, act: ActOutput) -> Result<()> {
    let op = PrepareActivations::NAME;
    if x.rows() == 0 || x.cols() == 0 {
        return Ok(());
    }
    let (rows, cols) = (word(op, "rows", x.rows())?, word(op, "columns", x.cols())?);
    let layout = x.layout();
    let aligned = [layout.span().start, layout.stride(), x.cols()].iter().all(|n| n.is_multiple_of(4));
    let params =
        QuantiseParams { x_stride: layout.stride() as u64, rows, cols, aligned: aligned.into(), parts: act.parts() };
    let [exact, int8, bf16] = act.storage.outputs();
    let args = [Arg::read(&x), exact, int8, bf16, Arg::params(&params)];
    let groups = elements("activations", &[x.rows(), x.cols().div_ceil(32)])?;
    let blocks = word(op, "blocks", groups.div_ceil(THREADS / 8))?;
    let kernel = Kernel::plain("activations.gpu", "prepare_activations");
    device.launch(&Launch::new(kernel, [blocks, 1, 1], THREADS as u32, &args))
}
