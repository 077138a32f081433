//! Matrix operations: chunks of row groups and activation rows, and where outputs are stored.
//!
//! A chunk covers some row groups × at most [`TOKEN_BLOCK`] activation rows. Chunks are small enough that their
//! activations stay in the L2 cache while their weights stream.

use super::cpu::Cpu;
use super::cuts::{Cuts, TOKEN_BLOCK};
#[cfg(target_arch = "x86_64")]
use super::dot::dot_tiles;
use super::dot::{dot, dot_pair};
use super::gathered::{Gathered, Operand, PACKED_GROUPS, TILE_GROUPS, TILED_ROWS};
use super::host;
use super::layout::{self, Lanes, ROWS, Tiles};
use super::math::activate;
use super::out::{Fastest, OutRows};
use super::rows::write_out;
use super::weight::{gate_and_up, shapes, tiles};
use gristmill_kernels::error::Result;
use gristmill_kernels::ops::{Activation, GateUp, Matmul, Operation};
use gristmill_kernels::weight::{Role, TensorShape};
use std::ops::Range;

/// Minimum weight bytes per chunk: about 5 µs on one of two cores that share 49 GB/s.
const CHUNK_BYTES: usize = 128 << 10;

/// Results of one row group for the rows of a chunk.
type Results = [Lanes; TOKEN_BLOCK];

/// Callback for results: the row's index among the gathered rows, the columns of the tensor, and their values.
type Store<'a> = dyn FnMut(usize, Range<usize>, &[f32]) + 'a;

/// What decides how long chunks are.
#[derive(Clone, Copy)]
pub(crate) struct Chunks {
    token_blocks: usize,
    threads: usize,
    /// Each chunk copies its rows for tiles, so chunks are as long as threads leave them.
    tiled: bool,
}

impl Chunks {
    /// Row groups per chunk. Each chunk reads at least [`CHUNK_BYTES`], and every thread gets several chunks.
    fn groups(self, groups: usize, group_bytes: usize) -> usize {
        let worth = if self.tiled { usize::MAX } else { CHUNK_BYTES.div_ceil(group_bytes.max(1)) };
        let spread = (groups * self.token_blocks).div_ceil(4 * self.threads);
        worth.min(spread).clamp(1, groups.max(1))
    }
}

/// The columns of joined tensors, cut into chunks of whole row groups, for one block of activation rows.
pub(crate) fn column_cuts(tensors: &[TensorShape], chunks: Chunks) -> Cuts {
    let groups = |shape| chunks.groups(layout::groups(shape), layout::group_bytes(shape));
    Cuts::new(tensors.iter().map(|shape| (shape.rows, groups(shape) * ROWS)))
}

/// [`column_cuts`] for rows of which chunks have copies, if there are enough: longer chunks share a copy.
fn dense_cuts(tensors: &[TensorShape], chunks: Chunks) -> Cuts {
    let wide = |shape: &TensorShape| Chunks { tiled: true, ..chunks }.groups(layout::groups(shape), 1);
    match tensors.iter().all(|shape| shape.format.is_float() && wide(shape) >= PACKED_GROUPS) {
        true => Cuts::new(tensors.iter().map(|shape| (shape.rows, wide(shape).next_multiple_of(2) * ROWS))),
        false => column_cuts(tensors, chunks),
    }
}

/// [`column_cuts`] for gate and up tensors, which have the same columns.
pub(crate) fn gated_column_cuts([gate, up]: [&TensorShape; 2], chunks: Chunks) -> Cuts {
    let bytes = layout::group_bytes(gate) + layout::group_bytes(up);
    Cuts::even(gate.rows, chunks.groups(layout::groups(gate), bytes) * ROWS)
}

/// The first column of each joined tensor.
pub(crate) fn starts(tensors: &[TensorShape]) -> Vec<usize> {
    tensors.iter().scan(0, |next, shape| Some(std::mem::replace(next, *next + shape.rows))).collect()
}

/// The row groups that cover some columns of a tensor.
pub(crate) fn row_groups(columns: Range<usize>) -> Range<usize> {
    columns.start / ROWS..columns.end.div_ceil(ROWS)
}

on_cpu! {
    multiply_dense(Matmul);
    multiply_dense_gated(GateUp);
}

impl Cpu {
    /// Dense: y[i] = x[row(i)] · Wᵀ + bias, stored by the epilogue.
    pub(super) fn multiply_dense(&self, call: Matmul) -> Result<()> {
        let Matmul { weight, x, rows, bias, epilogue, mut y } = call;
        let tensors = tiles(Matmul::NAME, weight)?;
        let x = Operand::new(Matmul::NAME, x)?;
        let rows = rows.map(|rows| host::rows(Matmul::NAME, rows)).transpose()?;
        let x_row = |i: usize| rows.as_ref().map_or(i, |rows| rows.row(i)[0] as usize);
        let bias = bias.map(|bias| host::slice(Matmul::NAME, bias)).transpose()?;
        let y: OutRows<f32> = host::rows_mut(Matmul::NAME, &mut y)?;
        let row_cuts = Cuts::even(y.rows(), TOKEN_BLOCK);
        let shapes = shapes(Matmul::NAME, weight)?;
        let cols = dense_cuts(&shapes, self.chunks(y.rows(), row_cuts.len()));
        let starts = starts(&shapes);
        self.pool.each_tile(&y, &row_cuts, &cols, Fastest::Rows, &|block, chunk, mut y| {
            let (tensor, columns) = cols.get(chunk);
            let start = starts[tensor];
            let groups = row_groups(columns.start - start..columns.end - start);
            let format = tensors[tensor].format;
            let rows = Gathered::new(&x, row_cuts.get(block).1.map(x_row)).packed(format, groups.len());
            let rows = rows.tiled(self.level, [format].into_iter());
            self.multiply(&tensors[tensor], 0, groups, &rows, bias.map(|b| &b[start..]), &mut |t, columns, values| {
                write_out(epilogue, values, y.columns(t, start + columns.start..start + columns.end));
            });
        });
        Ok(())
    }

    /// Dense: h[i] = activation(gate · x[i] + bias, up · x[i] + bias).
    pub(super) fn multiply_dense_gated(&self, call: GateUp) -> Result<()> {
        let GateUp { weight, x, bias, activation, mut h } = call;
        let weights = gate_and_up(GateUp::NAME, tiles(GateUp::NAME, weight)?)?;
        let x = Operand::new(GateUp::NAME, x)?;
        let bias = host::pair(GateUp::NAME, bias)?;
        let h: OutRows<f32> = host::rows_mut(GateUp::NAME, &mut h)?;
        let row_cuts = Cuts::even(h.rows(), TOKEN_BLOCK);
        let shapes = weights.map(Tiles::shape);
        let shapes = shapes.each_ref();
        let chunks = self.chunks(h.rows(), row_cuts.len());
        let cols = match weights[0].format == weights[1].format && weights[0].format.is_float() {
            true => dense_cuts(std::slice::from_ref(shapes[0]), chunks),
            false => gated_column_cuts(shapes, chunks),
        };
        self.pool.each_tile(&h, &row_cuts, &cols, Fastest::Rows, &|block, chunk, mut h| {
            let groups = row_groups(cols.get(chunk).1);
            let rows = Gathered::new(&x, row_cuts.get(block).1).packed(weights[0].format, groups.len());
            let rows = rows.tiled(self.level, weights.iter().map(|weight| weight.format));
            self.multiply_gated(weights, 0, groups, &rows, bias, activation, &mut |t, columns, values| {
                h.columns(t, columns).copy_from_slice(values);
            });
        });
        Ok(())
    }

    /// How the columns of a product of `rows` activation rows in so many blocks are cut.
    pub(crate) fn chunks(&self, rows: usize, token_blocks: usize) -> Chunks {
        let tiled = self.level.tiles().is_some() && rows >= TILED_ROWS * token_blocks;
        Chunks { token_blocks, threads: self.pool.threads(), tiled }
    }

    /// One expert's row groups times gathered rows. `store` gets the row's index, the columns and their values.
    pub(crate) fn multiply(
        &self,
        tiles: &Tiles,
        expert: usize,
        groups: Range<usize>,
        rows: &Gathered,
        bias: Option<&[f32]>,
        store: &mut Store,
    ) {
        let mut store_group = |group: usize, results: &[Lanes]| {
            let columns = columns(tiles, group);
            for (t, values) in results.iter().enumerate() {
                store(t, columns.clone(), &values[..columns.len()]);
            }
        };
        if rows.is_tiled() && !tiles.format.is_float() {
            let mut results = vec![[0.0; ROWS]; TILE_GROUPS * rows.len()];
            for first in groups.clone().step_by(TILE_GROUPS) {
                let groups = first..groups.end.min(first + TILE_GROUPS);
                let results = &mut results[..groups.len() * rows.len()];
                self.multiply_groups(tiles, expert, groups.clone(), rows, bias, results);
                groups.zip(results.chunks(rows.len())).for_each(|(group, results)| store_group(group, results));
            }
            return;
        }
        let mut results: [Results; 2] = [[[0.0; ROWS]; TOKEN_BLOCK]; 2];
        let mut results = results.each_mut().map(|results| &mut results[..rows.len()]);
        let mut next = groups.start;
        while next < groups.end {
            if let Some(packed) = rows.packed.as_ref().filter(|_| next + 1 < groups.end) {
                let pair = [next, next + 1].map(|group| tiles.group(expert, group));
                dot_pair(self.level, tiles.format, pair, packed, results.each_mut().map(|results| &mut **results));
                for (group, results) in (next..).zip(&mut results) {
                    add_bias(tiles, group, bias, results);
                    store_group(group, results);
                }
                next += 2;
            } else {
                self.multiply_group(tiles, expert, next, rows, bias, results[0]);
                store_group(next, results[0]);
                next += 1;
            }
        }
    }

    /// [`Cpu::multiply`] for a gate and up pair; stores activation(gate, up). Without a gate, only up is multiplied.
    pub(crate) fn multiply_gated(
        &self,
        [gate, up]: [&Tiles; 2],
        expert: usize,
        groups: Range<usize>,
        rows: &Gathered,
        bias: Option<[&[f32]; 2]>,
        activation: Activation,
        store: &mut Store,
    ) {
        let mut few: [Results; 2] = [[[0.0; ROWS]; TOKEN_BLOCK]; 2];
        let mut many = vec![[0.0; ROWS]; if rows.is_tiled() { 2 * TILE_GROUPS * rows.len() } else { 0 }];
        let [gates, ups] = match rows.is_tiled() {
            true => <[_; 2]>::from(many.split_at_mut(TILE_GROUPS * rows.len())),
            false => few.each_mut().map(|results| &mut results[..]),
        };
        let packed = rows.packed.as_ref().filter(|_| activation.role() == Role::GateUp && gate.format == up.format);
        // As many groups of a tensor as there are results for: reads that alternate between two tensors are slower.
        let of_group = rows.len().max(1);
        let at_once = rows.groups_at_once();
        for first in groups.clone().step_by(at_once) {
            let groups = first..groups.end.min(first + at_once);
            let results = groups.len() * rows.len();
            let (gates, ups) = (&mut gates[..results], &mut ups[..results]);
            if let Some(packed) = packed {
                for ((group, gates), ups) in
                    groups.clone().zip(gates.chunks_mut(of_group)).zip(ups.chunks_mut(of_group))
                {
                    let pair = [gate, up].map(|tiles| tiles.group(expert, group));
                    dot_pair(self.level, up.format, pair, packed, [&mut *gates, &mut *ups]);
                    add_bias(gate, group, bias.map(|[bias, _]| bias), gates);
                    add_bias(up, group, bias.map(|[_, bias]| bias), ups);
                }
            } else {
                if activation.role() == Role::GateUp {
                    self.multiply_groups(gate, expert, groups.clone(), rows, bias.map(|[bias, _]| bias), gates);
                }
                self.multiply_groups(up, expert, groups.clone(), rows, bias.map(|[_, bias]| bias), ups);
            }
            activate(self.level, activation, gates, ups);
            for (group, gates) in groups.zip(gates.chunks(of_group)) {
                let columns = columns(up, group);
                for (t, values) in gates.iter().enumerate() {
                    store(t, columns.clone(), &values[..columns.len()]);
                }
            }
        }
    }

    /// Row groups times gathered rows, plus the bias. `results` has the rows of each group.
    fn multiply_groups(
        &self,
        tiles: &Tiles,
        expert: usize,
        groups: Range<usize>,
        rows: &Gathered,
        bias: Option<&[f32]>,
        results: &mut [Lanes],
    ) {
        #[cfg(target_arch = "x86_64")]
        if let Some(copies) = rows.tiles.as_ref().filter(|_| !tiles.format.is_float()) {
            dot_tiles(tiles.format, tiles.row_groups(expert, groups.clone()), copies, results);
            for (group, results) in groups.zip(results.chunks_mut(rows.len())) {
                add_bias(tiles, group, bias, results);
            }
            return;
        }
        for (group, results) in groups.zip(results.chunks_mut(rows.len().max(1))) {
            self.multiply_group(tiles, expert, group, rows, bias, results);
        }
    }

    /// One row group times gathered rows, plus the bias.
    fn multiply_group(
        &self,
        tiles: &Tiles,
        expert: usize,
        group: usize,
        rows: &Gathered,
        bias: Option<&[f32]>,
        results: &mut [Lanes],
    ) {
        dot(self.level, tiles.format, tiles.group(expert, group), rows.rows(tiles.format), results);
        add_bias(tiles, group, bias, results);
    }
}

/// The columns of a row group in the output.
fn columns(tiles: &Tiles, group: usize) -> Range<usize> {
    group * ROWS..tiles.rows.min((group + 1) * ROWS)
}

/// Adds the bias of a row group.
fn add_bias(tiles: &Tiles, group: usize, bias: Option<&[f32]>, results: &mut [Lanes]) {
    if let Some(bias) = bias {
        for values in results {
            values.iter_mut().zip(&bias[columns(tiles, group)]).for_each(|(v, b)| *v += b);
        }
    }
}
