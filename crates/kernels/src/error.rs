//! Errors of operations.

use crate::format::Format;
use crate::tensor::DeviceId;

/// Why an operation did not run. Nothing was written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A view would leave its buffer.
    #[error(
        "a view of {rows} rows of {cols} elements, stride {stride}, from element {offset} does not fit a buffer of \
         {len}"
    )]
    View {
        /// First element.
        offset: usize,
        /// Rows asked for.
        rows: usize,
        /// Elements in a row.
        cols: usize,
        /// Elements from one row to the next.
        stride: usize,
        /// Elements in the buffer.
        len: usize,
    },
    /// A dimension is not what the operation needs.
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
        /// The least size that is enough.
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
        /// The kind of thing that the id names.
        what: &'static str,
        /// The id.
        id: u32,
        /// Where it stands.
        index: usize,
        /// The number of things that ids name.
        limit: usize,
    },
    /// A buffer, weight or cache of another device was given.
    #[error("{op}: buffer is on {found}, the operation runs on {expected}")]
    ForeignBuffer {
        /// The operation.
        op: &'static str,
        /// The device that runs the operation.
        expected: DeviceId,
        /// The device that the buffer belongs to.
        found: DeviceId,
    },
    /// A weight, activations or a cache of another backend of the same device was given.
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
        /// Bytes given.
        found: usize,
    },
    /// An allocation failed.
    #[error("cannot allocate {bytes} bytes for {what}; use a smaller context, batch or model")]
    OutOfMemory {
        /// The purpose of the memory.
        what: &'static str,
        /// How much.
        bytes: usize,
    },
    /// This CPU lacks the requested level.
    #[error("this CPU has no {0}; levels are named by `gristmill --version`")]
    Level(&'static str),
    /// A GPU, its driver or its compiler refused.
    #[error("{device}: {what}: {reason}")]
    Device {
        /// Which device.
        device: DeviceId,
        /// The action that was refused.
        what: String,
        /// The device's message, and what can be done about it.
        reason: String,
    },
    /// A number of threads that cannot be started.
    #[error("cannot start {threads} threads: {reason}")]
    Threads {
        /// Threads asked for.
        threads: usize,
        /// Why not.
        reason: String,
    },
}

/// The result of an operation.
pub type Result<T> = std::result::Result<T, Error>;
