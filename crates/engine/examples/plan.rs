//! The memory that a model takes, before it is loaded: `cargo run --release --example plan -- MODEL.gguf [CONTEXT]`.

use std::error::Error;

use gristmill_engine::gguf::GgufFile;
use gristmill_engine::{Limits, LoadOptions, ModelInfo, Plan, Precision, open_device};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("usage: plan MODEL.gguf [CONTEXT]")?;
    let context = arguments.next().map(|n| n.parse()).transpose()?;
    let info = ModelInfo::read(&GgufFile::open(path)?)?;
    let device = open_device(&LoadOptions::default())?.backend;
    for sequences in [1, 8, 64] {
        let limits = Limits { context, sequences, ..Limits::default() };
        let plan = Plan::new(&info, &limits, Precision::Fast, &device)?;
        let gigabytes = |bytes: u64| bytes as f64 / 1e9;
        println!(
            "{sequences:>2} sequences of {} tokens: {:.2} GB, of which {:.2} GB is KV cache; {}",
            plan.context,
            gigabytes(plan.total()),
            gigabytes(plan.state),
            plan.check().map_or_else(|error| error.to_string(), |()| "it fits".to_owned()),
        );
    }
    Ok(())
}
