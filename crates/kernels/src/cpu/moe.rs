//! Expert operations: matrix operations over the tiles of grouped pairs.

use super::Cpu;
use super::layout::Tiles;
use super::matmul::{Gathered, Operand, TOKEN_BLOCK, groups_per_chunk};
use super::out::OutRows;
use crate::ops::{Activation, Groups};
use std::ops::Range;

/// A run of pairs of one expert.
#[derive(Clone, Copy)]
struct Tile {
    expert: usize,
    first: usize,
    rows: usize,
}

/// What the expert operations read of [`Groups`].
pub(crate) struct Grouped<'a> {
    pairs: &'a [u32],
    tiles: &'a [u32],
    /// Pairs, padding included.
    total: usize,
}

impl<'a> Grouped<'a> {
    /// Groups in host memory; backends check the device first.
    pub(crate) fn new(groups: &'a Groups) -> Option<Self> {
        let count = *groups.tile_count.as_host()?.first()? as usize;
        let tiles = &groups.tiles.as_host()?[..3 * count];
        Some(Self { pairs: &groups.pairs.as_host()?[..groups.live_pairs], tiles, total: groups.total_pairs })
    }

    fn len(&self) -> usize {
        self.tiles.len() / 3
    }

    fn tile(&self, i: usize) -> Tile {
        let words = &self.tiles[3 * i..3 * i + 3];
        Tile { expert: words[0] as usize, first: words[1] as usize, rows: words[2] as usize }
    }

    /// The pairs of a tile.
    fn pairs(&self, tile: Tile) -> &'a [u32] {
        &self.pairs[tile.first..tile.first + tile.rows]
    }
}

/// What every expert operation needs to know.
pub(crate) struct ExpertCall<'a> {
    pub(crate) x: &'a Operand<'a>,
    pub(crate) groups: &'a Grouped<'a>,
    /// Pairs that share a row of X: top-k, or 1 if X has a row for each pair.
    pub(crate) pairs_per_row: usize,
}

impl Cpu {
    /// out[p] = W[id of p] · x + bias[id].
    pub(crate) fn experts(&self, parts: &[Tiles], call: &ExpertCall, bias: Option<&[f32]>, out: OutRows<f32>) {
        let width: usize = parts.iter().map(|p| p.rows).sum();
        let mut start = 0;
        for part in parts {
            self.for_each_tile(part, 1, call, &|groups, tile, rows| {
                let pairs = call.groups.pairs(tile);
                let bias = bias.map(|b| &b[tile.expert * width + start..]);
                self.multiply(part, tile.expert, groups, rows, bias, &|t, columns, values| {
                    // SAFETY: a pair is in one tile, and a chunk owns its columns of that tile's pairs.
                    let row = unsafe { out.part(pairs[t] as usize, start + columns.start..start + columns.end) };
                    row.copy_from_slice(values);
                });
            });
            start += part.rows;
        }
        self.zero_padding(call, out);
    }

    /// h[p] = activation(gate[id] · x, up[id] · x).
    pub(crate) fn experts_gated(
        &self,
        weights: [&Tiles; 2],
        call: &ExpertCall,
        bias: Option<[&[f32]; 2]>,
        activation: Activation,
        out: OutRows<f32>,
    ) {
        self.for_each_tile(weights[0], 2, call, &|groups, tile, rows| {
            let pairs = call.groups.pairs(tile);
            let bias = bias.map(|b| b.map(|b| &b[tile.expert * weights[0].rows..]));
            self.multiply_gated(weights, tile.expert, groups, rows, bias, activation, &|t, columns, values| {
                // SAFETY: a pair is in one tile, and a chunk owns its columns of that tile's pairs.
                unsafe { out.part(pairs[t] as usize, columns) }.copy_from_slice(values);
            });
        });
        self.zero_padding(call, out);
    }

    /// Runs `work` on every (row groups, tile), with the tile's activation rows gathered.
    fn for_each_tile(
        &self,
        tiles: &Tiles,
        matrices: usize,
        call: &ExpertCall,
        work: &(dyn Fn(Range<usize>, Tile, &Gathered) + Sync),
    ) {
        let count = call.groups.len();
        let groups = tiles.groups();
        let per = groups_per_chunk(groups, matrices * tiles.group_bytes(), count, self.pool.threads());
        let chunks = groups.div_ceil(per);
        self.pool.run(count * chunks, &|i| {
            let tile = call.groups.tile(i / chunks);
            let first = i % chunks * per;
            let rows = call.groups.pairs(tile).iter().map(|&pair| pair as usize / call.pairs_per_row);
            let rows = Gathered::new(call.x, rows);
            work(first..groups.min(first + per), tile, &rows);
        });
    }

    /// Zeroes the rows of pairs that have no expert.
    fn zero_padding(&self, call: &ExpertCall, out: OutRows<f32>) {
        if call.groups.pairs.len() == call.groups.total {
            return;
        }
        let mut live = vec![false; call.groups.total];
        call.groups.pairs.iter().for_each(|&pair| live[pair as usize] = true);
        for pair in (0..call.groups.total).filter(|&p| !live[p]) {
            // SAFETY: this thread is the only one that writes now.
            unsafe { out.row(pair) }.fill(0.0);
        }
    }
}

/// Rows of a full tile of [`Groups`].
pub(crate) const TILE_ROWS: usize = TOKEN_BLOCK;
