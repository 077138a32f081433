//! Integer codes in groups: value = scale · (code − zero).

use std::array;
use std::sync::Arc;

use gristmill_files::safetensors::Tensor;
use gristmill_kernels::format::{Format, affine};
use half::f16;

use super::layout::Layout;
use crate::checkpoint::Checkpoint;
use crate::error::ConvertError;
use crate::mlx::Target;

/// Columns of a block of `Q4_0` and `Q8_0`.
const SMALL: usize = 32;

/// A matrix of codes.
#[derive(Clone)]
pub(crate) struct Integers {
    pub(crate) codes: Tensor,
    pub(super) scales: Tensor,
    /// Zero points; without them all are the middle of the codes.
    pub(super) zeros: Option<Tensor>,
    /// The format of the numbers of `scales`.
    pub(super) numbers: Format,
    pub(super) layout: Layout,
    /// `scales` has the groups of a row one after another; otherwise the rows of a group.
    pub(super) scales_by_row: bool,
    /// Columns of a group.
    pub(super) group: usize,
    /// The group of each column, unless groups are consecutive columns.
    pub(super) order: Option<Arc<[u32]>>,
    /// The columns in the order in which they are read, so that groups are consecutive: see [`reorder`](super::reorder).
    pub(super) columns: Option<Arc<[u32]>>,
    /// The rows in the order in which they are read.
    pub(super) rows: Option<Arc<[u32]>>,
}

/// What all scales and zero points of a matrix are.
struct Facts {
    /// F16 holds all scales.
    half: bool,
    least_zero: u8,
    most_zero: u8,
}

impl Integers {
    /// The smallest format that holds all values of rows of `columns`, or a float. Groups that are not consecutive columns
    /// become F16, as the quantisers' own programs compute them, unless their columns are reordered.
    ///
    /// # Errors
    /// If a scale is not finite.
    pub(super) fn format(&self, checkpoint: &Checkpoint, target: Target) -> Result<Format, ConvertError> {
        let (bits, columns) = (self.layout.bits, self.layout.columns);
        let facts = self.facts(checkpoint)?;
        if self.is_scattered() {
            // Files have the values as they are.
            return Ok(if facts.half && target == Target::Engine { Format::F16 } else { Format::F32 });
        }
        // Codes less their zero point, as `small` has them.
        let small = if bits <= 4 { Format::Q4_0 } else { Format::Q8_0 };
        let largest = (1 << bits) - 1;
        let middle = if bits <= 4 { 8 } else { 128 };
        let fits = largest - i32::from(facts.least_zero) < middle && i32::from(facts.most_zero) <= middle;
        let whole =
            |size: usize| columns.is_multiple_of(size) && (self.group.is_multiple_of(size) || self.is_channel());
        Ok(if facts.half && fits && whole(SMALL) {
            small
        } else if target == Target::File {
            Format::F32
        } else if facts.half && bits <= 4 && whole(affine::BLOCK) {
            Format::INT4_64
        } else if columns.is_multiple_of(affine::BLOCK) && whole(SMALL) {
            Format::affine(bits, true).unwrap_or(Format::F32)
        } else {
            Format::F32
        })
    }

    /// All tensors with data that is read for values.
    pub(crate) fn tensors(&self) -> impl Iterator<Item = &Tensor> {
        [&self.codes, &self.scales].into_iter().chain(&self.zeros)
    }

    /// Groups are not consecutive columns, as they are read.
    pub(super) fn is_scattered(&self) -> bool {
        self.order.is_some() && self.columns.is_none()
    }

    /// A row is one group.
    fn is_channel(&self) -> bool {
        self.group >= self.layout.columns
    }

    fn facts(&self, checkpoint: &Checkpoint) -> Result<Facts, ConvertError> {
        let mut facts = Facts { half: true, least_zero: u8::MAX, most_zero: 0 };
        let bytes = self.numbers.block_bytes();
        let mut numbers = [0.0; 1024];
        for part in checkpoint.data(&self.scales).chunks(numbers.len() * bytes) {
            let numbers = &mut numbers[..part.len() / bytes];
            let decoded = self.numbers.decode(part, numbers);
            if decoded.is_none() || !numbers.iter().all(|number| number.is_finite()) {
                return Err(ConvertError::NotFinite(self.scales.name.clone()));
            }
            facts.half &= numbers.iter().all(|&number| f16::from_f32(number).to_f32() == number);
        }
        let zeros = self.zeros.as_ref().map(|zeros| checkpoint.data(zeros));
        let groups = if zeros.is_some() { self.layout.groups } else { 1 };
        let rows = if zeros.is_some() { self.layout.rows } else { 1 };
        for zero in
            (0..rows).flat_map(|row| (0..groups).map(move |group| (row, group))).map(|(r, g)| self.zero(zeros, r, g))
        {
            facts.least_zero = facts.least_zero.min(zero);
            facts.most_zero = facts.most_zero.max(zero);
        }
        Ok(facts)
    }

    fn zero(&self, zeros: Option<&[u8]>, row: usize, group: usize) -> u8 {
        zeros.map_or(1 << (self.layout.bits - 1), |zeros| self.layout.zero(zeros, row, group))
    }

    fn scale(&self, scales: &[u8], row: usize, group: usize) -> f32 {
        let at = if self.scales_by_row { row * self.layout.groups + group } else { group * self.layout.rows + row };
        let bytes = self.numbers.block_bytes();
        let mut number = [f32::NAN];
        let _ = scales.get(at * bytes..).and_then(|rest| self.numbers.decode(rest.get(..bytes)?, &mut number));
        number[0]
    }

    /// Appends elements in `format`, one that [`Integers::format`] or [`joined`] returns; `first` and `count` are multiples
    /// of the format's blocks.
    pub(crate) fn append(
        &self,
        checkpoint: &Checkpoint,
        first: usize,
        count: usize,
        format: Format,
        out: &mut Vec<u8>,
    ) {
        let columns = self.layout.columns;
        let (codes, scales) = (checkpoint.data(&self.codes), checkpoint.data(&self.scales));
        let zeros = self.zeros.as_ref().map(|zeros| checkpoint.data(zeros));
        let mut at = first;
        let end = first + count;
        let mut some = Vec::new();
        let mut all = Vec::new();
        let order = self.order.as_ref().filter(|_| self.is_scattered());
        while at < end {
            let (row, column) = (at / columns, at % columns);
            let row = self.rows.as_ref().map_or(row, |rows| rows[row] as usize);
            let run = (columns - column).min(end - at);
            some.clear();
            match &self.columns {
                None => self.layout.codes(codes, row, column, run, &mut some),
                Some(places) => {
                    all.clear();
                    self.layout.codes(codes, row, 0, columns, &mut all);
                    some.extend(places[column..column + run].iter().map(|&place| all[place as usize]));
                }
            }
            let head = |column: usize| {
                let group = order.map_or(column / self.group, |order| order[column] as usize);
                (self.scale(scales, row, group), self.zero(zeros, row, group))
            };
            match format {
                Format::F32 | Format::F16 => {
                    let mut last = None;
                    for (column, &code) in (column..).zip(&some) {
                        let group = order.map_or(column / self.group, |order| order[column] as usize);
                        let (_, scale, zero) = match last {
                            Some(last @ (of, _, _)) if of == group => last,
                            _ => (group, self.scale(scales, row, group), self.zero(zeros, row, group)),
                        };
                        last = Some((group, scale, zero));
                        let value = scale * (f32::from(code) - f32::from(zero));
                        match format {
                            Format::F16 => out.extend(f16::from_f32(value).to_le_bytes()),
                            _ => out.extend(value.to_le_bytes()),
                        }
                    }
                }
                Format::Q4_0 | Format::Q8_0 => {
                    for (block, codes) in some.as_chunks::<SMALL>().0.iter().enumerate() {
                        put_small(head(column + SMALL * block), codes, format, out);
                    }
                }
                _ => {
                    for (block, codes) in some.as_chunks::<{ affine::BLOCK }>().0.iter().enumerate() {
                        let start = column + affine::BLOCK * block;
                        let heads = [start, start + SMALL].map(|column| {
                            let (scale, zero) = head(column);
                            [scale, -(scale * f32::from(zero))]
                        });
                        let end = out.len();
                        out.resize(end + format.block_bytes(), 0);
                        let put = affine::put_block(format, heads, codes, &mut out[end..]);
                        debug_assert!(put.is_some(), "an affine format");
                    }
                }
            }
            at += run;
        }
    }
}

/// Appends a block of `Q4_0` or `Q8_0`.
fn put_small((scale, zero): (f32, u8), codes: &[u8; SMALL], format: Format, out: &mut Vec<u8>) {
    out.extend(f16::from_f32(scale).to_le_bytes());
    if format == Format::Q8_0 {
        out.extend(codes.map(|code| code.wrapping_sub(zero)));
        return;
    }
    let nibble = |code: u8| code.wrapping_add(8).wrapping_sub(zero) & 15;
    let bytes: [u8; SMALL / 2] = array::from_fn(|i| nibble(codes[i]) | nibble(codes[i + SMALL / 2]) << 4);
    out.extend_from_slice(&bytes);
}

/// The format of several matrices with one shape, as experts have it: one that holds the values of all.
pub(crate) fn joined<'a>(all: impl Iterator<Item = (&'a Integers, Format)> + Clone, target: Target) -> Option<Format> {
    let (first, format) = all.clone().next()?;
    let has = |format: Format| all.clone().any(|(_, found)| found == format);
    if all.clone().all(|(_, found)| found == format) {
        return Some(format);
    }
    let bits = all.clone().map(|(of, _)| of.layout.bits).max()?;
    let columns = first.layout.columns;
    let ordered = all.clone().any(|(of, _)| of.is_scattered());
    let in_blocks = all.clone().all(|(of, _)| of.group.is_multiple_of(affine::BLOCK) || of.is_channel());
    let is_small = all.clone().all(|(of, _)| of.layout.bits <= 4);
    Some(if target == Target::File || ordered || has(Format::F32) || !columns.is_multiple_of(affine::BLOCK) {
        Format::F32
    } else if is_small && in_blocks && !has(Format::AFFINE4_32) {
        Format::INT4_64
    } else {
        Format::affine(bits, true).unwrap_or(Format::F32)
    })
}
