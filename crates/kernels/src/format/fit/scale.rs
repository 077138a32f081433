//! Formats whose values are scale · code: one f16 scale for a block, or integer scales in a super-block.

use half::f16;

use super::groups::{Grid, Groups, LANES, as_f16, extreme, round, sum};
use crate::simd::Simd;

/// Distances, in steps of the grid, of its end from the largest value: the candidates of the search for a scale.
const END_OFFSETS: [f32; 20] =
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
        for offset in END_OFFSETS {
            let target = end + offset * G::STEP * end.signum();
            let inverse = s.mul(per_value, s.splat(target));
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
pub(in crate::format) struct Scaled<const N: usize> {
    /// Scale of each block.
    pub(in crate::format) d: [f16; LANES],
    /// Code `i` of all blocks.
    pub(in crate::format) codes: [[f32; LANES]; N],
}

/// Fits blocks of one group with one f16 scale.
#[inline(always)]
pub(in crate::format) fn scaled<S: Simd, G: Grid, const N: usize>(s: S, values: &[f32]) -> Scaled<N> {
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
pub(in crate::format) struct SuperScaled<const N: usize> {
    /// The f16 of each group's super-block.
    pub(in crate::format) d: [f16; LANES],
    /// The integer scale of each group.
    pub(in crate::format) scale: [f32; LANES],
    /// Code `i` of all groups.
    pub(in crate::format) codes: [[f32; LANES]; N],
}

/// Fits super-blocks of `of_block` groups, whose scales are integers from `lowest` to `−lowest − 1`.
#[inline(always)]
pub(in crate::format) fn super_scaled<S: Simd, G: Grid, const N: usize>(
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
            let xy = sum(&self.xy[lanes.clone()]);
            let yy = sum(&self.yy[lanes]);
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
    let mut error = s.splat(f32::INFINITY);
    let mut scale = zero;
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
