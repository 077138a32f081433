//! Sorting (token, slot) pairs by expert on the host: a counting sort, ascending within an expert.

use crate::check::PADDING;
use crate::tensor::Shape;

/// Where the parts of [`crate::ops::Groups`] lie on the host.
pub(crate) struct Sorted<'a> {
    /// E.
    pub(crate) counts: &'a mut [u32],
    /// At least as many as pairs.
    pub(crate) pairs: &'a mut [u32],
    /// Three words a tile.
    pub(crate) tiles: &'a mut [u32],
    /// One word.
    pub(crate) tile_count: &'a mut [u32],
    /// Rows of a full tile.
    pub(crate) tile_rows: usize,
}

/// Most tiles that a grouping can make: every tile but the last of an expert is full.
pub(crate) fn max_tiles(experts: usize, pairs: usize, tile_rows: usize) -> usize {
    pairs / tile_rows + experts.min(pairs)
}

/// Sorts pairs and cuts each expert's into tiles. Returns the number of live pairs. All ids must be below
/// `counts.len()` or padding, and the room must suffice ([`crate::check`]).
pub(crate) fn group(ids: &[u32], shape: Shape, rows: usize, to: Sorted) -> usize {
    let pairs = || (0..rows).flat_map(|row| ids[shape.row(row)].iter().copied()).zip(0_u32..);
    to.counts.fill(0);
    for (id, _) in pairs().filter(|&(id, _)| id != PADDING) {
        to.counts[id as usize] += 1;
    }

    // Counts become ends, and going backwards turns the ends into starts.
    let mut live = 0;
    for count in to.counts.iter_mut() {
        live += *count;
        *count = live;
    }
    for row in (0..rows).rev() {
        let ids = &ids[shape.row(row)];
        for (slot, &id) in ids.iter().enumerate().rev().filter(|&(_, &id)| id != PADDING) {
            let end = &mut to.counts[id as usize];
            *end -= 1;
            to.pairs[*end as usize] = (row * ids.len() + slot) as u32;
        }
    }

    // Starts become counts again while the tiles are cut.
    let mut tiles = to.tiles.chunks_exact_mut(3);
    let mut tile_count = 0;
    for expert in 0..to.counts.len() {
        let start = to.counts[expert];
        let end = to.counts.get(expert + 1).copied().unwrap_or(live);
        to.counts[expert] = end - start;
        for first in (start..end).step_by(to.tile_rows) {
            if let Some(tile) = tiles.next() {
                tile.copy_from_slice(&[expert as u32, first, (end - first).min(to.tile_rows as u32)]);
                tile_count += 1;
            }
        }
    }
    to.tile_count[0] = tile_count;
    live as usize
}
