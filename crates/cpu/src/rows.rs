//! Operations on single rows: norms, rotary embedding, sums.

use super::cpu::Cpu;
use super::host;
use super::math::{LANES, tanh};
use super::out::EachRow;
use gristmill_kernels::error::Result;
use gristmill_kernels::ops::{
    Add, AddGated, Clamp, CopyRows, Epilogue, GatherColumns, LayerNorm, MoeCombine, Operation, QkNorm, RmsNorm, Rope,
    RopeStyle, Rotary, Scale, SoftCap,
};
use gristmill_kernels::simd::{Kernel, Simd};
use gristmill_kernels::tensor::ViewMut;

/// Elements per chunk: a few microseconds of work.
const CHUNK_ELEMENTS: usize = 16 << 10;

/// out = x / sqrt(mean(x²) + eps) · weight.
struct RmsNormRow<'a> {
    x: &'a [f32],
    weight: &'a [f32],
    eps: f32,
    out: &'a mut [f32],
}

impl Kernel for RmsNormRow<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { x, weight, eps, out } = self;
        let scale = 1.0 / (sum::<S, true>(s, x) / x.len() as f32 + eps).sqrt();
        for ((out, x), w) in out.iter_mut().zip(x).zip(weight) {
            *out = x * scale * w;
        }
    }
}

/// out = (x − mean) / sqrt(variance + eps) · weight + bias. The mean of the deviations is subtracted again. It is the
/// rounding error of the first mean, which matters if the mean is far from 0.
struct LayerNormRow<'a> {
    x: &'a [f32],
    weight: &'a [f32],
    bias: &'a [f32],
    eps: f32,
    out: &'a mut [f32],
}

impl Kernel for LayerNormRow<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { x, weight, bias, eps, out } = self;
        let count = x.len() as f32;
        let mean = sum::<S, false>(s, x) / count;
        out.iter_mut().zip(x).for_each(|(out, x)| *out = x - mean);
        let rest = sum::<S, false>(s, out) / count;
        out.iter_mut().for_each(|out| *out -= rest);
        let scale = 1.0 / (sum::<S, true>(s, out) / count + eps).sqrt();
        for ((out, w), b) in out.iter_mut().zip(weight).zip(bias) {
            *out = *out * scale * w + b;
        }
    }
}

/// Σ x, or Σ x² if `SQUARES`. The order is: two vectors of sums, the lanes in order, the tail.
#[inline(always)]
pub(super) fn sum<S: Simd, const SQUARES: bool>(s: S, x: &[f32]) -> f32 {
    let mut sums = [s.splat(0.0); 2];
    let pairs = x.chunks_exact(32);
    let tail: f32 = pairs.remainder().iter().map(|v| if SQUARES { v * v } else { *v }).sum();
    for pair in pairs {
        for (i, sum) in sums.iter_mut().enumerate() {
            let v = s.load_f32(pair, 16 * i);
            *sum = if SQUARES { s.mul_add(v, v, *sum) } else { s.add(*sum, v) };
        }
    }
    s.to_array(s.add(sums[0], sums[1])).iter().sum::<f32>() + tail
}

/// The rotation of one position: cosine and sine of each pair.
struct Angles {
    cosines: Vec<f32>,
    sines: Vec<f32>,
}

on_cpu! {
    combine_rows(MoeCombine): out, weights, y;
    rms_norm_rows(RmsNorm): x, out;
    layer_norm_rows(LayerNorm): x, out;
    norm_segments(QkNorm): x * 2;
    rope_rows(Rope): x * 2, positions;
    copy_rows(CopyRows): x, out;
    gather_columns(GatherColumns): x, order, out;
    add_rows(Add): x, y * 2;
    add_gated_rows(AddGated): x, gate, y * 2;
    scale_rows(Scale): y * 2;
    soft_cap_rows(SoftCap): y * 2;
    clamp_rows(Clamp): y * 2;
}

impl Cpu {
    /// Calls `work` for every row of some outputs. All outputs have `cols` columns; a chunk has several rows.
    pub(super) fn each_row<R: EachRow>(&self, rows: R, cols: usize, work: &(dyn Fn(usize, R::Row) + Sync)) {
        self.pool.each_row((CHUNK_ELEMENTS / cols.max(1)).max(1), rows, work);
    }

    /// Calls `work` for every row of one output; a chunk has several rows.
    pub(super) fn each_row_of(
        &self,
        op: &'static str,
        out: &mut ViewMut<f32>,
        work: &(dyn Fn(usize, &mut [f32]) + Sync),
    ) -> Result<()> {
        let cols = out.cols();
        self.each_row(host::rows_mut(op, out)?, cols, work);
        Ok(())
    }

    pub(super) fn rms_norm_rows(&self, call: RmsNorm) -> Result<()> {
        let RmsNorm { x, weight, eps, mut out } = call;
        let (x, weight) = (host::rows(RmsNorm::NAME, x)?, host::slice(RmsNorm::NAME, weight)?);
        self.each_row_of(RmsNorm::NAME, &mut out, &|row, out| {
            self.level.run(RmsNormRow { x: x.row(row), weight, eps, out });
        })
    }

    pub(super) fn layer_norm_rows(&self, call: LayerNorm) -> Result<()> {
        const OP: &str = LayerNorm::NAME;
        let LayerNorm { x, weight, bias, eps, mut out } = call;
        let (x, weight, bias) = (host::rows(OP, x)?, host::slice(OP, weight)?, host::slice(OP, bias)?);
        self.each_row_of(OP, &mut out, &|row, out| {
            self.level.run(LayerNormRow { x: x.row(row), weight, bias, eps, out });
        })
    }

    /// In place: segments of the weight's length.
    pub(super) fn norm_segments(&self, call: QkNorm) -> Result<()> {
        let QkNorm { mut x, weight, eps } = call;
        let weight = host::slice(QkNorm::NAME, weight)?;
        self.each_row_of(QkNorm::NAME, &mut x, &|_, row| {
            for segment in row.chunks_exact_mut(weight.len()) {
                let squares = self.level.run(SumOfSquares(segment));
                let scale = 1.0 / (squares / weight.len() as f32 + eps).sqrt();
                segment.iter_mut().zip(weight).for_each(|(x, w)| *x = *x * scale * w);
            }
        })
    }

    /// Rotates every head of every row.
    pub(super) fn rope_rows(&self, call: Rope) -> Result<()> {
        let Rope { mut x, head_width, first, positions, rotary } = call;
        let positions = host::rows(Rope::NAME, positions)?;
        let frequencies = host::slice(Rope::NAME, &rotary.frequencies)?;
        self.each_row_of(Rope::NAME, &mut x, &|row, x| {
            let angles = Angles::new(frequencies, positions.row(row)[0], rotary);
            x.chunks_exact_mut(head_width).for_each(|head| angles.rotate(rotary.style, &mut head[first..]));
        })
    }

    pub(super) fn copy_rows(&self, call: CopyRows) -> Result<()> {
        let CopyRows { x, mut out } = call;
        let x = host::rows(CopyRows::NAME, x)?;
        self.each_row_of(CopyRows::NAME, &mut out, &|row, out| out.copy_from_slice(x.row(row)))
    }

    pub(super) fn gather_columns(&self, call: GatherColumns) -> Result<()> {
        let GatherColumns { x, order, mut out } = call;
        let (x, order) = (host::rows(GatherColumns::NAME, x)?, host::rows(GatherColumns::NAME, order)?);
        self.each_row_of(GatherColumns::NAME, &mut out, &|row, out| {
            let x = x.row(row);
            out.iter_mut().enumerate().for_each(|(column, out)| *out = x[order.row(column)[0] as usize]);
        })
    }

    pub(super) fn add_rows(&self, call: Add) -> Result<()> {
        let Add { x, scale, mut y } = call;
        let x = host::rows(Add::NAME, x)?;
        self.each_row_of(Add::NAME, &mut y, &|row, y| {
            y.iter_mut().zip(x.row(row)).for_each(|(y, x)| *y += scale * x);
        })
    }

    pub(super) fn add_gated_rows(&self, call: AddGated) -> Result<()> {
        let AddGated { x, gate, mut y } = call;
        let (x, gate) = (host::rows(AddGated::NAME, x)?, host::rows(AddGated::NAME, gate)?);
        self.each_row_of(AddGated::NAME, &mut y, &|row, y| {
            let gate = 1.0 / (1.0 + (-gate.row(row)[0]).exp());
            y.iter_mut().zip(x.row(row)).for_each(|(y, x)| *y += gate * x);
        })
    }

    pub(super) fn scale_rows(&self, call: Scale) -> Result<()> {
        let Scale { factor, mut y } = call;
        self.each_row_of(Scale::NAME, &mut y, &|_, y| y.iter_mut().for_each(|y| *y *= factor))
    }

    pub(super) fn soft_cap_rows(&self, call: SoftCap) -> Result<()> {
        let SoftCap { cap, mut y } = call;
        self.each_row_of(SoftCap::NAME, &mut y, &|_, y| self.level.run(SoftCapRow { cap, y }))
    }

    pub(super) fn clamp_rows(&self, call: Clamp) -> Result<()> {
        let Clamp { low, high, mut y } = call;
        self.each_row_of(Clamp::NAME, &mut y, &|_, y| y.iter_mut().for_each(|y| *y = y.clamp(low, high)))
    }

    pub(super) fn combine_rows(&self, call: MoeCombine) -> Result<()> {
        let MoeCombine { out, weights, epilogue, mut y } = call;
        let (out, weights) = (host::rows(MoeCombine::NAME, out)?, host::rows(MoeCombine::NAME, weights)?);
        self.each_row_of(MoeCombine::NAME, &mut y, &|token, y| {
            let weights = weights.row(token);
            let mut sums = [0.0; 64];
            for (first, y) in (0..).step_by(sums.len()).zip(y.chunks_mut(sums.len())) {
                let sums = &mut sums[..y.len()];
                sums.fill(0.0);
                for (slot, &weight) in weights.iter().enumerate() {
                    let expert = &out.row(token * weights.len() + slot)[first..first + y.len()];
                    sums.iter_mut().zip(expert).for_each(|(sum, x)| *sum += weight * x);
                }
                write_out(epilogue, sums, y);
            }
        })
    }
}

/// y = cap · tanh(y / cap).
struct SoftCapRow<'a> {
    cap: f32,
    y: &'a mut [f32],
}

impl Kernel for SoftCapRow<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (cap, inverse) = (s.splat(self.cap), s.splat(1.0 / self.cap));
        for y in self.y.chunks_mut(LANES) {
            let mut padded = [0.0; LANES];
            padded[..y.len()].copy_from_slice(y);
            let capped = s.to_array(s.mul(cap, tanh(s, s.mul(s.load_f32(&padded, 0), inverse))));
            y.copy_from_slice(&capped[..y.len()]);
        }
    }
}

/// Stores outputs to y by the epilogue.
#[inline]
pub(super) fn write_out(epilogue: Epilogue, outputs: &[f32], y: &mut [f32]) {
    match epilogue {
        Epilogue::Store => y.copy_from_slice(outputs),
        Epilogue::Add { scale } => y.iter_mut().zip(outputs).for_each(|(y, output)| *y += scale * output),
    }
}

struct SumOfSquares<'a>(&'a [f32]);

impl Kernel for SumOfSquares<'_> {
    type Output = f32;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> f32 {
        sum::<S, true>(s, self.0)
    }
}

impl Angles {
    /// In f64: at position 100,000 an f32 angle is off by some thousandths.
    fn new(frequencies: &[f32], position: u32, rotary: &Rotary) -> Self {
        let angles = || frequencies.iter().map(|&f| f64::from(f) * f64::from(position));
        let scaled = |x: f64| (x * f64::from(rotary.magnitude)) as f32;
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
