//! Activations as matrix operations read them, made once and shared by all weights that read them.

use crate::error::{Error, Result};
use crate::ops::check::{at_least, require};
use crate::storage::Storage;
use crate::tensor::DeviceId;
use crate::weight::Weight;
use std::any::Any;

/// How precisely activations are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Precision {
    /// f32: the exact path of every format, for tests and reference runs.
    Exact,
    /// The fastest form for the weight: int8 with a scale per 32 for quantised weights; bfloat16 for bfloat16 weights
    /// where the CPU multiplies such pairs, rounded to nearest, ties to even; f32 for other float weights.
    Fast,
}

/// Columns that share a scale, at [`Precision::Fast`].
pub const ACT_BLOCK: usize = 32;

/// 32 activations as int8, as devices exchange them: the words of [`Int8Block`](crate::simd::Int8Block) up to its scaled sums of
/// halves, and two that are ignored. All backends round the same numbers to the same words.
pub type Int8Words = [u32; 16];

/// A set of representations of activations, whose bits are the backend's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Representations(pub u32);

impl Representations {
    /// All that the backend has.
    pub const ALL: Self = Self(u32::MAX);

    /// Whether all of `others` are among these.
    pub fn contain(self, others: Self) -> bool {
        self.0 & others.0 == others.0
    }
}

/// A product that will read all rows of activations.
#[derive(Clone, Copy, Debug)]
pub struct ActReader<'a> {
    /// Its weight.
    pub weight: &'a Weight,
    /// Rows of the activations.
    pub rows: usize,
    /// With experts: the pairs that share a row.
    pub pairs_per_row: Option<usize>,
}

impl<'a> ActReader<'a> {
    /// A dense product of this number of rows.
    pub fn dense(weight: &'a Weight, rows: usize) -> Self {
        Self { weight, rows, pairs_per_row: None }
    }

    /// A product with experts, of this number of pairs for each row.
    pub fn experts(weight: &'a Weight, rows: usize, pairs_per_row: usize) -> Self {
        Self { weight, rows, pairs_per_row: Some(pairs_per_row) }
    }
}

/// Prepared activations: `rows` × `cols`, filled by [`crate::ops::PrepareActivations`] and by operations that prepare
/// their output.
///
/// A backend keeps all representations that a weight can need, because weights of several formats can share one input.
/// An operation fills all of them, or only those of the named readers ([`crate::Backend::name_readers`]).
#[derive(Debug)]
pub struct Act {
    device: DeviceId,
    precision: Precision,
    /// Elements and blocks of [`ACT_BLOCK`] columns that fit.
    capacity: [usize; 2],
    rows: usize,
    cols: usize,
    /// The representations of the readers that were named for these rows, and for the rows of the next operation.
    wanted: Option<Representations>,
    next_wanted: Option<Representations>,
    storage: Storage,
}

impl Act {
    /// For a backend: activations of up to `rows` × `cols`, with no row filled.
    pub fn new(device: DeviceId, precision: Precision, rows: usize, cols: usize, storage: Storage) -> Self {
        // The backend has allocated as much, so the products fit.
        let capacity = [rows.saturating_mul(cols), rows.saturating_mul(cols.div_ceil(ACT_BLOCK))];
        Self { device, precision, capacity, rows: 0, cols, wanted: None, next_wanted: None, storage }
    }

    /// Rows that are filled.
    pub fn rows(&self) -> usize {
        self.rows
    }
    /// Elements in a row.
    pub fn cols(&self) -> usize {
        self.cols
    }
    /// The device that owns it.
    pub fn device(&self) -> DeviceId {
        self.device
    }
    /// How precisely its rows are kept.
    pub fn precision(&self) -> Precision {
        self.precision
    }

    /// The representations that the readers want, if they were named before the rows were filled.
    pub fn wanted(&self) -> Option<Representations> {
        self.wanted
    }

    /// Fails unless a representation is filled.
    ///
    /// # Errors
    /// [`Error::Range`] if the readers that were named do not want it.
    pub fn expect_filled(&self, op: &'static str, representation: Representations) -> Result<()> {
        let filled = self.wanted.is_none_or(|wanted| wanted.contain(representation));
        let rule = "the readers that were named for them must include this product";
        require(filled, op, "representation of the activations", format!("{representation:?}"), rule)
    }

    /// The backend's storage.
    ///
    /// # Errors
    /// [`Error::ForeignLayout`] if another backend made it.
    pub fn storage<T: Any>(&self, op: &'static str) -> Result<&T> {
        self.storage.get().ok_or(Error::ForeignLayout { op, what: "activations" })
    }

    /// The backend's storage, for writing.
    ///
    /// # Errors
    /// As [`Act::storage`].
    pub fn storage_mut<T: Any>(&mut self, op: &'static str) -> Result<&mut T> {
        self.storage.get_mut().ok_or(Error::ForeignLayout { op, what: "activations" })
    }

    /// Fails unless that many rows and columns fit.
    pub(crate) fn check_capacity(&self, op: &'static str, rows: usize, cols: usize) -> Result<()> {
        let [elements, blocks] = self.capacity;
        at_least(op, "capacity of the activations", elements, rows.saturating_mul(cols))?;
        if self.precision == Precision::Exact {
            return Ok(());
        }
        let needed = rows.saturating_mul(cols.div_ceil(ACT_BLOCK));
        at_least(op, "capacity of the activations in blocks of 32", blocks, needed)
    }

    /// Records what the readers of the next operation's rows want.
    pub(crate) fn want(&mut self, representations: Representations) {
        self.next_wanted = Some(representations);
    }

    /// Records the rows and columns that a checked operation will fill.
    pub(crate) fn fill(&mut self, rows: usize, cols: usize) {
        (self.rows, self.cols) = (rows, cols);
        self.wanted = self.next_wanted.take();
    }
}
