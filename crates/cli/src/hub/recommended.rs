//! Models to start with, by the memory of a machine.

use serde::Serialize;

use crate::console;
use crate::failure::Failure;

/// A model of the hub, in the format that `gristmill pull` chooses.
#[derive(Clone, Copy, Debug, Serialize)]
struct Recommended {
    /// The memory of the GPU, or of a machine without one.
    memory_bytes: u64,
    model: &'static str,
    /// Bytes of the download, by the hub's listing.
    download_bytes: u64,
    name: &'static str,
}

const GB: u64 = 1_000_000_000;

/// README.md has the same table.
const RECOMMENDED: [Recommended; 5] = [
    model(2, "Qwen3-0.6B", 639_446_688, "hf:Qwen/Qwen3-0.6B-GGUF"),
    model(8, "Qwen3-4B", 2_497_280_256, "hf:Qwen/Qwen3-4B-GGUF"),
    model(16, "gpt-oss-20b", 12_109_566_560, "hf:ggml-org/gpt-oss-20b-GGUF"),
    model(24, "Qwen3-30B-A3B", 18_556_686_912, "hf:Qwen/Qwen3-30B-A3B-GGUF"),
    model(80, "gpt-oss-120b", 63_387_346_208, "hf:ggml-org/gpt-oss-120b-GGUF"),
];

const fn model(memory: u64, model: &'static str, download_bytes: u64, name: &'static str) -> Recommended {
    Recommended { memory_bytes: memory * GB, model, download_bytes, name }
}

/// Prints the table.
pub(super) fn print(is_json: bool) -> Result<(), Failure> {
    if is_json {
        return console::print_json(&RECOMMENDED);
    }
    let row = |Recommended { memory_bytes, model, download_bytes, name }: Recommended| {
        let memory = memory_bytes / GB;
        let download = download_bytes as f64 / GB as f64;
        format!("{memory:>3} GB  {model:<13}  {download:>5.1} GB  gristmill chat {name}\n")
    };
    console::print(format_args!("memory  model          download  command\n{}", RECOMMENDED.map(row).concat()))?;
    console::note(format_args!("gristmill fit MODEL shows which formats of a model fit this machine"));
    Ok(())
}
