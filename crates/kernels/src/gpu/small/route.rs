//! Routing and grouping.

use crate::error::Result;
use crate::gpu::Device;
use crate::ops::{Groups, Routing, SelectionBias};
use crate::tensor::{View, ViewMut};

/// [`crate::ops::Backend::route`], checked.
pub(crate) fn route(
    device: &Device,
    logits: View<f32>,
    routing: &Routing,
    bias: SelectionBias,
    ids: ViewMut<u32>,
    weights: ViewMut<f32>,
) -> Result<()> {
    let _ = (logits, routing, bias, ids, weights);
    Err(device.unsupported("route"))
}

/// [`crate::ops::Backend::group_by_expert`], checked.
pub(crate) fn group_by_expert(device: &Device, ids: View<u32>, experts: usize, groups: &mut Groups) -> Result<()> {
    let _ = (ids, experts, groups);
    Err(device.unsupported("group_by_expert"))
}
