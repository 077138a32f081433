//! Embeddings and dense matrix operations.

use super::{at_least, column, columns_of, dense, elements, homes, ids, norm_act, require, role, vector};
use crate::act::{Act, Precision};
use crate::error::{Result, expect};
use crate::ops::{Activation, Norm};
use crate::tensor::{Buffer, DeviceId, View, ViewMut};
use crate::weight::{Role, Weight};

/// [`crate::ops::Backend::embed`].
pub(crate) fn embed(device: DeviceId, table: &Weight, rows: &View<u32>, out: &ViewMut<f32>) -> Result<()> {
    let op = "embed";
    homes(op, device, &[table.device(), out.device()])?;
    role(op, table, Role::Table)?;
    column(op, "number of row ids", device, rows, out.rows())?;
    columns_of(op, "columns of the output", out, table.cols())?;
    ids(op, "row", rows, table.rows(), false)
}

/// [`crate::ops::Backend::prepare_activations`].
pub(crate) fn prepare_activations(device: DeviceId, x: &View<f32>, act: &Act) -> Result<()> {
    let op = "prepare_activations";
    homes(op, device, &[x.device(), act.device()])?;
    let needed = elements("activations", &[x.rows(), x.cols()])?;
    at_least(op, "room in the activations", act.exact.len(), needed)?;
    match act.precision {
        Precision::Exact => Ok(()),
        Precision::Fast => {
            // A backend may do without one of them or both.
            let needed = elements("activations", &[x.rows(), x.cols().div_ceil(32)])?;
            let (int8, bf16) = (act.int8.len(), act.bf16.len() / 16);
            [int8, bf16]
                .into_iter()
                .filter(|&blocks| blocks > 0)
                .try_for_each(|blocks| at_least(op, "blocks in the activations", blocks, needed))
        }
    }
}

/// What [`matmul`] and [`gate_up`] share: one dense weight, and an output row for each row of activations.
fn product(op: &'static str, device: DeviceId, w: &Weight, wanted: Role, x: &Act, y: &ViewMut<f32>) -> Result<()> {
    homes(op, device, &[w.device(), x.device(), y.device()])?;
    role(op, w, wanted)?;
    dense(op, w)?;
    expect(op, "rows of the output", y.rows(), x.rows())?;
    expect(op, "columns of the activations", x.cols(), w.cols())?;
    columns_of(op, "columns of the output", y, w.rows())
}

/// [`crate::ops::Backend::matmul`].
pub(crate) fn matmul(
    device: DeviceId,
    w: &Weight,
    x: &Act,
    bias: Option<&Buffer<f32>>,
    y: &ViewMut<f32>,
) -> Result<()> {
    let op = "matmul";
    product(op, device, w, Role::Matrix, x, y)?;
    bias.map_or(Ok(()), |b| vector(op, "length of the bias", device, b, w.rows()))
}

/// [`crate::ops::Backend::norm_matmul`].
pub(crate) fn norm_matmul(
    device: DeviceId,
    norm: &Norm,
    normed: &ViewMut<f32>,
    act: &mut Act,
    other: Option<&Act>,
    w: &Weight,
    bias: Option<&Buffer<f32>>,
    y: &ViewMut<f32>,
) -> Result<()> {
    norm_act(device, norm, normed, &[&mut *act])?;
    other.map_or(Ok(()), |other| prepare_activations(device, &normed.as_view(), other))?;
    // The product's check looks at activations that are filled.
    let before = (act.rows, act.cols);
    (act.rows, act.cols) = (norm.x.rows(), norm.x.cols());
    let checked = matmul(device, w, act, bias, y);
    (act.rows, act.cols) = before;
    checked
}

/// [`crate::ops::Backend::matmul_rows`].
pub(crate) fn matmul_rows(device: DeviceId, w: &Weight, x: &Act, rows: &View<u32>, y: &ViewMut<f32>) -> Result<()> {
    let op = "matmul_rows";
    homes(op, device, &[w.device(), x.device(), y.device()])?;
    role(op, w, Role::Matrix)?;
    dense(op, w)?;
    column(op, "number of row ids", device, rows, y.rows())?;
    expect(op, "columns of the activations", x.cols(), w.cols())?;
    columns_of(op, "columns of the output", y, w.rows())?;
    ids(op, "row", rows, x.rows(), false)
}

/// [`crate::ops::Backend::gate_up`].
pub(crate) fn gate_up(
    device: DeviceId,
    w: &Weight,
    x: &Act,
    bias: Option<[&Buffer<f32>; 2]>,
    h: &ViewMut<f32>,
) -> Result<()> {
    let op = "gate_up";
    product(op, device, w, Role::GateUp, x, h)?;
    bias.into_iter().flatten().try_for_each(|b| vector(op, "length of a bias", device, b, w.rows()))
}

/// The parameters of an activation, for [`gate_up`] and [`moe_gate_up`].
pub(crate) fn activation(op: &'static str, activation: Activation) -> Result<()> {
    let Activation::ClampedSwiGlu { alpha, limit } = activation else { return Ok(()) };
    require(alpha.is_finite(), op, "alpha", alpha, "must be finite")?;
    require(limit > 0.0, op, "limit", limit, "must be above 0")
}
