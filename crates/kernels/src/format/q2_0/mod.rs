//! `Q2_0`: 64 elements of two bits and one f16 scale. value = d · (q − 1): −1, 0, 1 or 2 times d.
//!
//! Block (18 bytes): `d` f16, `qs` 16 bytes: element `i` is at bit `2·(i % 4)` of byte `i / 4`.

use half::f16;

use super::{BlockFormat, Plane, Quantised, bits, fit, plane};
use crate::simd::Simd;

/// The format `Q2_0`.
#[derive(Clone, Copy, Default)]
pub struct Q2_0;

const QS: usize = 2;

impl BlockFormat for Q2_0 {
    const BLOCK: usize = 64;
    const GROUP: usize = 32;
    const BYTES: usize = 18;
    const PLANES: &'static [Plane] = &[plane(0, 2, 2), plane(2, 16, 1)];
    const ENCODE_NMSE: f64 = 1.29e-1;
    const READ_ONLY: bool = true;
    const BATCH: usize = 16;

    fn decode(block: &[u8], out: &mut [f32]) {
        let d = bits::f16_at(block, 0);
        for (i, o) in out.iter_mut().enumerate() {
            *o = d * (f32::from(block[QS + i / 4] >> (2 * (i % 4)) & 3) - 1.0);
        }
    }

    #[inline(always)]
    fn encode<S: Simd>(s: S, values: &[f32], blocks: &mut [u8]) {
        // The negative of a scale for −2 to 1.
        let fit = fit::scaled::<S, fit::Signed<2>, 64>(s, values);
        for (lane, block) in blocks.chunks_exact_mut(Self::BYTES).enumerate() {
            block[..QS].copy_from_slice(&f16::to_le_bytes(-fit.d[lane]));
            for (byte, codes) in block[QS..].iter_mut().zip(fit.codes.as_chunks::<4>().0) {
                *byte = (0..4).fold(0, |byte, i| byte | (3 - codes[i][lane] as u8) << (2 * i));
            }
        }
    }
}

impl Quantised for Q2_0 {
    const LARGEST: i32 = 3;
    const ZERO: i32 = 1;

    #[inline(always)]
    fn codes<S: Simd>(s: S, tile: &[u8], g: usize) -> [S::Codes; 8] {
        eight!(j => {
            let byte = s.load_u8(tile, 16 * (QS + 8 * g + j));
            // Nibbles to 16 bits each, then pairs of bits to bytes.
            let nibbles = s.and_i32(s.or_i32(byte, s.shl_i32(byte, 12)), s.splat_i32(0x000f_000f));
            s.as_codes(s.and_i32(s.or_i32(nibbles, s.shl_i32(nibbles, 6)), s.splat_i32(0x0303_0303)))
        })
    }
}

// Mutations (`cargo xtask prove mutations`):
// [matmul] `s.shl_i32(nibbles, 6)` => `s.shl_i32(nibbles, 7)`
// [matmul] `16 * (QS + 8 * g + j)` => `16 * (QS + j)`
