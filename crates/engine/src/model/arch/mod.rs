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
    afmoe: "afmoe";
    bailingmoe2: "bailingmoe2";
    cohere2: "cohere2";
    cohere2moe: "cohere2moe";
    deepseek: "deepseek";
    dots1: "dots1";
    ernie4_5_moe: "ernie4_5-moe";
    exaone4: "exaone4";
    exaone_moe: "exaone-moe";
    gemma2: "gemma2";
    gemma3: "gemma3";
    gemma4: "gemma4";
    glm4: "glm4";
    glm4moe: "glm4moe";
    gpt_oss: "gpt-oss";
    granite: "granite", "granitemoe";
    hunyuan_moe: "hunyuan-moe";
    laguna: "laguna";
    lfm2: "lfm2", "lfm2moe";
    llama: "llama";
    llama4: "llama4";
    minimax_m2: "minimax-m2";
    mistral3: "mistral3";
    olmo2: "olmo2";
    olmoe: "olmoe";
    phi3: "phi3";
    phimoe: "phimoe";
    qwen2: "qwen2";
    qwen2moe: "qwen2moe";
    qwen35: "qwen35", "qwen35moe";
    qwen3: "qwen3";
    qwen3moe: "qwen3moe";
    qwen3next: "qwen3next";
    seed_oss: "seed_oss";
    smollm3: "smollm3";
}

/// Architectures that are not implemented, and the part that they need.
const MISSING: &[(&str, &[&str])] = &[
    (
        "latent attention (MLA)",
        &["deepseek2", "deepseek2-ocr", "deepseek32", "glm-dsa", "kimi-linear", "minicpm3", "mistral4", "plm"],
    ),
    (
        "a selective state space (Mamba)",
        &["mamba", "mamba2", "jamba", "falcon-h1", "granitehybrid", "nemotron_h", "nemotron_h_moe", "plamo2"],
    ),
    ("RWKV's recurrence", &["rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7"]),
    ("attention to later tokens", &["bert", "modern-bert", "nomic-bert", "jina-bert-v2", "t5", "t5encoder"]),
    ("attention and MLP side by side", &["command-r", "falcon", "phi2"]),
    ("layers that share keys and values", &["gemma3n"]),
    ("positions of several dimensions, those of images", &["qwen2vl", "qwen3vl", "qwen3vlmoe"]),
    ("positions without RoPE (ALiBi or a table)", &["bloom", "gpt2", "mpt", "starcoder"]),
];

/// The part that an architecture needs and that is not implemented.
fn missing(name: &str) -> Option<&'static str> {
    MISSING.iter().find(|(_, names)| names.contains(&name)).map(|(part, _)| *part)
}

/// Reads the spec of a file.
pub(crate) fn spec(source: &Source) -> Result<ModelSpec> {
    let name: &str = source.required("general.architecture")?;
    match ARCHITECTURES.iter().find(|(known, _)| *known == name) {
        Some((arch, read)) => read(&Reader::new(source, arch)),
        None => Err(Error::Architecture { found: name.to_owned(), missing: missing(name), known: names() }),
    }
}

/// The names of all architectures.
fn names() -> String {
    ARCHITECTURES.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}
