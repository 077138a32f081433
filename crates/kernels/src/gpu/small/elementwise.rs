//! Sums and products, element by element.

use crate::error::Result;
use crate::gpu::Device;
use crate::tensor::{Buffer, View, ViewMut};

/// [`crate::ops::Backend::add`], checked.
pub(crate) fn add(device: &Device, x: View<f32>, scale: f32, y: ViewMut<f32>) -> Result<()> {
    let _ = (x, scale, y);
    Err(device.unsupported("add"))
}

/// [`crate::ops::Backend::add_gated`], checked.
pub(crate) fn add_gated(device: &Device, x: View<f32>, gate: View<f32>, y: ViewMut<f32>) -> Result<()> {
    let _ = (x, gate, y);
    Err(device.unsupported("add_gated"))
}

/// [`crate::ops::Backend::add_bias`], checked.
pub(crate) fn add_bias(device: &Device, bias: &Buffer<f32>, y: ViewMut<f32>) -> Result<()> {
    let _ = (bias, y);
    Err(device.unsupported("add_bias"))
}

/// [`crate::ops::Backend::scale`], checked.
pub(crate) fn scale(device: &Device, scale: f32, y: ViewMut<f32>) -> Result<()> {
    let _ = (scale, y);
    Err(device.unsupported("scale"))
}

/// [`crate::ops::Backend::moe_combine`], checked.
pub(crate) fn moe_combine(device: &Device, out: View<f32>, weights: View<f32>, y: ViewMut<f32>) -> Result<()> {
    let _ = (out, weights, y);
    Err(device.unsupported("moe_combine"))
}
