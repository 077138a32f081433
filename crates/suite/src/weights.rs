//! Random weights and inputs.

use crate::rng::Rng;
use gristmill_kernels::format::Format;
use gristmill_kernels::weight::TensorView;

/// A random tensor in a format. Runs of 16 differ in scale and offset, so that a scale or minimum taken from the wrong
/// place shows. The mean square of a row's sum of products with standard normals is about 1.
pub fn tensor(rng: &mut Rng, format: Format, experts: usize, rows: usize, cols: usize) -> TensorView {
    let count = experts * rows * cols;
    let mut values = Vec::with_capacity(count);
    let norm = 1.0 / (cols as f64).sqrt();
    while values.len() < count {
        let (scale, offset) = (norm * rng.uniform(-1.0, 1.0).exp2(), norm * rng.uniform(-0.5, 0.5));
        let run = 16.min(count - values.len());
        values.extend((0..run).map(|_| (scale * rng.normal() + offset) as f32));
    }
    let row_bytes = format.row_bytes(cols).expect("a case with whole blocks");
    let mut bytes = vec![0; experts * rows * row_bytes];
    format.encode(&values, &mut bytes).expect("whole blocks");
    let name = format!("{format} {experts} × {rows} × {cols}");
    TensorView { name, format, experts, rows, cols, bytes: bytes.into() }
}

/// The values of a tensor, as decoding gives them.
pub fn decoded(tensor: &TensorView) -> Vec<f32> {
    let mut values = vec![0.0; tensor.experts * tensor.rows * tensor.cols];
    tensor.format.decode(tensor.bytes.as_slice(), &mut values).expect("whole blocks");
    values
}

/// Mean square that the products of a tensor's rows with the rows of `x` (T × cols) have if signs are random.
pub fn energy(tensors: &[TensorView], x: &[f32]) -> f64 {
    let cols = tensors[0].cols;
    let mean_squares = |values: &[f32]| {
        let mut sums = vec![0.0; cols];
        for row in values.chunks_exact(cols) {
            sums.iter_mut().zip(row).for_each(|(s, &v)| *s += f64::from(v).powi(2));
        }
        let rows = (values.len() / cols).max(1) as f64;
        sums.into_iter().map(move |s| s / rows).collect::<Vec<_>>()
    };
    let weights: Vec<f32> = tensors.iter().flat_map(decoded).collect();
    mean_squares(&weights).iter().zip(mean_squares(x)).map(|(w, x)| w * x).sum()
}

/// Of quantised weights: how large, relative to [`energy`], that is which cancels in their products. A kernel may multiply codes, of
/// which none is negative, and add what the lowest weight of a block comes to with the sum of the block's `x`.
pub fn cancelled(tensors: &[TensorView], x: &[f32]) -> f64 {
    const BLOCK: usize = 32;
    let energy = energy(tensors, x);
    if tensors.iter().all(|tensor| tensor.format.is_float()) || energy == 0.0 {
        return 0.0;
    }
    let cols = tensors[0].cols;
    let mean_squares = |values: &[f32], of_block: &dyn Fn(&[f32]) -> f64| {
        let mut sums = vec![0.0; cols.div_ceil(BLOCK)];
        for row in values.chunks_exact(cols) {
            sums.iter_mut().zip(row.chunks(BLOCK)).for_each(|(s, block)| *s += of_block(block).powi(2));
        }
        let rows = (values.len() / cols).max(1) as f64;
        sums.into_iter().map(move |s| s / rows).collect::<Vec<_>>()
    };
    let weights: Vec<f32> = tensors.iter().flat_map(decoded).collect();
    let lowest = mean_squares(&weights, &|block| block.iter().fold(0.0, |low, &w| f64::from(w).min(low)));
    let sums = mean_squares(x, &|block| block.iter().map(|&x| f64::from(x)).sum());
    lowest.iter().zip(sums).map(|(w, x)| w * x).sum::<f64>() / energy
}

/// Columns for a format: `blocks` of its blocks; for floats, whose block is one element, `32 · blocks` less a few.
pub fn columns(rng: &mut Rng, format: Format, blocks: usize) -> usize {
    if format.is_float() { 32 * blocks - rng.below(32) } else { format.block_len() * blocks }
}
