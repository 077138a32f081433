//! Dense matrix operations, and the preparation of weights.

use super::missing;
use crate::act::Act;
use crate::check;
use crate::error::Result;
use crate::gpu::Device;
use crate::gpu::layout::Rows;
use crate::ops::Activation;
use crate::tensor::{Buffer, View, ViewMut};
use crate::weight::{Role, Storage, TensorView, Weight};

/// [`crate::ops::Backend::prepare`]: each tensor stays by itself, as the file has it.
pub(super) fn prepare(device: &Device, tensors: &[TensorView], role: Role) -> Result<Weight> {
    let (experts, rows, cols) = check::prepare(tensors, role)?;
    let parts = tensors.iter().map(|tensor| Rows::of_file(device, tensor)).collect::<Result<_>>()?;
    Ok(Weight { device: device.id(), role, experts, rows, cols, storage: Storage::Rows(parts) })
}

/// [`crate::ops::Backend::matmul`], checked.
pub(super) fn matmul(
    device: &Device,
    _w: &Weight,
    _x: &Act,
    _bias: Option<&Buffer<f32>>,
    _y: ViewMut<f32>,
) -> Result<()> {
    Err(missing(device, "matmul"))
}

/// [`crate::ops::Backend::matmul_rows`], checked.
pub(super) fn matmul_rows(device: &Device, _w: &Weight, _x: &Act, _rows: View<u32>, _y: ViewMut<f32>) -> Result<()> {
    Err(missing(device, "matmul_rows"))
}

/// [`crate::ops::Backend::gate_up`], checked.
pub(super) fn gate_up(
    device: &Device,
    _w: &Weight,
    _x: &Act,
    _bias: Option<[&Buffer<f32>; 2]>,
    _activation: Activation,
    _h: ViewMut<f32>,
) -> Result<()> {
    Err(missing(device, "gate_up"))
}
