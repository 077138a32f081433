//! Activations to int8, 32 at a time, with their scale and sums; and to bfloat16.

use super::act::Int8Block;
use gristmill_kernels::simd::{Kernel, Simd};
use half::bf16;

/// Quantises one row; `out` has a block for each 32 values, the last one padded with zeros.
pub(crate) struct QuantiseRow<'a> {
    pub(crate) x: &'a [f32],
    pub(crate) out: &'a mut [Int8Block],
}

impl Kernel for QuantiseRow<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let (whole, tail) = self.x.as_chunks::<32>();
        for (x, block) in whole.iter().zip(self.out.iter_mut()) {
            *block = quantise(x);
        }
        if let (false, Some(block)) = (tail.is_empty(), self.out.get_mut(whole.len())) {
            let mut padded = [0.0; 32];
            padded[..tail.len()].copy_from_slice(tail);
            *block = quantise(&padded);
        }
    }
}

/// scale = max |x| / 127, q = round(x / scale). A block that is not finite gets a NaN scale, so that the
/// output is NaN.
#[inline(always)]
fn quantise(x: &[f32; 32]) -> Int8Block {
    let mut largest = [0f32; 16];
    let mut zero = [0f32; 16];
    for (i, v) in x.iter().enumerate() {
        let lane = i % 16;
        largest[lane] = if v.abs() > largest[lane] { v.abs() } else { largest[lane] };
        zero[lane] += v * 0.0;
    }
    let largest = largest.iter().fold(0f32, |m, &v| if v > m { v } else { m });
    let finite = zero.iter().sum::<f32>() == 0.0;
    let scale = if finite { largest / 127.0 } else { f32::NAN };
    // A block of denormals has no inverse in f32; it quantises to zeros.
    let inverse = if largest > 1e-36 && finite { 127.0 / largest } else { 0.0 };
    let q: [i32; 32] = std::array::from_fn(|i| if finite { round(x[i] * inverse) } else { 0 });
    let half_sums: [i32; 2] = std::array::from_fn(|h| q[16 * h..16 * h + 16].iter().sum());
    let bytes: [u8; 32] = q.map(|q| q as i8 as u8);
    Int8Block {
        q: std::array::from_fn(|j| {
            i32::from_le_bytes([bytes[4 * j], bytes[4 * j + 1], bytes[4 * j + 2], bytes[4 * j + 3]])
        }),
        scale,
        sum: scale * (half_sums[0] + half_sums[1]) as f32,
        half_sums,
        scaled_half_sums: half_sums.map(|sum| scale * sum as f32),
        half_sum_pair: half_sums[0] & 0xffff | half_sums[1] << 16,
    }
}

/// Rounds to nearest, ties to even, |x| < 2^22: adding 1.5 · 2^23 leaves the integer in the low bits. `f32::round`
/// would be a library call on CPUs without SSE4.1.
#[inline(always)]
fn round(x: f32) -> i32 {
    const MAGIC: f32 = 12_582_912.0;
    ((x + MAGIC).to_bits() as i32).wrapping_sub(MAGIC.to_bits() as i32)
}

/// Rounds one row to pairs of bfloat16; `out` has a word for each two values, the last one padded with zero.
pub(crate) struct RoundRow<'a> {
    pub(crate) x: &'a [f32],
    pub(crate) out: &'a mut [u32],
}

impl Kernel for RoundRow<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let (whole, tail) = self.x.as_chunks::<2>();
        for (&[first, second], pair) in whole.iter().zip(self.out.iter_mut()) {
            *pair = round_pair(first, second);
        }
        if let ([last], Some(pair)) = (tail, self.out.get_mut(whole.len())) {
            *pair = round_pair(*last, 0.0);
        }
    }
}

/// The first in the lower half. To nearest, ties to even; NaN stays NaN.
#[inline(always)]
fn round_pair(first: f32, second: f32) -> u32 {
    u32::from(bf16::from_f32(first).to_bits()) | u32::from(bf16::from_f32(second).to_bits()) << 16
}
