//! Matrix operations of experts.

use super::missing;
use crate::act::Act;
use crate::error::Result;
use crate::gpu::Device;
use crate::ops::{Activation, Groups};
use crate::tensor::{Buffer, ViewMut};
use crate::weight::Weight;

/// Rows of a full tile of [`Groups`].
pub(super) const TILE_ROWS: usize = 32;

/// [`crate::ops::Backend::moe_matmul`], checked.
pub(super) fn moe_matmul(
    device: &Device,
    _w: &Weight,
    _x: &Act,
    _groups: &Groups,
    _top_k: usize,
    _bias: Option<&Buffer<f32>>,
    _out: ViewMut<f32>,
) -> Result<()> {
    Err(missing(device, "moe_matmul"))
}

/// [`crate::ops::Backend::moe_gate_up`], checked.
pub(super) fn moe_gate_up(
    device: &Device,
    _w: &Weight,
    _x: &Act,
    _groups: &Groups,
    _top_k: usize,
    _bias: Option<[&Buffer<f32>; 2]>,
    _activation: Activation,
    _h: ViewMut<f32>,
) -> Result<()> {
    Err(missing(device, "moe_gate_up"))
}
