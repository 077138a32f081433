//! Row groups times many activation rows, by tiles.
//!
//! 16 weight rows × up to 64 activation rows have their sums in four tiles for all columns. Weights of 32 columns are
//! unpacked into a ring in the L1 cache some slices before they are multiplied, also those of the next group: vector
//! instructions run beside products of tiles. A store and a load of one line must be at least two tiles apart, or the load
//! waits.

use super::weights::{DOWN, exponents, unpack};
use super::{Amx, Avx512, Line, Tile, TileRows, ZERO};
use crate::cuts::TOKEN_BLOCK;
use crate::layout::{Lanes, ROWS};
use gristmill_kernels::eight;
use gristmill_kernels::format::Quantised;
use gristmill_kernels::simd::{Simd, WeightSlice};
use std::arch::asm;
use std::arch::x86_64::*;
use std::marker::PhantomData;

/// Tiles of unpacked weights: 8 KB.
const RING: usize = 8;
/// How many of them are unpacked before they are multiplied.
const AHEAD: usize = 4;

/// The products of row groups with all rows.
pub(crate) struct TileProduct<'a, F> {
    /// Whole row groups of the rows' columns, one after another.
    pub(crate) groups: &'a [u8],
    pub(crate) rows: &'a TileRows,
    /// Of each group, the results of each row.
    pub(crate) out: &'a mut [Lanes],
    pub(crate) format: PhantomData<F>,
}

impl<F: Quantised> TileProduct<'_, F> {
    /// Computes them.
    ///
    /// # Panics
    /// If the slices do not have these lengths.
    pub(crate) fn run(self) {
        let (rows, amx) = (self.rows.len(), self.rows.amx());
        if rows == 0 {
            return;
        }
        let group = self.rows.slices() / (F::BLOCK / 32) * ROWS * F::BYTES;
        assert!(
            self.rows.slices().is_multiple_of(F::BLOCK / 32)
                && self.out.len().is_multiple_of(rows)
                && self.groups.len() == self.out.len() / rows * group,
            "groups of {} bytes for {} results of {rows} rows",
            self.groups.len(),
            self.out.len()
        );
        let weights =
            Weights::<F> { s: amx.avx512(), groups: self.groups, group, at: 0, slice: 0, format: PhantomData };
        // SAFETY: the token proves the CPU features.
        unsafe { multiply(amx, weights, self.rows, self.out) }
    }
}

/// Weights in the order in which they are unpacked.
struct Weights<'a, F> {
    s: Avx512,
    groups: &'a [u8],
    /// Bytes of a group.
    group: usize,
    /// The byte at which the next tile starts.
    at: usize,
    /// Its slice that is unpacked next.
    slice: usize,
    format: PhantomData<F>,
}

impl<F: Quantised> Weights<'_, F> {
    /// Unpacks the next 32 columns, if there are any. `exponent` changes at the start of a group.
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni,avx512fp16")]
    #[inline]
    fn unpack(&mut self, exponents_of: &mut [__m512; RING], out: &mut Tile) {
        let Some(tile) = self.groups.get(self.at..self.at + ROWS * F::BYTES) else { return };
        let group = self.at / self.group;
        if self.slice == 0 && self.at.is_multiple_of(self.group) {
            exponents_of[group % RING] = exponents::<F>(self.s, &self.groups[self.at..][..self.group]);
        }
        let (s, slice) = (self.s, self.slice);
        let codes = F::codes(s, tile, slice);
        let codes = if F::SIGNED { eight!(j => s.signed_codes(codes[j])) } else { codes };
        let weights = WeightSlice { codes, scales: F::scales(s, tile, slice) };
        let zero = F::ZERO + if F::SIGNED { Avx512::SIGNED_BIAS } else { 0 };
        unpack(&weights, zero as f32, exponents_of[group % RING], out);
        self.slice += 1;
        if self.slice == F::BLOCK / 32 {
            (self.slice, self.at) = (0, self.at + ROWS * F::BYTES);
        }
    }
}

/// The shapes of the tiles of a thread, until it is dropped: four blocks of sums, three of activations, one of weights.
struct Configured;

#[repr(C, align(64))]
struct Config {
    palette: u8,
    start: [u8; 15],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

impl Configured {
    /// Configures tiles for this number of activation rows, which costs about 65 ns. Fewer rows take less time: 8 rows 9 to
    /// 10 cycles instead of 16. The fourth block shares a tile with the first, so it has 16 rows.
    ///
    /// # Safety
    /// No tile is in use on this thread.
    unsafe fn new(_: Amx, rows: usize) -> Self {
        let blocks = rows.div_ceil(16);
        let mut config = Config { palette: 1, start: [0; 15], row_bytes: [0; 16], rows: [0; 16] };
        let mut set = |tile: usize, rows: usize| (config.row_bytes[tile], config.rows[tile]) = (64, rows as u8);
        set(WEIGHTS, 16);
        for block in 0..blocks {
            let rows = if blocks == 4 { 16 } else { (rows - 16 * block).min(16) };
            set(block % 3, rows);
            set(SUMS + block, rows);
        }
        // SAFETY: the token proves that the instruction is there and permitted; it reads 64 bytes.
        unsafe { asm!("ldtilecfg [{}]", in(reg) &raw const config, options(nostack, readonly, preserves_flags)) };
        Self
    }
}

impl Drop for Configured {
    /// Else each switch of threads would save 8 KB.
    fn drop(&mut self) {
        // SAFETY: only `new` makes the value, with a token that proves the instruction.
        unsafe { asm!("tilerelease", options(nostack, nomem, preserves_flags)) };
    }
}

/// The tile of weights; those of activations are before it, and those of sums after it.
const WEIGHTS: usize = 3;
/// The first tile of sums.
const SUMS: usize = 4;

/// An instruction for a tile in memory, whose rows follow one another.
macro_rules! tile {
    (load $tile:literal, $from:expr) => {
        asm!(concat!("tileloadd tmm", $tile, ", [{at} + {stride}*1]"),
            at = in(reg) $from, stride = in(reg) 64_usize, options(nostack, readonly, preserves_flags))
    };
    (store $tile:literal, $to:expr) => {
        asm!(concat!("tilestored [{at} + {stride}*1], tmm", $tile),
            at = in(reg) $to, stride = in(reg) 64_usize, options(nostack, preserves_flags))
    };
    (zero $tile:literal) => {
        asm!(concat!("tilezero tmm", $tile), options(nostack, nomem, preserves_flags))
    };
    (add $sum:literal, $rows:literal) => {
        asm!(concat!("tdpbf16ps tmm", $sum, ", tmm", $rows, ", tmm3"), options(nostack, nomem, preserves_flags))
    };
}

#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni,avx512bf16,avx512fp16")]
#[inline(never)]
fn multiply<F: Quantised>(amx: Amx, mut weights: Weights<F>, rows: &TileRows, out: &mut [Lanes]) {
    let blocks = rows.len().div_ceil(16);
    let block = [0, 1, 2, 3].map(|block| if block < blocks { rows.block(block) } else { &[] });
    let mut ring = [ZERO; RING];
    let mut exponents = [_mm512_setzero_ps(); RING];
    let mut sums = [Line([0; 64]); TOKEN_BLOCK];
    for tile in &mut ring[..AHEAD] {
        weights.unpack(&mut exponents, tile);
    }
    let mut next = 0;
    // SAFETY: this function alone uses tiles, and runs no other code that does.
    let _configured = unsafe { Configured::new(amx, rows.len()) };
    for (group, out) in out.chunks_exact_mut(rows.len()).enumerate() {
        // SAFETY: the tiles are configured. Each load and store of a tile is of at most 16 lines: `ring` has such tiles,
        // `block` has one for each slice if the block exists, and `sums` has 16 lines for each of four blocks.
        unsafe {
            tile!(zero "4");
            if blocks > 1 {
                tile!(zero "5");
            }
            if blocks > 2 {
                tile!(zero "6");
            }
            if blocks > 3 {
                tile!(zero "7");
            }
            for slice in 0..rows.slices() {
                tile!(load "3", ring[next % RING].as_ptr());
                tile!(load "0", block[0][slice].as_ptr());
                tile!(add "4", "0");
                if blocks > 1 {
                    tile!(load "1", block[1][slice].as_ptr());
                    tile!(add "5", "1");
                }
                if blocks > 2 {
                    tile!(load "2", block[2][slice].as_ptr());
                    tile!(add "6", "2");
                }
                if blocks > 3 {
                    tile!(load "0", block[3][slice].as_ptr());
                    tile!(add "7", "0");
                }
                weights.unpack(&mut exponents, &mut ring[(next + AHEAD) % RING]);
                next += 1;
            }
            tile!(store "4", sums.as_mut_ptr());
            if blocks > 1 {
                tile!(store "5", sums.as_mut_ptr().add(16));
            }
            if blocks > 2 {
                tile!(store "6", sums.as_mut_ptr().add(32));
            }
            if blocks > 3 {
                tile!(store "7", sums.as_mut_ptr().add(48));
            }
        }
        let exponent = _mm512_add_ps(exponents[group % RING], _mm512_set1_ps(DOWN));
        for ((out, sum), row) in out.iter_mut().zip(&sums).zip(rows.exponents()) {
            // SAFETY: a line and an output have 64 bytes, the line aligned.
            unsafe {
                let sum = _mm512_load_ps(sum.0.as_ptr().cast());
                let result = _mm512_scalef_ps(sum, _mm512_add_ps(exponent, _mm512_set1_ps(*row)));
                _mm512_storeu_ps(out.as_mut_ptr(), result);
            }
        }
    }
}
