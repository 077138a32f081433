//! `IQ4_NL`: 32 nibbles that index a table of unevenly spaced values, and one f16 scale. value = d · VALUES\[q\].
//!
//! Block (18 bytes): `d` f16, `qs` 16 bytes: byte `i` holds element `i` in its low and `16 + i` in its high nibble.

use super::{BlockFormat, Plane, Quantised, bits, fit, plane};
use crate::simd::Simd;

/// The format `IQ4_NL`.
#[derive(Clone, Copy, Default)]
pub struct IQ4_NL;

/// The value of each code, ascending: closer together around zero, where weights are dense.
pub(super) const VALUES: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

const QS: usize = 2;

/// The table as a grid.
pub(super) struct Table;

impl fit::Grid for Table {
    const LOW: f32 = VALUES[0] as f32;
    const HIGH: f32 = VALUES[15] as f32;
    const STEP: f32 = 16.0;

    #[inline(always)]
    fn nearest<S: Simd>(s: S, x: S::F32) -> S::F32 {
        let mut nearest = s.splat(Self::LOW);
        for pair in VALUES.windows(2) {
            let middle = s.splat(0.5 * (f32::from(pair[0]) + f32::from(pair[1])));
            nearest = s.select_lt(middle, x, s.splat(f32::from(pair[1])), nearest);
        }
        nearest
    }

    #[inline(always)]
    fn code<S: Simd>(s: S, x: S::F32) -> S::F32 {
        let mut code = s.splat(0.0);
        for pair in VALUES.windows(2) {
            let middle = s.splat(0.5 * (f32::from(pair[0]) + f32::from(pair[1])));
            code = s.add(code, s.select_lt(middle, x, s.splat(1.0), s.splat(0.0)));
        }
        code
    }
}

impl BlockFormat for IQ4_NL {
    const BLOCK: usize = 32;
    const GROUP: usize = 32;
    const BYTES: usize = 18;
    const PLANES: &'static [Plane] = &[plane(0, 2, 2), plane(2, 16, 4)];
    const ENCODE_NMSE: f64 = 5.5e-3;

    fn decode(block: &[u8], out: &mut [f32]) {
        let d = bits::f16_at(block, 0);
        for (i, o) in out.iter_mut().enumerate() {
            *o = d * f32::from(VALUES[usize::from(bits::nibble(&block[QS..], i))]);
        }
    }

    #[inline(always)]
    fn encode<S: Simd>(s: S, values: &[f32], blocks: &mut [u8]) {
        let fit = fit::scaled::<S, Table, 32>(s, values);
        for (lane, block) in blocks.chunks_exact_mut(Self::BYTES).enumerate() {
            block[..2].copy_from_slice(&fit.d[lane].to_le_bytes());
            bits::set_nibbles(&mut block[QS..], |i| fit.codes[i][lane] as u8);
        }
    }
}

impl Quantised for IQ4_NL {
    const SIGNED: bool = true;
    const LARGEST: i32 = 127;

    #[inline(always)]
    fn codes<S: Simd>(s: S, tile: &[u8], _g: usize) -> [S::Codes; 8] {
        bits::lookup_codes(s, tile, QS, &VALUES)
    }
}
