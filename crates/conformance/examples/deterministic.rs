//! Whether a device gives a text the same logits, to the bit, alone and in shared batches: with the option
//! `deterministic`, and for comparison without it. Fails if a bit differs with the option.
//!
//! cargo run --release -p gristmill-conformance --example deterministic -- DEVICE MODEL.gguf…

#[path = "../tests/batching/texts.rs"]
mod texts;

use std::process::ExitCode;
use std::sync::Arc;

use gristmill_engine::{LoadOptions, Model, Precision};
use gristmill_kernels::kv::KvFormat;
use gristmill_suite::rng::Rng;
use texts::Batching;

/// Texts at a time, tokens of each and of their common start, and of a part: short parts as in decoding and with
/// draft tokens; long prompts; contexts that are split into splits; many texts.
const BATCHINGS: [[usize; 4]; 7] = [
    [2, 45, 17, 20],
    [5, 45, 17, 20],
    [17, 45, 17, 20],
    [33, 40, 17, 6],
    [4, 300, 130, 200],
    [3, 900, 600, 300],
    [100, 24, 16, 3],
];

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let (Some(device), models) = (args.next(), args.collect::<Vec<String>>()) else { return usage() };
    if models.is_empty() {
        return usage();
    }
    let seed = Rng::fresh_seed();
    println!("seed {seed}");
    let mut rng = Rng::new(seed);
    let mut different = 0;
    for model in &models {
        for deterministic in [true, false] {
            match check(&device, model, deterministic, &mut rng) {
                Ok(found) if deterministic => different += found,
                Ok(_) => {}
                Err(error) => {
                    eprintln!("{model}: {error}");
                    return ExitCode::FAILURE;
                }
            }
        }
    }
    println!("{different} rows of logits differ with the option");
    if different == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn usage() -> ExitCode {
    eprintln!("usage: deterministic DEVICE MODEL.gguf…   (DEVICE: cuda, cuda:N, metal, metal:N or cpu)");
    ExitCode::FAILURE
}

/// Runs all companies, and returns the rows of logits that differ.
fn check(device: &str, path: &str, deterministic: bool, rng: &mut Rng) -> gristmill_engine::model::Result<usize> {
    let mut different = 0;
    for (precision, kv_format) in [(Precision::Fast, KvFormat::F16), (Precision::Exact, KvFormat::Q8_0)] {
        let options = LoadOptions { device: device.to_owned(), precision, deterministic, ..LoadOptions::default() };
        let model = Arc::new(Model::open(path, options)?);
        println!("{path} on {}, {precision:?}, {kv_format:?}", model.device_name());
        for [texts, length, shared, chunk] in BATCHINGS {
            let found = Batching { texts, length, shared, chunk, kv_format }.compare(&model, rng)?;
            println!("  {texts:3} texts of {length:3} tokens: {found:?}");
            different += found.different;
        }
    }
    Ok(different)
}
