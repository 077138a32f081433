//! `Q8_0`: 32 signed bytes and one f16 scale. value = d · q.
//!
//! Block (34 bytes): `d` f16, `qs` i8 × 32.

use super::{BlockFormat, Plane, Quantised, bits, fit, plane};
use crate::simd::Simd;

/// The format `Q8_0`.
#[derive(Clone, Copy, Default)]
pub struct Q8_0;

impl BlockFormat for Q8_0 {
    const BLOCK: usize = 32;
    const GROUP: usize = 32;
    const BYTES: usize = 34;
    const PLANES: &'static [Plane] = &[plane(0, 2, 2), plane(2, 32, 4)];
    const ENCODE_NMSE: f64 = 2.95e-5;

    fn decode(block: &[u8], out: &mut [f32]) {
        let d = bits::f16_at(block, 0);
        for (o, &q) in out.iter_mut().zip(&block[2..]) {
            *o = f32::from(q as i8) * d;
        }
    }

    #[inline(always)]
    fn encode<S: Simd>(_: S, values: &[f32], blocks: &mut [u8]) {
        for (block, values) in blocks.chunks_exact_mut(Self::BYTES).zip(values.chunks_exact(Self::BLOCK)) {
            let largest = values.iter().fold(0f32, |m, v| if v.abs() > m { v.abs() } else { m });
            let d = fit::put_f16(block, 0, largest / 127.0);
            // Below the least f16 all codes are 0.
            let unit = if d == 0.0 { f32::INFINITY } else { d };
            for (q, &v) in block[2..].iter_mut().zip(values) {
                *q = (v / unit).round_ties_even().max(-127.0) as i8 as u8;
            }
        }
    }
}

impl Quantised for Q8_0 {
    const SIGNED: bool = true;
    const LARGEST: i32 = 128;

    #[inline(always)]
    fn codes<S: Simd>(s: S, tile: &[u8], _g: usize) -> [S::Codes; 8] {
        eight!(j => s.load_codes(tile, 16 * 2 + j * 64))
    }
}
