//! Streams tensors from the checkpoint into the file, some rows at a time.

use std::io::Write;
use std::ops::ControlFlow;

use gristmill_kernels::cpu::Transcoder;
use gristmill_kernels::format::Format;

use super::checkpoint::Checkpoint;
use super::error::ConvertError;
use super::rows::{RowOrder, Rows, Stored};
use super::tensors::{Made, Source};
use crate::gguf::DataWriter;

/// Elements converted at a time: whole blocks of every format, at most 4 MiB, enough for many threads.
const PIECE: usize = 1 << 20;

/// Is told the bytes written, and may stop.
type Step<'a> = dyn FnMut(usize) -> ControlFlow<()> + 'a;

/// Converts and writes one tensor after the other.
pub(super) struct Encoder<'a, W> {
    checkpoint: &'a Checkpoint,
    transcoder: &'a Transcoder,
    out: DataWriter<W>,
    /// Rows in their new order, and blocks in their new format.
    gathered: Vec<u8>,
    encoded: Vec<u8>,
}

impl<'a, W: Write> Encoder<'a, W> {
    pub(super) fn new(checkpoint: &'a Checkpoint, transcoder: &'a Transcoder, out: DataWriter<W>) -> Self {
        Self { checkpoint, transcoder, out, gathered: Vec::new(), encoded: Vec::new() }
    }

    /// Ends the file.
    pub(super) fn finish(self) -> Result<(), ConvertError> {
        self.out.finish()?;
        Ok(())
    }

    /// Writes a tensor in this format.
    pub(super) fn write(&mut self, tensor: &Made, to: Format, step: &mut Step) -> Result<(), ConvertError> {
        match &tensor.source {
            Source::Values(values) => self.piece(&tensor.name, Format::F32, bytemuck::cast_slice(values), to, step),
            Source::Tensors { parts, format, rows } => parts.iter().try_for_each(|part| {
                match part {
                    Stored::Rows(data) if rows.order == RowOrder::Same => {
                        let mut pieces = self.checkpoint.data(data).chunks(PIECE * format.block_bytes());
                        pieces.try_for_each(|piece| self.piece(&tensor.name, *format, piece, to, step))?;
                    }
                    part => self.gathered(&tensor.name, part, rows, *format, to, step)?,
                }
                part.done(self.checkpoint);
                Ok(())
            }),
        }
    }

    fn gathered(
        &mut self,
        name: &str,
        part: &Stored,
        rows: &Rows,
        format: Format,
        to: Format,
        step: &mut Step,
    ) -> Result<(), ConvertError> {
        // Rows of one element, those of biases, are whole blocks only together.
        let at_once = (PIECE / rows.columns.max(1)).max(1);
        let mut gathered = std::mem::take(&mut self.gathered);
        let mut firsts = (0..rows.count).step_by(at_once);
        let written = firsts.try_for_each(|first| {
            part.gather(self.checkpoint, rows, first..rows.count.min(first + at_once), format, &mut gathered);
            self.piece(name, format, &gathered, to, step)
        });
        self.gathered = gathered;
        written
    }

    /// Converts and writes whole blocks.
    fn piece(
        &mut self,
        name: &str,
        from: Format,
        data: &[u8],
        to: Format,
        step: &mut Step,
    ) -> Result<(), ConvertError> {
        let blocks = if from == to {
            data
        } else {
            let elements = data.len() / from.block_bytes() * from.block_len();
            self.encoded.resize(elements / to.block_len() * to.block_bytes(), 0);
            let transcoded = self.transcoder.transcode(from, data, to, &mut self.encoded);
            transcoded.map_err(|source| ConvertError::Weights { name: name.to_owned(), source })?;
            &self.encoded
        };
        self.out.write_chunk(blocks)?;
        match step(blocks.len()) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(ConvertError::Stopped),
        }
    }
}
