//! The architectures, one small file and one line in [`ARCHITECTURES`] each: which metadata keys make the [`ModelSpec`].

mod deepseek;
mod gemma3;
mod gpt_oss;
mod granite;
mod llama;
mod olmoe;
mod phimoe;
mod qwen2;
mod qwen2moe;
mod qwen3;
mod qwen3moe;
mod read;

use crate::error::{Error, Result};
use crate::model::spec::ModelSpec;
use read::Reader;

pub(crate) use read::Source;

/// Reads the spec from the keys of one architecture.
type Read = fn(&Reader) -> Result<ModelSpec>;

/// One line for each architecture.
const ARCHITECTURES: &[(&str, Read)] = &[
    ("deepseek", deepseek::spec),
    ("gemma3", gemma3::spec),
    ("gpt-oss", gpt_oss::spec),
    ("granite", granite::spec),
    ("granitemoe", granite::spec),
    ("llama", llama::spec),
    ("olmoe", olmoe::spec),
    ("phimoe", phimoe::spec),
    ("qwen2", qwen2::spec),
    ("qwen2moe", qwen2moe::spec),
    ("qwen3", qwen3::spec),
    ("qwen3moe", qwen3moe::spec),
];

/// Models whose value projections are a small share of the weights, as llama.cpp's quantiser has them ("70B"):
/// architecture, layers, and whether query heads must share keys and values.
const FEW_VALUES: &[(&str, u32, bool)] = &[("llama", 80, true), ("qwen2", 80, false)];

/// Whether a model is in [`FEW_VALUES`].
pub(crate) fn few_values(architecture: &str, layers: u32, heads: u32, kv_heads: u32) -> bool {
    let same = |&(name, depth, shared): &(&str, u32, bool)| {
        name == architecture && depth == layers && (!shared || heads != kv_heads)
    };
    FEW_VALUES.iter().any(same)
}

/// Reads the spec of a file.
pub(crate) fn spec(source: &Source) -> Result<ModelSpec> {
    let name: &str = source.required("general.architecture")?;
    match ARCHITECTURES.iter().find(|(known, _)| *known == name) {
        Some((arch, read)) => read(&Reader::new(source, arch)),
        None => Err(Error::Architecture { found: name.to_owned(), known: names() }),
    }
}

/// The names of all architectures.
fn names() -> String {
    ARCHITECTURES.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}
