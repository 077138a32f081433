//! Latent rows and queries of latent attention: `kernels/latent_write.gpu`.

use super::grid::MOST_BLOCKS_Y;
use super::kv::{WriteParams, cells_define, limit, placement_args};
use super::norm;
use super::row_alignment::{RowAlignment, aligned};
use gristmill_kernels::error::Result;
use gristmill_kernels::ops::{Fused, LatentWrite, Operation, RopeStyle};

use crate::storage::{ActOutput, GpuKv};
use crate::{Access, Arg, Device, Kernel, Launch};

/// Warps of a block, each with a query or a latent row.
const WARPS: usize = 4;

shared_struct! {
    pub(super) struct LatentWriteParams {
        write: WriteParams,
        // Elements from row to row.
        rows_stride: u64,
        queries_stride: u64,
        rotated_stride: u64,
        heads: u32,
        // Columns.
        latent: u32,
        plain: u32,
        rotated: u32,
        pairs: u32,
        interleaved: u32,
        // Floats of shared memory of a warp.
        scratch: u32,
        // Latent rows, and queries and their exact activations, can be read by four elements.
        aligned_rows: u32,
        aligned_queries: u32,
        // The parts of activations that are written, of ActPart.
        parts: u32,
        eps: f32,
        magnitude: f32,
    }
}

/// [`LatentWrite`] in one launch, if a warp normalises a latent row, as [`norm`] has it: the sums are then the same.
pub(crate) fn latent_write(device: &Device, call: &mut LatentWrite) -> Result<Fused> {
    let LatentWrite { rows, queries, heads, norm, eps, rotary, cache, placement, plain, rotated } = call;
    let op = LatentWrite::NAME;
    let tokens = rows.rows();
    let spec = cache.spec();
    let blocks = heads.saturating_add(1).div_ceil(WARPS);
    if norm.len() > norm::WARP_WIDTH || blocks > MOST_BLOCKS_Y {
        return Ok(Fused::No);
    }
    if tokens == 0 {
        return Ok(Fused::Yes);
    }
    let act = ActOutput::new(op, plain)?;
    let of_rotated = rotated.cols();
    let of_plain = queries.cols() / *heads - of_rotated;
    let whole = of_plain.is_multiple_of(4) && of_rotated.is_multiple_of(4);
    let params = LatentWriteParams {
        write: WriteParams::new(cache, placement, rows.layout().stride(), 0),
        rows_stride: rows.layout().stride() as u64,
        queries_stride: queries.layout().stride() as u64,
        rotated_stride: rotated.layout().stride() as u64,
        heads: limit(*heads),
        latent: limit(norm.len()),
        plain: limit(of_plain),
        rotated: limit(of_rotated),
        pairs: rotary.map_or(0, |rotary| limit(rotary.frequencies.len())),
        interleaved: rotary.is_some_and(|rotary| rotary.style == RopeStyle::Interleaved).into(),
        scratch: limit(spec.key_width),
        aligned_rows: aligned(norm.len(), [RowAlignment::of_mut(rows)]),
        aligned_queries: aligned(of_plain, [RowAlignment::of_mut(queries)]) * u32::from(whole),
        parts: act.parts(),
        eps: *eps,
        magnitude: rotary.map_or(1.0, |rotary| rotary.magnitude),
    };
    let data: &mut GpuKv = cache.storage_mut(op)?;
    data.written = device.epoch();
    let [keys, key_scales, ..] = data.args(Access::Write);
    let [slots, positions, table] = placement_args(placement);
    let [exact, int8, bf16] = act.storage.outputs();
    let angles = Arg::optional(rotary.map(|rotary| &rotary.frequencies));
    let (of_rows, of_queries) = (rows.as_view(), queries.as_view());
    let rows = Arg::read(&of_rows);
    let queries = Arg::read(&of_queries);
    let norm = Arg::buffer(norm, Access::Read);
    let rotated = Arg::write(rotated);
    let flag = device.flag();
    let params = Arg::params(&params);
    let args = [
        rows, queries, norm, angles, slots, positions, table, keys, key_scales, exact, int8, bf16, rotated, flag,
        params,
    ];
    let kernel = Kernel { file: "latent_write.gpu", entry: "latent_write", defines: &[cells_define(spec.format)] };
    let shared = limit(WARPS * spec.key_width * size_of::<f32>());
    let launch = Launch::new(kernel, [limit(tokens), limit(blocks), 1], 32 * WARPS as u32, &args);
    device.launch(&Launch { shared, ..launch })?;
    Ok(Fused::Yes)
}
