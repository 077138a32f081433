//! The architectures, one small file and one line in [`ARCHITECTURES`] each: which metadata keys make the
//! [`ModelSpec`].

mod read;

use crate::error::{Error, Result};
use crate::spec::ModelSpec;
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
        &[
            "bailingmoe3",
            "deepseek2",
            "deepseek2-ocr",
            "deepseek32",
            "dots3note",
            "glm-dsa",
            "kimi-k3",
            "kimi-linear",
            "minicpm3",
            "mistral4",
            "plm",
        ],
    ),
    (
        "a selective state space (Mamba)",
        &["mamba", "mamba2", "jamba", "falcon-h1", "granitehybrid", "nemotron_h", "nemotron_h_moe", "plamo2"],
    ),
    ("RWKV's recurrence", &["rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7"]),
    ("linear attention", &["minimax-01"]),
    ("several residual streams (hyper-connections)", &["deepseek4", "glm5-next", "hy_v4"]),
    ("several residual streams (AltUp)", &["gemma3n"]),
    (
        "attention to later tokens",
        &[
            "bert",
            "dream",
            "eurobert",
            "gemma-embedding",
            "jina-bert-v2",
            "jina-bert-v3",
            "llada",
            "llada-moe",
            "llama-embed",
            "modern-bert",
            "neo-bert",
            "nomic-bert",
            "nomic-bert-moe",
            "rnd1",
            "t5",
            "t5encoder",
        ],
    ),
    (
        "an MLP without a gate",
        &["apertus", "arcee", "codeshell", "falcon", "gptneox", "nemotron", "phi2", "starcoder2"],
    ),
    (
        "positions of several dimensions, those of images",
        &["hunyuan_vl", "paddleocr", "qwen2vl", "qwen3vl", "qwen3vlmoe"],
    ),
    ("positions without RoPE (ALiBi or a table)", &["bloom", "gpt2", "jais", "mpt", "refact", "starcoder"]),
    ("the hidden states of another model, for which it drafts", &["dflash", "eagle3", "gemma4-assistant"]),
    ("images: it is the tower of a vision model", &["clip"]),
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
