//! Checks that operations share, and their errors.

use crate::error::{Error, Result};
use crate::tensor::{Buffer, DeviceId, View, ViewMut};
use crate::weight::{Role, Weight};
use std::fmt::Display;

/// The maximum number of experts of a router.
pub const MAX_EXPERTS: usize = 1024;

/// The padding id: a pair without an expert, a token without a sequence, or a row of logits without a token.
pub const PADDING: u32 = u32::MAX;

/// Fails unless a dimension has the expected value.
pub(crate) fn expect(op: &'static str, what: &'static str, found: usize, expected: usize) -> Result<()> {
    if found == expected { Ok(()) } else { Err(Error::Shape { op, what, found, expected }) }
}

/// Fails unless a buffer is large enough.
pub(crate) fn at_least(op: &'static str, what: &'static str, found: usize, needed: usize) -> Result<()> {
    if found >= needed { Ok(()) } else { Err(Error::TooSmall { op, what, found, needed }) }
}

/// Fails unless a parameter satisfies a rule, which the error states.
pub fn require(
    holds: bool,
    op: &'static str,
    what: &'static str,
    found: impl Display,
    rule: &'static str,
) -> Result<()> {
    if holds { Ok(()) } else { Err(Error::Range { op, what, found: found.to_string(), rule }) }
}

/// Elements of an array of these dimensions, or an [`Error::OutOfMemory`] if no machine can hold it.
pub fn elements(what: &'static str, dims: &[usize]) -> Result<usize> {
    // A product with a factor of 0 is 0, so zero dimensions are checked first.
    if dims.contains(&0) {
        return Ok(0);
    }
    let product = dims.iter().try_fold(1_usize, |n, &d| n.checked_mul(d));
    product.filter(|&n| n <= isize::MAX as usize).ok_or(Error::OutOfMemory { what, bytes: usize::MAX })
}

/// Fails unless everything is on the device that runs the operation.
pub(crate) fn on_device(op: &'static str, expected: DeviceId, found: &[DeviceId]) -> Result<()> {
    match found.iter().find(|&&found| found != expected) {
        Some(&found) => Err(Error::ForeignBuffer { op, expected, found }),
        None => Ok(()),
    }
}

pub(super) fn id(op: &'static str, what: &'static str, id: u32, index: usize, limit: usize) -> Result<()> {
    if (id as usize) < limit { Ok(()) } else { Err(Error::Id { op, what, id, index, limit }) }
}

/// Fails unless all ids in host memory are below a limit, or padding where padding is allowed. On a GPU, kernels check
/// ids in device memory.
pub(super) fn ids(op: &'static str, what: &'static str, view: &View<u32>, limit: usize, padding: bool) -> Result<()> {
    let Some((values, layout)) = view.as_host() else { return Ok(()) };
    for row in 0..view.rows() {
        for (col, &value) in values[layout.row(row)].iter().enumerate() {
            if !(padding && value == PADDING) {
                id(op, what, value, row * view.cols() + col, limit)?;
            }
        }
    }
    Ok(())
}

/// Fails unless a weight was prepared for this role.
pub(super) fn role(op: &'static str, weight: &Weight, role: Role) -> Result<()> {
    let rule = match role {
        Role::Matrix => "prepare it as Role::Matrix",
        Role::GateUp => "prepare it as Role::GateUp",
        Role::Up => "prepare it as Role::Up",
        Role::Table => "prepare it as Role::Table",
        Role::Tied => "prepare it as Role::Tied",
    };
    require(weight.role().serves(role), op, "role of the weight", format_args!("{:?}", weight.role()), rule)
}

/// Fails if a weight has experts.
pub(super) fn dense(op: &'static str, weight: &Weight) -> Result<()> {
    require(weight.experts() == 1, op, "experts", weight.experts(), "a weight with experts needs the moe_ operations")
}

/// Fails unless a view is one column of `rows` numbers on the device.
pub(super) fn column<T: Copy>(
    op: &'static str,
    what: &'static str,
    device: DeviceId,
    view: &View<T>,
    rows: usize,
) -> Result<()> {
    on_device(op, device, &[view.device()])?;
    expect(op, what, view.rows(), rows)?;
    // Without rows, the number of columns has no meaning.
    if rows == 0 { Ok(()) } else { expect(op, "columns of a list", view.cols(), 1) }
}

/// Fails unless a matrix has this shape. Without rows, the number of columns has no meaning.
pub(super) fn shape<T: Copy>(
    op: &'static str,
    [rows_name, cols_name]: [&'static str; 2],
    view: &ViewMut<T>,
    rows: usize,
    cols: usize,
) -> Result<()> {
    expect(op, rows_name, view.rows(), rows)?;
    if rows == 0 { Ok(()) } else { expect(op, cols_name, view.cols(), cols) }
}

/// Names of an output's dimensions.
pub(super) const OUTPUT: [&str; 2] = ["rows of the output", "columns of the output"];

/// Fails unless a vector is on the device and has this length.
pub(super) fn vector(
    op: &'static str,
    what: &'static str,
    device: DeviceId,
    vector: &Buffer<f32>,
    len: usize,
) -> Result<()> {
    on_device(op, device, &[vector.device()])?;
    expect(op, what, vector.len(), len)
}

/// Checks several vectors by [`vector`].
pub(super) fn vectors<'a>(
    op: &'static str,
    what: &'static str,
    device: DeviceId,
    vectors: impl IntoIterator<Item = &'a Buffer<f32>>,
    len: usize,
) -> Result<()> {
    vectors.into_iter().try_for_each(|v| vector(op, what, device, v, len))
}
