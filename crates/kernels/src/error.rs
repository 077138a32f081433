//! Errors of operations.

use crate::format::Format;
use crate::tensor::DeviceId;

/// Why an operation did not run. Nothing was written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A view exceeds its buffer.
    #[error(
        "a view of {rows} rows of {cols} elements, stride {stride}, from element {offset} does not fit a buffer of \
         {len}"
    )]
    View {
        /// First element.
        offset: usize,
        /// Rows of the view.
        rows: usize,
        /// Elements in a row.
        cols: usize,
        /// Elements from one row to the next.
        stride: usize,
        /// Elements in the buffer.
        len: usize,
    },
    /// A dimension has another value than the operation needs.
    #[error("{op}: {what} is {found}, must be {expected}")]
    Shape {
        /// The operation.
        op: &'static str,
        /// The dimension.
        what: &'static str,
        /// Its value.
        found: usize,
        /// The value that it must have.
        expected: usize,
    },
    /// A buffer is smaller than the operation needs.
    #[error("{op}: {what} is {found}, must be at least {needed}")]
    TooSmall {
        /// The operation.
        op: &'static str,
        /// The dimension that is too small.
        what: &'static str,
        /// Its size.
        found: usize,
        /// The minimum size.
        needed: usize,
    },
    /// A parameter is outside its range.
    #[error("{op}: {what} is {found}; {rule}")]
    Range {
        /// The operation.
        op: &'static str,
        /// The parameter.
        what: &'static str,
        /// Its value.
        found: String,
        /// The rule that it breaks.
        rule: &'static str,
    },
    /// An id read from a buffer is out of range.
    #[error("{op}: {what} {id} at index {index} is not below {limit}")]
    Id {
        /// The operation.
        op: &'static str,
        /// What the id refers to.
        what: &'static str,
        /// The id.
        id: u32,
        /// Its index in the buffer.
        index: usize,
        /// The number of valid ids.
        limit: usize,
    },
    /// An argument belongs to another device.
    #[error("{op}: buffer is on {found}, the operation runs on {expected}")]
    ForeignBuffer {
        /// The operation.
        op: &'static str,
        /// The device that runs the operation.
        expected: DeviceId,
        /// The device that the buffer belongs to.
        found: DeviceId,
    },
    /// A weight, activations or a cache belongs to another backend of the same device.
    #[error("{op}: {what} has the layout of another backend; use the backend that made it")]
    ForeignLayout {
        /// The operation.
        op: &'static str,
        /// The object with that layout.
        what: &'static str,
    },
    /// The columns of a tensor are not whole blocks.
    #[error(
        "{what}: the columns of a tensor in {format} must be a multiple of {block} (found {cols}); use another format"
    )]
    Columns {
        /// The tensor.
        what: String,
        /// Columns.
        cols: usize,
        /// The format.
        format: Format,
        /// Columns of a block.
        block: usize,
    },
    /// Tensor bytes do not match format and shape.
    #[error("{what}: {rows} rows of {cols} {format} elements need {expected} bytes, not {found}")]
    Bytes {
        /// The tensor.
        what: String,
        /// Rows.
        rows: usize,
        /// Columns.
        cols: usize,
        /// The format.
        format: Format,
        /// Bytes needed (0 if the size overflows).
        expected: usize,
        /// Bytes of the tensor.
        found: usize,
    },
    /// An allocation failed.
    #[error("cannot allocate {bytes} bytes for {what}; use a smaller context, batch or model")]
    OutOfMemory {
        /// The purpose of the memory.
        what: &'static str,
        /// The size of the allocation.
        bytes: usize,
    },
    /// A device has too little memory for what its driver needs.
    #[error("{device}: {what}: out of memory; use a smaller context, batch or model, or less of its memory")]
    OutOfDeviceMemory {
        /// The device.
        device: DeviceId,
        /// The action that needed memory.
        what: String,
    },
    /// This CPU lacks the requested level.
    #[error("this CPU has no {0}; choose a level that it has")]
    Level(&'static str),
    /// A GPU, its driver or its compiler refused.
    #[error("{device}: {what}: {reason}")]
    Device {
        /// The device.
        device: DeviceId,
        /// The action that was refused.
        what: String,
        /// The device's message, and a remedy.
        reason: String,
    },
    /// A matrix that is read while the model runs cannot be read.
    #[error("{tensor}, expert {expert}: {reason}")]
    Read {
        /// The tensor.
        tensor: String,
        /// The matrix.
        expert: usize,
        /// The file, the cause and a remedy.
        reason: String,
    },
    /// Threads cannot be started.
    #[error("cannot start {threads} threads: {reason}")]
    Threads {
        /// The number of threads.
        threads: usize,
        /// The reason.
        reason: String,
    },
}

impl Error {
    /// Whether memory of a device or of the host was too little. The operation can succeed once memory is free.
    pub fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::OutOfMemory { .. } | Self::OutOfDeviceMemory { .. })
    }
}

/// The result of an operation.
pub type Result<T> = std::result::Result<T, Error>;
