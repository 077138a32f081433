//! What every backend refuses: one function per operation, called before anything is written.
//!
//! Each takes the operation's arguments. A backend that calls it may index without further thought: after `Ok` all
//! dimensions agree, all ids are in range and every buffer is the device's own.

mod attention;
mod experts;
mod matrix;
mod memory;
mod rows;

pub(crate) use attention::*;
pub(crate) use experts::*;
pub(crate) use matrix::*;
pub(crate) use memory::*;
pub(crate) use rows::*;

use crate::error::{Error, Result, expect};
use crate::tensor::{Buffer, DeviceId, View, ViewMut};
use crate::weight::{Role, Weight};

/// Experts that a router can choose from.
pub(crate) const MAX_EXPERTS: usize = 1024;

/// The padding id: a pair without an expert, a token without a sequence.
pub(crate) const PADDING: u32 = u32::MAX;

fn home(op: &'static str, expected: DeviceId, found: DeviceId) -> Result<()> {
    if found == expected { Ok(()) } else { Err(Error::ForeignBuffer { op, expected, found }) }
}

fn homes(op: &'static str, expected: DeviceId, found: &[DeviceId]) -> Result<()> {
    found.iter().try_for_each(|&found| home(op, expected, found))
}

fn range<T>(op: &'static str, what: &'static str, found: impl std::fmt::Display, rule: &'static str) -> Result<T> {
    Err(Error::Range { op, what, found: found.to_string(), rule })
}

pub(crate) fn require(
    holds: bool,
    op: &'static str,
    what: &'static str,
    found: impl std::fmt::Display,
    rule: &'static str,
) -> Result<()> {
    if holds { Ok(()) } else { range(op, what, found, rule) }
}

fn id(op: &'static str, what: &'static str, id: u32, index: usize, limit: usize) -> Result<()> {
    if (id as usize) < limit { Ok(()) } else { Err(Error::Id { op, what, id, index, limit }) }
}

/// A buffer that must hold at least this much.
fn at_least(op: &'static str, what: &'static str, found: usize, needed: usize) -> Result<()> {
    if found >= needed { Ok(()) } else { Err(Error::Shape { op, what, found, expected: needed }) }
}

/// Elements of a `rows` × `cols` array, or an [`Error::OutOfMemory`] if no machine can hold it.
pub(crate) fn elements(what: &'static str, dims: &[usize]) -> Result<usize> {
    // A product of which one factor is 0 is 0, whatever the others.
    if dims.contains(&0) {
        return Ok(0);
    }
    let product = dims.iter().try_fold(1_usize, |n, &d| n.checked_mul(d));
    product.filter(|&n| n <= isize::MAX as usize).ok_or(Error::OutOfMemory { what, bytes: usize::MAX })
}

fn role(op: &'static str, weight: &Weight, role: Role) -> Result<()> {
    let rule = match role {
        Role::Matrix => "prepare it as Role::Matrix",
        Role::GateUp => "prepare it as Role::GateUp",
        Role::Table => "prepare it as Role::Table",
        Role::Tied => "prepare it as Role::Tied",
    };
    require(weight.role().serves(role), op, "role of the weight", format_args!("{:?}", weight.role()), rule)
}

fn dense(op: &'static str, weight: &Weight) -> Result<()> {
    require(weight.experts() == 1, op, "experts", weight.experts(), "a weight with experts needs the moe_ operations")
}

/// A column of `rows` numbers on the device.
fn column<T: Copy>(op: &'static str, what: &'static str, device: DeviceId, view: &View<T>, rows: usize) -> Result<()> {
    home(op, device, view.device())?;
    expect(op, what, view.rows(), rows)?;
    // A view without rows has no columns to speak of.
    if rows == 0 { Ok(()) } else { expect(op, "columns of a list", view.cols(), 1) }
}

fn ids(op: &'static str, what: &'static str, view: &View<u32>, limit: usize, padding: bool) -> Result<()> {
    let Some((values, shape)) = view.as_host() else { return Ok(()) };
    for row in 0..view.rows() {
        for (col, &value) in values[shape.row(row)].iter().enumerate() {
            if !(padding && value == PADDING) {
                id(op, what, value, row * view.cols() + col, limit)?;
            }
        }
    }
    Ok(())
}

fn columns_of<T: Copy>(op: &'static str, what: &'static str, view: &ViewMut<T>, cols: usize) -> Result<()> {
    if view.rows() == 0 { Ok(()) } else { expect(op, what, view.cols(), cols) }
}

fn vector(op: &'static str, what: &'static str, device: DeviceId, v: &Buffer<f32>, len: usize) -> Result<()> {
    home(op, device, v.device())?;
    expect(op, what, v.len(), len)
}
