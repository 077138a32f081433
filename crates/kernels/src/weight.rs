//! Tensors as they come from a file, and weights as a backend keeps them.
//!
//! # Format is not layout
//!
//! A format names the planes of its block (codes, scales, minima). A layout permutes planes without their meaning, and
//! keeps their size. Only `Backend::prepare` converts a format to a layout. On a CPU, embedding tables stay in the
//! mapped file. *One prepared copy serves products with few and with many rows.*

use crate::error::{Error, Result};
use crate::format::Format;
use crate::storage::Storage;
use crate::tensor::{DeviceId, SharedBytes};
use std::any::Any;

/// A weight tensor in its file format: `experts` matrices of `rows` × `cols`, rows contiguous, experts outermost.
///
/// It computes y = x · Wᵀ: `cols` is the length of x, `rows` that of y.
#[derive(Clone, Debug)]
pub struct TensorView {
    /// The tensor's name, for errors.
    pub name: String,
    /// Encoding of the bytes.
    pub format: Format,
    /// Matrices: 1 for a dense weight.
    pub experts: usize,
    /// Outputs of one matrix.
    pub rows: usize,
    /// Inputs.
    pub cols: usize,
    /// The blocks.
    pub bytes: SharedBytes,
}

impl TensorView {
    /// A tensor of `[experts, rows, cols]`; 1 expert for a dense weight. [`crate::Backend::prepare`] checks it.
    pub fn new(
        name: impl Into<String>,
        format: Format,
        [experts, rows, cols]: [usize; 3],
        bytes: impl Into<SharedBytes>,
    ) -> Self {
        Self { name: name.into(), format, experts, rows, cols, bytes: bytes.into() }
    }

    /// The first matrices, at most all of them. `None` if the bytes are fewer than the shape says.
    pub fn first_experts(&self, count: usize) -> Option<Self> {
        let experts = count.min(self.experts);
        let matrix = self.format.row_bytes(self.cols)?.checked_mul(self.rows)?;
        let bytes = self.bytes.slice(0..matrix.checked_mul(experts)?)?;
        Some(Self { experts, bytes, ..self.clone() })
    }

    /// Format and dimensions.
    pub fn shape(&self) -> TensorShape {
        let Self { format, experts, rows, cols, .. } = *self;
        TensorShape { format, experts, rows, cols }
    }

    /// Fails unless the columns are whole blocks and the bytes are exactly what format and shape say.
    ///
    /// # Errors
    /// [`Error::Columns`] and [`Error::Bytes`].
    pub fn check(&self) -> Result<()> {
        if !self.cols.is_multiple_of(self.format.block_len()) {
            let what = self.name.clone();
            let cols = self.cols;
            let format = self.format;
            return Err(Error::Columns { what, cols, format, block: self.format.block_len() });
        }
        let expected = self
            .format
            .row_bytes(self.cols)
            .and_then(|row| row.checked_mul(self.rows))
            .and_then(|matrix| matrix.checked_mul(self.experts))
            .unwrap_or(0);
        let found = self.bytes.as_slice().len();
        if expected == found && self.rows > 0 && self.cols > 0 && self.experts > 0 {
            return Ok(());
        }
        let rows = self.rows.saturating_mul(self.experts);
        let cols = self.cols;
        let format = self.format;
        Err(Error::Bytes { what: self.name.clone(), rows, cols, format, expected, found })
    }
}

/// The purpose of a weight; a backend chooses its layout by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A matrix (or one per expert) that is multiplied with activations. Several tensors of the same `cols` and
    /// `experts` are joined: their outputs are side by side, in order.
    Matrix,
    /// Two tensors of one shape, gate and up, for the fused SwiGLU operations.
    GateUp,
    /// One tensor, up, in the place of gate and up, for activations without a gate.
    Up,
    /// A table of which rows are looked up by id. Where memory is the host's it stays in the file, without a copy.
    Table,
    /// [`Role::Table`] and [`Role::Matrix`] at once: an embedding table that is the output head too.
    Tied,
}

impl Role {
    /// Whether a weight that was prepared for this role serves another.
    pub(crate) fn serves(self, wanted: Role) -> bool {
        self == wanted || self == Role::Tied && matches!(wanted, Role::Table | Role::Matrix)
    }
}

/// Format and dimensions of a tensor, as in [`TensorView`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorShape {
    /// Encoding.
    pub format: Format,
    /// Matrices.
    pub experts: usize,
    /// Outputs of one matrix.
    pub rows: usize,
    /// Inputs.
    pub cols: usize,
}

impl TensorShape {
    /// Bytes of one matrix in the file. The columns must be whole blocks; an overflow gives [`u64::MAX`].
    pub fn matrix_bytes(&self) -> u64 {
        Self { experts: 1, ..*self }.file_bytes()
    }

    /// Bytes in the file. The columns must be whole blocks; an overflow gives [`u64::MAX`].
    pub fn file_bytes(&self) -> u64 {
        self.bytes(self.rows, self.format.row_bytes(self.cols))
    }

    /// Bytes of this number of rows in each matrix.
    pub fn bytes(&self, rows: usize, row_bytes: Option<usize>) -> u64 {
        let factors = [Some(self.experts), Some(rows), row_bytes].map(|n| n.and_then(|n| u64::try_from(n).ok()));
        factors.into_iter().try_fold(1_u64, |product, n| product.checked_mul(n?)).unwrap_or(u64::MAX)
    }
}

/// Bytes that a prepared tensor takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// In memory of its own.
    pub owned: u64,
    /// Read from the file's map while the model runs.
    pub mapped: u64,
}

/// Where a weight is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Location {
    /// The device's memory.
    #[default]
    Device,
    /// Host memory, where the CPU multiplies it for the device ([`crate::offload::Offload::host`]).
    Host,
    /// The model's file, from which the device reads matrices when they are chosen. It keeps some in its memory.
    File,
}

/// A weight in a backend's own layout, made by [`crate::Backend::prepare`].
#[derive(Debug)]
pub struct Weight {
    pub(crate) device: DeviceId,
    pub(crate) location: Location,
    pub(crate) role: Role,
    pub(crate) experts: usize,
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    pub(crate) prepared: Prepared,
}

/// Tensors in a backend's layout.
#[derive(Debug)]
pub struct Prepared {
    /// The weight in the backend's layout.
    pub storage: Storage,
    /// Bytes of memory that the layout takes in addition to the file's mapping.
    pub owned_bytes: usize,
}

impl Weight {
    /// The purpose that it was prepared for.
    pub fn role(&self) -> Role {
        self.role
    }
    /// Matrices: 1 for a dense weight.
    pub fn experts(&self) -> usize {
        self.experts
    }
    /// Outputs: of all joined tensors for [`Role::Matrix`], of one half for [`Role::GateUp`].
    pub fn rows(&self) -> usize {
        self.rows
    }
    /// Inputs.
    pub fn cols(&self) -> usize {
        self.cols
    }
    /// The device whose operations accept it.
    pub fn device(&self) -> DeviceId {
        self.device
    }
    /// Where it is stored.
    pub fn location(&self) -> Location {
        self.location
    }
    /// Bytes that preparing it took beyond the file's.
    pub fn owned_bytes(&self) -> usize {
        self.prepared.owned_bytes
    }
    /// The backend's storage.
    ///
    /// # Errors
    /// [`Error::ForeignLayout`] if another backend prepared it.
    pub fn storage<T: Any>(&self, op: &'static str) -> Result<&T> {
        self.prepared.storage.get().ok_or(Error::ForeignLayout { op, what: "a weight" })
    }
}
