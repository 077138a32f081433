//! Attention over the paged cache.

use super::missing;
use crate::error::Result;
use crate::gpu::Device;
use crate::kv::{KvCache, Placement};
use crate::ops::Attention;
use crate::tensor::{View, ViewMut};

/// [`crate::ops::Backend::attention`], checked.
pub(super) fn attention(
    device: &Device,
    _q: View<f32>,
    _cache: &KvCache,
    _place: &Placement,
    _parameters: &Attention,
    _out: ViewMut<f32>,
) -> Result<()> {
    Err(missing(device, "attention"))
}
