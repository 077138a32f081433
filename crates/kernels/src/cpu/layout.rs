//! The layout of prepared weights: tiles of 16 rows, planes interleaved by units.
//!
//! A tile is one block of each of 16 rows. It is a permutation of the file's bytes (same size), so that one 64-byte
//! load brings 4 bytes of each of 16 rows and no kernel needs a horizontal sum. Tiles of a row group follow each
//! other along the columns; row groups follow each other. Missing rows of the last group are zero bytes, which every
//! format decodes to zero or to a finite number that is never written out.

use crate::format::Plane;

/// Rows in a tile.
pub const ROWS: usize = 16;

/// Permutes one block of each of up to 16 rows into a tile. `blocks` holds each row's block; missing rows are zeroed.
///
/// `tile.len()` must be 16 × the block's bytes, which is the sum of the planes' bytes.
pub fn interleave(planes: &[Plane], blocks: &[&[u8]], tile: &mut [u8]) {
    if blocks.len() < ROWS {
        tile.fill(0);
    }
    let mut start = 0;
    for plane in planes {
        let out = &mut tile[ROWS * start..ROWS * (start + plane.bytes)];
        match plane.unit {
            1 => interleave_units::<1>(start, blocks, out),
            2 => interleave_units::<2>(start, blocks, out),
            _ => interleave_units::<4>(start, blocks, out),
        }
        start += plane.bytes;
    }
}

fn interleave_units<const UNIT: usize>(start: usize, blocks: &[&[u8]], out: &mut [u8]) {
    for (i, units) in out.chunks_exact_mut(ROWS * UNIT).enumerate() {
        let at = start + i * UNIT;
        for (unit, block) in units.chunks_exact_mut(UNIT).zip(blocks) {
            unit.copy_from_slice(&block[at..at + UNIT]);
        }
    }
}
