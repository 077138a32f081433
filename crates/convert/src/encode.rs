//! Streams tensors from the checkpoint into the file, some rows at a time.

use std::io::Write;

use gristmill_kernels::format::Format;

use super::checkpoint::Checkpoint;
use super::rows::{RowOrder, RowPlan, Stored};
use super::tensors::{OutputTensor, Source};
use crate::quantize::{EncodeError, PIECE, PieceWriter};

/// Elements that are whole blocks of every format.
const BLOCK: usize = 256;

/// Converts and writes one tensor after the other.
pub(super) struct Encoder<'a, W> {
    checkpoint: &'a Checkpoint,
    out: PieceWriter<'a, W>,
    /// Rows in their new order.
    gathered: Vec<u8>,
}

impl<'a, W: Write> Encoder<'a, W> {
    pub(super) fn new(checkpoint: &'a Checkpoint, out: PieceWriter<'a, W>) -> Self {
        Self { checkpoint, out, gathered: Vec::new() }
    }

    /// Ends the file.
    pub(super) fn finish(self) -> Result<(), EncodeError> {
        self.out.finish()
    }

    /// Writes the tensor that is due.
    pub(super) fn write(&mut self, tensor: &OutputTensor) -> Result<(), EncodeError> {
        match &tensor.source {
            Source::Values(values) => self.out.write(Format::F32, bytemuck::cast_slice(values)),
            Source::Tensors { parts, format, rows } => parts.iter().try_for_each(|part| {
                match part {
                    Stored::Rows(data) if rows.order == RowOrder::Same => {
                        self.out.write(*format, self.checkpoint.data(data))?;
                    }
                    part => self.gather(part, rows, *format)?,
                }
                part.done(self.checkpoint);
                Ok(())
            }),
        }
    }

    fn gather(&mut self, part: &Stored, rows: &RowPlan, format: Format) -> Result<(), EncodeError> {
        // Rows of one element, those of biases, are whole blocks only together.
        let at_once = (PIECE / rows.columns.max(1)).max(1);
        // So are parts of rows.
        let at_once = if at_once > BLOCK { at_once / BLOCK * BLOCK } else { at_once };
        for first in (0..rows.count).step_by(at_once) {
            let some = first..rows.count.min(first + at_once);
            part.gather(self.checkpoint, rows, some, format, &mut self.gathered);
            self.out.write(format, &self.gathered)?;
        }
        Ok(())
    }
}
