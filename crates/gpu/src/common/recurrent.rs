//! Layers whose state has a fixed size: `kernels/causal_conv.gpu` and `kernels/delta_rule.gpu`.

use super::grid::{MOST_BLOCKS, MOST_BLOCKS_Y, count};
use super::kv::limit;
use super::{RowAlignment, aligned};
use crate::{Access, Arg, Device, Kernel, Launch, Unit};
use gristmill_kernels::error::Result;
use gristmill_kernels::ops::{
    CausalConv, DELTA_EPS, DELTA_TILE, DELTA_WIDTHS, DecayKind, DeltaRule, HeadMap, Operation,
};

/// Threads of a block.
const BLOCK: u32 = 128;
/// Rows of a convolution that a block has, as in the kernel.
const ROWS: usize = 32;
/// Values of a head that a block of the delta rule has at most, as in the kernel.
const VALUES: usize = 32;

/// The definitions of a width of heads, with a gate for each head or for each element of the key.
fn delta_defines(width: usize, channels: bool) -> [(&'static str, &'static str); 2] {
    let value = match width {
        16 => "16",
        32 => "32",
        64 => "64",
        128 => "128",
        _ => "256",
    };
    [("WIDTH", value), ("CHANNELS", if channels { "1" } else { "0" })]
}

/// The units of the delta rule: one for each width of heads and kind of gates.
pub(super) fn units() -> impl Iterator<Item = Unit> {
    let of_width = |width| [false, true].map(|channels| delta_defines(width, channels));
    DELTA_WIDTHS.into_iter().flat_map(of_width).map(|defines| Unit::new("delta_rule.gpu", &defines))
}

shared_struct! {
    pub(super) struct ConvParams {
        // Elements from one row to the next.
        x_stride: u64,
        out_stride: u64,
        state_stride: u64,
        channels: u32,
        taps: u32,
        rows: u32,
        slots: u32,
        silu: u32,
        has_bias: u32,
    }
}

on_device! { causal_conv(CausalConv), delta_rule(DeltaRule) }

pub(crate) fn causal_conv(device: &Device, call: CausalConv) -> Result<()> {
    const OP: &str = CausalConv::NAME;
    let taps = call.taps();
    let channels = call.x.cols();
    let rows = call.x.rows();
    let CausalConv { x, weight, bias, silu, state, runs, out } = call;
    if rows == 0 || channels == 0 || runs.count == 0 {
        return Ok(());
    }
    let params = ConvParams {
        x_stride: x.layout().stride() as u64,
        out_stride: out.layout().stride() as u64,
        state_stride: state.layout().stride() as u64,
        channels: count(OP, "channels", channels, MOST_BLOCKS)?,
        taps: limit(taps),
        rows: limit(rows),
        slots: limit(state.rows()),
        silu: silu.into(),
        has_bias: bias.is_some().into(),
    };
    let grid = [
        limit(channels.div_ceil(BLOCK as usize)),
        count(OP, "runs", runs.count, MOST_BLOCKS_Y)?,
        count(OP, "blocks of rows", rows.div_ceil(ROWS), MOST_BLOCKS_Y)?,
    ];
    let weight = Arg::buffer(weight, Access::Read);
    let bias = Arg::optional(bias);
    let runs = Arg::buffer(&runs.list, Access::Read);
    let (state, out) = (Arg::change(&state), Arg::write(&out));
    let args = [Arg::read(&x), weight, bias, runs, state, out, device.flag(), Arg::params(&params)];
    device.launch(&Launch::new(Kernel::plain("causal_conv.gpu", "causal_conv"), grid, BLOCK, &args))
}

shared_struct! {
    pub(super) struct DeltaParams {
        // Elements from one row to the next.
        qkv_stride: u64,
        beta_stride: u64,
        alpha_stride: u64,
        state_stride: u64,
        out_stride: u64,
        key_heads: u32,
        value_heads: u32,
        rows: u32,
        slots: u32,
        eps: f32,
        scale: f32,
        grouped: u32,
        // The bound of a gate's logarithm; 0: none.
        bound: f32,
        // States allow accesses of the values of a thread at once.
        aligned: u32,
        padding: u32,
    }
}

pub(crate) fn delta_rule(device: &Device, call: DeltaRule) -> Result<()> {
    const OP: &str = DeltaRule::NAME;
    let defines = delta_defines(call.heads.width, call.has_channel_gates());
    let DeltaRule { qkv, beta, alpha, decay, dt_bias, kind, heads, state, runs, out } = call;
    if qkv.rows() == 0 || runs.count == 0 {
        return Ok(());
    }
    let params = DeltaParams {
        qkv_stride: qkv.layout().stride() as u64,
        beta_stride: beta.layout().stride() as u64,
        alpha_stride: alpha.layout().stride() as u64,
        state_stride: state.layout().stride() as u64,
        out_stride: out.layout().stride() as u64,
        key_heads: limit(heads.keys),
        value_heads: limit(heads.values),
        rows: limit(qkv.rows()),
        slots: limit(state.rows()),
        eps: DELTA_EPS,
        scale: (1.0 / (heads.width as f64).sqrt()) as f32,
        grouped: (heads.map == HeadMap::Grouped).into(),
        bound: match kind {
            DecayKind::Softplus => 0.0,
            DecayKind::Bounded(bound) => bound,
        },
        aligned: aligned(DELTA_TILE, [RowAlignment::of_mut(&state)]),
        padding: 0,
    };
    let blocks = heads.values.saturating_mul(heads.width.div_ceil(VALUES));
    let grid = [count(OP, "heads", blocks, MOST_BLOCKS)?, count(OP, "runs", runs.count, MOST_BLOCKS_Y)?, 1];
    let vectors = [decay, dt_bias].map(|vector| Arg::buffer(vector, Access::Read));
    let [decay, dt_bias] = vectors;
    let (beta, alpha) = (Arg::read(&beta), Arg::read(&alpha));
    let runs = Arg::buffer(&runs.list, Access::Read);
    let (state, out) = (Arg::change(&state), Arg::write(&out));
    let params = Arg::params(&params);
    let args = [Arg::read(&qkv), beta, alpha, decay, dt_bias, runs, state, out, device.flag(), params];
    let kernel = Kernel { file: "delta_rule.gpu", entry: "delta_rule", defines: &defines };
    device.launch(&Launch::new(kernel, grid, BLOCK, &args))
}
