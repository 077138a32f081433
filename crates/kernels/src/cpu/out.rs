//! Outputs that several threads write, each its own part.

use crate::tensor::{Shape, ViewMut};
use std::marker::PhantomData;
use std::ops::Range;

/// A slice that chunks of a job write in disjoint parts.
#[derive(Clone, Copy)]
pub(crate) struct Out<'a, T> {
    start: *mut T,
    len: usize,
    life: PhantomData<&'a mut [T]>,
}

// SAFETY: `part` asks its callers for disjoint parts, so this is a slice that is split among threads.
unsafe impl<T: Send> Sync for Out<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for Out<'_, T> {}

impl<'a, T> Out<'a, T> {
    pub(crate) fn new(slice: &'a mut [T]) -> Self {
        Self { start: slice.as_mut_ptr(), len: slice.len(), life: PhantomData }
    }

    /// A part of the slice. Panics if it does not lie inside.
    ///
    /// # Safety
    /// While the result lives, no one else may have a part that overlaps it.
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn part(&self, range: Range<usize>) -> &mut [T] {
        assert!(range.start <= range.end && range.end <= self.len, "part {range:?} of {}", self.len);
        // SAFETY: inside the slice by the assertion, exclusive by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(range.start), range.len()) }
    }
}

/// Rows of a matrix that chunks of a job write, each its own.
#[derive(Clone, Copy)]
pub(crate) struct OutRows<'a, T> {
    out: Out<'a, T>,
    pub(crate) shape: Shape,
}

impl<'a, T: Copy> OutRows<'a, T> {
    /// The rows of a view in host memory; backends check the device first.
    pub(crate) fn new(view: &'a mut ViewMut<'_, T>) -> Option<Self> {
        let (slice, shape) = view.as_host_mut()?;
        Some(Self { out: Out::new(slice), shape })
    }

    /// Columns of a row.
    ///
    /// # Safety
    /// While the result lives, no one else may have an overlapping part.
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn part(&self, row: usize, columns: Range<usize>) -> &mut [T] {
        let whole = self.shape.row(row);
        assert!(columns.end <= whole.len());
        // SAFETY: the caller's promise.
        unsafe { self.out.part(whole.start + columns.start..whole.start + columns.end) }
    }

    /// A row.
    ///
    /// # Safety
    /// As for [`OutRows::part`].
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn row(&self, row: usize) -> &mut [T] {
        // SAFETY: the caller's promise.
        unsafe { self.out.part(self.shape.row(row)) }
    }
}
