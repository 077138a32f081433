//! Plain Rust: arrays of 16 lanes, which the compiler may vectorise with what every CPU of the architecture has.

use super::{Kernel, Simd};

/// The level that every CPU has.
#[derive(Clone, Copy, Debug)]
pub struct Portable;

impl Portable {
    /// The token: every CPU has the features.
    pub fn detect() -> Option<Self> {
        Some(Self)
    }
}

/// A closure on each lane of one or two vectors.
macro_rules! on_lanes {
    ($f:expr, $a:ident) => {
        $a.map($f)
    };
    ($f:expr, $a:ident, $b:ident) => {
        zip($a, $b, $f)
    };
}

#[inline(always)]
fn zip<A: Copy, B: Copy, C, const N: usize>(a: [A; N], b: [B; N], f: impl Fn(A, B) -> C) -> [C; N] {
    std::array::from_fn(|i| f(a[i], b[i]))
}

#[inline(always)]
fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}

impl Simd for Portable {
    type Codes = [u8; 64];
    type I32 = [i32; 16];
    type F32 = [f32; 16];

    const SIGNED_BIAS: i32 = 0;
    const TOKENS: usize = 4;
    const INT8_ROWS: usize = 4;

    #[inline(never)]
    fn run<K: Kernel>(self, kernel: K) -> K::Output {
        kernel.run(self)
    }

    no_bf16!();

    lanewise! { on_lanes:
        (Codes, Codes) -> Codes { and: |a, b| a & b, or: |a, b| a | b, add_codes: u8::wrapping_add }
        (I32, I32) -> I32 {
            and_i32: |a, b| a & b, or_i32: |a, b| a | b, add_i32: i32::wrapping_add, mul_i32: i32::wrapping_mul,
        }
        (I32) -> F32 { to_f32: |x| x as f32, as_f32: |x| f32::from_bits(x as u32) }
        (F32) -> I32 { round_i32: |x: f32| x.round_ties_even() as i32 }
        (F32, F32) -> F32 {
            add: |a, b| a + b, sub: |a, b| a - b, mul: |a, b| a * b, div: |a, b| a / b,
            max: |a, b| if a > b { a } else { b }, min: |a, b| if a < b { a } else { b },
        }
    }

    #[inline(always)]
    fn load_codes(self, bytes: &[u8], at: usize) -> [u8; 64] {
        array(bytes, at)
    }
    #[inline(always)]
    fn store_codes(self, v: [u8; 64], bytes: &mut [u8], at: usize) {
        bytes[at..at + 64].copy_from_slice(&v);
    }
    #[inline(always)]
    fn splat_codes(self, byte: u8) -> [u8; 64] {
        [byte; 64]
    }
    #[inline(always)]
    fn shr_and(self, v: [u8; 64], n: u32, mask: u8) -> [u8; 64] {
        v.map(|x| x >> n & mask)
    }
    #[inline(always)]
    fn shl_and(self, v: [u8; 64], n: u32, mask: u8) -> [u8; 64] {
        v.map(|x| x << n & mask)
    }
    #[inline(always)]
    fn lookup(self, table: &[i8; 16], v: [u8; 64]) -> [u8; 64] {
        v.map(|x| table[usize::from(x & 15)] as u8)
    }
    #[inline(always)]
    fn lookup_half(self, table: &[[i8; 16]; 2], v: [u8; 64], upper: [u8; 64]) -> [u8; 64] {
        std::array::from_fn(|i| table[usize::from(upper[i] >> 7)][usize::from(v[i] & 15)] as u8)
    }
    #[inline(always)]
    fn gather<const N: usize>(self, table: &[u32; N], index: [i32; 16]) -> [i32; 16] {
        const { assert!(N.is_power_of_two()) }
        index.map(|i| table[i as usize & (N - 1)] as i32)
    }
    #[inline(always)]
    fn dot(self, acc: [i32; 16], codes: [u8; 64], x: i32) -> [i32; 16] {
        let x = x.to_le_bytes().map(|b| i32::from(b as i8));
        std::array::from_fn(|r| (0..4).fold(acc[r], |sum, i| sum + i32::from(codes[4 * r + i]) * x[i]))
    }
    #[inline(always)]
    fn dot_signed(self, acc: [i32; 16], codes: [u8; 64], x: i32) -> [i32; 16] {
        let x = x.to_le_bytes().map(|b| i32::from(b as i8));
        std::array::from_fn(|r| (0..4).fold(acc[r], |sum, i| sum + i32::from(codes[4 * r + i] as i8) * x[i]))
    }
    #[inline(always)]
    fn byte(self, v: [u8; 64], i: u32) -> [i32; 16] {
        std::array::from_fn(|r| i32::from(v[4 * r + i as usize]))
    }
    #[inline(always)]
    fn byte_signed(self, v: [u8; 64], i: u32) -> [i32; 16] {
        std::array::from_fn(|r| i32::from(v[4 * r + i as usize] as i8))
    }
    #[inline(always)]
    fn as_i32(self, v: [u8; 64]) -> [i32; 16] {
        std::array::from_fn(|r| i32::from_le_bytes([v[4 * r], v[4 * r + 1], v[4 * r + 2], v[4 * r + 3]]))
    }
    #[inline(always)]
    fn as_codes(self, v: [i32; 16]) -> [u8; 64] {
        std::array::from_fn(|i| (v[i / 4] >> (8 * (i % 4))) as u8)
    }

    #[inline(always)]
    fn splat_i32(self, x: i32) -> [i32; 16] {
        [x; 16]
    }
    #[inline(always)]
    fn load_u8(self, bytes: &[u8], at: usize) -> [i32; 16] {
        array::<16>(bytes, at).map(i32::from)
    }
    #[inline(always)]
    fn load_i8(self, bytes: &[u8], at: usize) -> [i32; 16] {
        array::<16>(bytes, at).map(|b| i32::from(b as i8))
    }
    #[inline(always)]
    fn load_u16(self, bytes: &[u8], at: usize) -> [i32; 16] {
        let b = array::<32>(bytes, at);
        std::array::from_fn(|r| i32::from(u16::from_le_bytes([b[2 * r], b[2 * r + 1]])))
    }
    #[inline(always)]
    fn load_i32(self, bytes: &[u8], at: usize) -> [i32; 16] {
        let b = array::<64>(bytes, at);
        std::array::from_fn(|r| i32::from_le_bytes([b[4 * r], b[4 * r + 1], b[4 * r + 2], b[4 * r + 3]]))
    }
    #[inline(always)]
    fn shr_i32(self, v: [i32; 16], n: u32) -> [i32; 16] {
        v.map(|x| ((x as u32) >> n) as i32)
    }
    #[inline(always)]
    fn shl_i32(self, v: [i32; 16], n: u32) -> [i32; 16] {
        v.map(|x| x << n)
    }
    #[inline(always)]
    fn select_gt(self, a: [i32; 16], b: [i32; 16], x: [i32; 16], y: [i32; 16]) -> [i32; 16] {
        std::array::from_fn(|r| if a[r] > b[r] { x[r] } else { y[r] })
    }

    #[inline(always)]
    fn splat(self, x: f32) -> [f32; 16] {
        [x; 16]
    }
    #[inline(always)]
    fn load_f32(self, x: &[f32], at: usize) -> [f32; 16] {
        let mut out = [0.0; 16];
        out.copy_from_slice(&x[at..at + 16]);
        out
    }
    #[inline(always)]
    fn store_f32(self, v: [f32; 16], x: &mut [f32], at: usize) {
        x[at..at + 16].copy_from_slice(&v);
    }
    #[inline(always)]
    fn load_f32_bytes(self, bytes: &[u8], at: usize) -> [f32; 16] {
        self.as_f32(self.load_i32(bytes, at))
    }
    #[inline(always)]
    fn load_f16(self, bytes: &[u8], at: usize) -> [f32; 16] {
        // By hand, so that the loop vectorises: the exponent is rebiased by a multiplication, which is exact for
        // normal and subnormal numbers alike; infinities and NaN get the largest exponent back.
        self.load_u16(bytes, at).map(|h| {
            let h = h as u32;
            let magnitude = f32::from_bits((h & 0x7fff) << 13) * f32::from_bits(0x7780_0000);
            let special = if h & 0x7c00 == 0x7c00 { 0x7f80_0000 } else { 0 };
            f32::from_bits(magnitude.to_bits() | special | (h & 0x8000) << 16)
        })
    }
    #[inline(always)]
    fn mul_add(self, a: [f32; 16], b: [f32; 16], c: [f32; 16]) -> [f32; 16] {
        std::array::from_fn(|r| a[r] * b[r] + c[r])
    }
}
