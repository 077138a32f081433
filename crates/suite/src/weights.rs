//! Random weights and inputs.

use crate::rng::Rng;
use gristmill_kernels::format::{Format, e4m3, nvfp4};
use gristmill_kernels::weight::TensorView;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError};

/// Sizes of the pools of quantised values: a tensor uses the smallest pool with at least its size, or the largest.
const POOLS: [usize; 3] = [1 << 12, 1 << 14, 1 << 16];

/// A random tensor in a format. Runs of 16 differ in scale and offset, so that a scale or minimum from the wrong
/// position is detected. The mean square of a row's sum of products with standard normals is about 1. Quantised blocks
/// are drawn from a pool, each once before any comes again.
pub fn tensor(rng: &mut Rng, format: Format, experts: usize, rows: usize, cols: usize) -> TensorView {
    let count = experts * rows * cols;
    let bytes =
        if format.block_len() == 1 { encoded(rng, format, count, cols) } else { drawn(rng, format, count, cols) };
    let name = format!("{format} {experts} × {rows} × {cols}");
    TensorView { name, format, experts, rows, cols, bytes: bytes.into() }
}

/// The given number of values of rows of `cols` columns.
fn encoded(rng: &mut Rng, format: Format, count: usize, cols: usize) -> Vec<u8> {
    let mut values = Vec::with_capacity(count);
    let norm = 1.0 / (cols as f64).sqrt();
    while values.len() < count {
        let scale = norm * rng.uniform(-1.0, 1.0).exp2();
        let offset = norm * rng.uniform(-0.5, 0.5);
        let run = 16.min(count - values.len());
        values.extend((0..run).map(|_| (scale * rng.normal() + offset) as f32));
    }
    let mut bytes = vec![0; format.row_bytes(count).expect("a case with whole blocks")];
    format.encode(&values, &mut bytes).expect("whole blocks");
    // Where the scales of a block start.
    let marked = [(Format::NVFP4, 0), (Format::NVFP4_SCALED, 4)];
    if let Some((_, start)) = marked.into_iter().find(|(marked, _)| *marked == format) {
        mark_scales(rng, format, start, &mut bytes);
    }
    bytes
}

/// Sets the sign of half of the scales of NVFP4 blocks, from byte `start` on, and makes one in 64 of them NaN: kernels
/// ignore the sign, and multiply by 0 for NaN.
fn mark_scales(rng: &mut Rng, format: Format, start: usize, blocks: &mut [u8]) {
    for block in blocks.chunks_exact_mut(format.block_bytes()) {
        for scale in &mut block[start..start + nvfp4::GROUPS] {
            *scale = if rng.below(64) == 0 { e4m3::NAN } else { *scale | 128 * rng.below(2) as u8 };
        }
    }
}

/// The given number of values, of blocks from the pool for this format and these columns.
fn drawn(rng: &mut Rng, format: Format, count: usize, cols: usize) -> Vec<u8> {
    let block = format.block_bytes();
    let blocks = count / format.block_len();
    let values = POOLS.into_iter().find(|&values| values >= count).unwrap_or(POOLS[2]);
    let pool = pool(rng.seed(), format, cols, values);
    let known = pool.len() / block;
    let mut bytes = Vec::with_capacity(blocks * block);
    let order = rng.shuffled(known).into_iter().map(|at| at as usize);
    for at in order.take(blocks) {
        bytes.extend_from_slice(&pool[at * block..][..block]);
    }
    for _ in known..blocks {
        bytes.extend_from_slice(&pool[rng.below(known) * block..][..block]);
    }
    bytes
}

/// A pool that one thread makes while others wait for it.
type Pool = Arc<OnceLock<Arc<[u8]>>>;

/// Encoded values that all cases of a seed share: to encode them for each case took a quarter of the time of the op
/// suite on a CPU.
fn pool(seed: u64, format: Format, cols: usize, values: usize) -> Arc<[u8]> {
    type Pools = HashMap<(u64, Format, usize, usize), Pool>;
    static POOLS: LazyLock<Mutex<Pools>> = LazyLock::new(Mutex::default);
    let pool = {
        let mut pools = POOLS.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(pools.entry((seed, format, cols, values)).or_default())
    };
    let rng = &mut Rng::of_part(seed, &format!("pool {format} {cols} {values}"));
    Arc::clone(pool.get_or_init(|| encoded(rng, format, values, cols).into()))
}

/// The values of a tensor, as decoding gives them.
pub fn decoded(tensor: &TensorView) -> Vec<f32> {
    let mut values = vec![0.0; tensor.experts * tensor.rows * tensor.cols];
    tensor.format.decode(tensor.bytes.as_slice(), &mut values).expect("whole blocks");
    values
}

/// The mean square, over rows of `cols` values, of `of` each block of `block` columns.
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

/// Energy of the terms that cancel in products of quantised weights, relative to [`energy`]. A kernel may multiply
/// codes, which are never negative, and add the product of a block's lowest weight with the sum of the block's `x`.
pub fn cancelled(tensors: &[TensorView], x: &[f32]) -> f64 {
    if tensors.iter().all(|tensor| tensor.format.is_float()) {
        return 0.0;
    }
    let cols = tensors[0].cols;
    let energy = energy(tensors, x);
    let weights: Vec<f32> = tensors.iter().flat_map(decoded).collect();
    let lowest = mean_squares(&weights, cols, 32, |block| block.iter().fold(0.0, |low, &w| f64::from(w).min(low)));
    let sums = mean_squares(x, cols, 32, |block| block.iter().map(|&x| f64::from(x)).sum());
    if energy > 0.0 { products(&lowest, &sums) / energy } else { 0.0 }
}

/// Columns for a format: `blocks` of its blocks; for floats, whose block is one element, `32 · blocks` less a few.
pub fn columns(rng: &mut Rng, format: Format, blocks: usize) -> usize {
    if format.block_len() == 1 { 32 * blocks - rng.below(32) } else { format.block_len() * blocks }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks of a tensor differ as long as its pool has others, a seed repeats them, and another has others.
    #[test]
    fn blocks_come_from_a_pool() {
        let make = |seed, rows| tensor(&mut Rng::of_part(seed, "a part"), Format::Q4_K, 1, rows, 512).bytes;
        let seed = Rng::fresh_seed();
        let bytes = make(seed, 32);
        let mut blocks: Vec<&[u8]> = bytes.as_slice().chunks_exact(Format::Q4_K.block_bytes()).collect();
        blocks.sort();
        blocks.dedup();
        assert_eq!(blocks.len(), 64, "seed {seed}");
        assert_eq!(bytes.as_slice(), make(seed, 32).as_slice());
        assert_ne!(bytes.as_slice(), make(seed + 1, 32).as_slice());
        // More than the largest pool has.
        assert_eq!(make(seed, 200).as_slice().len(), Format::Q4_K.row_bytes(200 * 512).expect("whole blocks"));
    }
}
