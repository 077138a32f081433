//! Random weights and inputs.

use crate::rng::Rng;
use gristmill_kernels::format::Format;
use gristmill_kernels::weight::TensorView;

/// Quantised values that a tensor has before its blocks repeat: encoding more took a fifth of the time of the op suite.
const DISTINCT: usize = 1 << 16;

/// A random tensor in a format. Runs of 16 differ in scale and offset, so that a scale or minimum taken from the wrong
/// place shows. The mean square of a row's sum of products with standard normals is about 1. Of a large quantised
/// tensor, the later blocks are drawn from the first.
pub fn tensor(rng: &mut Rng, format: Format, experts: usize, rows: usize, cols: usize) -> TensorView {
    let count = experts * rows * cols;
    let distinct = if format.is_float() { count } else { count.min(DISTINCT) };
    let mut values = Vec::with_capacity(distinct);
    let norm = 1.0 / (cols as f64).sqrt();
    while values.len() < distinct {
        let (scale, offset) = (norm * rng.uniform(-1.0, 1.0).exp2(), norm * rng.uniform(-0.5, 0.5));
        let run = 16.min(distinct - values.len());
        values.extend((0..run).map(|_| (scale * rng.normal() + offset) as f32));
    }
    let mut bytes = vec![0; format.row_bytes(distinct).expect("a case with whole blocks")];
    format.encode(&values, &mut bytes).expect("whole blocks");
    let (block, blocks) = (format.block_bytes(), bytes.len() / format.block_bytes());
    for _ in blocks..count / format.block_len() {
        let start = rng.below(blocks) * block;
        bytes.extend_from_within(start..start + block);
    }
    let name = format!("{format} {experts} × {rows} × {cols}");
    TensorView { name, format, experts, rows, cols, bytes: bytes.into() }
}

/// The values of a tensor, as decoding gives them.
pub fn decoded(tensor: &TensorView) -> Vec<f32> {
    let mut values = vec![0.0; tensor.experts * tensor.rows * tensor.cols];
    tensor.format.decode(tensor.bytes.as_slice(), &mut values).expect("whole blocks");
    values
}

/// What `of` makes of blocks of `block` columns of rows of `cols` values: the mean of its squares over the rows.
fn mean_squares(values: &[f32], cols: usize, block: usize, of: impl Fn(&[f32]) -> f64) -> Vec<f64> {
    let mut sums = vec![0.0; cols.div_ceil(block)];
    for row in values.chunks_exact(cols) {
        sums.iter_mut().zip(row.chunks(block)).for_each(|(sum, block)| *sum += of(block).powi(2));
    }
    let rows = (values.len() / cols).max(1) as f64;
    sums.into_iter().map(|sum| sum / rows).collect()
}

fn products(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Mean square of each column of weights under one input.
pub fn column_energy(tensors: &[TensorView]) -> Vec<f64> {
    let weights: Vec<f32> = tensors.iter().flat_map(decoded).collect();
    mean_squares(&weights, tensors[0].cols, 1, |w| f64::from(w[0]))
}

/// Mean square that the products of a tensor's rows with the rows of `x` (T × cols) have if signs are random.
pub fn energy(tensors: &[TensorView], x: &[f32]) -> f64 {
    products(&column_energy(tensors), &mean_squares(x, tensors[0].cols, 1, |x| f64::from(x[0])))
}

/// Of quantised weights: how large, relative to [`energy`], that is which cancels in their products. A kernel may
/// multiply codes, of which none is negative, and add what the lowest weight of a block comes to with the sum of the
/// block's `x`.
pub fn cancelled(tensors: &[TensorView], x: &[f32]) -> f64 {
    if tensors.iter().all(|tensor| tensor.format.is_float()) {
        return 0.0;
    }
    let (cols, energy) = (tensors[0].cols, energy(tensors, x));
    let weights: Vec<f32> = tensors.iter().flat_map(decoded).collect();
    let lowest = mean_squares(&weights, cols, 32, |block| block.iter().fold(0.0, |low, &w| f64::from(w).min(low)));
    let sums = mean_squares(x, cols, 32, |block| block.iter().map(|&x| f64::from(x)).sum());
    if energy > 0.0 { products(&lowest, &sums) / energy } else { 0.0 }
}

/// Columns for a format: `blocks` of its blocks; for floats, whose block is one element, `32 · blocks` less a few.
pub fn columns(rng: &mut Rng, format: Format, blocks: usize) -> usize {
    if format.is_float() { 32 * blocks - rng.below(32) } else { format.block_len() * blocks }
}
