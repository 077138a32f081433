//! The paged cache and attention.

use crate::error::Result;
use crate::gpu::Device;
use crate::kv::{KvCache, KvSpec, Placement};
use crate::ops::Attention;
use crate::tensor::{View, ViewMut};

/// [`crate::ops::Backend::alloc_kv`], checked.
pub(crate) fn alloc_kv(device: &Device, spec: KvSpec, blocks: usize) -> Result<KvCache> {
    let _ = (spec, blocks);
    Err(device.unsupported("alloc_kv"))
}

/// [`crate::ops::Backend::kv_write`], checked.
pub(crate) fn kv_write(
    device: &Device,
    cache: &mut KvCache,
    k: View<f32>,
    v: View<f32>,
    place: &Placement,
) -> Result<()> {
    let _ = (cache, k, v, place);
    Err(device.unsupported("kv_write"))
}

/// [`crate::ops::Backend::kv_copy`], checked.
pub(crate) fn kv_copy(device: &Device, cache: &mut KvCache, blocks: &[(u32, u32)]) -> Result<()> {
    let _ = (cache, blocks);
    Err(device.unsupported("kv_copy"))
}

/// [`crate::ops::Backend::attention`], checked.
pub(crate) fn attention(
    device: &Device,
    q: View<f32>,
    cache: &KvCache,
    place: &Placement,
    parameters: &Attention,
    out: ViewMut<f32>,
) -> Result<()> {
    let _ = (q, cache, place, parameters, out);
    Err(device.unsupported("attention"))
}
