//! Exponentials, sigmoid, tanh and gated activations, 16 lanes at a time.

use super::layout::Lanes;
use super::level::Level;
use gristmill_kernels::ops::Activation;
use gristmill_kernels::simd::{Kernel, Simd};

/// Lanes of a vector.
pub(super) const LANES: usize = 16;

/// e^x to about 1 ulp: 2^n · e^r with n = round(x / ln 2) and |r| ≤ ln 2 / 2, e^r by its Taylor series to degree 7
/// (the rest is below 6e-9). Below −87.3 the result is the smallest normal number or 0; above 88.7 infinity. NaN stays.
#[inline(always)]
pub(crate) fn exp<S: Simd>(s: S, x: S::F32) -> S::F32 {
    // Bounds first, so that NaN passes through `max` and `min`.
    let x = s.min(s.splat(88.8), s.max(s.splat(-87.3), x));
    let n = s.round_i32(s.mul(x, s.splat(std::f32::consts::LOG2_E)));
    let nf = s.to_f32(n);
    // ln 2 in two parts, the first exact when multiplied by n.
    let r = s.mul_add(nf, s.splat(-0.693_359_4), x);
    let r = s.mul_add(nf, s.splat(2.121_944_4e-4), r);
    let mut sum = s.splat(1.0 / 5040.0);
    for c in [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0] {
        sum = s.mul_add(sum, r, s.splat(c));
    }
    // 2^n in two factors, since 2^128 alone is not a number.
    let half = s.add_i32(s.shr_i32(s.add_i32(n, s.splat_i32(256)), 1), s.splat_i32(-128));
    let rest = s.add_i32(n, s.mul_i32(half, s.splat_i32(-1)));
    s.mul(s.mul(sum, power(s, half)), power(s, rest))
}

/// 2^n for −127 < n < 128.
#[inline(always)]
fn power<S: Simd>(s: S, n: S::I32) -> S::F32 {
    s.as_f32(s.shl_i32(s.add_i32(n, s.splat_i32(127)), 23))
}

/// 1 / (1 + e^−x).
#[inline(always)]
pub(crate) fn sigmoid<S: Simd>(s: S, x: S::F32) -> S::F32 {
    s.div(s.splat(1.0), s.add(s.splat(1.0), exp(s, s.sub(s.splat(0.0), x))))
}

/// ln(1 + e^x) = max(x, 0) + ln(1 + e), e = e^−|x| ≤ 1; ln(1 + e) = 2 · artanh(e / (2 + e)), by its series (the rest is
/// below 1e-9 of it). NaN stays.
#[inline(always)]
pub(crate) fn softplus<S: Simd>(s: S, x: S::F32) -> S::F32 {
    let e = exp(s, s.min(s.sub(s.splat(0.0), x), x));
    let t = s.div(e, s.add(e, s.splat(2.0)));
    let square = s.mul(t, t);
    let mut sum = s.splat(1.0 / 17.0);
    for n in [15.0, 13.0, 11.0, 9.0, 7.0, 5.0, 3.0] {
        sum = s.mul_add(sum, square, s.splat(1.0 / n));
    }
    let log = s.mul_add(s.mul(sum, square), t, t);
    s.add(s.max(s.splat(0.0), x), s.add(log, log))
}

/// tanh(x) = 1 − 2 / (e^2x + 1).
#[inline(always)]
pub(crate) fn tanh<S: Simd>(s: S, x: S::F32) -> S::F32 {
    let e = exp(s, s.add(x, x));
    s.sub(s.splat(1.0), s.div(s.splat(2.0), s.add(e, s.splat(1.0))))
}

/// 0.5 · x · (1 + tanh(√(2/π) · (x + 0.044715 · x³))).
#[inline(always)]
pub(crate) fn gelu<S: Simd>(s: S, x: S::F32) -> S::F32 {
    s.mul(x, normal_tanh(s, x))
}

/// 0.5 · (1 + tanh(√(2/π) · (x + 0.044715 · x³))) = sigmoid(2 · …).
#[inline(always)]
pub(crate) fn normal_tanh<S: Simd>(s: S, x: S::F32) -> S::F32 {
    let cube = s.mul(s.mul(x, x), x);
    let inner = s.mul_add(cube, s.splat(0.044_715), x);
    sigmoid(s, s.mul(inner, s.splat(2.0 * 0.797_884_6)))
}

/// The distribution function of the standard normal distribution: in the form of Abramowitz and Stegun 7.1.26, with eight
/// coefficients that were fitted to a relative error of 4.2e-8 up to five deviations.
#[inline(always)]
pub(crate) fn normal<S: Simd>(s: S, x: S::F32) -> S::F32 {
    let negative = s.sub(s.splat(0.0), x);
    let size = s.max(negative, x);
    let one = s.splat(1.0);
    let t = s.div(one, s.mul_add(size, s.splat(0.3), one));
    let mut tail = s.splat(0.036_905_058);
    for c in [-0.162_073_84, 0.214_210_47, -0.060_304_664, 0.131_658_55, 0.099_131, 0.120_847_69, 0.119_625_75] {
        tail = s.mul_add(tail, t, s.splat(c));
    }
    let half_square = s.mul(s.mul(size, s.splat(-0.5)), size);
    let tail = s.mul(s.mul(tail, t), exp(s, half_square));
    s.select_lt(x, s.splat(0.0), tail, s.sub(one, tail))
}

#[inline(always)]
fn gated<S: Simd>(s: S, activation: Activation, gate: S::F32, up: S::F32) -> S::F32 {
    match activation {
        Activation::SwiGlu => s.mul(s.mul(gate, sigmoid(s, gate)), up),
        Activation::GeGlu => s.mul(gelu(s, gate), up),
        Activation::ClampedSwiGlu { alpha, limit } => {
            let gate = s.min(s.splat(limit), gate);
            let up = s.max(s.splat(-limit), s.min(s.splat(limit), up));
            let glu = s.mul(gate, sigmoid(s, s.mul(gate, s.splat(alpha))));
            s.mul(glu, s.add(up, s.splat(1.0)))
        }
        Activation::LimitedSwiGlu { limit } => {
            let silu = s.min(s.splat(limit), s.mul(gate, sigmoid(s, gate)));
            s.mul(silu, s.max(s.splat(-limit), s.min(s.splat(limit), up)))
        }
        Activation::SquaredRelu => {
            let relu = s.max(s.splat(0.0), up);
            s.mul(relu, relu)
        }
    }
}

struct Activate<'a> {
    activation: Activation,
    gates: &'a mut [Lanes],
    ups: &'a [Lanes],
}

impl Kernel for Activate<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for (gate, up) in self.gates.iter_mut().zip(self.ups) {
            let h = gated(s, self.activation, s.load_f32(gate, 0), s.load_f32(up, 0));
            s.store_f32(h, gate, 0);
        }
    }
}

/// gates = activation(gates, ups).
pub(crate) fn activate(level: Level, activation: Activation, gates: &mut [Lanes], ups: &[Lanes]) {
    level.run(Activate { activation, gates, ups });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Level;

    struct Exp([f32; 16]);
    impl Kernel for Exp {
        type Output = [f32; 16];
        #[inline(always)]
        fn run<S: Simd>(self, s: S) -> [f32; 16] {
            s.to_array(exp(s, s.load_f32(&self.0, 0)))
        }
    }

    #[test]
    fn exp_is_exact_to_a_few_ulp_at_every_level() {
        for level in Level::NAMES.iter().filter_map(|n| Level::named(n).ok()) {
            let mut worst = 0f64;
            for i in 0..20_000 {
                let x: [f32; 16] = std::array::from_fn(|l| (i * 16 + l) as f32 / 320_000.0 * 175.5 - 87.0);
                let y = level.run(Exp(x));
                for (x, y) in x.iter().zip(y) {
                    let want = f64::from(*x).exp();
                    if want < f64::from(f32::MAX) {
                        worst = worst.max((f64::from(y) / want - 1.0).abs());
                    }
                }
            }
            assert!(worst < 3e-7, "{}: {worst}", level.name());
            let mut edges = [0.0; 16];
            edges[..6].copy_from_slice(&[f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0, 89.0, -200.0]);
            let edges = level.run(Exp(edges));
            assert!(edges[0].is_nan() && edges[1].is_infinite() && edges[2] < 2e-38 && edges[3] == 1.0);
            assert!(edges[4].is_infinite() && edges[5] < 2e-38);
        }
    }
}
