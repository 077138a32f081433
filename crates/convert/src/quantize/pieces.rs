//! Streams tensors into a file in new formats, some elements at a time, so that memory does not grow with the model.

use std::io::Write;
use std::ops::ControlFlow;

use gristmill_files::gguf::{DataWriter, GgufWriter, Name, WriteError};
use gristmill_kernels::format::{Format, nvfp4};
use gristmill_model::Progress;
use gristmill_transcode::{TranscodeError, Transcoder};
use thiserror::Error;

use super::Planned;

/// Elements converted at once: whole blocks of every format, at most 4 MiB, enough for many threads.
pub(crate) const PIECE: usize = 1 << 20;

/// Is called with the bytes of tensors written, and can stop the run.
type Report<'a> = dyn FnMut(Progress) -> ControlFlow<()> + 'a;

/// Why tensors could not be written in their new formats.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// A value of a tensor cannot be written.
    #[error("tensor {}: {source}{}", Name(.name), advice(.source))]
    Weights {
        /// The tensor.
        name: String,
        /// Which value, and why.
        source: TranscodeError,
    },
    /// The caller's progress function asked to stop.
    #[error("stopped; nothing was written")]
    Stopped,
    /// The output cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// The remedy for a value that cannot be written.
fn advice(error: &TranscodeError) -> &'static str {
    match error {
        TranscodeError::NotFinite { .. } => "; the input is damaged or was badly converted, get the model again",
        TranscodeError::TooLarge { to: Format::BF16, .. } => "; choose F32 as the output type",
        TranscodeError::TooLarge { .. } => "; choose BF16 or F32 as the output type",
        _ => "",
    }
}

/// Takes the tensors of a plan in order, in the formats that they have, and writes them in those of the plan.
pub(crate) struct PieceWriter<'a, W> {
    out: DataWriter<W>,
    transcoder: &'a Transcoder,
    report: &'a mut Report<'a>,
    progress: Progress,
    encoded: Vec<u8>,
}

impl<'a, W: Write> PieceWriter<'a, W> {
    /// Writes the header. `tensors`: those of the plan.
    pub(crate) fn begin(
        plan: GgufWriter,
        tensors: &[Planned],
        out: W,
        transcoder: &'a Transcoder,
        report: &'a mut Report<'a>,
    ) -> Result<Self, EncodeError> {
        let progress = Progress { done: 0, total: tensors.iter().map(|tensor| tensor.bytes).sum() };
        Ok(Self { out: plan.begin(out)?, transcoder, report, progress, encoded: Vec::new() })
    }

    /// Writes all values of the tensor that is due. If it has scales, its matrices are equal parts of the data with one each,
    /// and the tensor of scales follows.
    pub(crate) fn write_tensor(&mut self, from: Format, data: &[u8], scales: u64) -> Result<(), EncodeError> {
        if scales == 0 {
            return self.write(from, data);
        }
        let matrices = || data.chunks(data.len().div_ceil(scales as usize).max(1));
        let scales: Vec<f32> = matrices().map(|matrix| nvfp4::outer_scale(self.largest(from, matrix))).collect();
        for (matrix, scale) in matrices().zip(&scales) {
            self.write_divided(from, matrix, *scale)?;
        }
        self.write(Format::F32, bytemuck::cast_slice(&scales))
    }

    /// The largest magnitude of finite values.
    pub(crate) fn largest(&self, from: Format, data: &[u8]) -> f32 {
        let bytes = from.row_bytes(PIECE).unwrap_or(data.len()).max(1);
        data.chunks(bytes).fold(0.0, |largest, piece| largest.max(self.transcoder.largest(from, piece)))
    }

    /// Writes the next values of the tensor that is due: whole blocks of `from`, and of the format of the plan.
    pub(crate) fn write(&mut self, from: Format, data: &[u8]) -> Result<(), EncodeError> {
        self.write_divided(from, data, 1.0)
    }

    /// The same for values divided by `divisor`.
    pub(crate) fn write_divided(&mut self, from: Format, data: &[u8], divisor: f32) -> Result<(), EncodeError> {
        let Some(bytes) = from.row_bytes(PIECE) else { return Ok(()) };
        for piece in data.chunks(bytes) {
            let (_, to, _) = self.out.due().ok_or(WriteError::NoTensor)?;
            let elements = piece.len() / from.block_bytes() * from.block_len();
            // The transcoder refuses partial blocks.
            self.encoded.resize(to.row_bytes(elements).unwrap_or_default(), 0);
            let transcoded = self.transcoder.transcode_divided(from, piece, divisor, to, &mut self.encoded);
            transcoded.map_err(|source| self.weights(source))?;
            self.out.write_chunk(&self.encoded)?;
            self.progress.done += self.encoded.len() as u64;
            if (self.report)(self.progress).is_break() {
                return Err(EncodeError::Stopped);
            }
        }
        Ok(())
    }

    /// An error of a piece, with the element counted from the start of the tensor.
    fn weights(&self, source: TranscodeError) -> EncodeError {
        let (name, to, _) = self.out.due().unwrap_or(("", Format::F32, 0));
        let before = self.out.given() / to.block_bytes() as u64 * to.block_len() as u64;
        let source = source.after(usize::try_from(before).unwrap_or(usize::MAX));
        EncodeError::Weights { name: name.to_owned(), source }
    }

    /// Ends the file.
    pub(crate) fn finish(self) -> Result<(), EncodeError> {
        self.out.finish()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes one tensor of zeros but for one value, in two parts.
    fn write(from: Format, to: Format, columns: usize, bad: usize, value: f32) -> Result<Vec<u8>, EncodeError> {
        let mut plan = GgufWriter::new();
        plan.tensor("before", Format::F32, &[32])?.tensor("weight", to, &[columns as u64])?;
        let mut values = vec![0.0; columns];
        values[bad] = value;
        let mut bytes = vec![0; from.row_bytes(columns).unwrap()];
        from.encode(&values, &mut bytes).unwrap();
        let transcoder = Transcoder::new(2).unwrap();
        let mut out = Vec::new();
        let mut go_on = |_| ControlFlow::Continue(());
        let mut writer = PieceWriter::begin(plan, &[], &mut out, &transcoder, &mut go_on)?;
        writer.write(Format::F32, &[0; 128])?;
        let (first, second) = bytes.split_at(from.row_bytes(PIECE / 2).unwrap());
        writer.write(from, first)?;
        writer.write(from, second)?;
        writer.finish()?;
        Ok(out)
    }

    #[test]
    fn a_value_that_cannot_be_written_is_named_by_its_place_in_the_tensor() {
        let columns = 2 * PIECE + PIECE / 2;
        for (from, to) in [
            (Format::F32, Format::Q8_0),
            (Format::BF16, Format::F16),
            (Format::F32, Format::F32),
            (Format::F16, Format::F16),
            (Format::BF16, Format::BF16),
        ] {
            for bad in [3, PIECE / 2 - 1, PIECE / 2, PIECE + 5, columns - 1] {
                match write(from, to, columns, bad, f32::INFINITY) {
                    Err(EncodeError::Weights { name, source: TranscodeError::NotFinite { element, .. } }) => {
                        assert_eq!((name.as_str(), element), ("weight", bad), "{from} to {to}");
                    }
                    _ => panic!("{from} to {to}: {bad} is not refused"),
                }
            }
            assert!(write(from, to, columns, 0, 1.0).is_ok(), "{from} to {to}");
        }
        let error = write(Format::F32, Format::F16, columns, 3, 1e5).unwrap_err();
        let says = "tensor `weight`: element 3 is 1e5, too large for F16; choose BF16 or F32 as the output type";
        assert_eq!(error.to_string(), says);
    }

    #[test]
    fn more_than_a_tensor_and_less_than_a_block_are_refused() {
        let plan = || {
            let mut plan = GgufWriter::new();
            plan.tensor("weight", Format::Q8_0, &[64]).unwrap();
            plan
        };
        let transcoder = Transcoder::new(1).unwrap();
        for (bytes, good) in [(256, true), (128 + 4, false), (384, false)] {
            let mut go_on = |_| ControlFlow::Continue(());
            let mut writer = PieceWriter::begin(plan(), &[], Vec::new(), &transcoder, &mut go_on).ok().unwrap();
            assert_eq!(writer.write(Format::F32, &vec![0; bytes]).is_ok(), good, "{bytes}");
        }
    }
}
