//! Queries, keys and values normalised, rotated and written to the cache: `kernels/qkv_write.gpu`.

use super::kv::{WriteParams, cells_define, limit, placement_args};
use super::norm;
use super::row_alignment::{RowAlignment, aligned};
use gristmill_kernels::error::Result;

use crate::storage::GpuKv;
use crate::{Access, Arg, Device, Kernel, Launch};
use gristmill_kernels::kv::KvSpec;
use gristmill_kernels::ops::{Fused, Operation, QkNorms, QkvWrite, RopeStyle};
use gristmill_kernels::tensor::Buffer;

/// Warps of a block, each with a head at a time.
const WARPS: usize = 4;
/// Blocks that a multiprocessor has room for. Where there are more, a warp has several heads, because sines and cosines are most
/// of the work.
const RESIDENT: usize = 16;
/// The widest head that a warp normalises, as [`norm`] has it: the sums are then the same.
const MAX_NORMED: usize = norm::WARP_WIDTH;
/// Heads that are normalised, as bits.
const NORMS_KEYS: u32 = 1;
const NORMS_VALUES: u32 = 2;
/// Blocks in y.
const MAX_HEADS: usize = WARPS * 65_535;

shared_struct! {
    pub(super) struct QkvWriteParams {
        write: WriteParams,
        // Elements from token to token.
        stride: u64,
        heads: u32,
        pairs: u32,
        interleaved: u32,
        // Floats of shared memory of a warp.
        scratch: u32,
        // Heads of a warp.
        rounds: u32,
        normed: u32,
        aligned: u32,
        eps: f32,
        magnitude: f32,
        padding: u32,
    }
}

/// Whether one launch can do it: norms, if there are any, are those of heads, and those of queries and keys precede the
/// rotation.
pub fn serves(heads: usize, norms: Option<QkNorms>, spec: KvSpec) -> bool {
    let of_heads = |weight: &Buffer<f32>, width| width <= MAX_NORMED && weight.len() == width;
    let serves = |norms: QkNorms| {
        let of_keys = norms.weights.into_iter().all(|weight| of_heads(weight, spec.key_width));
        !norms.after_rotation && of_keys && norms.values.is_none_or(|weight| of_heads(weight, spec.value_width))
    };
    heads.saturating_add(spec.heads.saturating_mul(2)) <= MAX_HEADS && norms.is_none_or(serves)
}

/// [`QkvWrite`] in one launch, if it [`serves`].
pub fn qkv_write(device: &Device, call: &mut QkvWrite) -> Result<Fused> {
    let QkvWrite { qkv, heads, norms, rotary, cache, placement } = call;
    let tokens = qkv.rows();
    let spec = cache.spec();
    let stride = qkv.layout().stride();
    if !serves(*heads, *norms, spec) {
        return Ok(Fused::No);
    }
    if tokens == 0 {
        return Ok(Fused::Yes);
    }
    let [q_norm, k_norm] = norms.map_or([None; 2], |norms| norms.weights.map(Some));
    let v_norm = norms.and_then(|norms| norms.values);
    // A value that is not normalised is not kept.
    let values = v_norm.map_or(0, |_| spec.value_width);
    let scratch = spec.key_width.max(values).next_multiple_of(4);
    let groups = (*heads + 2 * spec.heads).div_ceil(WARPS);
    let filling = RESIDENT * device.gpu().properties().multiprocessors.max(1) as usize;
    let rounds = (tokens.saturating_mul(groups) / filling).clamp(1, groups);
    let params = QkvWriteParams {
        write: WriteParams::new(cache, placement, stride, stride),
        stride: stride as u64,
        heads: limit(*heads),
        pairs: limit(rotary.frequencies.len()),
        interleaved: (rotary.style == RopeStyle::Interleaved).into(),
        scratch: limit(scratch),
        rounds: limit(rounds),
        normed: u32::from(norms.is_some()) * NORMS_KEYS | u32::from(v_norm.is_some()) * NORMS_VALUES,
        aligned: aligned(spec.key_width, [RowAlignment::of_mut(qkv)]) * u32::from(values.is_multiple_of(4)),
        eps: norms.map_or(0.0, |norms| norms.eps),
        magnitude: rotary.magnitude,
        padding: 0,
    };
    let data: &mut GpuKv = cache.storage_mut(QkvWrite::NAME)?;
    data.written = device.epoch();
    let [keys, k_scales, values, v_scales] = data.args(Access::Write);
    let [slots, positions, table] = placement_args(placement);
    let qkv = Arg::change(qkv);
    let [q_norm, k_norm, v_norm] = [q_norm, k_norm, v_norm].map(Arg::optional);
    let angles = Arg::optional(Some(&rotary.frequencies));
    let flag = device.flag();
    let params = Arg::params(&params);
    let kernel = Kernel { file: "qkv_write.gpu", entry: "qkv_write", defines: &[cells_define(spec.format)] };
    let grid = [limit(tokens), limit(groups.div_ceil(rounds)), 1];
    let args =
        [qkv, q_norm, k_norm, v_norm, angles, slots, positions, table, keys, k_scales, values, v_scales, flag, params];
    // Each warp's head, and a rotation for each pair.
    let shared = limit((WARPS * scratch + 2 * rotary.frequencies.len()) * size_of::<f32>());
    device.launch(&Launch { shared, ..Launch::new(kernel, grid, 32 * WARPS as u32, &args) })?;
    Ok(Fused::Yes)
}
