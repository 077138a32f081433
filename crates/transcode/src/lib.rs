//! Transcodes blocks of one format into another on all threads, for conversion and quantisation of models.
//!
//! It is a crate of its own because encoders are two fifths of what [`gristmill_cpu`] would otherwise compile, and no
//! forward pass encodes weights.
//!
//! ```
//! use gristmill_kernels::format::Format;
//!
//! let values: Vec<f32> = (0..256).map(|i| i as f32).collect();
//! let mut blocks = vec![0; Format::Q4_K.row_bytes(values.len()).unwrap()];
//! gristmill_transcode::encode(Format::Q4_K, &values, &mut blocks).expect("whole blocks");
//! ```

mod encode;

pub use encode::{encode, encode_at};
use gristmill_cpu::Pool;
use gristmill_kernels::error::Result;
use gristmill_kernels::format::Format;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Elements that a chunk decodes and encodes: whole blocks of every format, 16 KiB of floats.
const CHUNK: usize = 4096;

/// Why blocks could not be transcoded. What the output holds then is undefined.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TranscodeError {
    /// The lengths do not belong to the same number of whole blocks.
    #[error("{from_bytes} bytes of {from} are not as many whole blocks as {to_bytes} bytes of {to}")]
    Length {
        /// The format of the input.
        from: Format,
        /// Its size.
        from_bytes: usize,
        /// The format of the output.
        to: Format,
        /// Its size.
        to_bytes: usize,
    },
    /// An element is NaN or infinite. No quantised format can express that, and no model computes with it.
    #[error("element {element} is {value}; a weight must be finite")]
    NotFinite {
        /// The first such element.
        element: usize,
        /// The value.
        value: f32,
    },
    /// An element is finite, and too large for a float format.
    #[error("element {element} is {value:e}, too large for {to}")]
    TooLarge {
        /// The first such element.
        element: usize,
        /// The value.
        value: f32,
        /// The format of the output.
        to: Format,
    },
}

impl TranscodeError {
    /// The same error for input that started `elements` earlier.
    pub fn after(mut self, elements: usize) -> Self {
        if let Self::NotFinite { element, .. } | Self::TooLarge { element, .. } = &mut self {
            *element += elements;
        }
        self
    }
}

/// Threads that decode blocks of one format and encode them in another.
///
/// The result does not depend on the number of threads, nor on the CPU.
///
/// ```
/// use gristmill_kernels::format::Format;
/// use gristmill_transcode::Transcoder;
///
/// let values: Vec<u8> = (0..64).flat_map(|i| (i as f32).to_le_bytes()).collect();
/// let mut blocks = vec![0; Format::Q8_0.row_bytes(64).unwrap()];
/// Transcoder::new(2)?.transcode(Format::F32, &values, Format::Q8_0, &mut blocks)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Transcoder {
    pool: Pool,
}

impl Transcoder {
    /// Starts the threads; the caller's counts as one.
    ///
    /// # Errors
    /// If that many threads cannot be started.
    pub fn new(threads: usize) -> Result<Self> {
        Ok(Self { pool: Pool::new(threads)? })
    }

    /// The largest magnitude of the finite elements of `input`, whole blocks of `from`; 0 if there are none.
    pub fn largest(&self, from: Format, input: &[u8]) -> f32 {
        let elements = input.len() / from.block_bytes() * from.block_len();
        let mut largest = vec![0f32; elements.div_ceil(CHUNK)];
        self.pool.each_chunk(&mut largest, 1, &|chunk, largest| {
            let start = chunk * CHUNK;
            let end = elements.min((chunk + 1) * CHUNK);
            let mut values = [0f32; CHUNK];
            let values = &mut values[..end - start];
            let bytes = |elements: usize| elements / from.block_len() * from.block_bytes();
            let decoded = from.decode(&input[bytes(start)..bytes(end)], values);
            debug_assert!(decoded.is_some(), "chunks are whole blocks");
            let magnitudes = values.iter().map(|value| value.abs()).filter(|value| value.is_finite());
            largest.fill(magnitudes.fold(0.0, f32::max));
        });
        largest.into_iter().fold(0.0, f32::max)
    }

    /// Decodes `input`, whole blocks of `from`, and encodes the same elements as blocks of `to`. Between equal formats
    /// the bytes are copied as they are; their elements are checked all the same.
    ///
    /// # Errors
    /// If the lengths do not match, or an element is not finite or too large for `to`: the first such element is named.
    pub fn transcode(
        &self,
        from: Format,
        input: &[u8],
        to: Format,
        output: &mut [u8],
    ) -> std::result::Result<(), TranscodeError> {
        self.transcode_divided(from, input, 1.0, to, output)
    }

    /// [`transcode`](Self::transcode) of the elements divided by `divisor`: the scale of a tensor, which its blocks do not
    /// have. Between equal formats nothing is divided.
    ///
    /// # Errors
    /// Those of `transcode`; they name the elements of `input`.
    pub fn transcode_divided(
        &self,
        from: Format,
        input: &[u8],
        divisor: f32,
        to: Format,
        output: &mut [u8],
    ) -> std::result::Result<(), TranscodeError> {
        let elements = elements(from, input.len()).filter(|&n| elements(to, output.len()) == Some(n));
        let Some(elements) = elements else {
            return Err(TranscodeError::Length { from, from_bytes: input.len(), to, to_bytes: output.len() });
        };
        let bytes = |format: Format, elements: usize| elements / format.block_len() * format.block_bytes();
        let first_bad = AtomicUsize::new(usize::MAX);
        self.pool.each_chunk(output, bytes(to, CHUNK), &|chunk, blocks| {
            let start = chunk * CHUNK;
            let end = elements.min((chunk + 1) * CHUNK);
            let mut values = [0f32; CHUNK];
            let values = &mut values[..end - start];
            let source = &input[bytes(from, start)..bytes(from, end)];
            let infinite = |values: &[f32]| values.iter().position(|v| !v.is_finite());
            let mut coded = from.decode(source, values);
            let mut bad = infinite(values);
            if from == to {
                blocks.copy_from_slice(source);
            } else {
                if divisor != 1.0 {
                    values.iter_mut().for_each(|value| *value /= divisor);
                }
                coded = coded.and_then(|()| encode(to, values, blocks));
                if bad.is_none() && to.is_float() {
                    // Large values become infinite in float formats; the scales of the others saturate.
                    coded = coded.and_then(|()| to.decode(blocks, values));
                    bad = infinite(values);
                }
            }
            debug_assert!(coded.is_some(), "chunks are whole blocks");
            if let Some(bad) = bad {
                first_bad.fetch_min(start + bad, Ordering::Relaxed);
            }
        });
        match first_bad.into_inner() {
            usize::MAX => Ok(()),
            element => {
                let block = element / from.block_len();
                let mut values = vec![0.0; from.block_len()];
                let start = block * from.block_bytes();
                let decoded = from.decode(&input[start..start + from.block_bytes()], &mut values);
                debug_assert!(decoded.is_some(), "a block is a block");
                let value = values[element % from.block_len()];
                Err(match value.is_finite() {
                    true => TranscodeError::TooLarge { element, value, to },
                    false => TranscodeError::NotFinite { element, value },
                })
            }
        }
    }
}

/// Elements in this many bytes, if they are whole blocks.
fn elements(format: Format, bytes: usize) -> Option<usize> {
    bytes.is_multiple_of(format.block_bytes()).then(|| bytes / format.block_bytes() * format.block_len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn normal(n: usize) -> Vec<f32> {
        let mut x = 1u32;
        let mut next = || {
            x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (x >> 8) as f32 / (1 << 24) as f32 - 0.5
        };
        (0..n).map(|_| next() + next() + next()).collect()
    }

    fn bytes(values: &[f32]) -> &[u8] {
        bytemuck::cast_slice(values)
    }

    #[test]
    fn any_number_of_threads_gives_the_bytes_of_one_block_after_the_other() {
        let values = normal(3 * CHUNK + 512);
        for &to in Format::ALL {
            let mut want = vec![0; to.row_bytes(values.len()).unwrap()];
            to.encode(&values, &mut want).unwrap();
            for threads in [1, 2, 5] {
                let mut got = vec![0xaa; want.len()];
                Transcoder::new(threads).unwrap().transcode(Format::F32, bytes(&values), to, &mut got).unwrap();
                assert!(got == want, "{to}, {threads} threads");
            }
        }
    }

    #[test]
    fn every_format_is_an_input() {
        let values = normal(CHUNK + 256);
        let transcoder = Transcoder::new(2).unwrap();
        for &from in Format::ALL {
            let mut input = vec![0; from.row_bytes(values.len()).unwrap()];
            from.encode(&values, &mut input).unwrap();
            let mut want = vec![0.0; values.len()];
            from.decode(&input, &mut want).unwrap();
            let mut got = vec![0; 4 * values.len()];
            transcoder.transcode(from, &input, Format::F32, &mut got).unwrap();
            assert!(got == bytes(&want), "{from}");
            let mut same = vec![0; input.len()];
            transcoder.transcode(from, &input, from, &mut same).unwrap();
            assert!(same == input, "{from}");
        }
    }

    #[test]
    fn what_cannot_be_held_is_named() {
        let transcoder = Transcoder::new(3).unwrap();
        for (at, bad) in [(0, f32::NAN), (CHUNK + 7, f32::INFINITY), (3 * CHUNK - 1, f32::NEG_INFINITY)] {
            let mut values = normal(3 * CHUNK);
            values[at] = bad;
            values[3 * CHUNK - 1] = f32::NEG_INFINITY;
            for &to in Format::ALL {
                let mut out = vec![0; to.row_bytes(values.len()).unwrap()];
                let error = transcoder.transcode(Format::F32, bytes(&values), to, &mut out).unwrap_err();
                match error {
                    TranscodeError::NotFinite { element, value } => {
                        assert!(element == at && value.to_bits() == bad.to_bits(), "{to}: {error}");
                    }
                    other => panic!("{other}"),
                }
            }
        }
        let error = transcoder.transcode(Format::F32, bytes(&[1.0, -1e5]), Format::F16, &mut [0; 4]).unwrap_err();
        assert_eq!(error, TranscodeError::TooLarge { element: 1, value: -1e5, to: Format::F16 });
    }

    #[test]
    fn divided_elements_and_the_largest_magnitude() {
        let mut values = normal(2 * CHUNK + 64);
        values[CHUNK + 5] = -7.5;
        let transcoder = Transcoder::new(2).unwrap();
        assert_eq!(transcoder.largest(Format::F32, bytes(&values)), 7.5);
        assert_eq!(transcoder.largest(Format::F32, &[]), 0.0);
        let [mut divided, mut want] = [(); 2].map(|()| vec![0; 2 * values.len()]);
        transcoder.transcode_divided(Format::F32, bytes(&values), 3.0, Format::BF16, &mut divided).unwrap();
        let thirds: Vec<f32> = values.iter().map(|value| value / 3.0).collect();
        transcoder.transcode(Format::F32, bytes(&thirds), Format::BF16, &mut want).unwrap();
        assert!(divided == want);
        values[3] = f32::INFINITY;
        assert_eq!(transcoder.largest(Format::F32, bytes(&values)), 7.5);
        let error =
            transcoder.transcode_divided(Format::F32, bytes(&values), 3.0, Format::BF16, &mut want).unwrap_err();
        assert_eq!(error, TranscodeError::NotFinite { element: 3, value: f32::INFINITY });
    }

    #[test]
    fn lengths_must_match() {
        let transcoder = Transcoder::new(1).unwrap();
        for (input, output) in [(128, 35), (127, 34), (128, 0), (256, 34), (0, 34)] {
            let result = transcoder.transcode(Format::F32, &vec![0; input], Format::Q8_0, &mut vec![0; output]);
            assert!(matches!(result, Err(TranscodeError::Length { .. })), "{input} {output}");
        }
        transcoder.transcode(Format::F32, &[], Format::Q4_K, &mut []).unwrap();
    }
}
