//! Views and buffers as slices. The checked arguments of a CPU operation are in host memory.

use super::out::OutRows;
use gristmill_kernels::error::{Error, Result};
use gristmill_kernels::tensor::{Buffer, RowLayout, View, ViewMut};

/// The rows of a view.
#[derive(Clone, Copy)]
pub(super) struct HostRows<'a, T> {
    values: &'a [T],
    layout: RowLayout,
}

impl<'a, T> HostRows<'a, T> {
    pub(super) fn row(&self, row: usize) -> &'a [T] {
        &self.values[self.layout.row(row)]
    }
}

fn foreign(op: &'static str) -> Error {
    Error::ForeignLayout { op, what: "a buffer" }
}

pub(super) fn rows<'a, T: Copy>(op: &'static str, view: View<'a, T>) -> Result<HostRows<'a, T>> {
    let (values, layout) = view.as_host().ok_or(foreign(op))?;
    Ok(HostRows { values, layout })
}

pub(super) fn rows_mut<'a, T: Copy>(op: &'static str, view: &'a mut ViewMut<T>) -> Result<OutRows<'a, T>> {
    OutRows::new(view).ok_or(foreign(op))
}

pub(super) fn slice<'a, T: Copy>(op: &'static str, buffer: &'a Buffer<T>) -> Result<&'a [T]> {
    buffer.as_host().ok_or(foreign(op))
}

/// Optional biases of gate and up projections.
pub(super) fn pair<'a>(op: &'static str, bias: Option<[&'a Buffer<f32>; 2]>) -> Result<Option<[&'a [f32]; 2]>> {
    let Some([gate, up]) = bias else { return Ok(None) };
    Ok(Some([slice(op, gate)?, slice(op, up)?]))
}
