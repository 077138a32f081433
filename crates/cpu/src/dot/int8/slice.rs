//! 32 columns of a tile: how they are unpacked, and fetched ahead.

use super::super::super::act::Int8Block;
use super::super::super::layout::Lanes;
use super::class::Class;
use gristmill_kernels::eight;
use gristmill_kernels::format::Quantised;
use gristmill_kernels::simd::Simd;

/// 32 columns of 16 weight rows, unpacked.
pub(super) trait Slice<S: Simd>: Copy + 'static {
    /// A slice of zeros.
    fn zero(s: S) -> Self;
    /// Slice `g` of a tile.
    fn unpack<F: Quantised>(s: S, tile: &[u8], g: usize) -> Self;
    /// out += products of the slices with `N` rows of as many blocks. `zero` is subtracted from each code.
    fn multiply<K: Class, const N: usize>(s: S, slices: &[Self], zero: i32, rows: [&[Int8Block]; N], out: &mut [Lanes]);
}

/// The codes of slice `g` as the level's dot products read them.
#[inline(always)]
pub(super) fn codes<F: Quantised, S: Simd>(s: S, tile: &[u8], g: usize) -> [S::Codes; 8] {
    let codes = F::codes(s, tile, g);
    if F::SIGNED { eight!(j => s.signed_codes(codes[j])) } else { codes }
}

/// Prefetch distance in bytes for formats with groups of 16: about two tiles. With few activation rows, a group of 32
/// columns reads its bytes in bursts, because one byte holds columns of several groups, and the hardware prefetcher
/// falls behind: Q6_K reads 28.5 instead of 21.5 GB/s of 40 (two Zen 4 cores), Q3_K 31 instead of 28; 4,096 bytes do
/// the same, 2,048 less. Formats whose tile is read more evenly (Q4_K) become slower there, where [`Simd::prefetches`] is
/// false.
const AHEAD: usize = 8192;

/// Prefetches the `g`-th of `slices` equal slices of the tile [`AHEAD`] bytes on.
#[inline(always)]
pub(super) fn prefetch_slice<S: Simd>(s: S, tile: &[u8], g: usize, slices: usize) {
    let len = tile.len() / slices;
    for line in 0..len.div_ceil(64) {
        s.prefetch(tile, AHEAD + g * len + 64 * line);
    }
}
