//! Matrix operations of experts.

use crate::act::Act;
use crate::error::Result;
use crate::gpu::Device;
use crate::ops::{Activation, Groups};
use crate::tensor::{Buffer, ViewMut};
use crate::weight::Weight;

/// Rows of a full tile of [`Groups`].
pub(crate) const TILE_ROWS: usize = 64;

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
    let _ = (w, x, groups, top_k, bias, out);
    Err(device.unsupported("moe_matmul"))
}

/// [`crate::ops::Backend::moe_gate_up`], checked.
pub(crate) fn moe_gate_up(
    device: &Device,
    w: &Weight,
    x: &Act,
    groups: &Groups,
    top_k: usize,
    bias: Option<[&Buffer<f32>; 2]>,
    activation: Activation,
    h: ViewMut<f32>,
) -> Result<()> {
    let _ = (w, x, groups, top_k, bias, activation, h);
    Err(device.unsupported("moe_gate_up"))
}
