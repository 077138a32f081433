//! Norms: `kernels/norm.h`.

use super::grid::{MOST_BLOCKS, count};
use super::kv::limit;
use super::row_alignment::{RowAlignment, aligned};
use gristmill_kernels::error::Result;

use crate::{Access, Arg, Device, Kernel, Launch};
use gristmill_kernels::ops::{GateOrder, GatedNorm, LayerNorm, Operation, QkNorm, RmsNorm};
use gristmill_kernels::tensor::RowLayout;

/// The widest row chunk that a warp normalises.
pub(crate) const WARP_WIDTH: usize = 512;

shared_struct! {
    pub(super) struct NormParams {
        // Elements of a segment, and from one row to the next.
        width: u64,
        x_stride: u64,
        out_stride: u64,
        // Segments in all and in a row.
        segments: u32,
        per_row: u32,
        eps: f32,
        aligned: u32,
        by_block: u32,
        padding: u32,
    }
}

shared_struct! {
    pub(super) struct GatedNormParams {
        norm: NormParams,
        // Elements of the weight from a segment to the next: 0 if all have the same.
        weight_stride: u32,
        // The gate multiplies the norm's input, not its output.
        gate_first: u32,
    }
}

/// Parameters, blocks and threads of a block for segments of `width` in every row. `None` if there are none.
fn plan(
    op: &'static str,
    (x, out): (RowLayout, RowLayout),
    width: usize,
    eps: f32,
    aligned: u32,
) -> Result<Option<(NormParams, u32, u32)>> {
    if x.rows() == 0 || x.cols() == 0 {
        return Ok(None);
    }
    let per_row = x.cols() / width;
    let segments = count(op, "segments", x.rows().saturating_mul(per_row), MOST_BLOCKS)?;
    let by_block = width > WARP_WIDTH;
    // A warp works alone; a block has about two groups of four elements for each thread.
    let warps = if by_block { width.div_ceil(8).div_ceil(32).clamp(4, 32) as u32 } else { segments.min(8) };
    let params = NormParams {
        width: width as u64,
        x_stride: x.stride() as u64,
        out_stride: out.stride() as u64,
        segments,
        per_row: per_row as u32,
        eps,
        aligned,
        by_block: by_block.into(),
        padding: 0,
    };
    Ok(Some((params, if by_block { segments } else { segments.div_ceil(warps) }, 32 * warps)))
}

fn launch(device: &Device, entry: &'static str, blocks: u32, block: u32, args: &[Arg]) -> Result<()> {
    device.launch(&Launch::new(Kernel::plain("rows.gpu", entry), [blocks, 1, 1], block, args))
}

on_device! { rms_norm(RmsNorm), layer_norm(LayerNorm), qk_norm(QkNorm), gated_norm(GatedNorm) }

pub(crate) fn rms_norm(device: &Device, call: RmsNorm) -> Result<()> {
    let RmsNorm { x, weight, eps, out } = call;
    let aligned = aligned(x.cols(), [RowAlignment::of(&x), RowAlignment::of_mut(&out)]);
    let Some((params, blocks, block)) = plan(RmsNorm::NAME, (x.layout(), out.layout()), x.cols(), eps, aligned)? else {
        return Ok(());
    };
    let args = [Arg::read(&x), Arg::buffer(weight, Access::Read), Arg::write(&out), Arg::params(&params)];
    launch(device, "rms_norm", blocks, block, &args)
}

pub(crate) fn layer_norm(device: &Device, call: LayerNorm) -> Result<()> {
    let LayerNorm { x, weight, bias, eps, out } = call;
    let aligned = aligned(x.cols(), [RowAlignment::of(&x), RowAlignment::of_mut(&out)]);
    let Some((params, blocks, block)) = plan(LayerNorm::NAME, (x.layout(), out.layout()), x.cols(), eps, aligned)?
    else {
        return Ok(());
    };
    let (weight, bias) = (Arg::buffer(weight, Access::Read), Arg::buffer(bias, Access::Read));
    let args = [Arg::read(&x), weight, bias, Arg::write(&out), Arg::params(&params)];
    launch(device, "layer_norm", blocks, block, &args)
}

pub(crate) fn qk_norm(device: &Device, call: QkNorm) -> Result<()> {
    let QkNorm { x, weight, eps } = call;
    let aligned = aligned(weight.len(), [RowAlignment::of_mut(&x)]);
    let Some((params, blocks, block)) = plan(QkNorm::NAME, (x.layout(), x.layout()), weight.len(), eps, aligned)?
    else {
        return Ok(());
    };
    let args = [Arg::change(&x), Arg::buffer(weight, Access::Read), Arg::params(&params)];
    launch(device, "qk_norm", blocks, block, &args)
}

pub(crate) fn gated_norm(device: &Device, call: GatedNorm) -> Result<()> {
    let GatedNorm { x, gate, weight, width, order, eps } = call;
    let aligned = aligned(width, [RowAlignment::of_mut(&x), RowAlignment::of(&gate)]);
    let Some((norm, blocks, block)) = plan(GatedNorm::NAME, (x.layout(), gate.layout()), width, eps, aligned)? else {
        return Ok(());
    };
    let params = GatedNormParams {
        norm,
        weight_stride: if weight.len() > width { limit(width) } else { 0 },
        gate_first: (order == GateOrder::BeforeNorm).into(),
    };
    let args = [Arg::change(&x), Arg::read(&gate), Arg::buffer(weight, Access::Read), Arg::params(&params)];
    launch(device, "gated_norm", blocks, block, &args)
}
