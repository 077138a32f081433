//! The layout of prepared weights on a GPU.

use crate::format::Format;
use crate::gpu::Region;

/// One tensor, or several of one format, as planes of whole rows.
#[derive(Debug)]
pub struct Rows {
    /// Encoding.
    pub format: Format,
    /// Matrices.
    pub experts: usize,
    /// Outputs of one matrix.
    pub rows: usize,
    /// Inputs.
    pub cols: usize,
    memory: Region,
}

impl Rows {
    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.memory.bytes()
    }
}
