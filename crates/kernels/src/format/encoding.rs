//! Properties of formats, and whole blocks to floats and back.

use super::{BlockFormat, Float as _, Format, Plane, with_format, with_format_kind};
use crate::simd::{Kernel, Portable, Simd};
use std::marker::PhantomData;

impl Format {
    /// The formats of GGUF files.
    pub fn numbered() -> impl Iterator<Item = Format> {
        Self::ALL.iter().copied().filter(|format| format.ggml_type().is_some())
    }

    /// The format of this name, in any case.
    pub fn named(name: &str) -> Option<Format> {
        Self::ALL.iter().copied().find(|format| format.name().eq_ignore_ascii_case(name))
    }

    /// Whether elements are bfloat16, so that [`crate::act::Precision::Fast`] may round activations to it.
    pub fn is_bf16(self) -> bool {
        with_format_kind!(self, float F => F::IS_BF16, quantised _F => false)
    }

    /// Whether kernels of [`crate::act::Precision::Fast`] may round weights and activations to bfloat16: floats with fewer
    /// bits and a scale.
    pub fn is_narrow_float(self) -> bool {
        self.is_float() && self.block_len() > 1
    }

    /// Whether no model is quantised to this format, see [`BlockFormat::READ_ONLY`].
    pub fn is_read_only(self) -> bool {
        with_format!(self, F => F::READ_ONLY)
    }

    /// Elements in one block.
    pub fn block_len(self) -> usize {
        with_format!(self, F => F::BLOCK)
    }

    /// Bytes of one block.
    pub fn block_bytes(self) -> usize {
        with_format!(self, F => F::BYTES)
    }

    /// The planes of one block, in the order of a tile.
    pub fn planes(self) -> &'static [Plane] {
        with_format!(self, F => F::PLANES)
    }

    /// Bytes of a row of `columns` elements, or `None` if a row is not whole blocks or overflows.
    pub fn row_bytes(self, columns: usize) -> Option<usize> {
        if !columns.is_multiple_of(self.block_len()) {
            return None;
        }
        (columns / self.block_len()).checked_mul(self.block_bytes())
    }

    /// Decodes whole blocks into floats. Returns `None` unless `bytes` is exactly the blocks of `out`.
    pub fn decode(self, bytes: &[u8], out: &mut [f32]) -> Option<()> {
        if self.row_bytes(out.len())? != bytes.len() {
            return None;
        }
        with_format!(self, F => {
            for (block, values) in bytes.chunks_exact(F::BYTES).zip(out.chunks_exact_mut(F::BLOCK)) {
                F::decode(block, values);
            }
        });
        Some(())
    }

    /// Encodes floats into whole blocks. Returns `None` unless `bytes` is exactly the blocks of `values`.
    pub fn encode(self, values: &[f32], bytes: &mut [u8]) -> Option<()> {
        self.encode_by(Portable, values, bytes)
    }

    /// [`Format::encode`] by a level of the CPU; all give the same bytes.
    pub fn encode_by(self, level: impl Simd, values: &[f32], bytes: &mut [u8]) -> Option<()> {
        if self.row_bytes(values.len())? != bytes.len() {
            return None;
        }
        with_format!(self, F => level.run(Encode::<F> { values, bytes, format: PhantomData }));
        Some(())
    }
}

/// The most elements and bytes of a batch, in any format.
const BATCH_ELEMENTS: usize = 1024;
const BATCH_BYTES: usize = 2048;

/// Encodes whole blocks, batch after batch, the last one padded with zeros.
struct Encode<'a, F> {
    values: &'a [f32],
    bytes: &'a mut [u8],
    format: PhantomData<F>,
}

impl<F: BlockFormat> Kernel for Encode<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (elements, size) = (F::BATCH * F::BLOCK, F::BATCH * F::BYTES);
        let whole = self.values.len() / elements;
        let (values, last) = self.values.split_at(whole * elements);
        let (blocks, last_blocks) = self.bytes.split_at_mut(whole * size);
        for (values, blocks) in values.chunks_exact(elements).zip(blocks.chunks_exact_mut(size)) {
            F::encode(s, values, blocks);
        }
        if !last.is_empty() {
            let mut values = [0.0; BATCH_ELEMENTS];
            let mut blocks = [0; BATCH_BYTES];
            values[..last.len()].copy_from_slice(last);
            F::encode(s, &values[..elements], &mut blocks[..size]);
            last_blocks.copy_from_slice(&blocks[..last_blocks.len()]);
        }
    }
}

impl std::fmt::Display for Format {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
