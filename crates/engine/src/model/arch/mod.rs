//! The architectures, one small file each: which metadata keys make the [`ModelSpec`], and nothing else.

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
