//! Row by row: norms, rotary embedding and what else touches each element once.

use super::Cpu;
use super::level::with_level;
use super::out::OutRows;
use crate::ops::{Rope, RopeStyle};
use crate::simd::{Kernel, Simd};
use crate::tensor::Shape;

/// Elements worth a chunk of their own: some microseconds of work.
const CHUNK_ELEMENTS: usize = 16 << 10;

/// out = x / sqrt(mean(x²) + eps) · weight.
struct RmsNorm<'a> {
    x: &'a [f32],
    weight: &'a [f32],
    eps: f32,
    out: &'a mut [f32],
}

impl Kernel for RmsNorm<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { x, weight, eps, out } = self;
        let scale = 1.0 / (sum_of_squares(s, x) / x.len() as f32 + eps).sqrt();
        for ((out, x), w) in out.iter_mut().zip(x).zip(weight) {
            *out = x * scale * w;
        }
    }
}

/// out = (x − mean) / sqrt(variance + eps) · weight + bias. What the deviations' sum leaves of the mean's rounding is
/// taken off again, so that a mean far from 0 costs no digits.
struct LayerNorm<'a> {
    x: &'a [f32],
    weight: &'a [f32],
    bias: &'a [f32],
    eps: f32,
    out: &'a mut [f32],
}

impl Kernel for LayerNorm<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { x, weight, bias, eps, out } = self;
        let count = x.len() as f32;
        let mean = sum(s, x) / count;
        out.iter_mut().zip(x).for_each(|(out, x)| *out = x - mean);
        let rest = sum(s, out) / count;
        out.iter_mut().for_each(|out| *out -= rest);
        let scale = 1.0 / (sum_of_squares(s, out) / count + eps).sqrt();
        for ((out, w), b) in out.iter_mut().zip(weight).zip(bias) {
            *out = *out * scale * w + b;
        }
    }
}

/// As [`sum_of_squares`].
#[inline(always)]
fn sum<S: Simd>(s: S, x: &[f32]) -> f32 {
    let mut sums = [s.splat(0.0); 2];
    let pairs = x.chunks_exact(32);
    let tail: f32 = pairs.remainder().iter().sum();
    for pair in pairs {
        for (i, sum) in sums.iter_mut().enumerate() {
            *sum = s.add(*sum, s.load_f32(pair, 16 * i));
        }
    }
    s.to_array(s.add(sums[0], sums[1])).iter().sum::<f32>() + tail
}

/// Two vectors of sums, then the tail, then the lanes in order.
#[inline(always)]
fn sum_of_squares<S: Simd>(s: S, x: &[f32]) -> f32 {
    let mut sums = [s.splat(0.0); 2];
    let pairs = x.chunks_exact(32);
    let tail: f32 = pairs.remainder().iter().map(|v| v * v).sum();
    for pair in pairs {
        for (i, sum) in sums.iter_mut().enumerate() {
            let v = s.load_f32(pair, 16 * i);
            *sum = s.mul_add(v, v, *sum);
        }
    }
    s.to_array(s.add(sums[0], sums[1])).iter().sum::<f32>() + tail
}

/// The rotation of one position: cosine and sine of each pair.
struct Angles {
    cosines: Vec<f32>,
    sines: Vec<f32>,
}

impl Cpu {
    /// Calls `work` for every row, some rows to a chunk.
    pub(crate) fn each_row(&self, rows: usize, cols: usize, work: &(dyn Fn(usize) + Sync)) {
        let per = (CHUNK_ELEMENTS / cols.max(1)).max(1);
        self.pool.run(rows.div_ceil(per), &|chunk| (chunk * per..rows.min((chunk + 1) * per)).for_each(work));
    }

    pub(crate) fn norm_rows(&self, x: (&[f32], Shape), rows: usize, weight: &[f32], eps: f32, out: OutRows<f32>) {
        self.each_row(rows, weight.len(), &|row| {
            let x = &x.0[x.1.row(row)];
            // SAFETY: each row is written by the one chunk that has it.
            let out = unsafe { out.row(row) };
            with_level!(self.level, s => s.run(RmsNorm { x, weight, eps, out }));
        });
    }

    pub(crate) fn layer_norm_rows(
        &self,
        x: (&[f32], Shape),
        rows: usize,
        [weight, bias]: [&[f32]; 2],
        eps: f32,
        out: OutRows<f32>,
    ) {
        self.each_row(rows, weight.len(), &|row| {
            let x = &x.0[x.1.row(row)];
            // SAFETY: each row is written by the one chunk that has it.
            let out = unsafe { out.row(row) };
            with_level!(self.level, s => s.run(LayerNorm { x, weight, bias, eps, out }));
        });
    }

    /// In place: stretches of `weight.len()`.
    pub(crate) fn norm_stretches(&self, rows: usize, cols: usize, weight: &[f32], eps: f32, out: OutRows<f32>) {
        self.each_row(rows, cols, &|row| {
            // SAFETY: each row is written by the one chunk that has it.
            let out = unsafe { out.row(row) };
            for stretch in out.chunks_exact_mut(weight.len()) {
                let scale = with_level!(self.level, s => s.run(SumOfSquares(stretch)));
                let scale = 1.0 / (scale / weight.len() as f32 + eps).sqrt();
                stretch.iter_mut().zip(weight).for_each(|(x, w)| *x = *x * scale * w);
            }
        });
    }

    /// Rotates every head of every row.
    pub(crate) fn rope_rows(&self, head: usize, (positions, at): (&[u32], Shape), rope: &Rope, x: OutRows<f32>) {
        let Some(frequencies) = rope.frequencies.as_host() else { return };
        self.each_row(x.shape.rows(), x.shape.cols(), &|row| {
            let angles = Angles::new(frequencies, positions[at.row(row)][0], rope.magnitude);
            // SAFETY: each row is written by the one chunk that has it.
            let x = unsafe { x.row(row) };
            for head in x.chunks_exact_mut(head) {
                angles.rotate(rope.style, head);
            }
        });
    }
}

struct SumOfSquares<'a>(&'a [f32]);

impl Kernel for SumOfSquares<'_> {
    type Output = f32;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> f32 {
        sum_of_squares(s, self.0)
    }
}

impl Angles {
    /// In f64: at position 100,000 an f32 angle is off by some thousandths.
    fn new(frequencies: &[f32], position: u32, magnitude: f32) -> Self {
        let angles = || frequencies.iter().map(|&f| f64::from(f) * f64::from(position));
        let scaled = |x: f64| (x * f64::from(magnitude)) as f32;
        Self {
            cosines: angles().map(|a| scaled(a.cos())).collect(),
            sines: angles().map(|a| scaled(a.sin())).collect(),
        }
    }

    fn rotate(&self, style: RopeStyle, head: &mut [f32]) {
        let pairs = self.cosines.len();
        let rotate = |a: &mut f32, b: &mut f32, i: usize| {
            let (x, y) = (*a, *b);
            *a = x * self.cosines[i] - y * self.sines[i];
            *b = x * self.sines[i] + y * self.cosines[i];
        };
        let rotated = &mut head[..2 * pairs];
        match style {
            RopeStyle::Halves => {
                let (low, high) = rotated.split_at_mut(pairs);
                low.iter_mut().zip(high).enumerate().for_each(|(i, (a, b))| rotate(a, b, i));
            }
            RopeStyle::Interleaved => {
                for (i, [a, b]) in rotated.as_chunks_mut::<2>().0.iter_mut().enumerate() {
                    rotate(a, b, i);
                }
            }
        }
    }
}
