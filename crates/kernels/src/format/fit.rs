//! Choosing scales and codes: what the encoders share.
//!
//! An encoder works on 16 groups at a time, one in each lane of a vector, so that the search is the same text at every CPU
//! level and no sum crosses lanes. (A *group* are the elements that share a scale.) Nothing is fused here, hence the
//! bytes are the same on every CPU. What is minimised is the squared error, each element counting the same.

use half::f16;

use crate::simd::Simd;

/// Groups at a time.
pub(super) const LANES: usize = 16;

/// 16 groups of `N` values, divided by a power of two so that squares neither overflow nor vanish.
pub(super) struct Groups<const N: usize> {
    /// Element `i` of all groups.
    x: [[f32; LANES]; N],
    /// What each group was divided by.
    unit: [f32; LANES],
}

impl<const N: usize> Groups<N> {
    /// Takes `16 · N` values, group after group. Groups of one block share the power of two.
    #[inline(always)]
    pub(super) fn new(values: &[f32], groups_of_block: usize) -> Self {
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
    fn at<S: Simd>(&self, s: S, i: usize) -> S::F32 {
        s.load_f32(&self.x[i], 0)
    }

    /// The least and the greatest value of each group.
    #[inline(always)]
    fn range<S: Simd>(&self, s: S) -> (S::F32, S::F32) {
        let (mut low, mut high) = (self.at(s, 0), self.at(s, 0));
        for i in 1..N {
            (low, high) = (s.min(low, self.at(s, i)), s.max(high, self.at(s, i)));
        }
        (low, high)
    }
}

/// The power of two not above `largest`, and its inverse. Blocks that are smaller than what the product of an f16 and
/// codes can express become zeros.
fn unit(largest: f32) -> (f32, f32) {
    if largest < 1e-18 {
        return (1.0, 0.0);
    }
    let unit = f32::from_bits(largest.to_bits() & 0x7f80_0000).min(8.507_059e37);
    (unit, 1.0 / unit)
}

/// `x`, in units of `unit`, as the nearest finite f16 of a decoder, in the same units again.
fn as_f16(x: f32, unit: f32) -> (f16, f32) {
    let largest = f16::MAX.to_f32();
    let h = f16::from_f32((x * unit).clamp(-largest, largest));
    (h, h.to_f32() / unit)
}

/// Stores `x` as f16, saturating at the largest finite one, and returns it as a decoder sees it.
pub(super) fn put_f16(block: &mut [u8], at: usize, x: f32) -> f32 {
    let (h, seen) = as_f16(x, 1.0);
    block[at..at + 2].copy_from_slice(&h.to_le_bytes());
    seen
}

/// The integers that codes stand for.
pub(super) trait Grid {
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
pub(super) struct Signed<const ZERO: i32>;

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
fn round<S: Simd>(s: S, x: S::F32, low: S::F32, high: S::F32) -> S::F32 {
    s.to_f32(s.round_i32(s.min(s.max(x, low), high)))
}

/// How many steps from the largest value the end of the grid may lie, in the search for a scale.
const STRETCHES: [f32; 20] =
    [-1.4, -1.2, -1.0, -0.8, -0.6, -0.4, -0.2, 0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4, 1.6, 1.8, 2.0, 2.2, 2.5];

/// The scale of each group for which scale · code has the least squared error: for each of many, which codes it gives,
/// and which scale suits these codes best.
#[inline(always)]
fn search<S: Simd, G: Grid, const N: usize>(s: S, groups: &Groups<N>) -> S::F32 {
    let (low, high) = groups.range(s);
    let zero = s.splat(0.0);
    let negative = s.sub(zero, low);
    let extreme = s.select_lt(negative, high, high, low);
    let per_value = s.div(s.splat(1.0), extreme);
    let (mut best, mut best_scale) = (zero, zero);
    for end in [G::LOW, G::HIGH] {
        for stretch in STRETCHES {
            let stretched = end + stretch * G::STEP * end.signum();
            let inverse = s.mul(per_value, s.splat(stretched));
            let (mut xq, mut qq) = (zero, zero);
            for i in 0..N {
                let x = groups.at(s, i);
                let q = G::nearest(s, s.mul(x, inverse));
                (xq, qq) = (s.add(xq, s.mul(x, q)), s.add(qq, s.mul(q, q)));
            }
            // With these codes the best scale is xq / qq, and it takes xq² / qq off the squared error of all zeros.
            let scale = s.div(xq, qq);
            let gain = s.mul(xq, scale);
            best_scale = s.select_lt(best, gain, scale, best_scale);
            best = s.select_lt(best, gain, gain, best);
        }
    }
    best_scale
}

/// 16 blocks of one group, each value = d · grid\[code\].
pub(super) struct Scaled<const N: usize> {
    /// Scale of each block.
    pub(super) d: [f16; LANES],
    /// Code `i` of all blocks.
    pub(super) codes: [[f32; LANES]; N],
}

/// Fits blocks of one group with one f16 scale.
#[inline(always)]
pub(super) fn scaled<S: Simd, G: Grid, const N: usize>(s: S, values: &[f32]) -> Scaled<N> {
    let groups = Groups::<N>::new(values, 1);
    let mut scale = s.to_array(search::<S, G, N>(s, &groups));
    let mut d = [f16::ZERO; LANES];
    for lane in 0..LANES {
        (d[lane], scale[lane]) = as_f16(scale[lane], groups.unit[lane]);
    }
    let mut codes = [[0.0; LANES]; N];
    let inverse = s.div(s.splat(1.0), s.load_f32(&scale, 0));
    for i in 0..N {
        s.store_f32(G::code(s, s.mul(groups.at(s, i), inverse)), &mut codes[i], 0);
    }
    Scaled { d, codes }
}

/// 16 groups of super-blocks, each value = d · scale · grid\[code\].
pub(super) struct SuperScaled<const N: usize> {
    /// The f16 of each group's super-block.
    pub(super) d: [f16; LANES],
    /// The integer scale of each group.
    pub(super) scale: [f32; LANES],
    /// Code `i` of all groups.
    pub(super) codes: [[f32; LANES]; N],
}

/// Fits super-blocks of `of_block` groups, whose scales are integers from `lowest` to `−lowest − 1`.
#[inline(always)]
pub(super) fn super_scaled<S: Simd, G: Grid, const N: usize>(
    s: S,
    values: &[f32],
    of_block: usize,
    lowest: f32,
) -> SuperScaled<N> {
    let groups = Groups::<N>::new(values, of_block);
    let scales = s.to_array(search::<S, G, N>(s, &groups));
    let mut d = [0f32; LANES];
    for (d, scales) in d.chunks_exact_mut(of_block).zip(scales.chunks_exact(of_block)) {
        d.fill(extreme(scales) / lowest);
    }
    let mut best = pick_scales::<S, G, N>(s, &groups, &scales, &d, lowest);
    for _ in 0..2 {
        let again = pick_scales::<S, G, N>(s, &groups, &scales, &best.refined(of_block), lowest);
        best.replace_if_better(&again, of_block);
    }
    let mut codes = [[0.0; LANES]; N];
    let scale = s.mul(s.load_f32(&best.d, 0), s.load_f32(&best.scale, 0));
    let inverse = s.div(s.splat(1.0), scale);
    for i in 0..N {
        s.store_f32(G::code(s, s.mul(groups.at(s, i), inverse)), &mut codes[i], 0);
    }
    SuperScaled { d: best.f16, scale: best.scale, codes }
}

/// The value of largest magnitude, with its sign.
fn extreme(values: &[f32]) -> f32 {
    values.iter().fold(0.0, |m: f32, &v| if v.abs() > m.abs() { v } else { m })
}

/// Integer scales for given super-block scales.
#[derive(Clone, Copy)]
struct Scales {
    f16: [f16; LANES],
    /// The same as floats, in units of the groups.
    d: [f32; LANES],
    scale: [f32; LANES],
    error: [f32; LANES],
    /// Σ x·scale·q and Σ (scale·q)².
    xy: [f32; LANES],
    yy: [f32; LANES],
}

impl Scales {
    /// The super-block scales that suit the codes best.
    fn refined(&self, of_block: usize) -> [f32; LANES] {
        let mut d = self.d;
        for (block, d) in d.chunks_exact_mut(of_block).enumerate() {
            let lanes = block * of_block..(block + 1) * of_block;
            let (xy, yy) = (sum(&self.xy[lanes.clone()]), sum(&self.yy[lanes]));
            if yy > 0.0 {
                d.fill((xy / yy) as f32);
            }
        }
        d
    }

    fn replace_if_better(&mut self, other: &Scales, of_block: usize) {
        for start in (0..LANES).step_by(of_block) {
            let lanes = start..start + of_block;
            if sum(&other.error[lanes.clone()]) < sum(&self.error[lanes.clone()]) {
                for lane in lanes {
                    (self.f16[lane], self.d[lane], self.scale[lane]) =
                        (other.f16[lane], other.d[lane], other.scale[lane]);
                    (self.error[lane], self.xy[lane], self.yy[lane]) =
                        (other.error[lane], other.xy[lane], other.yy[lane]);
                }
            }
        }
    }
}

fn sum(values: &[f32]) -> f64 {
    values.iter().map(|&v| f64::from(v)).sum()
}

/// The integer scale of each group, of those near the wanted one, that has the least squared error.
#[inline(always)]
fn pick_scales<S: Simd, G: Grid, const N: usize>(
    s: S,
    groups: &Groups<N>,
    wanted: &[f32; LANES],
    d: &[f32; LANES],
    lowest: f32,
) -> Scales {
    let mut f16 = [f16::ZERO; LANES];
    let mut d = *d;
    for lane in 0..LANES {
        (f16[lane], d[lane]) = as_f16(d[lane], groups.unit[lane]);
    }
    let (zero, one) = (s.splat(0.0), s.splat(1.0));
    let (lowest, highest) = (s.splat(lowest), s.splat(-lowest - 1.0));
    let d_lanes = s.load_f32(&d, 0);
    let middle = round(s, s.div(s.load_f32(wanted, 0), d_lanes), lowest, highest);
    let (mut error, mut scale) = (s.splat(f32::INFINITY), zero);
    let (mut best_xy, mut best_yy) = (zero, zero);
    for step in [-1.0, 0.0, 1.0] {
        let candidate = s.min(s.max(s.add(middle, s.splat(step)), lowest), highest);
        let unit = s.mul(d_lanes, candidate);
        let inverse = s.div(one, unit);
        let (mut sum, mut xq, mut qq) = (zero, zero, zero);
        for i in 0..N {
            let x = groups.at(s, i);
            let q = G::nearest(s, s.mul(x, inverse));
            let off = s.sub(x, s.mul(unit, q));
            sum = s.add(sum, s.mul(off, off));
            (xq, qq) = (s.add(xq, s.mul(x, q)), s.add(qq, s.mul(q, q)));
        }
        let xy = s.mul(xq, candidate);
        let yy = s.mul(qq, s.mul(candidate, candidate));
        scale = s.select_lt(sum, error, candidate, scale);
        best_xy = s.select_lt(sum, error, xy, best_xy);
        best_yy = s.select_lt(sum, error, yy, best_yy);
        error = s.select_lt(sum, error, sum, error);
    }
    let [scale, error, xy, yy] = [s.to_array(scale), s.to_array(error), s.to_array(best_xy), s.to_array(best_yy)];
    Scales { f16, d, scale, error, xy, yy }
}

/// How many steps of the codes are cut off at the low and at the high end, in the search for a scale.
const CUTS: [f32; 5] = [-0.35, 0.0, 0.35, 0.7, 1.05];
/// How often the best codes are fitted again after that.
const REFITS: usize = 2;

/// Scale and lowest value (x = low + scale · code) of 16 groups, and how much less than that of their mean alone the
/// squared error is.
#[derive(Clone, Copy)]
struct Line<S: Simd> {
    scale: S::F32,
    low: S::F32,
    gain: S::F32,
}

impl<S: Simd> Line<S> {
    #[inline(always)]
    fn better(self, s: S, other: Self) -> Self {
        Line {
            scale: s.select_lt(self.gain, other.gain, other.scale, self.scale),
            low: s.select_lt(self.gain, other.gain, other.low, self.low),
            gain: s.select_lt(self.gain, other.gain, other.gain, self.gain),
        }
    }

    /// The line that suits the codes of this one best; with `negative`, low ≤ 0.
    #[inline(always)]
    fn refit<const N: usize>(self, s: S, groups: &Groups<N>, levels: f32, mean: S::F32, negative: bool) -> Self {
        let (zero, top) = (s.splat(0.0), s.splat(levels));
        let inverse = s.div(s.splat(1.0), self.scale);
        let (mut q1, mut qq, mut xq) = (zero, zero, zero);
        for i in 0..N {
            let x = groups.at(s, i);
            let q = round(s, s.mul(s.sub(x, self.low), inverse), zero, top);
            (q1, qq, xq) = (s.add(q1, q), s.add(qq, s.mul(q, q)), s.add(xq, s.mul(x, q)));
        }
        let mean_q = s.mul(q1, s.splat(1.0 / N as f32));
        let covariance = s.sub(xq, s.mul(mean, q1));
        let scale = s.div(covariance, s.sub(qq, s.mul(mean_q, q1)));
        let free = Self { scale, low: s.sub(mean, s.mul(scale, mean_q)), gain: s.mul(covariance, scale) };
        if !negative {
            return free;
        }
        let scale = s.div(xq, qq);
        let squared_mean = s.mul(s.splat(N as f32), s.mul(mean, mean));
        let from_zero = Self { scale, low: zero, gain: s.sub(s.mul(xq, scale), squared_mean) };
        // Also where all codes are the same, which leaves the free line undefined.
        let below = s.splat(f32::MIN_POSITIVE);
        Line {
            scale: s.select_lt(free.low, below, free.scale, from_zero.scale),
            low: s.min(free.low, zero),
            gain: s.select_lt(free.low, below, free.gain, from_zero.gain),
        }
    }
}

/// The line of each group with codes in `0..=levels` and a small squared error; with `negative`, low ≤ 0. Many ranges
/// are tried: which codes does each give, and which line suits these best.
#[inline(always)]
fn search_line<S: Simd, const N: usize>(s: S, groups: &Groups<N>, levels: f32, negative: bool) -> Line<S> {
    let zero = s.splat(0.0);
    let (mut low, mut high) = groups.range(s);
    if negative {
        (low, high) = (s.min(low, zero), s.max(high, zero));
    }
    let mut sum = zero;
    for i in 0..N {
        sum = s.add(sum, groups.at(s, i));
    }
    let mean = s.mul(sum, s.splat(1.0 / N as f32));
    // Where all are the same, a single level is all there is.
    let alone = if negative { s.min(mean, zero) } else { mean };
    let beside = s.sub(mean, alone);
    let gain = s.sub(zero, s.mul(s.splat(N as f32), s.mul(beside, beside)));
    let mut best = Line { scale: zero, low: alone, gain };
    let step = s.mul(s.sub(high, low), s.splat(1.0 / levels));
    for below in CUTS {
        let from = s.add(low, s.mul(step, s.splat(below)));
        for above in CUTS {
            let scale = s.mul(step, s.splat(1.0 - (below + above) / levels));
            let cut = Line { scale, low: from, gain };
            best = best.better(s, cut.refit(s, groups, levels, mean, negative));
        }
    }
    for _ in 0..REFITS {
        best = best.better(s, best.refit(s, groups, levels, mean, negative));
    }
    best
}

/// 16 blocks of one group, each value = m + d · code.
pub(super) struct Affine<const N: usize> {
    /// Scale of each block.
    pub(super) d: [f16; LANES],
    /// Lowest value of each block.
    pub(super) m: [f16; LANES],
    /// Code `i` of all blocks.
    pub(super) codes: [[f32; LANES]; N],
}

/// Fits blocks of one group with an f16 scale and an f16 lowest value.
#[inline(always)]
pub(super) fn affine<S: Simd, const N: usize>(s: S, values: &[f32], levels: f32) -> Affine<N> {
    let mut groups = Groups::<N>::new(values, 1);
    // From here the lowest value of each group is 0, lest its distance from 0 take the sums' digits.
    let lowest = groups.range(s).0;
    for i in 0..N {
        let x = s.sub(groups.at(s, i), lowest);
        s.store_f32(x, &mut groups.x[i], 0);
    }
    let line = search_line(s, &groups, levels, false);
    let (mut scale, mut low) = (s.to_array(line.scale), s.to_array(s.add(line.low, lowest)));
    let (mut d, mut m) = ([f16::ZERO; LANES], [f16::ZERO; LANES]);
    for lane in 0..LANES {
        (d[lane], scale[lane]) = as_f16(scale[lane], groups.unit[lane]);
        (m[lane], low[lane]) = as_f16(low[lane], groups.unit[lane]);
    }
    let mut codes = [[0.0; LANES]; N];
    let low = s.sub(s.load_f32(&low, 0), lowest);
    let inverse = s.div(s.splat(1.0), s.load_f32(&scale, 0));
    let (zero, top) = (s.splat(0.0), s.splat(levels));
    for i in 0..N {
        s.store_f32(round(s, s.mul(s.sub(groups.at(s, i), low), inverse), zero, top), &mut codes[i], 0);
    }
    Affine { d, m, codes }
}

/// 16 groups of super-blocks, each value = d · scale · code − dmin · min.
pub(super) struct SuperAffine<const N: usize> {
    /// The f16 of scales of each group's super-block.
    pub(super) d: [f16; LANES],
    /// The f16 of minima of each group's super-block.
    pub(super) dmin: [f16; LANES],
    /// The integer scale of each group.
    pub(super) scale: [f32; LANES],
    /// The integer minimum of each group.
    pub(super) min: [f32; LANES],
    /// Code `i` of all groups.
    pub(super) codes: [[f32; LANES]; N],
}

/// Fits super-blocks of `of_block` groups, whose scales and minima are integers up to `largest`.
#[inline(always)]
pub(super) fn super_affine<S: Simd, const N: usize>(
    s: S,
    values: &[f32],
    of_block: usize,
    levels: f32,
    largest: f32,
) -> SuperAffine<N> {
    let groups = Groups::<N>::new(values, of_block);
    let line = search_line(s, &groups, levels, true);
    let wanted = [s.to_array(line.scale), s.to_array(s.sub(s.splat(0.0), line.low))];
    let mut units = [[0f32; LANES]; 2];
    for (units, wanted) in units.iter_mut().zip(&wanted) {
        for (unit, wanted) in units.chunks_exact_mut(of_block).zip(wanted.chunks_exact(of_block)) {
            unit.fill(extreme(wanted) / largest);
        }
    }
    let mut best = pick_lines(s, &groups, &wanted, &units, levels, largest);
    for _ in 0..2 {
        let again = pick_lines(s, &groups, &wanted, &best.refined(of_block), levels, largest);
        best.replace_if_better(&again, of_block);
    }
    let scale = s.mul(s.load_f32(&best.units[0], 0), s.load_f32(&best.scale, 0));
    let min = s.mul(s.load_f32(&best.units[1], 0), s.load_f32(&best.min, 0));
    let inverse = s.div(s.splat(1.0), scale);
    let (zero, top) = (s.splat(0.0), s.splat(levels));
    let mut codes = [[0.0; LANES]; N];
    for i in 0..N {
        s.store_f32(round(s, s.mul(s.add(groups.at(s, i), min), inverse), zero, top), &mut codes[i], 0);
    }
    SuperAffine { d: best.f16[0], dmin: best.f16[1], scale: best.scale, min: best.min, codes }
}

/// Integer scales and minima for given super-block scales.
#[derive(Clone, Copy)]
struct Lines {
    /// Of scales and of minima.
    f16: [[f16; LANES]; 2],
    /// The same as floats, in units of the groups.
    units: [[f32; LANES]; 2],
    scale: [f32; LANES],
    min: [f32; LANES],
    error: [f32; LANES],
    /// Σ q, Σ q², Σ x·q and Σ x.
    sums: [[f32; LANES]; 4],
    elements: usize,
}

impl Lines {
    /// The super-block scales d and dmin that suit the codes best: the minimum of Σ (x − d·y + dmin·m)² with y = scale·q.
    fn refined(&self, of_block: usize) -> [[f32; LANES]; 2] {
        let mut units = self.units;
        for start in (0..LANES).step_by(of_block) {
            let (mut yy, mut ym, mut mm, mut xy, mut xm) = (0f64, 0f64, 0f64, 0f64, 0f64);
            for lane in start..start + of_block {
                let [scale, min] = [self.scale, self.min].map(|v| f64::from(v[lane]));
                let [q1, qq, xq, x1] = self.sums.map(|v| f64::from(v[lane]));
                yy += scale * scale * qq;
                ym += scale * min * q1;
                mm += min * min * self.elements as f64;
                xy += scale * xq;
                xm += min * x1;
            }
            let determinant = yy * mm - ym * ym;
            let dmin = if determinant > 1e-9 * yy * mm { (ym * xy - yy * xm) / determinant } else { 0.0 };
            let d = (xy + dmin * ym) / yy;
            if yy > 0.0 && d > 0.0 && dmin >= 0.0 {
                units[0][start..start + of_block].fill(d as f32);
                units[1][start..start + of_block].fill(dmin as f32);
            }
        }
        units
    }

    fn replace_if_better(&mut self, other: &Lines, of_block: usize) {
        for start in (0..LANES).step_by(of_block) {
            let lanes = start..start + of_block;
            if sum(&other.error[lanes.clone()]) >= sum(&self.error[lanes.clone()]) {
                continue;
            }
            for lane in lanes {
                for i in 0..2 {
                    (self.f16[i][lane], self.units[i][lane]) = (other.f16[i][lane], other.units[i][lane]);
                }
                for i in 0..4 {
                    self.sums[i][lane] = other.sums[i][lane];
                }
                (self.scale[lane], self.min[lane]) = (other.scale[lane], other.min[lane]);
                self.error[lane] = other.error[lane];
            }
        }
    }
}

/// The integer scale and minimum of each group, of those near the wanted ones, that have the least squared error.
#[inline(always)]
fn pick_lines<S: Simd, const N: usize>(
    s: S,
    groups: &Groups<N>,
    wanted: &[[f32; LANES]; 2],
    units: &[[f32; LANES]; 2],
    levels: f32,
    largest: f32,
) -> Lines {
    let mut f16 = [[f16::ZERO; LANES]; 2];
    let mut units = *units;
    for i in 0..2 {
        for lane in 0..LANES {
            (f16[i][lane], units[i][lane]) = as_f16(units[i][lane], groups.unit[lane]);
        }
    }
    let (zero, one, top, largest) = (s.splat(0.0), s.splat(1.0), s.splat(levels), s.splat(largest));
    let (d, dmin) = (s.load_f32(&units[0], 0), s.load_f32(&units[1], 0));
    let scale_middle = round(s, s.div(s.load_f32(&wanted[0], 0), d), zero, largest);
    let min_middle = round(s, s.div(s.load_f32(&wanted[1], 0), dmin), zero, largest);
    let (mut best_scale, mut best_min, mut error) = (zero, zero, s.splat(f32::INFINITY));
    let (mut best_q1, mut best_qq, mut best_xq) = (zero, zero, zero);
    for (scale_step, min_step) in NEIGHBOURS {
        let scale = s.min(s.max(s.add(scale_middle, s.splat(scale_step)), zero), largest);
        let min = s.min(s.max(s.add(min_middle, s.splat(min_step)), zero), largest);
        let (unit, low) = (s.mul(d, scale), s.mul(dmin, min));
        let inverse = s.div(one, unit);
        let (mut sum, mut q1, mut qq, mut xq) = (zero, zero, zero, zero);
        for i in 0..N {
            let x = groups.at(s, i);
            let above = s.add(x, low);
            let q = round(s, s.mul(above, inverse), zero, top);
            let off = s.sub(above, s.mul(unit, q));
            sum = s.add(sum, s.mul(off, off));
            (q1, qq, xq) = (s.add(q1, q), s.add(qq, s.mul(q, q)), s.add(xq, s.mul(x, q)));
        }
        best_scale = s.select_lt(sum, error, scale, best_scale);
        best_min = s.select_lt(sum, error, min, best_min);
        best_q1 = s.select_lt(sum, error, q1, best_q1);
        best_qq = s.select_lt(sum, error, qq, best_qq);
        best_xq = s.select_lt(sum, error, xq, best_xq);
        error = s.select_lt(sum, error, sum, error);
    }
    let mut x1 = zero;
    for i in 0..N {
        x1 = s.add(x1, groups.at(s, i));
    }
    Lines {
        f16,
        units,
        scale: s.to_array(best_scale),
        min: s.to_array(best_min),
        error: s.to_array(error),
        sums: [s.to_array(best_q1), s.to_array(best_qq), s.to_array(best_xq), s.to_array(x1)],
        elements: N,
    }
}

/// Steps of scale and minimum around the nearest integers.
const NEIGHBOURS: [(f32, f32); 9] =
    [(0.0, 0.0), (0.0, -1.0), (0.0, 1.0), (-1.0, 0.0), (1.0, 0.0), (-1.0, -1.0), (1.0, 1.0), (-1.0, 1.0), (1.0, -1.0)];
