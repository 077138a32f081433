//! The most that the device can do, measured: the floors that speeds are held against.

use gristmill_kernels::error::Result;

use gristmill_gpu::shared_struct;
use gristmill_gpu::{Access, Arg, Device, Kernel, Launch, Region};
use gristmill_kernels::ops::Rates;
use std::time::Instant;

/// Memory that is read: far more than any cache.
const BYTES: usize = 4 << 30;
/// Repetitions, of which the fastest counts.
const REPEATS: usize = 5;
const THREADS: u32 = 256;
/// Sums of 16 × 8 × 16 tiles that a warp keeps, and how often it adds to each.
const SUMS: f64 = 8.0;
const ROUNDS: u32 = 20_000;

shared_struct! {
    pub(super) struct ReadParams {
        // Loads of 16 bytes.
        count: u64,
    }
}

shared_struct! {
    pub(super) struct MultiplyParams {
        rounds: u32,
        padding: u32,
    }
}

/// Measures; takes a tenth of a second, and up to 4 GiB of the device's memory meanwhile.
pub(crate) fn measure(device: &Device) -> Result<Rates> {
    let free = usize::try_from(device.gpu().free_memory()?).unwrap_or(usize::MAX);
    let properties = device.gpu().properties();
    let (many, few) = (8 * properties.multiprocessors, 2 * properties.multiprocessors);
    let x = Region::zeroed(device.gpu(), BYTES.min(free / 2).max(16), "measuring the device")?;
    let sums = Region::zeroed(device.gpu(), (many * THREADS) as usize * 4, "measuring the device")?;

    let params = ReadParams { count: (x.bytes() / 16) as u64 };
    let args = [Arg::region(&x, Access::Read), Arg::region(&sums, Access::Write), Arg::params(&params)];
    let read = fastest(device, &sums, &launch("read_all", many, &args))?;

    let params = MultiplyParams { rounds: ROUNDS, padding: 0 };
    let args = [Arg::region(&sums, Access::Write), Arg::params(&params)];
    let multiply = fastest(device, &sums, &launch("multiply", few, &args))?;
    let warps = f64::from(few * THREADS / 32);
    let products = warps * SUMS * f64::from(ROUNDS) * f64::from(16 * 8 * 16);
    Ok(Rates { read_bytes_per_second: x.bytes() as f64 / read, ops_per_second: 2.0 * products / multiply })
}

fn launch<'a>(entry: &'static str, grid: u32, args: &'a [Arg<'a>]) -> Launch<'a> {
    let kernel = Kernel { file: "rates.cu", entry, defines: &[] };
    Launch { kernel, grid: [grid, 1, 1], block: THREADS, shared: 0, overlap: false, args }
}

/// Seconds of the fastest of some runs.
fn fastest(device: &Device, sums: &Region, launch: &Launch) -> Result<f64> {
    let mut best = f64::MAX;
    for _ in 0..=REPEATS {
        let begun = Instant::now();
        device.launch(launch)?;
        device.read_region(sums, 0, &mut [0; 4])?;
        best = best.min(begun.elapsed().as_secs_f64());
    }
    Ok(best)
}
