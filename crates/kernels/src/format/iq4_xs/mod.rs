//! `IQ4_XS`: super-blocks of 256 elements in 8 groups of 32, with the table of [`super::iq4_nl`].
//! value = d · (scale − 32) · VALUES\[q\].
//!
//! Block (136 bytes): `d` f16, `scales_h` u16 (bits `2·g`: high 2 bits of group `g`'s scale), `scales_l` 4 bytes
//! (nibble `g % 2` of byte `g / 2`: its low 4 bits), `qs` 128 bytes: byte `16·g + i` holds element `32·g + i` in its
//! low and `32·g + 16 + i` in its high nibble.

use super::iq4_nl::{Table, VALUES};
use super::{BlockFormat, Plane, Quantised, bits, fit, plane};
use crate::simd::Simd;

/// The format `IQ4_XS`.
#[derive(Clone, Copy, Default)]
pub struct IQ4_XS;

const SCALES_H: usize = 2;
const SCALES_L: usize = 4;
const QS: usize = 8;

impl BlockFormat for IQ4_XS {
    const BLOCK: usize = 256;
    const GROUP: usize = 32;
    const BYTES: usize = 136;
    const PLANES: &'static [Plane] = &[plane(0, 4, 2), plane(4, 4, 1), plane(8, 128, 4)];
    const ENCODE_NMSE: f64 = 5.6e-3;

    fn decode(block: &[u8], out: &mut [f32]) {
        let d = bits::f16_at(block, 0);
        for (g, out) in out.chunks_exact_mut(32).enumerate() {
            let high = block[SCALES_H + g / 4] >> (2 * (g % 4)) & 3;
            let low = block[SCALES_L + g / 2] >> (4 * (g % 2)) & 15;
            let scale = d * (f32::from(low | high << 4) - 32.0);
            for (i, o) in out.iter_mut().enumerate() {
                *o = scale * f32::from(VALUES[usize::from(bits::nibble(&block[QS + 16 * g..], i))]);
            }
        }
    }

    #[inline(always)]
    fn encode<S: Simd>(s: S, values: &[f32], blocks: &mut [u8]) {
        let fit = fit::super_scaled::<S, Table, 32>(s, values, 8, -32.0);
        for (b, block) in blocks.chunks_exact_mut(Self::BYTES).enumerate() {
            block.fill(0);
            block[..SCALES_H].copy_from_slice(&fit.d[8 * b].to_le_bytes());
            for g in 0..8 {
                let six = (fit.scale[8 * b + g] + 32.0) as u8;
                block[SCALES_H + g / 4] |= six >> 4 << (2 * (g % 4));
                block[SCALES_L + g / 2] |= (six & 15) << (4 * (g % 2));
                bits::set_nibbles(&mut block[QS + 16 * g..QS + 16 * (g + 1)], |i| fit.codes[i][8 * b + g] as u8);
            }
        }
    }
}

impl Quantised for IQ4_XS {
    const SIGNED: bool = true;
    const LARGEST: i32 = 127;
    const INTEGER_SCALES: bool = true;

    #[inline(always)]
    fn codes<S: Simd>(s: S, tile: &[u8], g: usize) -> [S::Codes; 8] {
        bits::lookup_codes(s, tile, QS + 16 * g, &VALUES)
    }

    #[inline(always)]
    fn integers<S: Simd>(s: S, tile: &[u8], g: usize) -> [S::I32; 2] {
        let high = s.shr_i32(s.load_u16(tile, 16 * SCALES_H), 2 * g as u32);
        let low = s.shr_i32(s.load_u8(tile, 16 * (SCALES_L + g / 2)), 4 * (g as u32 % 2));
        let (high, low) = (s.and_i32(high, s.splat_i32(3)), s.and_i32(low, s.splat_i32(15)));
        [s.add_i32(s.or_i32(low, s.shl_i32(high, 4)), s.splat_i32(-32)); 2]
    }
}
