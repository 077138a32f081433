//! Speed of matrix operations in every format, or in one:
//! `cargo run --release --example matmul_speed [THREADS [LEVEL [FORMAT]]]`.
//!
//! Prints, for GEMV the bandwidth at which weights are read (from memory: the matrix is far larger than the caches) and
//! its ratio to reads without a product, and for GEMM the rate of operations (one multiplication and one addition are
//! two). Products and reads alternate, because other programs change the bandwidth.

use gristmill_cpu::{Cpu, Level};
use gristmill_kernels::Backend;
use gristmill_kernels::act::Precision;
use gristmill_kernels::format::Format;
use gristmill_kernels::ops::{Matmul, PrepareActivations};
use gristmill_kernels::simd::{Kernel, Simd};
use gristmill_kernels::tensor::SharedBytes;
use gristmill_kernels::weight::{Role, TensorView};
use std::hint::black_box;
use std::time::Instant;

/// Bytes of the matrix that is read from memory.
const BIG: usize = 512 << 20;
/// Rows of the matrix that stays in the caches.
const SMALL_ROWS: usize = 2048;
const COLS: usize = 2048;
const ROUNDS: usize = 15;

fn main() -> gristmill_kernels::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let threads = arguments.first().and_then(|a| a.parse().ok()).unwrap_or(2);
    let name = arguments.get(1);
    let level =
        Level::NAMES.iter().find(|n| name == Some(&n.to_string())).map_or(Ok(Level::best()), |n| Level::named(n))?;
    let cpu = Cpu::backend(level, threads)?;
    println!("{}", cpu.name());
    let memory = vec![1u8; BIG];
    println!("format     GEMV GB/s   of reads   GEMM(512) Gop/s");
    for &format in Format::ALL.iter().filter(|format| arguments.get(2).is_none_or(|name| name == format.name())) {
        let prepared = |rows: usize| {
            let bytes = SharedBytes::from(random_blocks(format, rows, COLS));
            cpu.prepare(&[TensorView { name: "w".into(), format, experts: 1, rows, cols: COLS, bytes }], Role::Matrix)
        };
        let rows = BIG / format.row_bytes(COLS).unwrap_or(BIG);
        let (gemv, read) = time(&cpu, &prepared(rows)?, 1, &mut || read(level, threads, &memory))?;
        let size = rows * format.row_bytes(COLS).unwrap_or(0);
        let (gemm, _) = time(&cpu, &prepared(SMALL_ROWS)?, 512, &mut || {})?;
        let ops = 2.0 * (SMALL_ROWS * COLS) as f64 * 512.0;
        let ratio = size as f64 / gemv / (BIG as f64 / read);
        println!("{:8} {:10.1} {ratio:10.2} {:14.0}", format.name(), size as f64 / gemv / 1e9, ops / gemm / 1e9);
    }
    Ok(())
}

/// Median seconds of a matrix operation with `tokens` rows, and of `other`, which runs in turns with it.
fn time(
    cpu: &Backend,
    w: &gristmill_kernels::weight::Weight,
    tokens: usize,
    other: &mut dyn FnMut(),
) -> gristmill_kernels::Result<(f64, f64)> {
    let mut x = cpu.alloc::<f32>(tokens * w.cols(), "x")?;
    let values: Vec<f32> = (0..x.len()).map(|i| ((i * 7919) % 2003) as f32 / 1000.0 - 1.0).collect();
    cpu.upload(&values, &mut x)?;
    let mut act = cpu.alloc_act(Precision::Fast, tokens, w.cols())?;
    cpu.run(PrepareActivations::new(x.view(tokens, w.cols())?, &mut act))?;
    let mut y = cpu.alloc::<f32>(tokens * w.rows(), "y")?;
    let mut seconds = [const { Vec::new() }; 2];
    for _ in 0..ROUNDS {
        let start = Instant::now();
        cpu.run(Matmul::new(w, &act, y.view_mut(tokens, w.rows())?))?;
        seconds[0].push(start.elapsed().as_secs_f64());
        let start = Instant::now();
        other();
        seconds[1].push(start.elapsed().as_secs_f64());
    }
    let [product, other] = seconds.map(|mut seconds| {
        seconds.sort_by(f64::total_cmp);
        seconds[ROUNDS / 2]
    });
    Ok((product, other))
}

/// Reads memory on all threads, with prefetch.
fn read(level: Level, threads: usize, memory: &[u8]) {
    std::thread::scope(|scope| {
        for part in memory.chunks(memory.len().div_ceil(threads)) {
            scope.spawn(move || black_box(level.run(Sum(part))));
        }
    });
}

/// Adds up memory as 32-bit words.
struct Sum<'a>(&'a [u8]);

impl Kernel for Sum<'_> {
    type Output = [f32; 16];

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> [f32; 16] {
        const AHEAD: usize = 8192;
        let mut sums = [s.splat_i32(0); 4];
        for lines in self.0.chunks_exact(256) {
            for (i, sum) in sums.iter_mut().enumerate() {
                s.prefetch(lines, AHEAD + 64 * i);
                *sum = s.add_i32(*sum, s.load_i32(lines, 64 * i));
            }
        }
        let [a, b, c, d] = sums;
        s.to_array(s.to_f32(s.add_i32(s.add_i32(a, b), s.add_i32(c, d))))
    }
}

fn random_blocks(format: Format, rows: usize, cols: usize) -> Vec<u8> {
    let mut row = vec![0; format.row_bytes(cols).unwrap_or(0)];
    let values: Vec<f32> = (0..cols).map(|i| ((i * 104_729) % 1999) as f32 / 1000.0 - 1.0).collect();
    format.encode(&values, &mut row);
    row.repeat(rows)
}
