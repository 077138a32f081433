//! Encodes `Q4_K`: each group gets the scale and minimum that span it; both are rounded to 6 bits of the block's own.

use half::f16;

/// Scale and minimum (value = scale · q − min, both ≥ 0, q in 0..=levels) that span `values`.
pub(crate) fn span(values: &[f32], levels: f32) -> (f32, f32) {
    let low = values.iter().copied().fold(0f32, f32::min);
    let high = values.iter().copied().fold(0f32, f32::max);
    ((high - low) / levels, -low)
}

/// Encodes the scale plane shared by `Q4_K` and `Q5_K`; returns each group's scale and minimum as a decoder sees them.
pub(crate) fn encode_scales(values: &[f32], levels: f32, block: &mut [u8]) -> [(f32, f32); 8] {
    let spans: [(f32, f32); 8] = std::array::from_fn(|g| span(&values[32 * g..32 * g + 32], levels));
    let d = f16::from_f32(spans.iter().fold(0f32, |m, s| m.max(s.0)) / 63.0);
    let dmin = f16::from_f32(spans.iter().fold(0f32, |m, s| m.max(s.1)) / 63.0);
    block[..2].copy_from_slice(&d.to_le_bytes());
    block[2..4].copy_from_slice(&dmin.to_le_bytes());
    let six = |x: f32, unit: f16| if unit.to_f32() > 0.0 { (x / unit.to_f32()).round().clamp(0.0, 63.0) as u8 } else { 0 };
    let bytes = &mut block[4..16];
    bytes.fill(0);
    std::array::from_fn(|g| {
        let (scale, min) = (six(spans[g].0, d), six(spans[g].1, dmin));
        if g < 4 {
            bytes[g] |= scale;
            bytes[g + 4] |= min;
        } else {
            bytes[g + 4] = scale & 15 | min << 4;
            bytes[g - 4] |= scale >> 4 << 6;
            bytes[g] |= min >> 4 << 6;
        }
        (d.to_f32() * f32::from(scale), dmin.to_f32() * f32::from(min))
    })
}

/// The code of a value, 0..=levels.
pub(crate) fn code(value: f32, (scale, min): (f32, f32), levels: f32) -> u8 {
    if scale > 0.0 { ((value + min) / scale).round().clamp(0.0, levels) as u8 } else { 0 }
}

pub(super) fn encode(values: &[f32], block: &mut [u8]) {
    let spans = encode_scales(values, 15.0, block);
    for (i, byte) in block[16..].iter_mut().enumerate() {
        let at = i / 32 * 64 + i % 32;
        let low = code(values[at], spans[at / 32], 15.0);
        let high = code(values[at + 32], spans[at / 32 + 1], 15.0);
        *byte = low | high << 4;
    }
}
