//! Speed of matrix operations in every format, or in one:
//! `cargo run --release --example matmul_speed [THREADS [LEVEL [FORMAT]]]`.
//!
//! Prints, for GEMV the bandwidth at which weights are read (from memory: the matrix is larger than the cache), and
//! for GEMM the rate of operations (one multiplication and one addition are two).

use gristmill_cpu::{Cpu, Level};
use gristmill_kernels::Backend;
use gristmill_kernels::act::Precision;
use gristmill_kernels::format::Format;
use gristmill_kernels::ops::{Matmul, PrepareActivations};
use gristmill_kernels::tensor::SharedBytes;
use gristmill_kernels::weight::{Role, TensorView};
use std::time::Instant;

fn main() -> gristmill_kernels::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let threads = arguments.first().and_then(|a| a.parse().ok()).unwrap_or(2);
    let name = arguments.get(1);
    let level =
        Level::NAMES.iter().find(|n| name == Some(&n.to_string())).map_or(Ok(Level::best()), |n| Level::named(n))?;
    let cpu = Cpu::backend(level, threads)?;
    println!("{}", cpu.name());
    let (rows, cols) = (65_536, 2048);
    println!("format     GEMV GB/s   GEMM(512) Gop/s");
    for &format in Format::ALL.iter().filter(|format| arguments.get(2).is_none_or(|name| name == format.name())) {
        let bytes = random_blocks(format, rows, cols);
        let size = bytes.len();
        let view = |rows: usize, bytes: Vec<u8>| TensorView {
            name: "w".into(),
            format,
            experts: 1,
            rows,
            cols,
            bytes: SharedBytes::from(bytes),
        };
        let small = view(2048, bytes[..size / 32].to_vec());
        let big = cpu.prepare(&[view(rows, bytes)], Role::Matrix)?;
        let gemv = time(&cpu, &big, 1)?;
        drop(big);
        let small = cpu.prepare(&[small], Role::Matrix)?;
        let gemm = time(&cpu, &small, 512)?;
        let ops = 2.0 * 2048.0 * cols as f64 * 512.0;
        println!("{:8} {:10.1} {:14.0}", format.name(), size as f64 / gemv / 1e9, ops / gemm / 1e9);
    }
    Ok(())
}

/// Median seconds of a matrix operation with `tokens` rows.
fn time(cpu: &Backend, w: &gristmill_kernels::weight::Weight, tokens: usize) -> gristmill_kernels::Result<f64> {
    let mut x = cpu.alloc::<f32>(tokens * w.cols(), "x")?;
    let values: Vec<f32> = (0..x.len()).map(|i| ((i * 7919) % 2003) as f32 / 1000.0 - 1.0).collect();
    cpu.upload(&values, &mut x)?;
    let mut act = cpu.alloc_act(Precision::Fast, tokens, w.cols())?;
    cpu.run(PrepareActivations::new(x.view(tokens, w.cols())?, &mut act))?;
    let mut y = cpu.alloc::<f32>(tokens * w.rows(), "y")?;
    let mut seconds: Vec<f64> = Vec::new();
    for _ in 0..7 {
        let start = Instant::now();
        cpu.run(Matmul::new(w, &act, y.view_mut(tokens, w.rows())?))?;
        seconds.push(start.elapsed().as_secs_f64());
    }
    seconds.sort_by(f64::total_cmp);
    Ok(seconds[3])
}

fn random_blocks(format: Format, rows: usize, cols: usize) -> Vec<u8> {
    let mut row = vec![0; format.row_bytes(cols).unwrap_or(0)];
    let values: Vec<f32> = (0..cols).map(|i| ((i * 104_729) % 1999) as f32 / 1000.0 - 1.0).collect();
    format.encode(&values, &mut row);
    row.repeat(rows)
}
