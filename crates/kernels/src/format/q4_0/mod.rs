//! `Q4_0`: 32 nibbles and one f16 scale. value = d · (q − 8).
//!
//! Block (18 bytes): `d` f16, `qs` 16 bytes: byte `i` holds element `i` in its low and `16 + i` in its high nibble.

use super::{BlockFormat, Plane, Quantised, bits, fit, plane};
use crate::simd::Simd;

/// The format `Q4_0`.
#[derive(Clone, Copy, Default)]
pub struct Q4_0;

const QS: usize = 2;

impl BlockFormat for Q4_0 {
    const BLOCK: usize = 32;
    const GROUP: usize = 32;
    const BYTES: usize = 18;
    const PLANES: &'static [Plane] = &[plane(0, 2, 2), plane(2, 16, 4)];
    const ENCODE_NMSE: f64 = 6.7e-3;

    fn decode(block: &[u8], out: &mut [f32]) {
        let d = bits::f16_at(block, 0);
        for (i, o) in out.iter_mut().enumerate() {
            *o = d * (f32::from(bits::nibble(&block[QS..], i)) - 8.0);
        }
    }

    #[inline(always)]
    fn encode<S: Simd>(s: S, values: &[f32], blocks: &mut [u8]) {
        let fit = fit::scaled::<S, fit::Signed<8>, 32>(s, values);
        for (lane, block) in blocks.chunks_exact_mut(Self::BYTES).enumerate() {
            block[..2].copy_from_slice(&fit.d[lane].to_le_bytes());
            bits::set_nibbles(&mut block[QS..], |i| fit.codes[i][lane] as u8);
        }
    }
}

impl Quantised for Q4_0 {
    const LARGEST: i32 = 15;
    const ZERO: i32 = 8;

    #[inline(always)]
    fn codes<S: Simd>(s: S, tile: &[u8], _g: usize) -> [S::Codes; 8] {
        bits::nibble_codes(s, tile, QS)
    }
}
