//! Codes on grids: the nearest point for every four or eight elements, after a short search for each group's scale.
//!
//! The search is for tests and synthetic models. A model wants weights by an importance matrix, without which formats of
//! about two bits lose too much.

use half::f16;

use crate::format::grid;

/// The codes of a super-block of 256 elements.
pub(in crate::format) struct OnGrid {
    /// The super-block's scale.
    pub(in crate::format) d: f16,
    /// Each group's `n`, of an integer scale 2·n + 1.
    pub(in crate::format) scale: [u8; 16],
    /// Each point's rank in the grid.
    pub(in crate::format) rank: [u16; 64],
    /// Sign bits of every eight elements; of shifted grids 1 where the eighth is subtracted.
    pub(in crate::format) signs: [u8; 32],
}

impl OnGrid {
    /// Stores the scales as nibbles, the first in the lower one.
    pub(in crate::format) fn put_scales(&self, bytes: &mut [u8]) {
        for (byte, scale) in bytes.iter_mut().zip(self.scale.as_chunks::<2>().0) {
            *byte = scale[0] | scale[1] << 4;
        }
    }

    /// Stores the integer nearest to each group's scale, and returns the scales that a decoder sees.
    fn put_unit(&mut self, scales: &[f64], unit: f64, most: u8) -> [f32; 16] {
        let largest = scales.iter().copied().fold(0.0, f64::max);
        let odd = f64::from(2 * most + 1);
        self.d = f16::from_f64((largest / (odd * unit)).min(f64::from(f16::MAX.to_f32())));
        let unit = self.d.to_f64() * unit;
        let mut seen = [0.0; 16];
        for ((seen, to), scale) in seen.iter_mut().zip(&mut self.scale).zip(scales) {
            *to = ((scale / unit - 1.0) / 2.0).round().clamp(0.0, f64::from(most)) as u8;
            *seen = (unit * f64::from(2 * *to + 1)) as f32;
        }
        seen
    }
}

const NOTHING: OnGrid = OnGrid { d: f16::ZERO, scale: [0; 16], rank: [0; 64], signs: [0; 32] };

/// Fits 256 values in groups of `group` to points of `N` digits with signs; with `even` signs, every eight of them have an
/// even number of negative ones.
pub(in crate::format) fn on_grid<const N: usize>(
    values: &[f32],
    group: usize,
    points: &[u32],
    levels: &[i8],
    unit: f32,
    even: bool,
) -> OnGrid {
    let mut fit = NOTHING;
    let mut magnitudes = [0.0; 256];
    for ((x, values), signs) in magnitudes.chunks_exact_mut(8).zip(values.chunks_exact(8)).zip(&mut fit.signs) {
        let (mut least, mut bits) = (0, 0);
        for (i, value) in values.iter().enumerate() {
            x[i] = value.abs();
            least = if x[i] < x[least] { i } else { least };
            bits |= u8::from(*value < 0.0) << i;
        }
        if even && grid::even_signs(bits & 127) != bits {
            x[least] = -x[least];
            bits ^= 1 << least;
        }
        *signs = bits;
    }
    let scales: Vec<f64> = magnitudes.chunks_exact(group).map(|x| scale(x, &[levels])).collect();
    let seen = fit.put_unit(&scales, f64::from(unit), 15);
    for ((rank, x), i) in fit.rank.iter_mut().zip(magnitudes.as_chunks::<N>().0).zip(0..) {
        *rank = nearest(points, levels, x, seen[i * N / group]).0;
    }
    fit
}

/// Fits 256 values in groups of `group` to the points of `IQ1_S`, from which `shared` neighbours add or subtract an eighth.
pub(in crate::format) fn on_shifted_grid(values: &[f32], group: usize, shared: usize) -> OnGrid {
    const PLUS: &[i8] = &[-7, 1, 9];
    const MINUS: &[i8] = &[-9, -1, 7];
    let mut fit = NOTHING;
    let scales: Vec<f64> = values.chunks_exact(group).map(|x| scale(x, &[PLUS, MINUS])).collect();
    let seen = fit.put_unit(&scales, 0.125, 7);
    for (i, x) in values.chunks_exact(shared).enumerate() {
        let points = |levels| {
            let of = |(j, x)| nearest::<8>(&grid::IQ1, levels, x, seen[(shared * i + 8 * j) / group]);
            let found: Vec<(u16, f32)> = x.as_chunks().0.iter().enumerate().map(of).collect();
            (found.iter().map(|(_, gain)| gain).sum::<f32>(), found)
        };
        let (plus, minus) = (points(PLUS), points(MINUS));
        let subtract = minus.0 > plus.0;
        for (j, (rank, _)) in if subtract { minus.1 } else { plus.1 }.into_iter().enumerate() {
            let point = shared / 8 * i + j;
            (fit.rank[point], fit.signs[point]) = (rank, u8::from(subtract));
        }
    }
    fit
}

/// The scale at which the levels that are nearest to some values, of the better one of some sets of levels, are nearest.
fn scale(x: &[f32], sets: &[&[i8]]) -> f64 {
    let largest = f64::from(x.iter().fold(0.0, |m, &v| if v.abs() > m { v.abs() } else { m }));
    let magnitudes = || sets.iter().flat_map(|levels| levels.iter().map(|level| f64::from(level.unsigned_abs())));
    let low = magnitudes().fold(f64::INFINITY, f64::min);
    let top = magnitudes().fold(0.0, f64::max);
    let error = |scale: f64| {
        let of_set = |levels: &&[i8]| {
            let off = |x: f64| levels.iter().map(|&v| (x - scale * f64::from(v)).powi(2)).fold(f64::INFINITY, f64::min);
            x.iter().map(|&x| off(f64::from(x))).sum::<f64>()
        };
        sets.iter().map(of_set).fold(f64::INFINITY, f64::min)
    };
    // Equal values: every grid has the point of the lowest levels, and not that of the highest.
    if error(largest / low) <= 1e-6 * largest * largest {
        return largest / low;
    }
    let mut best = (f64::INFINITY, 0.0);
    for step in 0..8 {
        let scale = largest * (1.0 - 0.08 * f64::from(step)) / top;
        let error = error(scale);
        best = if error < best.0 { (error, scale) } else { best };
    }
    best.1
}

/// The rank of the point that is nearest to some values, and by how much it is nearer than 0.
fn nearest<const N: usize>(points: &[u32], levels: &[i8], x: &[f32; N], scale: f32) -> (u16, f32) {
    let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
    let mut gains = [[0.0; 8]; 8];
    for (gains, x) in gains.iter_mut().zip(x) {
        for (gain, &level) in gains.iter_mut().zip(levels) {
            let level = f32::from(level);
            *gain = level * (2.0 * (x * inverse).clamp(-1e6, 1e6) - level);
        }
    }
    // Of both digits of each byte of a point.
    let mut pairs = [[0.0; 128]; 4];
    for (i, pairs) in pairs.iter_mut().enumerate() {
        for (byte, gain) in pairs.iter_mut().enumerate() {
            *gain = gains[i][byte & 7] + gains[4 + i][byte >> 4];
        }
    }
    let mut best = (0, f32::NEG_INFINITY);
    for (rank, point) in points.iter().enumerate() {
        let [a, b, c, d] = point.to_le_bytes().map(|byte| usize::from(byte & 0x77));
        let gain = pairs[0][a] + pairs[1][b] + pairs[2][c] + pairs[3][d];
        best = if gain > best.1 { (rank as u16, gain) } else { best };
    }
    (best.0, best.1 * scale * scale)
}
