//! Dense matrix operations, embeddings, and the preparation of weights and activations.

use crate::act::Act;
use crate::error::Result;
use crate::gpu::Device;
use crate::ops::Activation;
use crate::tensor::{Buffer, View, ViewMut};
use crate::weight::{Role, TensorView, Weight};

/// [`crate::ops::Backend::prepare`], checked.
pub(crate) fn prepare(device: &Device, tensors: &[TensorView], role: Role) -> Result<Weight> {
    let _ = (tensors, role);
    Err(device.unsupported("prepare"))
}

/// [`crate::ops::Backend::embed`], checked.
pub(crate) fn embed(device: &Device, table: &Weight, rows: View<u32>, scale: f32, out: ViewMut<f32>) -> Result<()> {
    let _ = (table, rows, scale, out);
    Err(device.unsupported("embed"))
}

/// [`crate::ops::Backend::prepare_activations`], checked.
pub(crate) fn prepare_activations(device: &Device, x: View<f32>, act: &mut Act) -> Result<()> {
    let _ = (x, act);
    Err(device.unsupported("prepare_activations"))
}

/// [`crate::ops::Backend::matmul`], checked.
pub(crate) fn matmul(device: &Device, w: &Weight, x: &Act, bias: Option<&Buffer<f32>>, y: ViewMut<f32>) -> Result<()> {
    let _ = (w, x, bias, y);
    Err(device.unsupported("matmul"))
}

/// [`crate::ops::Backend::matmul_rows`], checked.
pub(crate) fn matmul_rows(device: &Device, w: &Weight, x: &Act, rows: View<u32>, y: ViewMut<f32>) -> Result<()> {
    let _ = (w, x, rows, y);
    Err(device.unsupported("matmul_rows"))
}

/// [`crate::ops::Backend::gate_up`], checked.
pub(crate) fn gate_up(
    device: &Device,
    w: &Weight,
    x: &Act,
    bias: Option<[&Buffer<f32>; 2]>,
    activation: Activation,
    h: ViewMut<f32>,
) -> Result<()> {
    let _ = (w, x, bias, activation, h);
    Err(device.unsupported("gate_up"))
}
