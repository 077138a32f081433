//! Expert operations: matrix operations over tiles of grouped pairs.

use super::cpu::Cpu;
use super::cuts::TOKEN_BLOCK;
use super::gathered::{Gathered, Operand};
use super::host;
use super::layout::Tiles;
use super::matmul::{column_cuts, gated_column_cuts, row_groups, starts};
use super::offload::streamed::StreamedProduct;
use super::out::OutRows;
use super::pool::ChunkOrder;
use super::weight::{Matrices, gate_and_up, matrices, shapes};
use gristmill_kernels::error::Result;
use gristmill_kernels::groups::Groups;
use gristmill_kernels::ops::{MoeGateUp, MoeMatmul, Operation};
use gristmill_kernels::weight::Weight;

/// Rows of a full tile of [`Groups`].
pub(crate) const TILE_ROWS: usize = TOKEN_BLOCK;

/// The tiles of [`Groups`]: the expert and the pairs of each tile.
struct GroupTiles<'a> {
    experts: Vec<usize>,
    pairs: Vec<&'a [u32]>,
}

impl<'a> GroupTiles<'a> {
    fn new(op: &'static str, groups: &'a Groups) -> Result<Self> {
        let count = host::slice(op, groups.tile_count())?[0] as usize;
        let (tiles, pairs) = (host::slice(op, groups.tiles())?, host::slice(op, groups.pairs())?);
        let tiles = &tiles.as_chunks::<3>().0[..count];
        Ok(Self {
            experts: tiles.iter().map(|&[expert, ..]| expert as usize).collect(),
            pairs: tiles.iter().map(|&[_, first, rows]| &pairs[first as usize..][..rows as usize]).collect(),
        })
    }

    /// Rows of all tiles.
    fn rows(&self) -> usize {
        self.pairs.iter().map(|pairs| pairs.len()).sum()
    }

    /// Permutes the tiles.
    fn reorder(&mut self, order: &[usize]) {
        self.experts = order.iter().map(|&tile| self.experts[tile]).collect();
        self.pairs = order.iter().map(|&tile| self.pairs[tile]).collect();
    }

    /// The activation rows of a tile's pairs; `pairs_per_row` consecutive pairs share a row.
    fn gather<'x>(&self, tile: usize, x: &'x Operand<'x>, pairs_per_row: usize) -> Gathered<'x> {
        Gathered::new(x, self.pairs[tile].iter().map(|&pair| pair as usize / pairs_per_row))
    }
}

/// The experts of a product: in memory, or in a file.
enum ProductExperts<'a> {
    InMemory(&'a [Tiles]),
    Streamed(StreamedProduct<'a>),
}

impl<'a> ProductExperts<'a> {
    /// Brings the tiles of pairs into the order in which they must be multiplied, each in `chunks` chunks.
    fn new(
        op: &'static str,
        weight: &'a Weight,
        groups: &Groups,
        tiles: &mut GroupTiles,
        chunks: usize,
    ) -> Result<Self> {
        match matrices(op, weight)? {
            Matrices::InMemory(tensors) => Ok(Self::InMemory(tensors)),
            Matrices::Streamed(streamed) => {
                let (product, order) = streamed.product(host::slice(op, groups.counts())?, &tiles.experts, chunks);
                tiles.reorder(&order);
                Ok(Self::Streamed(product))
            }
        }
    }

    /// The order of the chunks. Slots of experts in a file go to earlier tiles first (`offload/streamed.rs`).
    fn order(&self) -> ChunkOrder {
        match self {
            Self::InMemory(_) => ChunkOrder::ByShare,
            Self::Streamed(_) => ChunkOrder::Ascending,
        }
    }

    /// Calls `multiply` with the tensors and the index of an expert's matrix in them, for one chunk.
    fn with(&self, expert: usize, multiply: impl FnOnce(&[Tiles], usize)) {
        match self {
            Self::InMemory(tensors) => multiply(tensors, expert),
            Self::Streamed(product) => product.with(expert, |tensors| multiply(tensors, 0)),
        }
    }

    /// The error of an expert that could not be read.
    fn finish(self) -> Result<()> {
        match self {
            Self::InMemory(_) => Ok(()),
            Self::Streamed(product) => product.finish(),
        }
    }
}

on_cpu! {
    multiply_experts(MoeMatmul);
    multiply_experts_gated(MoeGateUp);
}

impl Cpu {
    /// out[p] = W[id of p] · x + bias[id].
    pub(super) fn multiply_experts(&self, call: MoeMatmul) -> Result<()> {
        const OP: &str = MoeMatmul::NAME;
        let MoeMatmul { weight, x, groups, top_k, bias, mut out } = call;
        let pairs_per_row = if x.rows() == out.rows() { 1 } else { top_k };
        let shapes = shapes(OP, weight)?;
        let x = Operand::new(OP, x)?;
        let mut group_tiles = GroupTiles::new(OP, groups)?;
        let bias = bias.map(|bias| host::slice(OP, bias)).transpose()?;
        let out: OutRows<f32> = host::rows_mut(OP, &mut out)?;
        let width = weight.rows();
        let starts = starts(&shapes);
        let cols = column_cuts(&shapes, self.chunks(group_tiles.rows(), group_tiles.pairs.len()));
        let experts = ProductExperts::new(OP, weight, groups, &mut group_tiles, cols.len())?;
        self.pool.each_scattered(&out, &group_tiles.pairs, &cols, experts.order(), &|tile, chunk, mut out| {
            let (tensor, columns) = cols.get(chunk);
            let expert = group_tiles.experts[tile];
            let start = starts[tensor];
            let rows =
                group_tiles.gather(tile, &x, pairs_per_row).tiled(self.level, [shapes[tensor].format].into_iter());
            let bias = bias.map(|b| &b[expert * width + start..]);
            let groups = row_groups(columns.start - start..columns.end - start);
            experts.with(expert, |tensors, matrix| {
                self.multiply(&tensors[tensor], matrix, groups, &rows, bias, &mut |t, columns, values| {
                    out.columns(t, start + columns.start..start + columns.end).copy_from_slice(values);
                });
            });
        });
        experts.finish()
    }

    /// h[p] = activation(gate[id of p] · x + bias[id], up[id] · x + bias[id]).
    pub(super) fn multiply_experts_gated(&self, call: MoeGateUp) -> Result<()> {
        const OP: &str = MoeGateUp::NAME;
        let MoeGateUp { weight, x, groups, top_k, bias, activation, mut h } = call;
        let shapes = shapes(OP, weight)?;
        let x = Operand::new(OP, x)?;
        let mut group_tiles = GroupTiles::new(OP, groups)?;
        let bias = host::pair(OP, bias)?;
        let h: OutRows<f32> = host::rows_mut(OP, &mut h)?;
        let cols =
            gated_column_cuts(gate_and_up(OP, &shapes)?, self.chunks(group_tiles.rows(), group_tiles.pairs.len()));
        let experts = ProductExperts::new(OP, weight, groups, &mut group_tiles, cols.len())?;
        self.pool.each_scattered(&h, &group_tiles.pairs, &cols, experts.order(), &|tile, chunk, mut h| {
            let expert = group_tiles.experts[tile];
            let rows = group_tiles.gather(tile, &x, top_k).tiled(self.level, shapes.iter().map(|shape| shape.format));
            let bias = bias.map(|both| both.map(|b| &b[expert * weight.rows()..]));
            let groups = row_groups(cols.get(chunk).1);
            experts.with(expert, |tensors, matrix| {
                // One or two tensors, as their shapes.
                let weights = [&tensors[0], &tensors[tensors.len() - 1]];
                self.multiply_gated(weights, matrix, groups, &rows, bias, activation, &mut |t, columns, values| {
                    h.columns(t, columns).copy_from_slice(values);
                });
            });
        });
        experts.finish()
    }
}
