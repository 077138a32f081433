//! Tokens from logits.

use crate::error::Result;
use crate::gpu::Device;
use crate::ops::Sampling;
use crate::tensor::{View, ViewMut};

/// [`crate::ops::Backend::argmax`], checked.
pub(crate) fn argmax(device: &Device, x: View<f32>, out: ViewMut<u32>) -> Result<()> {
    let _ = (x, out);
    Err(device.unsupported("argmax"))
}

/// [`crate::ops::Backend::sample`], checked.
pub(crate) fn sample(device: &Device, logits: ViewMut<f32>, parameters: &[Sampling], out: ViewMut<u32>) -> Result<()> {
    let _ = (logits, parameters, out);
    Err(device.unsupported("sample"))
}
