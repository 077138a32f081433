//! Rotary position embedding.

use crate::error::Result;
use crate::gpu::Device;
use crate::ops::Rope;
use crate::tensor::{View, ViewMut};

/// [`crate::ops::Backend::rope`], checked.
pub(crate) fn rope(
    device: &Device,
    x: ViewMut<f32>,
    head_width: usize,
    positions: View<u32>,
    rope: &Rope,
) -> Result<()> {
    let _ = (x, head_width, positions, rope);
    Err(device.unsupported("rope"))
}
