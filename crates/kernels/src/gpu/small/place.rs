//! Queries, keys and values to their places: `kernels/place.gpu`.

use super::kv::{self, WriteParams, cells_args, cells_define, limit};
use super::{Rows, norm, wide};
use crate::error::Result;
use crate::gpu::twin::twin;
use crate::gpu::{Access, Arg, Device, Kernel, Launch, Text};
use crate::kv::{KvCache, Placement};
use crate::ops::{Norms, Rope, RopeStyle};
use crate::tensor::{Buffer, ViewMut};
use bytemuck::{Pod, Zeroable};

/// Warps of a block, each with a head.
const WARPS: usize = 4;
/// The widest head that a warp normalises, as [`norm`] has it: the sums are then the same.
const MAX_NORMED: usize = norm::WARP_WIDTH;
/// Blocks in y.
const MAX_HEADS: usize = WARPS * 65_535;

twin! {
    #[repr(C)]
    #[derive(Clone, Copy, Pod, Zeroable)]
    pub(super) struct PlaceParams in "place.gpu" {
        write: WriteParams,
        stride: u64,
        heads: u32,
        pairs: u32,
        interleaved: u32,
        room: u32,
        normed: u32,
        wide: u32,
        eps: f32,
        magnitude: f32,
    }
}

/// Every compilation of the text.
pub(crate) fn texts() -> impl Iterator<Item = Text> {
    kv::texts_of("place.gpu")
}

/// Whether one launch can do it: norms, if there are any, are those of heads.
pub(crate) fn serves(heads: usize, norms: &Norms, cache: &KvCache) -> bool {
    let spec = cache.spec;
    let of_heads = |weights: &[&Buffer<f32>; 2]| {
        spec.key_width <= MAX_NORMED && weights.iter().all(|weight| weight.len() == spec.key_width)
    };
    heads.saturating_add(spec.heads.saturating_mul(2)) <= MAX_HEADS
        && norms.as_ref().is_none_or(|(weights, _)| of_heads(weights))
}

/// [`crate::ops::Backend::place_qkv`], checked, if [`serves`].
pub(crate) fn place_qkv(
    device: &Device,
    qkv: ViewMut<f32>,
    heads: usize,
    norms: Norms,
    rope: &Rope,
    cache: &mut KvCache,
    place: &Placement,
) -> Result<()> {
    let (tokens, spec, stride) = (qkv.rows(), cache.spec, qkv.shape().stride());
    if tokens == 0 {
        return Ok(());
    }
    cache.written = device.pauses();
    let [q_norm, k_norm] = norms.map_or([None; 2], |(weights, _)| weights.map(Some));
    let room = spec.key_width.next_multiple_of(4);
    let params = PlaceParams {
        write: WriteParams::new(cache, place, stride, stride),
        stride: stride as u64,
        heads: limit(heads),
        pairs: limit(rope.frequencies.len()),
        interleaved: (rope.style == RopeStyle::Interleaved).into(),
        room: limit(room),
        normed: norms.is_some().into(),
        wide: wide(spec.key_width, [Rows::of_mut(&qkv)]),
        eps: norms.map_or(0.0, |(_, eps)| eps),
        magnitude: rope.magnitude,
    };
    let [keys, key_scales] = cells_args(&cache.keys, Access::Write);
    let [values, value_scales] = cells_args(&cache.values, Access::Write);
    device.launch(&Launch {
        kernel: Kernel { file: "place.gpu", entry: "place_qkv", defines: &[cells_define(spec.format)] },
        grid: [limit(tokens), limit((heads + 2 * spec.heads).div_ceil(WARPS)), 1],
        block: 32 * WARPS as u32,
        shared: limit(WARPS * room * size_of::<f32>()),
        overlap: true,
        args: &[
            Arg::change(&qkv),
            Arg::optional(q_norm),
            Arg::optional(k_norm),
            Arg::buffer(&rope.frequencies, Access::Read),
            Arg::buffer(&place.slots, Access::Read),
            Arg::buffer(&place.positions, Access::Read),
            Arg::buffer(&place.table, Access::Read),
            keys,
            key_scales,
            values,
            value_scales,
            device.flag(),
            Arg::params(&params),
        ],
    })
}
