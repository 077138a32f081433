//! Groups of values, and the grids that codes stand for.

use half::f16;

use crate::simd::Simd;

/// Groups at a time.
pub(in crate::format) const LANES: usize = 16;

/// 16 groups of `N` values, divided by a power of two so that squares neither overflow nor vanish.
pub(in crate::format) struct Groups<const N: usize> {
    /// Element `i` of all groups.
    pub(super) x: [[f32; LANES]; N],
    /// The divisor of each group.
    pub(super) unit: [f32; LANES],
}

impl<const N: usize> Groups<N> {
    /// Takes `16 · N` values, group after group. Groups of one block share the power of two.
    #[inline(always)]
    pub(in crate::format) fn new(values: &[f32], groups_of_block: usize) -> Self {
        let mut groups = Groups { x: [[0.0; LANES]; N], unit: [1.0; LANES] };
        for (block, values) in values.chunks_exact(groups_of_block * N).enumerate() {
            let mut largest = [0f32; LANES];
            for some in values.as_chunks::<LANES>().0 {
                for (largest, v) in largest.iter_mut().zip(some) {
                    *largest = if v.abs() > *largest { v.abs() } else { *largest };
                }
            }
            let (unit, inverse) = unit(largest.iter().fold(0.0, |m, &v| if v > m { v } else { m }));
            for (g, values) in values.chunks_exact(N).enumerate() {
                let lane = block * groups_of_block + g;
                groups.unit[lane] = unit;
                for (x, v) in groups.x.iter_mut().zip(values) {
                    x[lane] = v * inverse;
                }
            }
        }
        groups
    }

    #[inline(always)]
    pub(super) fn at<S: Simd>(&self, s: S, i: usize) -> S::F32 {
        s.load_f32(&self.x[i], 0)
    }

    /// The least and the greatest value of each group.
    #[inline(always)]
    pub(super) fn range<S: Simd>(&self, s: S) -> (S::F32, S::F32) {
        let (mut low, mut high) = (self.at(s, 0), self.at(s, 0));
        for i in 1..N {
            (low, high) = (s.min(low, self.at(s, i)), s.max(high, self.at(s, i)));
        }
        (low, high)
    }
}

/// The power of two not above `largest`, and its inverse. Blocks that are smaller than what the product of an f16 and
/// codes can express become zeros.
pub(super) fn unit(largest: f32) -> (f32, f32) {
    if largest < 1e-18 {
        return (1.0, 0.0);
    }
    let unit = f32::from_bits(largest.to_bits() & 0x7f80_0000).min(8.507_059e37);
    (unit, 1.0 / unit)
}

/// `x`, in units of `unit`, as the nearest finite f16 of a decoder, in the same units again.
pub(super) fn as_f16(x: f32, unit: f32) -> (f16, f32) {
    let largest = f16::MAX.to_f32();
    let h = f16::from_f32((x * unit).clamp(-largest, largest));
    (h, h.to_f32() / unit)
}

/// Stores `x` as f16, saturating at the largest finite one, and returns it as a decoder sees it.
pub(in crate::format) fn put_f16(block: &mut [u8], at: usize, x: f32) -> f32 {
    let (h, seen) = as_f16(x, 1.0);
    block[at..at + 2].copy_from_slice(&h.to_le_bytes());
    seen
}

/// The integers that codes stand for.
pub(in crate::format) trait Grid {
    /// The least.
    const LOW: f32;
    /// The greatest.
    const HIGH: f32;
    /// About the distance of two neighbours.
    const STEP: f32;
    /// The one nearest to `x`, which may be anything.
    fn nearest<S: Simd>(s: S, x: S::F32) -> S::F32;
    /// The code of the one nearest to `x`, as a float.
    fn code<S: Simd>(s: S, x: S::F32) -> S::F32;
}

/// All integers from `−ZERO` to `ZERO − 1`.
pub(in crate::format) struct Signed<const ZERO: i32>;

impl<const ZERO: i32> Grid for Signed<ZERO> {
    const LOW: f32 = -ZERO as f32;
    const HIGH: f32 = (ZERO - 1) as f32;
    const STEP: f32 = 1.0;

    #[inline(always)]
    fn nearest<S: Simd>(s: S, x: S::F32) -> S::F32 {
        round(s, x, s.splat(Self::LOW), s.splat(Self::HIGH))
    }

    #[inline(always)]
    fn code<S: Simd>(s: S, x: S::F32) -> S::F32 {
        s.add(Self::nearest(s, x), s.splat(ZERO as f32))
    }
}

/// The integer nearest to `x` within bounds; the lower bound for NaN.
#[inline(always)]
pub(super) fn round<S: Simd>(s: S, x: S::F32, low: S::F32, high: S::F32) -> S::F32 {
    s.to_f32(s.round_i32(s.min(s.max(x, low), high)))
}

/// The value of largest magnitude, with its sign.
pub(super) fn extreme(values: &[f32]) -> f32 {
    values.iter().fold(0.0, |m: f32, &v| if v.abs() > m.abs() { v } else { m })
}

/// A sum in f64, so that it hardly rounds.
pub(super) fn sum(values: &[f32]) -> f64 {
    values.iter().map(|&v| f64::from(v)).sum()
}
