//! Which rows kernels can access by 16 bytes at a time.

use crate::device_api::region_of_view;
use gristmill_kernels::tensor::{RowLayout, View, ViewMut};

/// The alignment of rows: the address of the first, and where the others lie.
pub struct RowAlignment {
    address: u64,
    layout: RowLayout,
}

impl RowAlignment {
    /// The alignment of the rows of a view on a GPU.
    pub fn of<T: Copy>(view: &View<T>) -> Option<Self> {
        let (region, layout) = region_of_view(view)?;
        Some(Self { address: region.address() + (layout.span().start * size_of::<T>()) as u64, layout })
    }

    /// The same of a view that is written.
    pub fn of_mut<T: Copy>(view: &ViewMut<T>) -> Option<Self> {
        Self::of(&view.as_view())
    }

    /// Whether chunks of `width` 32-bit elements, side by side in each row, are whole 16-byte words.
    fn allows(&self, width: usize) -> bool {
        let rows = self.layout.rows() <= 1 || self.layout.stride().is_multiple_of(4);
        self.address.is_multiple_of(16) && rows && width.is_multiple_of(4)
    }
}

/// 1 if all rows allow accesses of 16 bytes, else 0.
pub fn aligned<const N: usize>(width: usize, rows: [Option<RowAlignment>; N]) -> u32 {
    rows.iter().all(|rows| rows.as_ref().is_some_and(|rows| rows.allows(width))).into()
}
