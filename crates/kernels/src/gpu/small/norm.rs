//! Norms.

use crate::error::Result;
use crate::gpu::Device;
use crate::tensor::{Buffer, View, ViewMut};

/// [`crate::ops::Backend::rms_norm`], checked.
pub(crate) fn rms_norm(device: &Device, x: View<f32>, weight: &Buffer<f32>, eps: f32, out: ViewMut<f32>) -> Result<()> {
    let _ = (x, weight, eps, out);
    Err(device.unsupported("rms_norm"))
}

/// [`crate::ops::Backend::layer_norm`], checked.
pub(crate) fn layer_norm(
    device: &Device,
    x: View<f32>,
    weight: &Buffer<f32>,
    bias: &Buffer<f32>,
    eps: f32,
    out: ViewMut<f32>,
) -> Result<()> {
    let _ = (x, weight, bias, eps, out);
    Err(device.unsupported("layer_norm"))
}

/// [`crate::ops::Backend::qk_norm`], checked.
pub(crate) fn qk_norm(device: &Device, x: ViewMut<f32>, weight: &Buffer<f32>, eps: f32) -> Result<()> {
    let _ = (x, weight, eps);
    Err(device.unsupported("qk_norm"))
}
