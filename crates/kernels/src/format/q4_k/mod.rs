//! `Q4_K`: super-blocks of 256 elements in 8 groups of 32. value = d · scale · q − dmin · min, q in 0..16.
//!
//! Block (144 bytes): `d` f16, `dmin` f16, `scales` 12 bytes (eight 6-bit scales and eight 6-bit minima),
//! `qs` 128 bytes: byte `32·c + i` holds element `64·c + i` in its low and `64·c + 32 + i` in its high nibble.

mod encode;
mod scales;

use super::{BlockFormat, Plane, Quantised, Scale};
use crate::simd::Simd;
use half::f16;

pub(crate) use scales::{scale_min, scale_min_lanes};

/// The format `Q4_K`.
#[derive(Clone, Copy, Default)]
pub struct Q4_K;

const SCALES: usize = 4;
const QS: usize = 16;

impl BlockFormat for Q4_K {
    const BLOCK: usize = 256;
    const BYTES: usize = 144;
    const PLANES: &'static [Plane] = &[
        Plane { bytes: 4, unit: 2 },
        Plane { bytes: 12, unit: 1 },
        Plane { bytes: 128, unit: 4 },
    ];
    const ENCODE_NMSE: f64 = 8e-3;

    fn decode(block: &[u8], out: &mut [f32]) {
        let d = f16::from_le_bytes([block[0], block[1]]).to_f32();
        let dmin = f16::from_le_bytes([block[2], block[3]]).to_f32();
        for (g, group) in out.chunks_exact_mut(32).enumerate() {
            let (scale, min) = scale_min(&block[SCALES..QS], g);
            let (scale, min) = (d * f32::from(scale), dmin * f32::from(min));
            let shift = 4 * (g % 2);
            for (o, &q) in group.iter_mut().zip(&block[QS + g / 2 * 32..]) {
                *o = scale * f32::from(q >> shift & 15) - min;
            }
        }
    }

    fn encode(values: &[f32], block: &mut [u8]) {
        encode::encode(values, block);
    }
}

impl Quantised for Q4_K {
    const GROUP: usize = 32;
    const SIGNED: bool = false;
    const ZERO: i32 = 0;
    const HAS_MIN: bool = true;

    #[inline(always)]
    fn codes<S: Simd>(s: S, tile: &[u8], g: usize) -> [S::Codes; 8] {
        std::array::from_fn(|j| {
            let bytes = s.load_codes(tile, 16 * QS + (g / 2 * 8 + j) * 64);
            s.shr_and(bytes, 4 * (g as u32 % 2), 15)
        })
    }

    #[inline(always)]
    fn scales<S: Simd>(s: S, tile: &[u8], g: usize) -> [Scale<S>; 2] {
        let (scale, min) = scale_min_lanes(s, tile, 16 * SCALES, g);
        let scale = s.mul(s.load_f16(tile, 0), s.to_f32(scale));
        let min = s.mul(s.load_f16(tile, 32), s.to_f32(min));
        [Scale { scale, min }; 2]
    }
}
