//! E4M3 floats with an f32 scale of 64 of them, for folders in FP8: value = scale · float. GGUF files do not have the format;
//! `gristmill_convert` makes its blocks of a folder's tensors when it opens the folder.
//!
//! Block (68 bytes): `scale` f32, then 64 bytes. The codes of NaN are ±480: whoever writes a block with one makes its
//! scale NaN ([`put_block`]).

use super::{BlockFormat, Float, Plane, e4m3, plane};
use crate::simd::Simd;

/// The format `FP8_64`.
#[derive(Clone, Copy, Default)]
pub struct FP8_64;

/// Elements of a block.
pub const BLOCK: usize = 64;

const CODES: usize = 4;

/// The number of these bits, of which none are NaN.
fn number(bits: u8) -> f32 {
    match bits & 0x7f {
        e4m3::NAN => f32::copysign(480.0, if bits < 128 { 1.0 } else { -1.0 }),
        _ => e4m3::decode(bits),
    }
}

/// Writes a block. Returns `None` unless `block` has the format's bytes.
pub fn put_block(scale: f32, codes: &[u8; BLOCK], block: &mut [u8]) -> Option<()> {
    if block.len() != FP8_64::BYTES {
        return None;
    }
    let is_nan = codes.iter().any(|code| code & 0x7f == e4m3::NAN);
    block[..CODES].copy_from_slice(&if is_nan { f32::NAN } else { scale }.to_le_bytes());
    block[CODES..].copy_from_slice(codes);
    Some(())
}

impl BlockFormat for FP8_64 {
    const BLOCK: usize = BLOCK;
    const GROUP: usize = 32;
    const BYTES: usize = CODES + BLOCK;
    // GPUs read planes of 16 bytes.
    const PLANES: &'static [Plane] = &[
        plane(0, 4, 4),
        plane(CODES, 16, 1),
        plane(CODES + 16, 16, 1),
        plane(CODES + 32, 16, 1),
        plane(CODES + 48, 16, 1),
    ];
    const ENCODE_NMSE: f64 = 6.7e-4;
    const READ_ONLY: bool = true;
    const BATCH: usize = 1;

    fn decode(block: &[u8], out: &mut [f32]) {
        let scale = f32::from_le_bytes([block[0], block[1], block[2], block[3]]);
        for (o, &code) in out.iter_mut().zip(&block[CODES..]) {
            *o = scale * number(code);
        }
    }

    fn encode<S: Simd>(_: S, values: &[f32], blocks: &mut [u8]) {
        for (block, values) in blocks.chunks_exact_mut(Self::BYTES).zip(values.chunks_exact(BLOCK)) {
            let scale = values.iter().fold(0f32, |most, x| most.max(x.abs())) / 448.0;
            block[..CODES].copy_from_slice(&scale.to_le_bytes());
            for (code, x) in block[CODES..].iter_mut().zip(values) {
                let magnitude = if scale > 0.0 { e4m3::encode((x / scale).abs()) } else { 0 };
                *code = magnitude | u8::from(*x < 0.0) << 7;
            }
        }
    }
}

impl Float for FP8_64 {
    #[inline(always)]
    fn load<S: Simd>(s: S, tile: &[u8], k: usize) -> S::F32 {
        let scale = s.as_f32(s.load_i32(tile, 0));
        let bits = s.load_u8(tile, 16 * (CODES + k));
        let magnitude = s.and_i32(bits, s.splat_i32(0x7f));
        let sign = s.shl_i32(s.and_i32(bits, s.splat_i32(0x80)), 24);
        // The exponent gets the bias of f32.
        let normal = s.as_f32(s.add_i32(s.shl_i32(magnitude, 20), s.splat_i32(120 << 23)));
        let subnormal = s.mul(s.to_f32(magnitude), s.splat(1.0 / 512.0));
        let absolute = s.select_lt(s.to_f32(magnitude), s.splat(8.0), subnormal, normal);
        // The sign of a float is a factor.
        let factor = s.as_f32(s.or_i32(s.splat_i32(0x3f80_0000), sign));
        s.mul(scale, s.mul(absolute, factor))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::Portable;

    #[test]
    fn a_tile_has_the_numbers_of_its_rows() {
        // Row r of the tile has code 16 · k + r in column k.
        let mut tile = [0u8; 16 * FP8_64::BYTES];
        for row in 0..16 {
            tile[4 * row..][..4].copy_from_slice(&(row as f32 - 4.0).to_le_bytes());
            for k in 0..BLOCK {
                tile[16 * (CODES + k) + row] = (16 * k + row) as u8;
            }
        }
        for k in 0..BLOCK {
            let found = Portable.to_array(FP8_64::load(Portable, &tile, k));
            let wanted: [f32; 16] = std::array::from_fn(|row| (row as f32 - 4.0) * number((16 * k + row) as u8));
            assert_eq!(found, wanted);
        }
    }

    #[test]
    fn a_code_of_nan_makes_the_block_nan() {
        let mut block = [0; FP8_64::BYTES];
        let mut values = [0.0; BLOCK];
        put_block(2.0, &[0x38; BLOCK], &mut block).unwrap();
        FP8_64::decode(&block, &mut values);
        assert_eq!(values, [2.0; BLOCK]);
        let mut codes = [0x38; BLOCK];
        codes[7] = 0xff;
        put_block(2.0, &codes, &mut block).unwrap();
        FP8_64::decode(&block, &mut values);
        assert!(values.iter().all(|value| value.is_nan()));
        assert_eq!(put_block(2.0, &codes, &mut block[1..]), None);
    }
}

// Mutations (`cargo xtask prove mutations`):
// [matmul] `s.load_u8(tile, 16 * (CODES + k))` => `s.load_u8(tile, 16 * CODES)`
// [matmul] `s.select_lt(s.to_f32(magnitude), s.splat(8.0), subnormal, normal)` => `normal`
// [matmul] `s.mul(scale, s.mul(absolute, factor))` => `s.mul(scale, absolute)`
