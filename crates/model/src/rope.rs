//! RoPE's frequencies from its spec.

use std::f64::consts::TAU;

use crate::spec::{RopeScaling, RopeSpec};

/// The angle per position of each pair (`width / 2`), and the magnitude that sine and cosine are multiplied with.
/// `factors` (one per pair) divide the frequencies.
pub(super) fn frequencies(spec: &RopeSpec, factors: Option<&[f32]>) -> (Vec<f32>, f32) {
    let width = spec.width as f64;
    let base = f64::from(spec.base);
    let unscaled = (0..spec.width / 2).map(|i| {
        let factor = factors.and_then(|factors| factors.get(i)).map_or(1.0, |&f| f64::from(f));
        base.powf(-2.0 * i as f64 / width) / factor
    });
    match spec.scaling {
        RopeScaling::None => (unscaled.map(|f| f as f32).collect(), 1.0),
        RopeScaling::Long { magnitude, .. } => (unscaled.map(|f| f as f32).collect(), magnitude),
        RopeScaling::Linear { factor } => (unscaled.map(|f| (f / f64::from(factor)) as f32).collect(), 1.0),
        RopeScaling::Yarn { factor, original_context, beta_fast, beta_slow, truncate, attention_factor } => {
            let factor = f64::from(factor);
            // The pair that turns `turns` times over the original context.
            let pair =
                |turns: f32| width * (original_context as f64 / (f64::from(turns) * TAU)).ln() / (2.0 * base.ln());
            let (low, high) = (pair(beta_fast), pair(beta_slow));
            let (low, high) = if truncate { (low.floor(), high.ceil()) } else { (low, high) };
            let (low, high) = (low.max(0.0), high.min(width - 1.0));
            let stretched = |i: usize| ((i as f64 - low) / (high - low).max(0.001)).clamp(0.0, 1.0);
            let blend = |(i, f): (usize, f64)| (f / factor * stretched(i) + f * (1.0 - stretched(i))) as f32;
            let magnitude = f64::from(attention_factor) * (0.1 * factor.ln() + 1.0);
            (unscaled.enumerate().map(blend).collect(), magnitude as f32)
        }
    }
}

#[cfg(test)]
mod tests {
    use gristmill_kernels::ops::RopeStyle;

    use super::*;

    fn check(base: f32, width: usize, scaling: RopeScaling, factors: Option<&[f32]>, expected: &[f64], magnitude: f64) {
        let spec = RopeSpec { style: RopeStyle::Halves, base, width, scaling, factors: factors.is_some(), axes: None };
        let (frequencies, found) = frequencies(&spec, factors);
        assert!((f64::from(found) - magnitude).abs() < 1e-6, "{found}");
        assert_eq!(frequencies.len(), expected.len());
        for (&found, expected) in frequencies.iter().zip(expected) {
            assert!((f64::from(found) / expected - 1.0).abs() < 1e-6, "{found} {expected}");
        }
    }

    /// The expected numbers are those of transformers 5.23 (`ROPE_INIT_FUNCTIONS`).
    #[test]
    fn frequencies_are_those_of_transformers() {
        let linear = RopeScaling::Linear { factor: 4.0 };
        let expected =
            [0.25, 0.079056941, 0.025, 0.0079056947, 0.0024999999, 0.00079056947, 0.00025000001, 7.9056947e-05];
        check(10_000.0, 16, linear, None, &expected, 1.0);

        let yarn = |original_context, beta_fast, beta_slow| RopeScaling::Yarn {
            factor: 4.0,
            original_context,
            beta_fast,
            beta_slow,
            truncate: true,
            attention_factor: 1.0,
        };
        let expected = [1.0, 0.31622776, 0.1, 0.025693506, 0.0062499996, 0.0013834966, 0.00025000001, 7.9056947e-05];
        check(10_000.0, 16, yarn(2048, 32.0, 1.0), None, &expected, 1.138_629_4);
        let expected = [
            1.0,
            0.42169651,
            0.17782794,
            0.074989416,
            0.031622779,
            0.013335215,
            0.0056234132,
            0.0019267413,
            0.00062500004,
            0.00018449221,
            4.4456985e-05,
            1.8747356e-05,
            7.9056936e-06,
            3.3338035e-06,
            1.4058534e-06,
            5.9284343e-07,
        ];
        check(1e6, 32, yarn(32768, 16.0, 2.0), None, &expected, 1.138_629_4);
        let gpt_oss = RopeScaling::Yarn {
            factor: 32.0,
            original_context: 4096,
            beta_fast: 32.0,
            beta_slow: 1.0,
            truncate: false,
            attention_factor: 1.0,
        };
        let expected = [
            1.0,
            0.225418001,
            0.0508132726,
            0.00679495931,
            0.000456483918,
            1.8188337e-05,
            4.09997847e-06,
            9.24208962e-07,
        ];
        check(150_000.0, 16, gpt_oss, None, &expected, 1.346_573_6);
    }

    #[test]
    fn factors_divide() {
        check(16.0, 4, RopeScaling::None, Some(&[2.0, 8.0]), &[0.5, 0.03125], 1.0);
    }
}
