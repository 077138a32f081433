//! The architectures, one small file and one line in [`ARCHITECTURES`] each: which metadata keys make the
//! [`ModelSpec`].

mod read;

use crate::error::{Error, Result};
use crate::model::spec::ModelSpec;
use read::Reader;

pub(crate) use read::Source;

/// Reads the spec from the keys of one architecture.
type Read = fn(&Reader) -> Result<ModelSpec>;

/// Declares every architecture once: its file, and the names in `general.architecture` that it reads.
macro_rules! architectures {
    ($($file:ident: $($name:literal),+;)*) => {
        $(mod $file;)*

        const ARCHITECTURES: &[(&str, Read)] = &[$($(($name, $file::spec),)+)*];
    };
}

architectures! {
    deepseek: "deepseek";
    gemma3: "gemma3";
    gpt_oss: "gpt-oss";
    granite: "granite", "granitemoe";
    llama: "llama";
    olmoe: "olmoe";
    phimoe: "phimoe";
    qwen2: "qwen2";
    qwen2moe: "qwen2moe";
    qwen3: "qwen3";
    qwen3moe: "qwen3moe";
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
