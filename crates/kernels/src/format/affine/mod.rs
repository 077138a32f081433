//! Affine codes, as MLX quantises: value = scale · q + bias, and a scale may be negative. `INT4_64` has a zero point instead
//! of a bias, as GPTQ and AWQ quantise: value = scale · (q − zero). GGUF files do not have these formats; `gristmill_convert`
//! makes their blocks of a folder's tensors when it opens the folder.
//!
//! A block is 64 elements: a head ([`Head`]) and codes of 4 or 8 bits, into which narrower codes fit with the same
//! values. Element `16·p + c` lies
//!
//! - of 4 bits in byte `16·(p / 2) + c` of 32, at bit `4·(p % 2)`;
//! - of 8 bits in byte `16·p + c`, with 128 subtracted.
//!
//! The order within MLX's files (one stream of bits, the lowest first) is `mlx.core.quantize`'s of PyPI's `mlx` 0.32.

use std::marker::PhantomData;

use super::{BlockFormat, Format, Plane, Quantised, Scale, bits, fit, plane};
use crate::simd::Simd;

/// Elements of a block.
pub const BLOCK: usize = 64;

/// How scales and biases are at the start of a block.
pub trait Head: Copy + Default + Send + Sync + 'static {
    /// Elements with one scale.
    const GROUP: usize;
    /// The plane of the head.
    const PLANE: Plane;
    /// The bias is a multiple of the scale: −scale · zero, with a whole zero from 0 to 255.
    const HAS_ZERO: bool = false;
    /// Scale and bias of group `g < BLOCK / GROUP`.
    fn get(block: &[u8], g: usize) -> [f32; 2];
    /// Stores scale and bias of a group.
    fn put(block: &mut [u8], g: usize, scale: f32, bias: f32);
    /// Scale and bias of elements `32·g .. 32·g + 32` of 16 rows.
    fn lanes<S: Simd>(s: S, tile: &[u8], g: usize) -> [S::F32; 2];
}

/// An f16 scale and an f16 bias for 64 elements (4 bytes).
#[derive(Clone, Copy, Default)]
pub struct HalfOf64;

impl Head for HalfOf64 {
    const GROUP: usize = 64;
    const PLANE: Plane = plane(0, 4, 2);

    fn get(block: &[u8], _: usize) -> [f32; 2] {
        [bits::f16_at(block, 0), bits::f16_at(block, 2)]
    }

    fn put(block: &mut [u8], _: usize, scale: f32, bias: f32) {
        block[..2].copy_from_slice(&half::f16::from_f32(scale).to_le_bytes());
        block[2..4].copy_from_slice(&half::f16::from_f32(bias).to_le_bytes());
    }

    #[inline(always)]
    fn lanes<S: Simd>(s: S, tile: &[u8], _: usize) -> [S::F32; 2] {
        [s.load_f16(tile, 0), s.load_f16(tile, 32)]
    }
}

/// Two f32 scales and two f32 biases for 32 elements each (16 bytes): for groups of 32, and for numbers that f16 lacks.
#[derive(Clone, Copy, Default)]
pub struct SingleOf32;

impl Head for SingleOf32 {
    const GROUP: usize = 32;
    const PLANE: Plane = plane(0, 16, 4);

    fn get(block: &[u8], g: usize) -> [f32; 2] {
        let words = block.as_chunks::<4>().0;
        [f32::from_le_bytes(words[g]), f32::from_le_bytes(words[2 + g])]
    }

    fn put(block: &mut [u8], g: usize, scale: f32, bias: f32) {
        let words = block.as_chunks_mut::<4>().0;
        words[g] = scale.to_le_bytes();
        words[2 + g] = bias.to_le_bytes();
    }

    #[inline(always)]
    fn lanes<S: Simd>(s: S, tile: &[u8], g: usize) -> [S::F32; 2] {
        [s.as_f32(s.load_i32(tile, 64 * g)), s.as_f32(s.load_i32(tile, 64 * (2 + g)))]
    }
}

/// An f16 scale and a zero point, which f16 holds too, for 64 elements (4 bytes). The bias −scale · zero is exact in f32;
/// f16 lacks it.
#[derive(Clone, Copy, Default)]
pub struct ZeroOf64;

impl Head for ZeroOf64 {
    const GROUP: usize = 64;
    const PLANE: Plane = plane(0, 4, 2);
    const HAS_ZERO: bool = true;

    fn get(block: &[u8], _: usize) -> [f32; 2] {
        let scale = bits::f16_at(block, 0);
        [scale, -(scale * bits::f16_at(block, 2))]
    }

    fn put(block: &mut [u8], _: usize, scale: f32, bias: f32) {
        let zero = if scale == 0.0 { 0.0 } else { (-bias / scale).round().clamp(0.0, 255.0) };
        block[..2].copy_from_slice(&half::f16::from_f32(scale).to_le_bytes());
        block[2..4].copy_from_slice(&half::f16::from_f32(zero).to_le_bytes());
    }

    #[inline(always)]
    fn lanes<S: Simd>(s: S, tile: &[u8], _: usize) -> [S::F32; 2] {
        let scale = s.load_f16(tile, 0);
        [scale, s.mul(scale, s.mul(s.load_f16(tile, 32), s.splat(-1.0)))]
    }
}

/// Codes of `BITS` bits, 4 or 8, with a head.
#[derive(Clone, Copy, Default)]
pub struct Affine<const BITS: usize, H>(PhantomData<H>);

/// Names the formats: bits, name, and the error of encoding with [`HalfOf64`] and with [`SingleOf32`].
macro_rules! names {
    ($($bits:literal: $half:ident = $half_nmse:literal, $single:ident = $single_nmse:literal;)*) => {
        $(
            #[doc = concat!("Codes of ", $bits, " bits, f16 scales of 64 elements.")]
            pub type $half = Affine<$bits, HalfOf64>;
            #[doc = concat!("Codes of ", $bits, " bits, f32 scales of 32 elements.")]
            pub type $single = Affine<$bits, SingleOf32>;
        )*

        const fn encode_nmse(bits: usize, group: usize, has_zero: bool) -> f64 {
            match bits {
                _ if has_zero => 8.7e-3,
                $($bits => if group == 64 { $half_nmse } else { $single_nmse },)*
                _ => 0.0,
            }
        }
    };
}

/// Codes of 4 bits, f16 scales and zero points of 64 elements.
pub type INT4_64 = Affine<4, ZeroOf64>;

names! {
    4: AFFINE4_64 = 6.7e-3, AFFINE4_32 = 4.9e-3;
    8: AFFINE8_64 = 2.5e-5, AFFINE8_32 = 1.85e-5;
}

impl Format {
    /// The narrowest format for affine codes of this number of bits, with f16 scales of 64 elements or, if `single`,
    /// f32 scales of 32. `None` for 0 and for more than 8 bits.
    pub fn affine(bits: usize, single: bool) -> Option<Format> {
        match (bits, single) {
            (1..=4, false) => Some(Format::AFFINE4_64),
            (1..=4, true) => Some(Format::AFFINE4_32),
            (5..=8, false) => Some(Format::AFFINE8_64),
            (5..=8, true) => Some(Format::AFFINE8_32),
            _ => None,
        }
    }
}

impl<const BITS: usize, H: Head> Affine<BITS, H> {
    /// First byte of the codes.
    const CODES: usize = H::PLANE.bytes;

    /// The code of element `i`.
    fn code(block: &[u8], i: usize) -> u8 {
        let codes = &block[Self::CODES..];
        if BITS == 4 { bits::nibble(&codes[16 * (i / 32)..][..16], i % 32) } else { codes[i] ^ 128 }
    }

    /// Encodes a block by its smallest and largest value, of which one may be 0: a zero point is a code.
    fn encode_with_zero(values: &[f32], levels: f32, block: &mut [u8]) {
        let (least, most) = values.iter().fold((0f32, 0f32), |(least, most), &x| (least.min(x), most.max(x)));
        H::put(block, 0, ((most - least) / levels).min(half::f16::MAX.to_f32()), 0.0);
        let [scale, _] = H::get(block, 0);
        let zero = if scale > 0.0 { (-least / scale).round().min(levels) } else { 0.0 };
        H::put(block, 0, scale, -(scale * zero));
        let code = |x: f32| if scale > 0.0 { (x / scale + zero).round().clamp(0.0, levels) as u8 } else { 0 };
        Self::put_codes(block, |i| code(values[i]));
    }

    /// Stores all codes.
    fn put_codes(block: &mut [u8], code: impl Fn(usize) -> u8) {
        let codes = &mut block[Self::CODES..];
        if BITS == 4 {
            for (half, bytes) in codes.chunks_exact_mut(16).enumerate() {
                bits::set_nibbles(bytes, |i| code(32 * half + i) & 15);
            }
        } else {
            for (i, byte) in codes.iter_mut().enumerate() {
                *byte = code(i) ^ 128;
            }
        }
    }
}

impl<const BITS: usize, H: Head> BlockFormat for Affine<BITS, H> {
    const BLOCK: usize = BLOCK;
    const GROUP: usize = 32;
    const BYTES: usize = Self::CODES + 8 * BITS;
    // GPUs read planes of 16 bytes.
    const PLANES: &'static [Plane] = match BITS {
        4 => &[H::PLANE, plane(Self::CODES, 16, 4), plane(Self::CODES + 16, 16, 4)],
        _ => &[
            H::PLANE,
            plane(Self::CODES, 16, 4),
            plane(Self::CODES + 16, 16, 4),
            plane(Self::CODES + 32, 16, 4),
            plane(Self::CODES + 48, 16, 4),
        ],
    };
    const ENCODE_NMSE: f64 = encode_nmse(BITS, H::GROUP, H::HAS_ZERO);
    const BATCH: usize = 16 * H::GROUP / BLOCK;
    const READ_ONLY: bool = H::HAS_ZERO;

    fn decode(block: &[u8], out: &mut [f32]) {
        for (i, o) in out.iter_mut().enumerate() {
            let [scale, bias] = H::get(block, i / H::GROUP);
            *o = scale * f32::from(Self::code(block, i)) + bias;
        }
    }

    #[inline(always)]
    fn encode<S: Simd>(s: S, values: &[f32], blocks: &mut [u8]) {
        let levels = ((1 << BITS) - 1) as f32;
        if H::HAS_ZERO {
            for (block, values) in blocks.chunks_exact_mut(Self::BYTES).zip(values.chunks_exact(BLOCK)) {
                Self::encode_with_zero(values, levels, block);
            }
        } else if H::GROUP == 64 {
            let fit = fit::affine::<S, 64>(s, values, levels);
            for (lane, block) in blocks.chunks_exact_mut(Self::BYTES).enumerate() {
                H::put(block, 0, fit.d[lane].to_f32(), fit.m[lane].to_f32());
                Self::put_codes(block, |i| fit.codes[i][lane] as u8);
            }
        } else {
            let fit = fit::affine::<S, 32>(s, values, levels);
            for (b, block) in blocks.chunks_exact_mut(Self::BYTES).enumerate() {
                for g in 0..2 {
                    H::put(block, g, fit.d[2 * b + g].to_f32(), fit.m[2 * b + g].to_f32());
                }
                Self::put_codes(block, |i| fit.codes[i % 32][2 * b + i / 32] as u8);
            }
        }
    }
}

impl<const BITS: usize, H: Head> Quantised for Affine<BITS, H> {
    const SIGNED: bool = BITS == 8;
    const LARGEST: i32 = if BITS == 8 { 128 } else { 15 };
    const ZERO: i32 = if BITS == 8 { -128 } else { 0 };
    const HAS_MIN: bool = true;

    #[inline(always)]
    fn codes<S: Simd>(s: S, tile: &[u8], g: usize) -> [S::Codes; 8] {
        if BITS == 4 {
            bits::nibble_codes(s, tile, Self::CODES + 16 * g)
        } else {
            eight!(j => s.load_codes(tile, 16 * Self::CODES + 512 * g + 64 * j))
        }
    }

    #[inline(always)]
    fn scales<S: Simd>(s: S, tile: &[u8], g: usize) -> [Scale<S>; 2] {
        let [scale, bias] = H::lanes(s, tile, g);
        // The product with −1 keeps the sign of a zero, which 0 − bias would lose.
        [Scale { scale, min: s.mul(bias, s.splat(-1.0)) }; 2]
    }
}

/// Writes one block of `format`, which [`Format::affine`] returned: the codes of 64 elements, and scale and bias of the
/// first and of the second 32 of them. With scales of 64 elements both must be the same.
///
/// Returns `None` unless `block` has the format's bytes and the format is affine.
pub fn put_block(format: Format, heads: [[f32; 2]; 2], codes: &[u8; BLOCK], block: &mut [u8]) -> Option<()> {
    fn put<const BITS: usize, H: Head>(heads: [[f32; 2]; 2], codes: &[u8; BLOCK], block: &mut [u8]) -> Option<()> {
        if block.len() != Affine::<BITS, H>::BYTES {
            return None;
        }
        for (g, [scale, bias]) in heads.into_iter().enumerate().take(BLOCK / H::GROUP) {
            H::put(block, g, scale, bias);
        }
        Affine::<BITS, H>::put_codes(block, |i| codes[i]);
        Some(())
    }
    match format {
        Format::AFFINE4_64 => put::<4, HalfOf64>(heads, codes, block),
        Format::INT4_64 => put::<4, ZeroOf64>(heads, codes, block),
        Format::AFFINE4_32 => put::<4, SingleOf32>(heads, codes, block),
        Format::AFFINE8_64 => put::<8, HalfOf64>(heads, codes, block),
        Format::AFFINE8_32 => put::<8, SingleOf32>(heads, codes, block),
        _ => None,
    }
}

// Mutations (`cargo xtask prove mutations`):
// [matmul] `s.mul(bias, s.splat(-1.0))` => `bias`
// [matmul] `[s.load_f16(tile, 0), s.load_f16(tile, 32)]` => `[s.load_f16(tile, 0), s.load_f16(tile, 0)]`
// [matmul] `[scale, s.mul(scale, s.mul(s.load_f16(tile, 32), s.splat(-1.0)))]` => `[scale, s.mul(s.load_f16(tile, 32), s.splat(-1.0))]`
// [matmul] `s.load_i32(tile, 64 * (2 + g))` => `s.load_i32(tile, 64 * 2)`
// [matmul] `bits::nibble_codes(s, tile, Self::CODES + 16 * g)` => `bits::nibble_codes(s, tile, Self::CODES)`
