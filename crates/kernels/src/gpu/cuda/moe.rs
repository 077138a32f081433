//! Matrix operations of experts.

use super::family::Family;
use super::matmul::{multiply, multiply_gated};
use super::product::Which;
use crate::act::Act;
use crate::error::Result;
use crate::gpu::Device;
use crate::gpu::finish::Finish;
use crate::ops::{Activation, Groups};
use crate::tensor::{Buffer, ViewMut};
use crate::weight::Weight;

/// Rows of a full tile of [`Groups`]: of few pairs, and of many, which `wgmma` multiplies.
pub(crate) const TILE_ROWS: usize = 64;
pub(crate) const LARGE_TILE_ROWS: usize = 128;
/// Pairs for each expert that are many. For 128 experts in Q4_K on an H200, gate and up of 768 × 2,048 take 195 µs with the
/// small tiles and 243 with the large ones for 32 pairs each, 506 and 390 for 128.
const MANY_PAIRS: usize = 48;

/// Rows of a full tile for so many pairs.
pub(crate) fn tile_rows(device: &Device, experts: usize, pairs: usize) -> usize {
    let wgmma = device.may(Family::Wgmma) && Family::Wgmma.runs_on(device.gpu().properties().architecture);
    if wgmma && pairs >= MANY_PAIRS * experts { LARGE_TILE_ROWS } else { TILE_ROWS }
}

/// [`crate::ops::Backend::moe_matmul`], checked.
pub(crate) fn moe_matmul(
    device: &Device,
    w: &Weight,
    x: &Act,
    groups: &Groups,
    top_k: usize,
    bias: Option<&Buffer<f32>>,
    out: ViewMut<f32>,
) -> Result<()> {
    // A row of X for each pair, or for each token.
    let share = if x.rows() == out.rows() { 1 } else { top_k };
    multiply(device, "moe_matmul", w, x, Which::Pairs { groups, share }, bias, Finish::Store, out)
}

/// [`crate::ops::Backend::moe_gate_up`], checked; and if `act` is given, that as activations, and H may be undefined.
pub(crate) fn moe_gate_up(
    device: &Device,
    w: &Weight,
    x: &Act,
    groups: &Groups,
    top_k: usize,
    bias: Option<[&Buffer<f32>; 2]>,
    activation: Activation,
    h: ViewMut<f32>,
    act: Option<&mut Act>,
) -> Result<()> {
    multiply_gated(device, "moe_gate_up", w, x, Which::Pairs { groups, share: top_k }, bias, activation, h, act)
}
