//! Codes that stand for the entries of a table: the nearest entry, after a short search for each group's scale.
//!
//! The search is for tests and synthetic models, like that of [`super::on_grid`].

use super::groups::{as_f16, extreme, unit};

/// The entries of a format's codes, of `W` neighbouring values each. A group has these, or all of them plus `shift`.
pub(in crate::format) struct Table<const W: usize, const N: usize> {
    /// Values of each code.
    pub(in crate::format) entries: [[i8; W]; N],
    /// Of the shifted table; 0 if there is none.
    pub(in crate::format) shift: i8,
}

/// The integer scales of a format. The magnitude of `lowest` is the largest.
pub(in crate::format) struct Levels {
    /// The least.
    pub(in crate::format) lowest: i32,
    /// The greatest.
    pub(in crate::format) highest: i32,
    /// The distance of neighbours.
    pub(in crate::format) step: i32,
}

/// A super-block of 256 elements: value = d · scale · entry\[code\].
pub(in crate::format) struct InTable {
    /// The super-block's scale.
    pub(in crate::format) d: f32,
    /// The integer scale of each group.
    pub(in crate::format) scale: [i32; 16],
    /// Whether a group has the shifted table.
    pub(in crate::format) shifted: [bool; 16],
    /// Codes, in order.
    pub(in crate::format) code: [u8; 256],
}

/// The codes of a group at some scale, and what they gain: by how much their squared error is below that of zeros.
struct Candidate {
    shifted: bool,
    codes: [u8; 32],
    xq: f32,
    qq: f32,
}

impl Candidate {
    fn gain(&self, scale: f32) -> f32 {
        scale * (2.0 * self.xq - scale * self.qq)
    }
}

impl<const W: usize, const N: usize> Table<W, N> {
    fn nearest(&self, x: &[f32], scale: f32, shifted: bool) -> Candidate {
        let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
        let shift = f32::from(if shifted { self.shift } else { 0 });
        let mut found = Candidate { shifted, codes: [0; 32], xq: 0.0, qq: 0.0 };
        for (x, to) in x.as_chunks::<W>().0.iter().zip(&mut found.codes) {
            let mut best = (f32::INFINITY, 0, [0.0; W]);
            for (entry, code) in self.entries.iter().zip(0..) {
                let q = entry.map(|value| f32::from(value) + shift);
                let off: f32 = (0..W).map(|i| (x[i] * inverse - q[i]) * (x[i] * inverse - q[i])).sum();
                best = if off < best.0 { (off, code, q) } else { best };
            }
            *to = best.1;
            for (x, q) in x.iter().zip(best.2) {
                (found.xq, found.qq) = (found.xq + x * q, found.qq + q * q);
            }
        }
        found
    }

    fn tables(&self) -> &'static [bool] {
        if self.shift == 0 { &[false] } else { &[false, true] }
    }

    /// The scale at which the nearest entries gain most.
    fn search(&self, x: &[f32]) -> f32 {
        let extreme = extreme(x);
        let mut best = (0.0, 0.0);
        let ends = [self.entries[0][0], self.entries[N - 1][0]].map(f32::from);
        for (&shifted, end) in self.tables().iter().flat_map(|table| ends.map(|end| (table, end))) {
            for step in 0..6 {
                let scale = extreme / (end * (1.08 - 0.08 * step as f32));
                let found = self.nearest(x, scale, shifted);
                let scale = if found.qq > 0.0 { found.xq / found.qq } else { 0.0 };
                best = if found.gain(scale) > best.0 { (found.gain(scale), scale) } else { best };
            }
        }
        best.1
    }
}

/// Fits 256 values in groups of `group`. If `half`, the super-block's scale is an f16.
pub(in crate::format) fn in_table<const W: usize, const N: usize>(
    values: &[f32],
    group: usize,
    table: &Table<W, N>,
    levels: &Levels,
    half: bool,
) -> InTable {
    let (unit, inverse) = unit(values.iter().fold(0.0, |m, v| if v.abs() > m { v.abs() } else { m }));
    let values: Vec<f32> = values.iter().map(|v| v * inverse).collect();
    let groups: Vec<&[f32]> = values.chunks_exact(group).collect();
    let scales: Vec<f32> = groups.iter().map(|x| table.search(x)).collect();
    let mut fit = InTable { d: 0.0, scale: [0; 16], shifted: [false; 16], code: [0; 256] };
    let mut d = extreme(&scales) / levels.lowest as f32;
    for _ in 0..2 {
        (fit.d, d) = if half {
            let (h, seen) = as_f16(d, unit);
            (h.to_f32(), seen)
        } else {
            // Every product of a scale and an entry stays finite.
            let most = f32::MAX / (levels.lowest as f32 * f32::from(i8::MIN));
            let stored = (d * unit).clamp(-most, most);
            (stored, stored / unit)
        };
        let (mut xy, mut yy) = (0.0, 0.0);
        for (g, x) in groups.iter().enumerate() {
            let middle = ((scales[g] / d - levels.lowest as f32) / levels.step as f32).round() as i32;
            let mut best: Option<(f32, i32, Candidate)> = None;
            for (step, &shifted) in (-1..=1).flat_map(|step| table.tables().iter().map(move |t| (step, t))) {
                let level = middle.saturating_add(step).saturating_mul(levels.step).saturating_add(levels.lowest);
                let level = level.clamp(levels.lowest, levels.highest);
                let found = table.nearest(x, d * level as f32, shifted);
                let gain = found.gain(d * level as f32);
                if best.as_ref().is_none_or(|(least, ..)| gain > *least) {
                    best = Some((gain, level, found));
                }
            }
            let Some((_, level, found)) = best else { continue };
            (fit.scale[g], fit.shifted[g]) = (level, found.shifted);
            fit.code[g * group / W..][..group / W].copy_from_slice(&found.codes[..group / W]);
            (xy, yy) = (xy + found.xq * level as f32, yy + found.qq * (level * level) as f32);
        }
        d = if yy > 0.0 { xy / yy } else { d };
    }
    fit
}
