//! `NVFP4`: E2M1 floats in groups of 16 with one E4M3 scale each, as MLX and NVIDIA quantise. value = scale / 2 ·
//! VALUES\[q\]. GGUF files have another order of the same bits and a number for it, which is not read;
//! `gristmill_convert` makes these blocks of a folder's tensors when it opens the folder.
//!
//! Block (36 bytes): 64 elements. `scales` 4 bytes; `qs` 32 bytes: element `16·p + c` is a nibble of byte
//! `16·(p / 2) + c`, the low one for even `p`. The table is that of `MXFP4`: values are doubled, to be integers.

use super::{BlockFormat, Plane, Quantised, Scale, bits, e4m3, mxfp4, plane};
use crate::simd::Simd;
use crate::two;

/// The format `NVFP4`.
#[derive(Clone, Copy, Default)]
pub struct NVFP4;

/// Elements of a block.
pub const BLOCK: usize = 64;

/// Groups of a block.
pub const GROUPS: usize = BLOCK / 16;

const QS: usize = GROUPS;

/// Half of the E4M3 number of these bits: its exponent with the bias of f32 less one.
const HALF_ONE: u32 = 119 << 23;

/// Half of an E4M3 number. NaN is decoded as the ±480 that it would be.
fn half_scale(bits: u8) -> f32 {
    let magnitude = bits & 0x7f;
    let number = if magnitude == e4m3::NAN { 480.0 } else { e4m3::decode(magnitude) };
    if bits < 128 { 0.5 * number } else { -0.5 * number }
}

/// Half of the smallest E4M3 number above 0.
const SUBNORMAL: f32 = 1.0 / 1024.0;

impl BlockFormat for NVFP4 {
    const BLOCK: usize = BLOCK;
    const GROUP: usize = 16;
    const BYTES: usize = QS + BLOCK / 2;
    // GPUs read planes of 16 bytes.
    const PLANES: &'static [Plane] = &[plane(0, QS, 1), plane(QS, 16, 4), plane(QS + 16, 16, 4)];
    const ENCODE_NMSE: f64 = 9.6e-3;

    fn decode(block: &[u8], out: &mut [f32]) {
        for (i, o) in out.iter_mut().enumerate() {
            let code = bits::nibble(&block[QS + i / 32 * 16..][..16], i % 32);
            *o = half_scale(block[i / 16]) * f32::from(mxfp4::VALUES[usize::from(code)]);
        }
    }

    #[inline(always)]
    fn encode<S: Simd>(s: S, values: &[f32], blocks: &mut [u8]) {
        for (block, values) in blocks.chunks_exact_mut(Self::BYTES).zip(values.chunks_exact(Self::BLOCK)) {
            let mut codes = [0; BLOCK];
            for (g, values) in values.chunks_exact(16).enumerate() {
                let largest = values.iter().fold(0f32, |m, v| if v.abs() > m { v.abs() } else { m });
                // The largest value of a code is 6.
                block[g] = e4m3::encode(largest / 6.0);
                let half = half_scale(block[g]);
                let half = if half > 0.0 { half } else { f32::INFINITY };
                mxfp4::nearest_codes(s, values, half, &mut codes[16 * g..][..16]);
            }
            put_codes(block, &codes);
        }
    }
}

fn put_codes(block: &mut [u8], codes: &[u8; BLOCK]) {
    for (half, bytes) in block[QS..].chunks_exact_mut(16).enumerate() {
        bits::set_nibbles(bytes, |i| codes[32 * half + i] & 15);
    }
}

/// Writes a block of these scales and codes. Returns `None` unless `block` has the format's bytes.
pub fn put_block(scales: [u8; GROUPS], codes: &[u8; BLOCK], block: &mut [u8]) -> Option<()> {
    if block.len() != NVFP4::BYTES {
        return None;
    }
    block[..QS].copy_from_slice(&scales);
    put_codes(block, codes);
    Some(())
}

impl Quantised for NVFP4 {
    const LARGEST: i32 = 24;
    const ZERO: i32 = 12;

    #[inline(always)]
    fn codes<S: Simd>(s: S, tile: &[u8], g: usize) -> [S::Codes; 8] {
        bits::lookup_codes(s, tile, QS + 16 * g, &mxfp4::CODES)
    }

    #[inline(always)]
    fn scales<S: Simd>(s: S, tile: &[u8], g: usize) -> [Scale<S>; 2] {
        two!(half => {
            let bits = s.load_u8(tile, 16 * (2 * g + half));
            let magnitude = s.and_i32(bits, s.splat_i32(0x7f));
            let normal = s.as_f32(s.add_i32(s.shl_i32(magnitude, 20), s.splat_i32(HALF_ONE as i32)));
            let subnormal = s.mul(s.to_f32(magnitude), s.splat(SUBNORMAL));
            let half = s.select_lt(s.to_f32(magnitude), s.splat(8.0), subnormal, normal);
            let sign = s.select_lt(s.to_f32(bits), s.splat(128.0), s.splat(1.0), s.splat(-1.0));
            Scale { scale: s.mul(sign, half), min: s.splat(0.0) }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_of_another_size_is_refused() {
        assert_eq!(put_block([0; GROUPS], &[0; BLOCK], &mut [0; 35]), None);
        let mut block = [0; NVFP4::BYTES];
        let codes: [u8; BLOCK] = std::array::from_fn(|i| (i % 16) as u8);
        put_block([0x38, 0x40, 0xb8, 0], &codes, &mut block).unwrap();
        let mut values = [0.0; BLOCK];
        NVFP4::decode(&block, &mut values);
        // Scales of 1, 2, −1 and 0.
        assert_eq!([values[7], values[15], values[16 + 1], values[32 + 2], values[63]], [6.0, -6.0, 1.0, -1.0, -0.0]);
    }
}
