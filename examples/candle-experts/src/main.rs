//! A mixture-of-experts layer of candle tensors, computed by gristmill's kernels and by candle's own.
//!
//! `cargo run --release` compares both with f64 sums over the same weights, and prints the times of decode (one token) and
//! prefill (512 tokens). The layer has the shape of Qwen3-30B-A3B, with random weights in Q4_K. `--features cuda` adds
//! CUDA device 0.

mod candle;
#[cfg(feature = "cuda")]
mod cuda;
mod exact;
mod gristmill;

use candle_core::quantized::{GgmlDType, QStorage, QTensor};
use candle_core::{Device, Result, Tensor};
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

/// Length of a token's row.
const HIDDEN: usize = 2048;
/// Rows of a gate or up matrix.
const INNER: usize = 768;
const EXPERTS: usize = 128;
/// Experts of each token.
const TOP_K: usize = 8;
/// Tokens of the prefill.
const PREFILL: usize = 512;
/// Tokens that are decoded one after the other, each with experts of its own.
const DECODED: usize = 64;
/// Repetitions of the prefill.
const REPETITIONS: usize = 7;
/// Maximum of Σ (y − exact)² / Σ exact². Both programs round activations to int8.
const MOST_ERROR: f64 = 1e-3;

/// The matrices of a layer: a tensor for each expert, as candle's products on a CPU need them.
pub struct Experts {
    gate: Vec<Arc<QTensor>>,
    up: Vec<Arc<QTensor>>,
    down: Vec<Arc<QTensor>>,
}

impl Experts {
    fn random() -> Result<Self> {
        let mut numbers = Numbers(0x2545_f491_4f6c_dd1d);
        let mut matrices =
            |rows, cols| (0..EXPERTS).map(|_| random_matrix(&mut numbers, rows, cols)).collect::<Result<_>>();
        Ok(Self { gate: matrices(INNER, HIDDEN)?, up: matrices(INNER, HIDDEN)?, down: matrices(HIDDEN, INNER)? })
    }
}

/// A random Q4_K matrix. Blocks are random bits with a small scale, so that the weights have a mean of about 0.
fn random_matrix(numbers: &mut Numbers, rows: usize, cols: usize) -> Result<Arc<QTensor>> {
    let mut bytes = Vec::with_capacity(rows * cols / 256 * 144);
    for _ in 0..rows * cols / 256 {
        // A block: d and dmin in f16, scales and minima of six bits in 12 bytes, 128 bytes of codes. A weight is
        // d · scale · code − dmin · minimum: with scales and minima of 32 or more, 7.5 · d = dmin centres it.
        bytes.extend([0x00, 0x04, 0x80, 0x0f]);
        let mut fields = [0; 12];
        fields.fill_with(|| numbers.next() as u8);
        // The high bit of each of the first four fields of both kinds, and of the upper halves of the others.
        fields[..8].iter_mut().for_each(|field| *field |= 0xa0);
        bytes.extend(fields);
        bytes.extend((0..128).map(|_| numbers.next() as u8));
    }
    let storage = QStorage::from_data(Cow::Owned(bytes), &Device::Cpu, GgmlDType::Q4K)?;
    QTensor::new(storage, (rows, cols)).map(Arc::new)
}

/// Random numbers (xorshift64).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 32) as u32
    }

    /// A row-major matrix of numbers between −1 and 1.
    fn matrix(&mut self, rows: usize, cols: usize) -> Result<Tensor> {
        let values = (0..rows * cols).map(|_| self.next() as f32 / (1_u32 << 31) as f32 - 1.0).collect();
        Tensor::from_vec(values, (rows, cols), &Device::Cpu)
    }
}

/// The layer in one of the programs: from rows (T × hidden) and a router's logits (T × experts) to T × hidden.
pub trait Layer {
    fn name(&self) -> String;
    fn forward(&mut self, x: &Tensor, logits: &Tensor) -> Result<Tensor>;

    /// Seconds of [`Layer::forward`].
    fn seconds(&mut self, x: &Tensor, logits: &Tensor) -> Result<f64> {
        let start = Instant::now();
        self.forward(x, logits)?;
        Ok(start.elapsed().as_secs_f64())
    }
}

/// The median and the least, in milliseconds.
fn summary(mut seconds: Vec<f64>) -> [f64; 2] {
    seconds.sort_by(f64::total_cmp);
    [seconds[seconds.len() / 2], seconds[0]].map(|seconds| seconds * 1e3)
}

/// Fails if a result is not near the exact one.
fn error(layer: &mut dyn Layer, x: &Tensor, logits: &Tensor, exact: &[(usize, Vec<f64>)]) -> Result<f64> {
    let rows = layer.forward(x, logits)?.to_vec2::<f32>()?;
    let (mut differences, mut squares) = (0.0, 0.0);
    for (token, exact) in exact {
        for (found, exact) in rows[*token].iter().zip(exact) {
            differences += (f64::from(*found) - exact).powi(2);
            squares += exact.powi(2);
        }
    }
    let error = differences / squares;
    if error.is_nan() || error > MOST_ERROR {
        candle_core::bail!("{}: error {error:.1e}, at most {MOST_ERROR:.0e} is allowed", layer.name());
    }
    Ok(error)
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let experts = Experts::random()?;
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    let (x, logits) = (numbers.matrix(PREFILL, HIDDEN)?, (numbers.matrix(PREFILL, EXPERTS)? * 4.0)?);
    let row = |token: usize| -> Result<(Tensor, Tensor)> { Ok((x.narrow(0, token, 1)?, logits.narrow(0, token, 1)?)) };

    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut layers: Vec<Box<dyn Layer>> = vec![
        Box::new(candle::Candle { experts: &experts, fused: false }),
        Box::new(candle::Candle { experts: &experts, fused: true }),
        Box::new(gristmill::Cpu::new(&experts, threads)?),
    ];
    #[cfg(feature = "cuda")]
    layers.push(Box::new(cuda::Cuda::new(&experts)?));

    // The first and the last token alone, and two of the prefill.
    let exact = exact::rows(&experts, &x, &logits, &[0, 255, PREFILL - 1])?;
    let (first, first_logits) = row(0)?;
    println!("{EXPERTS} experts, {TOP_K} for each token, {HIDDEN} × {INNER}, Q4_K; {threads} threads");
    for layer in &mut layers {
        let one = error(&mut **layer, &first, &first_logits, &exact[..1])?;
        let many = error(&mut **layer, &x, &logits, &exact)?;
        println!("{:<42} error of one token {one:.1e}, of {PREFILL} {many:.1e}", layer.name());
    }

    // candle repacks an expert when it is first used in a form: not a part of the times.
    for token in 0..DECODED {
        let (x, logits) = row(token)?;
        layers.iter_mut().try_for_each(|layer| layer.forward(&x, &logits).map(drop))?;
    }

    // The programs take turns, so that other load on the machine meets all of them.
    let mut decode = vec![Vec::new(); layers.len()];
    for token in 0..DECODED {
        let (x, logits) = row(token)?;
        for (layer, seconds_of) in layers.iter_mut().zip(&mut decode) {
            seconds_of.push(layer.seconds(&x, &logits)?);
        }
    }
    let mut prefill = vec![Vec::new(); layers.len()];
    for _ in 0..REPETITIONS {
        for (layer, seconds_of) in layers.iter_mut().zip(&mut prefill) {
            seconds_of.push(layer.seconds(&x, &logits)?);
        }
    }
    let title = format!("{PREFILL} tokens");
    println!("{:<42} {:>20} {:>20}", "milliseconds: median (least)", "1 token", title);
    for (layer, times) in layers.iter().zip(decode.into_iter().zip(prefill)) {
        let [[one, least_one], [many, least_many]] = [times.0, times.1].map(summary);
        let (one, many) = (format!("{one:.3} ({least_one:.3})"), format!("{many:.1} ({least_many:.1})"));
        println!("{:<42} {one:>20} {many:>20}", layer.name());
    }
    Ok(())
}
