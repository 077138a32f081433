//! RoPE's frequencies from its spec.

use std::f64::consts::TAU;

use super::spec::{RopeScaling, RopeSpec};

/// The angle per position of each pair (`width / 2`), and the magnitude that sine and cosine are multiplied with.
/// `factors` (one per pair) divide the frequencies.
pub(super) fn frequencies(spec: &RopeSpec, factors: Option<&[f32]>) -> (Vec<f32>, f32) {
    let (width, base) = (spec.width as f64, f64::from(spec.base));
    let unscaled = (0..spec.width / 2).map(|i| {
        let factor = factors.and_then(|factors| factors.get(i)).map_or(1.0, |&f| f64::from(f));
        base.powf(-2.0 * i as f64 / width) / factor
    });
    match spec.scaling {
        RopeScaling::None => (unscaled.map(|f| f as f32).collect(), 1.0),
        RopeScaling::Linear { factor } => (unscaled.map(|f| (f / f64::from(factor)) as f32).collect(), 1.0),
        RopeScaling::Yarn { factor, original_context, beta_fast, beta_slow, attention_factor } => {
            let factor = f64::from(factor);
            // The pair that turns `turns` times over the original context.
            let pair =
                |turns: f32| width * (original_context as f64 / (f64::from(turns) * TAU)).ln() / (2.0 * base.ln());
            let low = pair(beta_fast).floor().max(0.0);
            let high = pair(beta_slow).ceil().min(width - 1.0);
            let stretched = |i: usize| ((i as f64 - low) / (high - low).max(0.001)).clamp(0.0, 1.0);
            let blend = |(i, f): (usize, f64)| (f / factor * stretched(i) + f * (1.0 - stretched(i))) as f32;
            let magnitude = f64::from(attention_factor) * (0.1 * factor.ln() + 1.0);
            (unscaled.enumerate().map(blend).collect(), magnitude as f32)
        }
    }
}
