//! Where the bits of an element are in its block: stated once for decoding, encoding and unpacking.

use crate::simd::Simd;
use half::f16;

/// The f16 at byte `at` of a block.
pub(super) fn f16_at(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// Some bits of each of 32 elements: the same field of 32 consecutive bytes.
#[derive(Clone, Copy)]
pub(super) struct Field {
    /// Byte of the block that holds the first element's bits.
    pub(super) start: usize,
    /// Position of the field in its byte.
    pub(super) shift: usize,
    /// Width of the field.
    pub(super) bits: usize,
}

impl Field {
    fn mask(self) -> u8 {
        (1 << self.bits) - 1
    }

    /// The bits of element `i < 32`.
    pub(super) fn get(self, block: &[u8], i: usize) -> u8 {
        block[self.start + i] >> self.shift & self.mask()
    }

    /// Sets the bits of element `i < 32`, which must be zero.
    pub(super) fn set(self, block: &mut [u8], i: usize, bits: u8) {
        block[self.start + i] |= (bits & self.mask()) << self.shift;
    }

    /// The bits of all 32 elements of 16 rows, moved to bit `to` of each byte, in the order of
    /// [`super::Quantised::codes`]. The plane must be interleaved in units of 4.
    #[inline(always)]
    pub(super) fn codes<S: Simd>(self, s: S, tile: &[u8], to: usize) -> [S::Codes; 8] {
        let bytes = &tile[16 * self.start..16 * (self.start + 32)];
        let mask = self.mask() << to;
        if to >= self.shift {
            eight!(j => s.shl_and(s.load_codes(bytes, 64 * j), (to - self.shift) as u32, mask))
        } else {
            eight!(j => s.shr_and(s.load_codes(bytes, 64 * j), (self.shift - to) as u32, mask))
        }
    }
}

/// Bitwise or of two sets of codes.
#[inline(always)]
pub(super) fn or<S: Simd>(s: S, a: [S::Codes; 8], b: [S::Codes; 8]) -> [S::Codes; 8] {
    eight!(j => s.or(a[j], b[j]))
}

/// Element `i < 32` of 16 bytes of nibbles: the low nibbles are the first sixteen elements, the high ones the rest.
pub(super) fn nibble(bytes: &[u8], i: usize) -> u8 {
    bytes[i % 16] >> (4 * (i / 16)) & 15
}

/// Fills 16 bytes of nibbles from `code(i) < 16`.
pub(super) fn set_nibbles(bytes: &mut [u8], code: impl Fn(usize) -> u8) {
    for (i, byte) in bytes.iter_mut().enumerate() {
        *byte = code(i) | code(i + 16) << 4;
    }
}

/// The nibbles of 16 rows whose 16 bytes start at byte `start` of the block, in the order of
/// [`super::Quantised::codes`]. The plane must be interleaved in units of 4.
#[inline(always)]
pub(super) fn nibble_codes<S: Simd>(s: S, tile: &[u8], start: usize) -> [S::Codes; 8] {
    let bytes = &tile[16 * start..16 * (start + 16)];
    eight!(j => s.shr_and(s.load_codes(bytes, 64 * (j % 4)), 4 * (j as u32 / 4), 15))
}

/// The nibbles of [`nibble_codes`] as entries of a table.
#[inline(always)]
pub(super) fn lookup_codes<S: Simd>(s: S, tile: &[u8], start: usize, table: &[i8; 16]) -> [S::Codes; 8] {
    let nibbles = nibble_codes(s, tile, start);
    eight!(j => s.lookup(table, nibbles[j]))
}

/// Bit `i < 32` of the 4 bytes of single bits in `Q5_0` and `Q5_1`.
pub(super) fn bit(bytes: &[u8], i: usize) -> u8 {
    bytes[i / 8] >> (i % 8) & 1
}

/// Fills 4 bytes of single bits from the lowest bit of `code(i)`.
pub(super) fn set_bits(bytes: &mut [u8], code: impl Fn(usize) -> u8) {
    for (i, byte) in bytes.iter_mut().enumerate() {
        *byte = (0..8).fold(0, |byte, b| byte | (code(8 * i + b) & 1) << b);
    }
}

/// The single bits of 16 rows whose 4 bytes start at byte `start` of the block, moved to bit `to <= 4` of each byte, in the
/// order of [`super::Quantised::codes`]. The plane must be interleaved in units of 4.
#[inline(always)]
pub(super) fn single_bits<S: Simd>(s: S, tile: &[u8], start: usize, to: usize) -> [S::Codes; 8] {
    let word = s.load_i32(tile, 16 * start);
    // Four copies of four bits, 7 apart and so without a carry, put bit i of the four at bit 8·i + `to` of the product.
    let (copies, wanted) = (s.splat_i32(0x0020_4081 << to), s.splat_i32(0x0101_0101 << to));
    eight!(j => {
        let four = s.and_i32(s.shr_i32(word, 4 * j as u32), s.splat_i32(15));
        s.as_codes(s.and_i32(s.mul_i32(four, copies), wanted))
    })
}
