//! Streams tensors from the checkpoint into the file, some rows at a time.

use std::io::Write;
use std::ops::Range;

use gristmill_kernels::format::{Format, nvfp4};

use super::checkpoint::Checkpoint;
use super::rows::{RowOrder, RowPlan, Stored};
use super::tensors::{OutputTensor, Source};
use crate::quantize::{EncodeError, PIECE, PieceWriter};

/// Elements that are whole blocks of every format.
const BLOCK: usize = 256;

/// Takes the bytes of a piece, and the writer.
type TakePiece<'a, 'b, W> = dyn FnMut(&mut PieceWriter<'a, W>, &[u8]) -> Result<(), EncodeError> + 'b;

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

    /// Writes the tensor that is due, and the tensor of its scales if it has some.
    pub(super) fn write(&mut self, tensor: &OutputTensor, scales: u64) -> Result<(), EncodeError> {
        match &tensor.source {
            Source::Values(values) => self.out.write(Format::F32, bytemuck::cast_slice(values)),
            Source::Tensors { parts, format: Format::NVFP4_SCALED, rows } if scales > 0 => {
                self.split(parts, rows, scales as usize)
            }
            Source::Tensors { parts, format, rows } if scales > 0 => self.scaled(parts, rows, *format, scales as usize),
            Source::Tensors { parts, format, rows } => parts.iter().try_for_each(|part| {
                match part {
                    Stored::Rows(data) if rows.order == RowOrder::Same => {
                        self.out.write(*format, self.checkpoint.data(data))?;
                    }
                    part => {
                        self.gather(part, rows, 0..rows.count, *format, &mut |out, data| out.write(*format, data))?
                    }
                }
                part.done(self.checkpoint);
                Ok(())
            }),
        }
    }

    /// Writes the matrices of all parts, each divided by its scale, and then the scales.
    fn scaled(&mut self, parts: &[Stored], rows: &RowPlan, format: Format, scales: usize) -> Result<(), EncodeError> {
        let matrices = (scales / parts.len().max(1)).max(1);
        let each = rows.count / matrices;
        let mut written = Vec::with_capacity(scales);
        for part in parts {
            for matrix in 0..matrices {
                let some = each * matrix..each * (matrix + 1);
                let mut largest = 0f32;
                self.gather(part, rows, some.clone(), format, &mut |out, data| {
                    largest = largest.max(out.largest(format, data));
                    Ok(())
                })?;
                let scale = nvfp4::outer_scale(largest);
                self.gather(part, rows, some, format, &mut |out, data| out.write_divided(format, data, scale))?;
                written.push(scale);
            }
            part.done(self.checkpoint);
        }
        self.out.write(Format::F32, bytemuck::cast_slice(&written))
    }

    /// Writes the blocks of matrices that have a scale each, and then the scales.
    fn split(&mut self, parts: &[Stored], rows: &RowPlan, count: usize) -> Result<(), EncodeError> {
        let mut scales = Vec::with_capacity(count);
        let mut blocks = Vec::new();
        let of_part = (count / parts.len().max(1)).max(1);
        for part in parts {
            let mut scale = 1f32;
            self.gather(part, rows, 0..rows.count, Format::NVFP4_SCALED, &mut |out, data| {
                blocks.clear();
                for block in data.chunks_exact(Format::NVFP4_SCALED.block_bytes()) {
                    let (of_matrix, block) = block.split_at(size_of::<f32>());
                    scale = of_matrix.try_into().map_or(scale, f32::from_le_bytes);
                    blocks.extend_from_slice(block);
                }
                out.write(Format::NVFP4, &blocks)
            })?;
            // All matrices of a stack have one scale.
            scales.extend(std::iter::repeat_n(scale, of_part));
            part.done(self.checkpoint);
        }
        self.out.write(Format::F32, bytemuck::cast_slice(&scales))
    }

    /// Gives `take` some rows of a part, a piece at a time.
    fn gather(
        &mut self,
        part: &Stored,
        rows: &RowPlan,
        some: Range<usize>,
        format: Format,
        take: &mut TakePiece<'a, '_, W>,
    ) -> Result<(), EncodeError> {
        // Rows of one element, those of biases, are whole blocks only together.
        let at_once = (PIECE / rows.columns.max(1)).max(1);
        // So are parts of rows.
        let at_once = if at_once > BLOCK { at_once / BLOCK * BLOCK } else { at_once };
        for first in some.clone().step_by(at_once) {
            let piece = first..some.end.min(first + at_once);
            part.gather(self.checkpoint, rows, piece, format, &mut self.gathered);
            take(&mut self.out, &self.gathered)?;
        }
        Ok(())
    }
}
