//! Expert operations: matrix operations over tiles of grouped pairs.

use super::Cpu;
use super::host;
use super::matmul::{Gathered, Operand, TOKEN_BLOCK, column_cuts, gated_column_cuts, row_groups, starts};
use super::out::OutRows;
use super::weight::{gate_and_up, tiles};
use gristmill_kernels::error::Result;
use gristmill_kernels::groups::Groups;
use gristmill_kernels::ops::{MoeGateUp, MoeMatmul, Operation};

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

    /// The activation rows of a tile's pairs; `pairs_per_row` consecutive pairs share a row.
    fn gather<'x>(&self, tile: usize, x: &'x Operand<'x>, pairs_per_row: usize) -> Gathered<'x> {
        Gathered::new(x, self.pairs[tile].iter().map(|&pair| pair as usize / pairs_per_row))
    }
}

impl Cpu {
    /// out[p] = W[id of p] · x + bias[id].
    pub(super) fn multiply_experts(&self, call: MoeMatmul) -> Result<()> {
        const OP: &str = MoeMatmul::NAME;
        let MoeMatmul { weight, x, groups, top_k, bias, mut out } = call;
        let pairs_per_row = if x.rows() == out.rows() { 1 } else { top_k };
        let (tensors, x, group_tiles) = (tiles(OP, weight)?, Operand::new(OP, x)?, GroupTiles::new(OP, groups)?);
        let bias = bias.map(|bias| host::slice(OP, bias)).transpose()?;
        let out: OutRows<f32> = host::rows_mut(OP, &mut out)?;
        let (width, starts) = (weight.rows(), starts(tensors));
        let cols = column_cuts(tensors, group_tiles.pairs.len(), self.pool.threads());
        self.pool.each_scattered(&out, &group_tiles.pairs, &cols, &|tile, chunk, mut out| {
            let (tensor, columns) = cols.get(chunk);
            let (expert, start) = (group_tiles.experts[tile], starts[tensor]);
            let rows = group_tiles.gather(tile, &x, pairs_per_row);
            let bias = bias.map(|b| &b[expert * width + start..]);
            let groups = row_groups(columns.start - start..columns.end - start);
            self.multiply(&tensors[tensor], expert, groups, &rows, bias, &mut |t, columns, values| {
                out.columns(t, start + columns.start..start + columns.end).copy_from_slice(values);
            });
        });
        Ok(())
    }

    /// h[p] = activation(gate[id of p] · x + bias[id], up[id] · x + bias[id]).
    pub(super) fn multiply_experts_gated(&self, call: MoeGateUp) -> Result<()> {
        const OP: &str = MoeGateUp::NAME;
        let MoeGateUp { weight, x, groups, top_k, bias, activation, mut h } = call;
        let (weights, x, group_tiles) = (gate_and_up(OP, weight)?, Operand::new(OP, x)?, GroupTiles::new(OP, groups)?);
        let bias = host::pair(OP, bias)?;
        let h: OutRows<f32> = host::rows_mut(OP, &mut h)?;
        let cols = gated_column_cuts(weights, group_tiles.pairs.len(), self.pool.threads());
        self.pool.each_scattered(&h, &group_tiles.pairs, &cols, &|tile, chunk, mut h| {
            let expert = group_tiles.experts[tile];
            let rows = group_tiles.gather(tile, &x, top_k);
            let bias = bias.map(|both| both.map(|b| &b[expert * weight.rows()..]));
            let groups = row_groups(cols.get(chunk).1);
            self.multiply_gated(weights, expert, groups, &rows, bias, activation, &mut |t, columns, values| {
                h.columns(t, columns).copy_from_slice(values);
            });
        });
        Ok(())
    }
}
