//! Choosing scales: what the encoders share. Sums are f64, so that no finite input overflows them.

use half::f16;

/// Stores `x` as f16, saturating at the largest finite one, and returns it as a decoder sees it.
pub(super) fn put_f16(block: &mut [u8], at: usize, x: f32) -> f32 {
    let largest = f16::MAX.to_f32();
    let h = f16::from_f32(x.clamp(-largest, largest));
    block[at..at + 2].copy_from_slice(&h.to_le_bytes());
    h.to_f32()
}

/// `x / unit` rounded to an integer of `low..=high`; 0 if the unit is 0.
pub(super) fn quantise(x: f32, unit: f32, low: i32, high: i32) -> i32 {
    if unit == 0.0 { 0 } else { (x / unit).round().clamp(low as f32, high as f32) as i32 }
}

/// The value of largest magnitude, with its sign.
pub(super) fn extreme(values: &[f32]) -> f32 {
    values.iter().fold(0.0, |m: f32, &v| if v.abs() > m.abs() { v } else { m })
}

/// The scale around `guess` for which `scale · code(v / scale)` has the least squared error.
pub(super) fn linear(values: &[f32], guess: f32, code: impl Fn(f32) -> f32) -> f32 {
    let mut best = (0.0, guess);
    for step in -8..=8 {
        let scale = guess * (1.0 + 0.03 * step as f32);
        let (mut xq, mut qq) = (0f64, 0f64);
        for &v in values {
            let q = f64::from(code(v / scale));
            xq += f64::from(v) * q;
            qq += q * q;
        }
        // With these codes the best scale is xq / qq, and it takes xq² / qq off the squared error of all zeros.
        let gain = xq * xq / qq;
        if gain > best.0 {
            best = (gain, (xq / qq) as f32);
        }
    }
    best.1
}

/// [`linear`] for the integer codes `-zero..zero`.
pub(super) fn symmetric(values: &[f32], zero: f32) -> f32 {
    linear(values, extreme(values) / -zero, |x| x.round().clamp(-zero, zero - 1.0))
}

/// Scale and lowest value (v = low + scale · code, code in `0..=levels`) with a small squared error; `low ≤ ceiling`.
pub(super) fn affine(values: &[f32], levels: f32, ceiling: f32) -> (f32, f32) {
    let low = values.iter().copied().fold(ceiling, f32::min);
    let high = values.iter().copied().fold(low, f32::max);
    let code = |v: f32, scale: f32, low: f32| f64::from(((v - low) / scale).round().clamp(0.0, levels));
    let error = |(scale, low): (f32, f32)| {
        let one = |v: &f32| (f64::from(*v) - f64::from(low) - f64::from(scale) * code(*v, scale, low)).powi(2);
        values.iter().map(one).sum::<f64>()
    };
    let spanning = (high / levels - low / levels, low);
    let mut best = (error(spanning), spanning);
    for step in 0..10 {
        // Codes of a range somewhat narrower, then the scale and lowest value that suit these codes best.
        let (narrow, shift) = (1.0 - 0.04 * step as f32, 0.02 * step as f32 * levels * spanning.0);
        let (scale, low) = (spanning.0 * narrow, (spanning.1 + shift).min(ceiling));
        let (mut q1, mut qq, mut x1, mut xq) = (0f64, 0f64, 0f64, 0f64);
        for &v in values {
            let (v, q) = (f64::from(v), code(v, scale, low));
            (q1, qq, x1, xq) = (q1 + q, qq + q * q, x1 + v, xq + v * q);
        }
        let n = values.len() as f64;
        let mut scale = (n * xq - q1 * x1) / (n * qq - q1 * q1);
        let mut low = (x1 - scale * q1) / n;
        if low > f64::from(ceiling) {
            low = f64::from(ceiling);
            scale = (xq - low * q1) / qq;
        }
        let found = (scale as f32, low as f32);
        let error = error(found);
        if error < best.0 && scale > 0.0 {
            best = (error, found);
        }
    }
    best.1
}
