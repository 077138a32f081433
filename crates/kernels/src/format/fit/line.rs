//! Formats whose values are lowest + scale · code: two f16 for a block, or pairs of integers in a super-block.

use half::f16;

use super::groups::{Groups, LANES, as_f16, extreme, round, sum};
use crate::simd::Simd;

/// Steps of the codes that the search for a scale cuts off at the low and at the high end.
const CUTS: [f32; 5] = [-0.35, 0.0, 0.35, 0.7, 1.05];
/// How often the best codes are fitted again after that.
const REFITS: usize = 2;

/// Scale and lowest value (x = low + scale · code) of 16 groups, and the reduction of the squared error compared with
/// the mean.
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
        let zero = s.splat(0.0);
        let top = s.splat(levels);
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
        // Also if all codes are equal, because then the free line is undefined.
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
pub(in crate::format) struct Affine<const N: usize> {
    /// Scale of each block.
    pub(in crate::format) d: [f16; LANES],
    /// Lowest value of each block.
    pub(in crate::format) m: [f16; LANES],
    /// Code `i` of all blocks.
    pub(in crate::format) codes: [[f32; LANES]; N],
}

/// Fits blocks of one group with an f16 scale and an f16 lowest value.
#[inline(always)]
pub(in crate::format) fn affine<S: Simd, const N: usize>(s: S, values: &[f32], levels: f32) -> Affine<N> {
    let mut groups = Groups::<N>::new(values, 1);
    // Values relative to the lowest of each group: a large offset would cost the sums precision.
    let lowest = groups.range(s).0;
    for i in 0..N {
        let x = s.sub(groups.at(s, i), lowest);
        s.store_f32(x, &mut groups.x[i], 0);
    }
    let line = search_line(s, &groups, levels, false);
    let mut scale = s.to_array(line.scale);
    let mut low = s.to_array(s.add(line.low, lowest));
    let (mut d, mut m) = ([f16::ZERO; LANES], [f16::ZERO; LANES]);
    for lane in 0..LANES {
        (d[lane], scale[lane]) = as_f16(scale[lane], groups.unit[lane]);
        (m[lane], low[lane]) = as_f16(low[lane], groups.unit[lane]);
    }
    let mut codes = [[0.0; LANES]; N];
    let low = s.sub(s.load_f32(&low, 0), lowest);
    let inverse = s.div(s.splat(1.0), s.load_f32(&scale, 0));
    let zero = s.splat(0.0);
    let top = s.splat(levels);
    for i in 0..N {
        s.store_f32(round(s, s.mul(s.sub(groups.at(s, i), low), inverse), zero, top), &mut codes[i], 0);
    }
    Affine { d, m, codes }
}

/// 16 groups of super-blocks, each value = d · scale · code − dmin · min.
pub(in crate::format) struct SuperAffine<const N: usize> {
    /// The f16 of scales of each group's super-block.
    pub(in crate::format) d: [f16; LANES],
    /// The f16 of minima of each group's super-block.
    pub(in crate::format) dmin: [f16; LANES],
    /// The integer scale of each group.
    pub(in crate::format) scale: [f32; LANES],
    /// The integer minimum of each group.
    pub(in crate::format) min: [f32; LANES],
    /// Code `i` of all groups.
    pub(in crate::format) codes: [[f32; LANES]; N],
}

/// Fits super-blocks of `of_block` groups, whose scales and minima are integers up to `largest`.
#[inline(always)]
pub(in crate::format) fn super_affine<S: Simd, const N: usize>(
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
    let zero = s.splat(0.0);
    let top = s.splat(levels);
    let mut codes = [[0.0; LANES]; N];
    for i in 0..N {
        s.store_f32(round(s, s.mul(s.add(groups.at(s, i), min), inverse), zero, top), &mut codes[i], 0);
    }
    SuperAffine { d: best.f16[0], dmin: best.f16[1], scale: best.scale, min: best.min, codes }
}

/// Integer scales and minima for given super-block scales.
#[derive(Clone, Copy)]
struct Lines {
    /// Scales, and minima, as f16.
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
    /// The super-block scales d and dmin that suit the codes best: the minimum of Σ (x − d·y + dmin·m)² with y =
    /// scale·q.
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
    let zero = s.splat(0.0);
    let one = s.splat(1.0);
    let top = s.splat(levels);
    let largest = s.splat(largest);
    let (d, dmin) = (s.load_f32(&units[0], 0), s.load_f32(&units[1], 0));
    let scale_middle = round(s, s.div(s.load_f32(&wanted[0], 0), d), zero, largest);
    let min_middle = round(s, s.div(s.load_f32(&wanted[1], 0), dmin), zero, largest);
    let mut best_scale = zero;
    let mut best_min = zero;
    let mut error = s.splat(f32::INFINITY);
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
