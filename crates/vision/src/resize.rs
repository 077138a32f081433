//! Resizing as Pillow 11 does, to the byte: two passes, each with 8-bit results.
//!
//! Facts: Pillow's documentation of `Image.resize` and its results. A pass along an axis of `in` pixels to `out` pixels
//! has `scale` = in / out and the support of the filter × max(1, scale). The centre of result `i` is (i + ½) · scale.
//! Weights are normalised, and rounded to 22 bits after the point.

/// How pixels are weighted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filter {
    /// A triangle; Pillow's number 2.
    Bilinear,
    /// Cubic with a = −½; Pillow's number 3.
    Bicubic,
    /// A windowed sinc of three lobes; Pillow's number 1.
    Lanczos,
}

/// Bits after the point of a weight.
const PRECISION: u32 = 22;

/// Bytes of a pixel.
const CHANNELS: usize = 3;

impl Filter {
    /// The filter of a number in Pillow, and in a `preprocessor_config.json`.
    pub fn from_pillow(number: u64) -> Option<Filter> {
        match number {
            1 => Some(Filter::Lanczos),
            2 => Some(Filter::Bilinear),
            3 => Some(Filter::Bicubic),
            _ => None,
        }
    }

    fn support(self) -> f64 {
        match self {
            Filter::Bilinear => 1.0,
            Filter::Bicubic => 2.0,
            Filter::Lanczos => 3.0,
        }
    }

    fn weight(self, x: f64) -> f64 {
        let x = x.abs();
        match self {
            Filter::Bilinear => (1.0 - x).max(0.0),
            Filter::Bicubic => {
                let a = -0.5;
                if x < 1.0 {
                    ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
                } else if x < 2.0 {
                    (((x - 5.0) * x + 8.0) * x - 4.0) * a
                } else {
                    0.0
                }
            }
            Filter::Lanczos if x < 3.0 => sinc(x) * sinc(x / 3.0),
            Filter::Lanczos => 0.0,
        }
    }
}

fn sinc(x: f64) -> f64 {
    let x = x * std::f64::consts::PI;
    if x == 0.0 { 1.0 } else { x.sin() / x }
}

/// The pixels of one result: the first of them, and their weights.
struct Taps {
    first: usize,
    weights: Vec<i32>,
}

/// The taps of each result along an axis.
fn taps(from: usize, to: usize, filter: Filter) -> Vec<Taps> {
    let scale = from as f64 / to as f64;
    let stretch = scale.max(1.0);
    let support = filter.support() * stretch;
    let inverse = 1.0 / stretch;
    let of = |i: usize| {
        let centre = (i as f64 + 0.5) * scale;
        // A cast truncates, and what is negative becomes 0.
        let first = (centre - support + 0.5) as usize;
        let end = ((centre + support + 0.5) as usize).min(from);
        let weights: Vec<f64> = (first..end).map(|j| filter.weight((j as f64 - centre + 0.5) * inverse)).collect();
        let sum: f64 = weights.iter().sum();
        let fixed = |weight: f64| {
            let weight = if sum == 0.0 { weight } else { weight / sum } * f64::from(1u32 << PRECISION);
            (weight + 0.5f64.copysign(weight)) as i32
        };
        Taps { first, weights: weights.into_iter().map(fixed).collect() }
    };
    (0..to).map(of).collect()
}

fn byte(sum: i32) -> u8 {
    (sum >> PRECISION).clamp(0, 255) as u8
}

const HALF: i32 = 1 << (PRECISION - 1);

/// RGB pixels, row by row, resized from `from` to `to` (width, height). The sizes must not be 0.
pub fn resized(pixels: &[u8], from: (usize, usize), to: (usize, usize), filter: Filter) -> Vec<u8> {
    assert_eq!(pixels.len(), from.0 * from.1 * CHANNELS, "pixels of another size");
    let wide = (from.0 != to.0).then(|| horizontal(pixels, from, to.0, filter));
    let wide_pixels = wide.as_deref().unwrap_or(pixels);
    if from.1 != to.1 {
        return vertical(wide_pixels, (to.0, from.1), to.1, filter);
    }
    wide.unwrap_or_else(|| pixels.to_vec())
}

fn horizontal(pixels: &[u8], (width, height): (usize, usize), to: usize, filter: Filter) -> Vec<u8> {
    let taps = taps(width, to, filter);
    let mut out = Vec::with_capacity(to * height * CHANNELS);
    for row in pixels.chunks_exact(width * CHANNELS) {
        for Taps { first, weights } in &taps {
            let mut sums = [HALF; CHANNELS];
            let inputs = row[first * CHANNELS..].chunks_exact(CHANNELS);
            for (pixel, weight) in inputs.zip(weights) {
                for channel in 0..CHANNELS {
                    sums[channel] += i32::from(pixel[channel]) * weight;
                }
            }
            out.extend(sums.map(byte));
        }
    }
    out
}

fn vertical(pixels: &[u8], (width, height): (usize, usize), to: usize, filter: Filter) -> Vec<u8> {
    let stride = width * CHANNELS;
    let mut out = Vec::with_capacity(to * stride);
    let mut sums = vec![HALF; stride];
    for Taps { first, weights } in taps(height, to, filter) {
        sums.fill(HALF);
        for (row, weight) in pixels[first * stride..].chunks_exact(stride).zip(&weights) {
            for (sum, &value) in sums.iter_mut().zip(row) {
                *sum += i32::from(value) * weight;
            }
        }
        out.extend(sums.iter().map(|&sum| byte(sum)));
    }
    out
}
