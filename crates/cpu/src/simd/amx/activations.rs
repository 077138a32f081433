//! Activation rows as tiles of bfloat16.

use super::{Amx, Tile, ZERO};
use crate::cuts::TOKEN_BLOCK;
use std::arch::x86_64::*;
use std::mem::transmute;

/// The largest number of a row becomes 2¹⁰⁰ to 2¹⁰¹: weights have exponents that are lower by 112 (`weights.rs`).
pub(super) const LARGEST: i32 = 100;

/// The columns of a tile of activations: those of each four as the even and odd bytes of weights have them.
const ORDER: [u16; 32] = {
    let mut order = [0; 32];
    let mut i = 0;
    while i < 32 {
        order[i] = (i / 4 * 4 + [0, 2, 1, 3][i % 4]) as u16;
        i += 1;
    }
    order
};

/// A copy of up to [`TOKEN_BLOCK`] activation rows as tiles of 16 rows × 32 columns: all tiles of the first 16 rows, then
/// those of the next.
pub(crate) struct TileRows {
    amx: Amx,
    tiles: Vec<Tile>,
    /// For each row, the exponent by which its results are too large.
    exponents: Vec<f32>,
}

impl TileRows {
    /// The rows, all of one length, a multiple of 32. At most [`TOKEN_BLOCK`] count.
    pub(crate) fn new(amx: Amx, rows: &[&[f32]]) -> Self {
        let rows = &rows[..rows.len().min(TOKEN_BLOCK)];
        let slices = rows.first().map_or(0, |row| row.len() / 32);
        let mut tiles = vec![ZERO; rows.len().div_ceil(16) * slices];
        let mut exponents = Vec::with_capacity(rows.len());
        for (rows, tiles) in rows.chunks(16).zip(tiles.chunks_mut(slices.max(1))) {
            for (r, row) in rows.iter().enumerate() {
                // SAFETY: the token proves the CPU features.
                exponents.push(unsafe { fill_row(row, r, tiles) });
            }
        }
        Self { amx, tiles, exponents }
    }

    /// The token with which they were made.
    pub(super) fn amx(&self) -> Amx {
        self.amx
    }

    /// Number of rows.
    pub(super) fn len(&self) -> usize {
        self.exponents.len()
    }

    /// Tiles of 32 columns in a row.
    pub(super) fn slices(&self) -> usize {
        self.tiles.len() / self.len().div_ceil(16).max(1)
    }

    /// The tiles of rows `16 * block` to `16 * block + 15`.
    pub(super) fn block(&self, block: usize) -> &[Tile] {
        &self.tiles[block * self.slices()..][..self.slices()]
    }

    /// See [`TileRows::exponents`].
    pub(super) fn exponents(&self) -> &[f32] {
        &self.exponents
    }
}

/// Fills row `r` of the tiles, and returns the row's exponent.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
fn fill_row(row: &[f32], r: usize, tiles: &mut [Tile]) -> f32 {
    // Without sign bits, floats sort like their bit patterns.
    let largest = row.iter().map(|x| (x.to_bits() & 0x7fff_ffff) as i32).fold(0, i32::max);
    let exponent = (largest >> 23) - 127;
    let up = _mm512_set1_ps((LARGEST - exponent) as f32);
    // SAFETY: the order has 64 bytes.
    let order = unsafe { _mm512_loadu_si512(ORDER.as_ptr().cast()) };
    for (x, tile) in row.as_chunks::<32>().0.iter().zip(tiles) {
        // SAFETY: the chunk has 32 floats.
        let (low, high) = unsafe { (_mm512_loadu_ps(x.as_ptr()), _mm512_loadu_ps(x.as_ptr().add(16))) };
        let pairs = _mm512_cvtne2ps_pbh(_mm512_scalef_ps(high, up), _mm512_scalef_ps(low, up));
        // SAFETY: both are 64 bytes, of which any are valid.
        let pairs = unsafe { transmute::<__m512bh, __m512i>(pairs) };
        // SAFETY: a line has 64 bytes, aligned.
        unsafe { _mm512_store_si512(tile[r].0.as_mut_ptr().cast(), _mm512_permutexvar_epi16(order, pairs)) };
    }
    exponent as f32
}
