//! Codes that are small floats: MLX's modes `mxfp4`, `mxfp8` and `nvfp4`, which compressed-tensors and ModelOpt have too, and
//! FP8 with a scale for each block of a matrix.
//!
//! value = scale · float. Codes lie as those of `mlx.rs`: the floats of a row one after another, the first in the
//! lowest bits. Scales are bytes: a power of two (E8M0) of the MX modes, E4M3 of `nvfp4`. Checked with mlx 0.32.4.

use gristmill_files::safetensors::Tensor;
use gristmill_kernels::format::{Format, e4m3, fp8, nvfp4};
use half::bf16;

use super::checkpoint::Checkpoint;
use super::error::ConvertError;
use super::mlx::Target;
use super::rows::mxfp4_codes;

/// A mode of MLX whose codes are floats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FloatMode {
    Mxfp4,
    Mxfp8,
    Nvfp4,
}

/// How a stack of matrices is stored column after column, as ModelOpt leaves experts: `matrices × bytes of a row ×
/// outputs`. Codes that share a byte are neighbours of a row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Transposed {
    pub(super) inputs: usize,
    pub(super) outputs: usize,
}

impl Transposed {
    /// The bytes of row `row`, counted over all matrices, of which each has `bytes`.
    fn row(self, data: &[u8], row: usize, bytes: usize) -> Vec<u8> {
        let first = row / self.outputs * bytes * self.outputs + row % self.outputs;
        (0..bytes).map(|byte| data.get(first + byte * self.outputs).copied().unwrap_or_default()).collect()
    }
}

/// A matrix, or a stack of them, in such a mode. A scale is a byte for each group of columns.
#[derive(Clone)]
pub(super) struct FloatCodes {
    pub(super) codes: Tensor,
    pub(super) scales: Tensor,
    pub(super) mode: FloatMode,
    /// The scale of the whole matrix.
    pub(super) outer: Option<f32>,
    /// If codes and scales are stored column after column.
    pub(super) transposed: Option<Transposed>,
}

/// A matrix of E4M3 numbers with a scale for each block of rows and columns; blocks are cut at the edges of each part.
#[derive(Clone)]
pub(super) struct BlockScaled {
    pub(super) codes: Tensor,
    pub(super) scales: Tensor,
    /// The format of the numbers of `scales`.
    pub(super) numbers: Format,
    /// Rows and columns of a block.
    pub(super) block: [usize; 2],
    /// Columns of the matrix.
    pub(super) columns: usize,
    /// Parts of the matrix, each in blocks of its own.
    pub(super) parts: usize,
    /// Rows of a part.
    pub(super) rows: usize,
    /// If the codes are stored column after column.
    pub(super) transposed: Option<Transposed>,
}

/// The values of E2M1 codes; bit 3 is the sign.
const E2M1: [f32; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];

/// The E8M0 code of NaN.
const NAN_E8M0: u8 = 255;

/// Scales from this one on make every product of `mxfp8` a BF16 number: the smallest float, 2^-9, times 2^(3 − 127) is
/// the smallest of those.
const SMALLEST_BF16: u8 = 3;

impl FloatMode {
    pub(super) const NAMES: &[(&str, FloatMode)] =
        &[("mxfp4", FloatMode::Mxfp4), ("mxfp8", FloatMode::Mxfp8), ("nvfp4", FloatMode::Nvfp4)];

    /// Bits of a code.
    pub(super) fn bits(self) -> usize {
        match self {
            FloatMode::Mxfp4 | FloatMode::Nvfp4 => 4,
            FloatMode::Mxfp8 => 8,
        }
    }

    /// Columns of a group.
    pub(super) fn group(self) -> usize {
        match self {
            FloatMode::Mxfp4 | FloatMode::Mxfp8 => 32,
            FloatMode::Nvfp4 => 16,
        }
    }

    /// The number of a scale's bits.
    fn scale(self, bits: u8) -> f32 {
        match self {
            FloatMode::Nvfp4 => e4m3::decode(bits),
            _ if bits == NAN_E8M0 => f32::NAN,
            // 2^(bits − 127), subnormal for 0.
            _ => f32::from_bits(if bits == 0 { 1 << 22 } else { u32::from(bits) << 23 }),
        }
    }

    /// Float `i` of a row's, or stack's, codes; NaN past their end.
    fn float(self, codes: &[u8], i: usize) -> f32 {
        let byte = |i: usize| codes.get(i).copied().unwrap_or(e4m3::NAN);
        if self == FloatMode::Mxfp8 {
            return e4m3::decode(byte(i));
        }
        let code = byte(i / 2) >> (i % 2 * 4) & 15;
        let magnitude = E2M1[usize::from(code & 7)];
        if code < 8 { magnitude } else { -magnitude }
    }
}

impl FloatCodes {
    /// The smallest format that holds all values of rows of `columns`; files get BF16 for `nvfp4` without a scale of the
    /// matrix.
    ///
    /// # Errors
    /// If a scale is NaN.
    pub(super) fn format(&self, checkpoint: &Checkpoint, target: Target, columns: u64) -> Result<Format, ConvertError> {
        let scales = checkpoint.data(&self.scales);
        if scales.iter().any(|&scale| self.mode.scale(scale).is_nan()) {
            return Err(ConvertError::NotFinite(self.scales.name.clone()));
        }
        Ok(match self.mode {
            FloatMode::Mxfp4 => Format::MXFP4,
            FloatMode::Nvfp4 if self.outer.is_some() => {
                if columns.is_multiple_of(nvfp4::BLOCK as u64) {
                    Format::NVFP4_SCALED
                } else {
                    Format::F32
                }
            }
            FloatMode::Nvfp4 if target == Target::Engine && columns.is_multiple_of(nvfp4::BLOCK as u64) => {
                Format::NVFP4
            }
            FloatMode::Mxfp8 if scales.iter().any(|&scale| scale < SMALLEST_BF16) => Format::F32,
            FloatMode::Mxfp8 | FloatMode::Nvfp4 => Format::BF16,
        })
    }

    /// Appends elements in `format`, one that [`FloatCodes::format`] returns or F32; `first` and `count` are multiples
    /// of the format's blocks, and of a row if the codes are transposed.
    pub(super) fn append(
        &self,
        checkpoint: &Checkpoint,
        first: usize,
        count: usize,
        format: Format,
        out: &mut Vec<u8>,
    ) {
        let (codes, scales) = (checkpoint.data(&self.codes), checkpoint.data(&self.scales));
        let Some(transposed) = self.transposed else { return self.append_of(codes, scales, first, count, format, out) };
        let inputs = transposed.inputs;
        for row in first / inputs..(first + count) / inputs {
            let codes = transposed.row(codes, row, inputs * self.mode.bits() / 8);
            let scales = transposed.row(scales, row, inputs / self.mode.group());
            self.append_of(&codes, &scales, 0, inputs, format, out);
        }
    }

    fn append_of(&self, codes: &[u8], scales: &[u8], first: usize, count: usize, format: Format, out: &mut Vec<u8>) {
        let group = self.mode.group();
        let end = first + count;
        let scale = |at: usize| scales.get(at / group).copied().unwrap_or(NAN_E8M0);
        match format {
            Format::MXFP4 => {
                for at in (first..end).step_by(group) {
                    out.push(scale(at));
                    let pairs = codes.get(at / 2..).and_then(|rest| rest.first_chunk::<16>()).copied();
                    out.extend(mxfp4_codes(&pairs.unwrap_or_default()));
                }
            }
            Format::NVFP4 | Format::NVFP4_SCALED => {
                for at in (first..end).step_by(nvfp4::BLOCK) {
                    let mut nibbles = [0; nvfp4::BLOCK];
                    let pairs = codes.get(at / 2..).unwrap_or_default();
                    for (two, pair) in nibbles.as_chunks_mut::<2>().0.iter_mut().zip(pairs) {
                        *two = [pair & 15, pair >> 4];
                    }
                    let mut scales = [0; nvfp4::GROUPS];
                    scales.iter_mut().enumerate().for_each(|(g, byte)| *byte = scale(at + group * g));
                    if format == Format::NVFP4_SCALED {
                        out.extend(self.outer.unwrap_or(1.0).to_le_bytes());
                    }
                    let start = out.len();
                    out.resize(start + Format::NVFP4.block_bytes(), 0);
                    let put = nvfp4::put_block(scales, &nibbles, &mut out[start..]);
                    debug_assert!(put.is_some(), "a block");
                }
            }
            _ => (first..end).for_each(|at| {
                let scale = self.outer.unwrap_or(1.0) * self.mode.scale(scale(at));
                push(scale * self.mode.float(codes, at), format, out);
            }),
        }
    }
}

impl BlockScaled {
    /// The format in which the engine reads the numbers, or BF16 where its blocks would have several scales.
    pub(super) fn format(&self) -> Format {
        let whole = |columns: usize| columns.is_multiple_of(fp8::BLOCK);
        let [_, of_columns] = self.block;
        if whole(self.columns) && (whole(of_columns) || of_columns >= self.columns) {
            Format::FP8_64
        } else {
            Format::BF16
        }
    }

    /// Appends elements in `format`, F32 or BF16, or the one of [`BlockScaled::format`]; then `first` and `count` are
    /// multiples of its blocks, and of a row if the codes are transposed.
    pub(super) fn append(
        &self,
        checkpoint: &Checkpoint,
        first: usize,
        count: usize,
        format: Format,
        out: &mut Vec<u8>,
    ) {
        let [of_rows, of_columns] = self.block;
        let (codes, scales) = (checkpoint.data(&self.codes), checkpoint.data(&self.scales));
        let blocks = self.columns.div_ceil(of_columns);
        let bytes = self.numbers.block_bytes();
        let mut at = first;
        let end = first + count;
        while at < end {
            let (row, column) = (at / self.columns, at % self.columns);
            let row_of_blocks = row / self.rows * self.rows.div_ceil(of_rows) + row % self.rows / of_rows;
            let block = row_of_blocks * blocks + column / of_columns;
            let mut scale = [f32::NAN];
            let _ = scales.get(block * bytes..).and_then(|rest| self.numbers.decode(rest.get(..bytes)?, &mut scale));
            // What the row has of the block.
            let run = (of_columns - column % of_columns).min(self.columns - column).min(end - at);
            let of_row = self.transposed.map(|transposed| transposed.row(codes, row, self.columns));
            let codes = match &of_row {
                Some(codes) => &codes[column..column + run],
                None => codes.get(at..at + run).unwrap_or_default(),
            };
            if format == Format::FP8_64 {
                for codes in codes.as_chunks::<{ fp8::BLOCK }>().0 {
                    let start = out.len();
                    out.resize(start + format.block_bytes(), 0);
                    let put = fp8::put_block(scale[0], codes, &mut out[start..]);
                    debug_assert!(put.is_some(), "a block");
                }
                at += run;
                continue;
            }
            codes.iter().for_each(|&code| push(scale[0] * e4m3::decode(code), format, out));
            at += run;
        }
    }
}

/// Appends a value as F32 or BF16.
fn push(value: f32, format: Format, out: &mut Vec<u8>) {
    match format {
        Format::BF16 => out.extend(bf16::from_f32(value).to_le_bytes()),
        _ => out.extend(value.to_le_bytes()),
    }
}
