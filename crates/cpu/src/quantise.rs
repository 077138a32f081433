//! Conversion of activations to int8 (blocks of 32 with a scale and a sum) and to bfloat16.

use super::act::Int8Block;
use gristmill_kernels::simd::{Kernel, Simd};

/// Quantises one row. `out` has one block per 32 values; the last block is padded with zeros.
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

/// scale = max |x| / 127, q = round(x / scale). A block with a value that is not finite gets a NaN scale, so the output
/// is NaN.
#[inline(always)]
fn quantise(x: &[f32; 32]) -> Int8Block {
    // Without sign bits, floats sort like their bit patterns, and infinities and NaN sort last. The compiler vectorises
    // an integer maximum but not a float maximum: 0.6 instead of 1.3 ns per value.
    let largest = x.iter().map(|v| (v.to_bits() & 0x7fff_ffff) as i32).fold(0, i32::max);
    let largest = f32::from_bits(largest as u32);
    let finite = largest.is_finite();
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
        half_sum_pair: half_sum_pair(half_sums),
    }
}

/// [`Int8Block::half_sum_pair`].
#[inline(always)]
pub(super) fn half_sum_pair(half_sums: [i32; 2]) -> i32 {
    half_sums[0] & 0xffff | half_sums[1] << 16
}

/// Rounds to nearest, ties to even, |x| < 2^22: adding 1.5 · 2^23 leaves the integer in the low bits. `f32::round`
/// would be a library call on CPUs without SSE4.1.
#[inline(always)]
fn round(x: f32) -> i32 {
    const MAGIC: f32 = 12_582_912.0;
    ((x + MAGIC).to_bits() as i32).wrapping_sub(MAGIC.to_bits() as i32)
}

/// Rounds one row to pairs of bfloat16. `out` has one word per two values; the last word is padded with zero.
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

/// The first value is in the lower half.
#[inline(always)]
fn round_pair(first: f32, second: f32) -> u32 {
    round_bf16(first) | round_bf16(second) << 16
}

/// The bits of the nearest bfloat16, ties to even; NaN stays NaN.
#[inline(always)]
fn round_bf16(x: f32) -> u32 {
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
    if x.is_nan() { bits >> 16 | 0x40 } else { rounded }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gristmill_suite::testing::seed_of_test;
    use std::hash::BuildHasher;

    /// Any bits.
    fn random(seed: u64, i: usize) -> f32 {
        f32::from_bits(std::hash::BuildHasherDefault::<std::hash::DefaultHasher>::default().hash_one((seed, i)) as u32)
    }

    #[test]
    fn bfloat16_is_rounded_to_nearest() {
        let seed = seed_of_test();
        let special = [0.0, -0.0, f32::MAX, f32::MIN, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, -f32::NAN, 1e-45];
        // Ties, and numbers next to them.
        let near = |i: usize| f32::from_bits((random(seed, i).to_bits() & 0xffff_0000) + 0x7fff + (i as u32 % 3));
        for x in special.into_iter().chain((0..100_000).flat_map(|i| [random(seed, i), near(i)])) {
            assert_eq!(round_bf16(x), u32::from(half::bf16::from_f32(x).to_bits()), "{x} {:#x}", x.to_bits());
        }
    }

    #[test]
    fn a_block_is_scaled_by_its_largest_value() {
        let seed = seed_of_test();
        for i in 0..10_000 {
            // Sizes from denormal to huge, beside others of any size up to that.
            let mut x: [f32; 32] = std::array::from_fn(|k| random(seed, 33 * i + k));
            let largest = random(seed, 33 * i + 32).abs();
            x.iter_mut().filter(|x| x.abs() > largest || x.is_nan()).for_each(|x| *x = largest.copysign(*x));
            if i % 7 == 0 {
                x[i % 32] = [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY][i % 4];
            }
            let block = quantise(&x);
            let finite = x.iter().all(|x| x.is_finite());
            let largest = x.iter().fold(0f32, |m, x| m.max(x.abs()));
            if !finite {
                assert!(block.scale.is_nan() && block.sum.is_nan() && block.q == [0; 8], "{x:?}");
                continue;
            }
            assert_eq!(block.scale, largest / 127.0, "{x:?}");
            let q: [i32; 32] = std::array::from_fn(|k| i32::from(block.q[k / 4].to_le_bytes()[k % 4] as i8));
            let inverse = if largest > 1e-36 { 127.0 / largest } else { 0.0 };
            assert_eq!(q, x.map(|x| (x * inverse).round_ties_even() as i32), "{x:?}");
            let sums = [q[..16].iter().sum::<i32>(), q[16..].iter().sum()];
            assert_eq!(block.half_sums, sums);
            assert_eq!(block.scaled_half_sums, sums.map(|sum| block.scale * sum as f32));
            assert_eq!(block.sum, block.scale * (sums[0] + sums[1]) as f32);
            let pair = [block.half_sum_pair as i16, (block.half_sum_pair >> 16) as i16];
            assert_eq!(pair.map(i32::from), sums);
        }
    }
}
