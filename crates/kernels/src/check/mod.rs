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

use crate::error::{Error, Result};
use crate::tensor::DeviceId;
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

fn require(
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

fn role(op: &'static str, weight: &Weight, role: Role, rule: &'static str) -> Result<()> {
    require(weight.role() == role, op, "role of the weight", format_args!("{:?}", weight.role()), rule)
}

const MATRIX: &str = "prepare it as Role::Matrix";
const GATE_UP: &str = "prepare it as Role::GateUp";
const DENSE: &str = "a weight with experts needs the moe_ operations";

fn dense(op: &'static str, weight: &Weight) -> Result<()> {
    require(weight.experts() == 1, op, "experts", weight.experts(), DENSE)
}
