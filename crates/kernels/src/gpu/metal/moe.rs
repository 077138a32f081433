//! Matrix operations of experts.

use super::matmul::{multiply, multiply_gated};
use crate::act::Act;
use crate::error::Result;
use crate::gpu::Device;
use crate::gpu::finish::Finish;
use crate::gpu::product::Which;
use crate::ops::{Activation, Groups};
use crate::tensor::{Buffer, ViewMut};
use crate::weight::Weight;

/// Rows of a full tile of [`Groups`]: what [`super::gemm`] multiplies at once.
pub(super) const TILE_ROWS: usize = super::gemm::TILE_ROWS;
/// Grids that grouping writes behind the number of tiles, for 1, 2, … groups of outputs, three words each: `GRIDS` in
/// `kernels/group.h`.
pub(super) const GRIDS: usize = 64;

/// [`crate::ops::Backend::moe_matmul`], checked.
pub(super) fn moe_matmul(
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

/// [`crate::ops::Backend::moe_gate_up`], checked.
pub(super) fn moe_gate_up(
    device: &Device,
    w: &Weight,
    x: &Act,
    groups: &Groups,
    top_k: usize,
    bias: Option<[&Buffer<f32>; 2]>,
    activation: Activation,
    h: ViewMut<f32>,
) -> Result<()> {
    multiply_gated(device, "moe_gate_up", w, x, Which::Pairs { groups, share: top_k }, bias, activation, h)
}
