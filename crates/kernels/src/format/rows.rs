//! Tensor types whose rows start with a scale that all their blocks share: `IQ4_KS`, `IQ4_KSS`, `IQ5_KS`, `IQ3_KS`, `IQ2_KS`
//! and `IQ2_KL` of ik_llama.cpp.
//!
//! A backend multiplies whole blocks, so when a tensor is loaded, its rows become blocks that all start with the scale of
//! their row. That takes 2 or 4 bytes more for each 256 elements, and one copy of the tensor.

use thiserror::Error;

use super::{BlockFormat, Format, iq4_ks::IQ4_KS};

/// A tensor type whose rows start with a scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScaledRows {
    name: &'static str,
    ggml_type: u32,
    /// The format of the blocks in memory.
    format: Format,
    /// Bytes of a row's scale: 2 of an f16, or 4 of an f32.
    scale_bytes: usize,
    /// Bytes of a block in the file.
    block_bytes: usize,
}

const fn rows(
    name: &'static str,
    ggml_type: u32,
    format: Format,
    scale_bytes: usize,
    block_bytes: usize,
) -> ScaledRows {
    ScaledRows { name, ggml_type, format, scale_bytes, block_bytes }
}

/// Name, type number, format in memory, bytes of a row's scale and of a block in the file.
const TYPES: [ScaledRows; 6] = [
    rows("IQ4_KS", 144, Format::IQ4_KS, 4, 136),
    rows("IQ2_KS", 145, Format::IQ2_KS, 2, 70),
    rows("IQ4_KSS", 146, Format::IQ4_KS, 4, PACKED),
    rows("IQ5_KS", 152, Format::IQ5_KS, 4, 168),
    rows("IQ3_KS", 156, Format::IQ3_KS, 2, 102),
    rows("IQ2_KL", 157, Format::IQ2_KL, 2, 86),
];

/// Bytes of a block of `IQ4_KSS`, whose scales are bits of its words.
const PACKED: usize = 128;

/// Why rows cannot become blocks.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum RowsError {
    /// The bytes are not whole rows.
    #[error("{bytes} bytes are not whole rows of {name}: a row of {columns} elements has {}", row_bytes(*.row))]
    Length {
        /// The tensor type.
        name: &'static str,
        /// Elements of a row.
        columns: usize,
        /// Bytes of a row, if it is whole blocks.
        row: Option<usize>,
        /// Bytes that were given.
        bytes: usize,
    },
    /// The scale of a row is infinite or not a number.
    #[error("the {name} scale of row {row} is {value}; the file is damaged, download it again")]
    ScaleNotFinite {
        /// The tensor type.
        name: &'static str,
        /// The row, counted from 0 through all matrices of the tensor.
        row: usize,
        /// Its scale.
        value: f32,
    },
}

fn row_bytes(row: Option<usize>) -> String {
    row.map_or_else(|| "no whole blocks".to_owned(), |bytes| format!("{bytes} bytes"))
}

impl ScaledRows {
    /// All of these types.
    pub fn all() -> impl Iterator<Item = ScaledRows> {
        TYPES.into_iter()
    }

    /// The type of this number in GGUF files, if its rows start with a scale.
    pub fn from_ggml_type(id: u32) -> Option<ScaledRows> {
        Self::all().find(|rows| rows.ggml_type == id)
    }

    /// The usual name.
    pub fn name(self) -> &'static str {
        self.name
    }

    /// The number in GGUF files.
    pub fn ggml_type(self) -> u32 {
        self.ggml_type
    }

    /// The format of the blocks in memory.
    pub fn format(self) -> Format {
        self.format
    }

    /// Bytes of a row's scale.
    pub fn scale_bytes(self) -> usize {
        self.scale_bytes
    }

    /// Bytes of a row of `columns` elements in the file, or `None` if a row is not whole blocks.
    pub fn row_bytes(self, columns: usize) -> Option<usize> {
        let block = self.format.block_len();
        let blocks = columns.is_multiple_of(block).then_some(columns / block)?;
        blocks.checked_mul(self.block_bytes)?.checked_add(self.scale_bytes)
    }

    /// The blocks of [`ScaledRows::format`] of the rows of a file, each of `columns` elements.
    ///
    /// # Errors
    /// If the bytes are not whole rows, or the scale of a row is not finite.
    pub fn blocks(self, bytes: &[u8], columns: usize) -> Result<Vec<u8>, RowsError> {
        let row = self.row_bytes(columns);
        let Some(size) = row.filter(|&size| columns > 0 && bytes.len().is_multiple_of(size)) else {
            return Err(RowsError::Length { name: self.name, columns, row, bytes: bytes.len() });
        };
        let count = bytes.len() / size * (columns / self.format.block_len());
        let mut out = Vec::with_capacity(count * self.format.block_bytes());
        for (row, bytes) in bytes.chunks_exact(size).enumerate() {
            let (scale, blocks) = bytes.split_at(self.scale_bytes);
            let value = self.scale_of(scale);
            if !value.is_finite() {
                return Err(RowsError::ScaleNotFinite { name: self.name, row, value });
            }
            for block in blocks.chunks_exact(self.block_bytes) {
                out.extend_from_slice(scale);
                match self.block_bytes {
                    PACKED => unpack(block, &mut out),
                    _ => out.extend_from_slice(block),
                }
            }
        }
        Ok(out)
    }

    fn scale_of(self, bytes: &[u8]) -> f32 {
        match *bytes {
            [a, b] => half::f16::from_le_bytes([a, b]).to_f32(),
            [a, b, c, d] => f32::from_le_bytes([a, b, c, d]),
            _ => f32::NAN,
        }
    }
}

/// Appends a block of `IQ4_KSS` as scales and nibbles of `IQ4_KS`.
///
/// Each group of 32 is 8 little-endian words of 16 bits. Bit 0 of word `k` is bit `k` of the scale's byte. The nibbles are the
/// other bits `v` of the words, as `v ^ v >> 1`.
fn unpack(block: &[u8], out: &mut Vec<u8>) {
    let word = |bytes: &[u8; 2]| u16::from_le_bytes(*bytes);
    let groups = block.as_chunks::<16>().0;
    out.extend(groups.iter().map(|group| {
        let words = group.as_chunks::<2>().0.iter().enumerate();
        words.fold(0, |byte, (k, bytes)| byte | (word(bytes) as u8 & 1) << k)
    }));
    out.extend(block.as_chunks::<2>().0.iter().flat_map(|bytes| {
        let v = word(bytes) & !1;
        (v ^ v >> 1).to_le_bytes()
    }));
}

const _: () = assert!(IQ4_KS::BYTES == 4 + 8 + PACKED);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_in_memory_have_the_scale_and_the_block() {
        for rows in ScaledRows::all().filter(|rows| rows.block_bytes != PACKED) {
            assert_eq!(rows.format.block_bytes(), rows.scale_bytes + rows.block_bytes, "{}", rows.name);
        }
    }

    #[test]
    fn wrong_rows_are_refused() {
        for rows in ScaledRows::all() {
            let size = rows.row_bytes(512).unwrap();
            assert_eq!(size, rows.scale_bytes + 2 * rows.block_bytes);
            assert_eq!(rows.row_bytes(511), None, "{}", rows.name);
            // The size that rows without a scale have, one byte less, and one more.
            for bytes in [size - rows.scale_bytes, size - 1, size + 1] {
                let error = rows.blocks(&vec![0; bytes], 512).unwrap_err();
                assert_eq!(error, RowsError::Length { name: rows.name, columns: 512, row: Some(size), bytes });
            }
            assert!(rows.blocks(&[0; 8], 0).is_err() && rows.blocks(&vec![0; size], 500).is_err());
            let mut two = vec![0; 2 * size];
            assert_eq!(rows.blocks(&two, 512).unwrap().len(), 4 * rows.format.block_bytes());
            // Infinite, and not a number: the upper bytes of an f16 and of an f32.
            for bits in [[0, 0x7c], [0x80, 0x7f], [0, 0x7e], [0x80, 0xff]] {
                let end = size + rows.scale_bytes;
                two[end - 2..end].copy_from_slice(&bits);
                if rows.scale_of(&two[size..end]).is_finite() {
                    continue;
                }
                let error = rows.blocks(&two, 512).unwrap_err().to_string();
                assert!(error.starts_with(&format!("the {} scale of row 1 is ", rows.name)), "{error}");
            }
        }
    }
}
