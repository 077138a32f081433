//! Streams tensors from the checkpoint into the file, some rows at a time.

use std::io::Write;
use std::ops::ControlFlow;

use gristmill_kernels::cpu::Transcoder;
use gristmill_kernels::format::Format;

use super::checkpoint::Checkpoint;
use super::error::ConvertError;
use super::safetensors::Tensor;
use super::tensors::{Made, RowOrder, Source};
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
            Source::Tensors { parts, dtype, order } => parts.iter().try_for_each(|part| {
                match *order {
                    RowOrder::Same => {
                        let mut pieces = self.checkpoint.data(part).chunks(PIECE * dtype.block_bytes());
                        pieces.try_for_each(|piece| self.piece(&tensor.name, *dtype, piece, to, step))?;
                    }
                    order => self.reordered(&tensor.name, part, order, *dtype, to, step)?,
                }
                self.checkpoint.done(part);
                Ok(())
            }),
        }
    }

    fn reordered(
        &mut self,
        name: &str,
        part: &Tensor,
        order: RowOrder,
        dtype: Format,
        to: Format,
        step: &mut Step,
    ) -> Result<(), ConvertError> {
        let data = self.checkpoint.data(part);
        let rows = part.shape.first().map_or(1, |&rows| rows as usize);
        let row_bytes = data.len() / rows.max(1);
        let at_once = (PIECE * dtype.block_bytes() / row_bytes.max(1)).max(1);
        for first in (0..rows).step_by(at_once) {
            let mut gathered = std::mem::take(&mut self.gathered);
            gathered.clear();
            for row in first..rows.min(first + at_once) {
                gathered.extend_from_slice(&data[order.source(row) * row_bytes..][..row_bytes]);
            }
            let written = self.piece(name, dtype, &gathered, to, step);
            self.gathered = gathered;
            written?;
        }
        Ok(())
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
