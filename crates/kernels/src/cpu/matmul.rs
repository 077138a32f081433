//! Matrix operations: which tile is multiplied with which activation rows, by whom, and where the result goes.
//!
//! Work is cut into chunks of some row groups × up to [`TOKEN_BLOCK`] activation rows, small enough that the
//! activations stay in the L2 cache while the weights of the chunk pass by.

use super::Cpu;
use super::dot::{Lanes, Rows, dot};
use super::layout::{ROWS, Tiles};
use super::level::Level;
use super::math::activate;
use super::out::OutRows;
use crate::act::{Act, Int8Block, Precision};
use crate::format::Format;
use crate::ops::Activation;
use std::ops::Range;

/// Activation rows that one chunk serves: 64 rows of 4,096 int8 activations are half a megabyte.
pub(crate) const TOKEN_BLOCK: usize = 64;

/// Weight bytes that one chunk reads, at least: about 5 µs of one of two cores that share 49 GB/s.
const CHUNK_BYTES: usize = 128 << 10;

/// The activation rows of a chunk, by reference.
pub(crate) struct Gathered<'a> {
    int8: [&'a [Int8Block]; TOKEN_BLOCK],
    bf16: [&'a [u32]; TOKEN_BLOCK],
    exact: [&'a [f32]; TOKEN_BLOCK],
    len: usize,
}

impl<'a> Gathered<'a> {
    /// Collects rows (at most [`TOKEN_BLOCK`]) of `x`.
    pub(crate) fn new(x: &'a Operand, rows: impl Iterator<Item = usize>) -> Self {
        let mut this = Self { int8: [&[]; TOKEN_BLOCK], bf16: [&[]; TOKEN_BLOCK], exact: [&[]; TOKEN_BLOCK], len: 0 };
        for row in rows.take(TOKEN_BLOCK) {
            this.exact[this.len] = &x.exact[row * x.cols..][..x.cols];
            if !x.int8.is_empty() {
                let blocks = x.cols.div_ceil(32);
                this.int8[this.len] = &x.int8[row * blocks..][..blocks];
            }
            if !x.bf16.is_empty() {
                let pairs = x.cols.div_ceil(2);
                this.bf16[this.len] = &x.bf16[row * pairs..][..pairs];
            }
            this.len += 1;
        }
        this
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The rows as weights of this format read them.
    fn rows(&self, format: Format) -> Rows<'_> {
        if !format.is_float() && !self.int8[0].is_empty() {
            Rows::Int8(&self.int8[..self.len])
        } else if format.is_bf16() && !self.bf16[0].is_empty() {
            Rows::Bf16(&self.bf16[..self.len])
        } else {
            Rows::Exact(&self.exact[..self.len])
        }
    }
}

/// Prepared activations in host memory.
pub(crate) struct Operand<'a> {
    exact: &'a [f32],
    /// Empty at [`Precision::Exact`].
    int8: &'a [Int8Block],
    /// Empty at [`Precision::Exact`], and if the level does not read it.
    bf16: &'a [u32],
    cols: usize,
}

impl<'a> Operand<'a> {
    /// The rows of an [`Act`] for a level; backends check the device first.
    pub(crate) fn new(act: &'a Act, level: Level) -> Option<Self> {
        let int8 = match act.precision {
            Precision::Exact => &[],
            Precision::Fast => act.int8.as_host()?,
        };
        let bf16 = if level.has_bf16() { act.bf16.as_host()? } else { &[] };
        Some(Self { exact: act.exact.as_host()?, int8, bf16, cols: act.cols })
    }
}

/// Results of one row group for the rows of a chunk.
type Results = [Lanes; TOKEN_BLOCK];

/// Takes results: the row's index among those gathered, the columns, and their values.
type Store<'a> = dyn Fn(usize, Range<usize>, &[f32]) + 'a;

/// Row groups to a chunk, so that each chunk is worth taking and every thread finds several.
pub(crate) fn groups_per_chunk(groups: usize, group_bytes: usize, token_blocks: usize, threads: usize) -> usize {
    let worth = CHUNK_BYTES.div_ceil(group_bytes.max(1));
    let spread = (groups * token_blocks).div_ceil(4 * threads);
    worth.min(spread).clamp(1, groups.max(1))
}

/// A list of chunks: (part, row groups) for each joined tensor, times token blocks.
pub(crate) struct Chunks {
    /// For each part: groups and groups per chunk.
    parts: Vec<(usize, usize)>,
}

impl Chunks {
    pub(crate) fn new(parts: &[Tiles], token_blocks: usize, threads: usize) -> Self {
        let per = |p: &Tiles| groups_per_chunk(p.groups(), p.group_bytes(), token_blocks, threads);
        Self { parts: parts.iter().map(|p| (p.groups(), per(p))).collect() }
    }

    pub(crate) fn len(&self) -> usize {
        self.parts.iter().map(|&(groups, per)| groups.div_ceil(per)).sum()
    }

    /// The part and its row groups of chunk `i < len()`.
    pub(crate) fn get(&self, mut i: usize) -> (usize, Range<usize>) {
        for (part, &(groups, per)) in self.parts.iter().enumerate() {
            let chunks = groups.div_ceil(per);
            if i < chunks {
                return (part, i * per..groups.min((i + 1) * per));
            }
            i -= chunks;
        }
        (0, 0..0)
    }
}

impl Cpu {
    /// Dense: y[i] = x[row(i)] · Wᵀ + bias for `count` rows.
    pub(crate) fn dense(
        &self,
        parts: &[Tiles],
        x: &Operand,
        count: usize,
        row: &(dyn Fn(usize) -> usize + Sync),
        bias: Option<&[f32]>,
        y: OutRows<f32>,
    ) {
        let blocks = count.div_ceil(TOKEN_BLOCK);
        let chunks = Chunks::new(parts, blocks, self.pool.threads());
        self.pool.run(chunks.len() * blocks, &|i| {
            let (part, groups) = chunks.get(i / blocks);
            let first = i % blocks * TOKEN_BLOCK;
            let rows = Gathered::new(x, (first..count).map(row));
            let start: usize = parts[..part].iter().map(|p| p.rows).sum();
            self.multiply(&parts[part], 0, groups, &rows, bias.map(|b| &b[start..]), &|t, columns, values| {
                // SAFETY: a chunk owns its columns (of its part and row groups) of its rows.
                let out = unsafe { y.part(first + t, start + columns.start..start + columns.end) };
                out.copy_from_slice(values);
            });
        });
    }

    /// Dense: h[i] = activation(gate · x[i], up · x[i]) for the first `count` rows.
    pub(crate) fn dense_gated(
        &self,
        weights: [&Tiles; 2],
        x: &Operand,
        count: usize,
        bias: Option<[&[f32]; 2]>,
        activation: Activation,
        h: OutRows<f32>,
    ) {
        let blocks = count.div_ceil(TOKEN_BLOCK);
        let (groups, bytes) = (weights[0].groups(), weights[0].group_bytes() + weights[1].group_bytes());
        let per = groups_per_chunk(groups, bytes, blocks, self.pool.threads());
        self.pool.run(groups.div_ceil(per) * blocks, &|i| {
            let first_group = i / blocks * per;
            let first = i % blocks * TOKEN_BLOCK;
            let rows = Gathered::new(x, first..count);
            let range = first_group..groups.min(first_group + per);
            self.multiply_gated(weights, 0, range, &rows, bias, activation, &|t, columns, values| {
                // SAFETY: a chunk owns its columns (of its row groups) of its rows.
                unsafe { h.part(first + t, columns) }.copy_from_slice(values);
            });
        });
    }

    /// One expert's row groups times gathered rows; `store` gets the row's index, the columns and their values.
    pub(crate) fn multiply(
        &self,
        tiles: &Tiles,
        expert: usize,
        groups: Range<usize>,
        rows: &Gathered,
        bias: Option<&[f32]>,
        store: &Store,
    ) {
        let mut results: Results = [[0.0; ROWS]; TOKEN_BLOCK];
        let results = &mut results[..rows.len()];
        for group in groups {
            let columns = group * ROWS..tiles.rows.min((group + 1) * ROWS);
            dot(self.level, tiles.format, tiles.group(expert, group), rows.rows(tiles.format), results);
            for (t, values) in results.iter_mut().enumerate() {
                let values = &mut values[..columns.len()];
                if let Some(bias) = bias {
                    values.iter_mut().zip(&bias[columns.clone()]).for_each(|(v, b)| *v += b);
                }
                store(t, columns.clone(), values);
            }
        }
    }

    /// As [`Cpu::multiply`] for a gate and up pair: stores activation(gate, up).
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn multiply_gated(
        &self,
        [gate, up]: [&Tiles; 2],
        expert: usize,
        groups: Range<usize>,
        rows: &Gathered,
        bias: Option<[&[f32]; 2]>,
        activation: Activation,
        store: &Store,
    ) {
        let mut gates: Results = [[0.0; ROWS]; TOKEN_BLOCK];
        let mut ups: Results = [[0.0; ROWS]; TOKEN_BLOCK];
        let (gates, ups) = (&mut gates[..rows.len()], &mut ups[..rows.len()]);
        for group in groups {
            let columns = group * ROWS..gate.rows.min((group + 1) * ROWS);
            dot(self.level, gate.format, gate.group(expert, group), rows.rows(gate.format), gates);
            dot(self.level, up.format, up.group(expert, group), rows.rows(up.format), ups);
            if let Some([gate_bias, up_bias]) = bias {
                for (lanes, bias) in [(&mut *gates, gate_bias), (&mut *ups, up_bias)] {
                    for values in lanes {
                        values.iter_mut().zip(&bias[columns.clone()]).for_each(|(v, b)| *v += b);
                    }
                }
            }
            activate(self.level, activation, gates, ups);
            for (t, values) in gates.iter().enumerate() {
                store(t, columns.clone(), &values[..columns.len()]);
            }
        }
    }
}
