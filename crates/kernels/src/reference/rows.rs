//! Rows of views in host memory.

use crate::error::{Error, Result};
use crate::tensor::{DeviceId, RowLayout, View, ViewMut};

/// The rows of a view.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a, T> {
    values: &'a [T],
    layout: RowLayout,
    pub(super) len: usize,
}

impl<'a, T: Copy> Rows<'a, T> {
    pub(super) fn new(op: &'static str, view: View<'a, T>) -> Result<Self> {
        let found = view.device();
        let (values, layout) = view.as_host().ok_or(Error::ForeignBuffer { op, expected: DeviceId::Cpu, found })?;
        Ok(Self { values, layout, len: view.rows() })
    }

    pub(super) fn row(&self, row: usize) -> &'a [T] {
        &self.values[self.layout.row(row)]
    }

    pub(super) fn iter(self) -> impl Iterator<Item = &'a [T]> {
        (0..self.len).map(move |i| self.row(i))
    }

    /// All elements, row after row.
    pub(super) fn elements(self) -> impl Iterator<Item = T> + 'a
    where
        T: 'a,
    {
        self.iter().flatten().copied()
    }
}

/// The rows of a view, for writing.
pub(super) struct RowsMut<'a, T> {
    values: &'a mut [T],
    layout: RowLayout,
    pub(super) len: usize,
}

impl<'a, T: Copy> RowsMut<'a, T> {
    pub(super) fn new(op: &'static str, view: &'a mut ViewMut<T>) -> Result<Self> {
        let (found, len) = (view.device(), view.rows());
        let (values, layout) = view.as_host_mut().ok_or(Error::ForeignBuffer { op, expected: DeviceId::Cpu, found })?;
        Ok(Self { values, layout, len })
    }

    pub(super) fn row(&mut self, row: usize) -> &mut [T] {
        &mut self.values[self.layout.row(row)]
    }

    /// Calls `f` with every row and its index.
    pub(super) fn each(&mut self, mut f: impl FnMut(usize, &mut [T])) {
        (0..self.len).for_each(|i| f(i, self.row(i)));
    }
}
