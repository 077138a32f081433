//! Matrices on a device inside a guard of poison: what an operation must not read, and must not touch.

use gristmill_kernels::Backend;
use gristmill_kernels::tensor::{Buffer, View, ViewMut};

/// A type of element, with the value that stands for "nobody wrote this".
pub trait Element: gristmill_kernels::tensor::Element {
    /// Bits of the poison. For floats a NaN with a payload.
    const POISON: u32;
    /// The element with these bits.
    fn of(bits: u32) -> Self;
    /// Its bits.
    fn bits(self) -> u32;
}

impl Element for f32 {
    const POISON: u32 = 0x7fc0_dead;
    fn of(bits: u32) -> Self {
        f32::from_bits(bits)
    }
    fn bits(self) -> u32 {
        self.to_bits()
    }
}

impl Element for u32 {
    const POISON: u32 = 0xdead_beef;
    fn of(bits: u32) -> Self {
        bits
    }
    fn bits(self) -> u32 {
        self
    }
}

/// Values in a buffer of their own size.
pub fn buffer<T: Element>(backend: &Backend, values: &[T]) -> Buffer<T> {
    let mut buffer = backend.alloc(values.len(), "a case").expect("alloc");
    backend.upload(values, &mut buffer).expect("upload");
    buffer
}

/// Poisoned elements around a matrix: columns at its left and right, rows below.
#[derive(Clone, Copy, Debug, Default)]
pub struct Guard {
    /// Columns at the left.
    pub left: usize,
    /// Columns at the right.
    pub right: usize,
    /// Rows below.
    pub below: usize,
}

impl Guard {
    /// A guard of odd sizes.
    pub const ODD: Guard = Guard { left: 3, right: 2, below: 1 };
}

/// A matrix in a guard.
#[derive(Debug)]
pub struct Guarded<T> {
    buffer: Buffer<T>,
    rows: usize,
    cols: usize,
    guard: Guard,
}

impl<T: Element> Guarded<T> {
    /// A matrix of these values, row after row.
    pub fn of(backend: &Backend, values: &[T], rows: usize, cols: usize, guard: Guard) -> Self {
        assert_eq!(values.len(), rows * cols, "a case with the wrong number of values");
        let stride = guard.left + cols + guard.right;
        let mut all = vec![T::of(T::POISON); (rows + guard.below) * stride];
        for row in 0..rows {
            all[row * stride + guard.left..][..cols].copy_from_slice(&values[row * cols..][..cols]);
        }
        Self { buffer: buffer(backend, &all), rows, cols, guard }
    }

    /// A matrix that nobody has written yet.
    pub fn poisoned(backend: &Backend, rows: usize, cols: usize, guard: Guard) -> Self {
        Self::of(backend, &vec![T::of(T::POISON); rows * cols], rows, cols, guard)
    }

    fn stride(&self) -> usize {
        self.guard.left + self.cols + self.guard.right
    }

    /// To read.
    pub fn view(&self) -> View<'_, T> {
        let view = self.buffer.view(self.rows, self.stride());
        view.and_then(|v| v.columns(self.guard.left..self.guard.left + self.cols)).expect("a view inside its guard")
    }

    /// To write.
    pub fn view_mut(&mut self) -> ViewMut<'_, T> {
        let left = self.guard.left;
        let cols = self.cols;
        let stride = self.stride();
        let view = self.buffer.view_mut(self.rows, stride);
        view.and_then(|v| v.columns(left..left + cols)).expect("a view inside its guard")
    }

    /// The matrix, after making sure that the guard is as it was.
    pub fn read(&self, backend: &Backend) -> Vec<T> {
        let mut all = vec![T::default(); self.buffer.len()];
        let view = self.buffer.view(1, all.len()).expect("a view of all");
        backend.download(view, &mut all).expect("download");
        let stride = self.stride();
        let mut inside = Vec::with_capacity(self.rows * self.cols);
        for (i, &value) in all.iter().enumerate() {
            let row = i / stride;
            let col = (i % stride).wrapping_sub(self.guard.left);
            if row < self.rows && col < self.cols {
                inside.push(value);
            } else {
                let is_kept = value.bits() == T::POISON || crate::dry::is_dry();
                assert!(is_kept, "element {i} outside the view was written (row {row}): {:x}", value.bits());
            }
        }
        inside
    }

    /// Fails unless nothing at all was written since [`Guarded::poisoned`].
    pub fn assert_untouched(&self, backend: &Backend, case: &str) {
        let written = self.read(backend).iter().filter(|v| v.bits() != T::POISON).count();
        assert!(written == 0 || crate::dry::is_dry(), "{case}: elements written by a call that was refused");
    }
}
