//! The model families. Each has a folder, and a line in the table below. `spec.rs` reads the [`ModelSpec`] from
//! metadata keys. `published.rs` maps the settings and tensors of a published folder to keys and tensors.
//!
//! # A family is one folder
//!
//! `model/src/family/NAME/spec.rs` turns metadata keys into a `ModelSpec`. `published.rs` in the same folder maps
//! settings of published folders to keys, and published tensors to tensors. *A family contains no maths. Only these
//! folders and `quantize/facts.rs` branch on the name of an architecture.*

#[cfg(test)]
mod about;
mod parts;
#[doc(hidden)]
pub mod published;
mod read;

use gristmill_files::gguf::GgufFile;

use crate::error::{Error, Result};
use crate::spec::ModelSpec;
use crate::tower::TowerSpec;
use published::{Family, TowerFamily};
use read::KeyReader;

pub(crate) use read::Source;

/// Reads the spec from the keys of one architecture.
type Read = fn(&KeyReader) -> Result<ModelSpec>;

/// Declares every family once: its folder, the `general.architecture` names that its `spec.rs` reads, and the tables in
/// its `published.rs`.
macro_rules! families {
    ($($folder:ident: [$($name:literal),+], [$($published:ident),+];)*) => {
        $(mod $folder {
            pub(super) mod published;
            pub(super) mod spec;
        })*

        const ARCHITECTURES: &[(&str, Read)] = &[$($(($name, $folder::spec::spec),)+)*];

        const FAMILIES: &[&Family] = &[$($(&$folder::published::$published,)+)*];
    };
}

families! {
    afmoe: ["afmoe"], [FAMILY];
    bailingmoe2: ["bailingmoe2"], [FAMILY];
    bailingmoe3: ["bailingmoe3"], [FAMILY];
    cohere2: ["cohere2"], [FAMILY];
    cohere2moe: ["cohere2moe"], [FAMILY];
    deepseek: ["deepseek"], [FAMILY];
    deepseek2: ["deepseek2"], [FAMILY, GLM4_MOE_LITE, YOUTU];
    dots1: ["dots1"], [FAMILY];
    ernie4_5: ["ernie4_5"], [FAMILY];
    ernie4_5_moe: ["ernie4_5-moe"], [FAMILY];
    exaone: ["exaone"], [FAMILY];
    exaone4: ["exaone4"], [FAMILY];
    exaone_moe: ["exaone-moe"], [FAMILY];
    falcon_h1: ["falcon-h1"], [FAMILY];
    gemma: ["gemma"], [FAMILY];
    gemma2: ["gemma2"], [FAMILY];
    gemma3: ["gemma3"], [FAMILY, VISION_FAMILY];
    gemma4: ["gemma4"], [FAMILY];
    glm4: ["glm4"], [FAMILY];
    glm4moe: ["glm4moe"], [FAMILY];
    gpt_oss: ["gpt-oss"], [FAMILY];
    granite: ["granite", "granitemoe"], [FAMILY, MOE];
    granitehybrid: ["granitehybrid"], [FAMILY, BAMBA];
    hunyuan_dense: ["hunyuan-dense"], [FAMILY];
    hunyuan_moe: ["hunyuan-moe"], [FAMILY];
    hy_v3: ["hy_v3"], [FAMILY];
    internlm2: ["internlm2"], [FAMILY];
    jamba: ["jamba"], [FAMILY];
    kimi_linear: ["kimi-linear"], [FAMILY];
    laguna: ["laguna"], [FAMILY];
    lfm2: ["lfm2", "lfm2moe"], [FAMILY, EXPERTS_FAMILY, VISION_FAMILY];
    llama: ["llama"], [FAMILY, INTERNLM3, MIXTRAL];
    llama4: ["llama4"], [FAMILY];
    mamba2: ["mamba2"], [FAMILY];
    mellum: ["mellum"], [FAMILY];
    mimo2: ["mimo2"], [FAMILY];
    minicpm: ["minicpm"], [FAMILY];
    minimax_m2: ["minimax-m2"], [FAMILY];
    minimax_m3: ["minimax-m3"], [FAMILY];
    mistral3: ["mistral3"], [FAMILY];
    mistral4: ["mistral4"], [FAMILY];
    muse_glimmer: ["muse-glimmer"], [FAMILY];
    nemotron_h: ["nemotron_h", "nemotron_h_moe"], [FAMILY, WITHIN];
    olmo2: ["olmo2"], [FAMILY, WINDOWED];
    olmoe: ["olmoe"], [FAMILY];
    phi3: ["phi3"], [FAMILY];
    phimoe: ["phimoe"], [FAMILY];
    qwen2: ["qwen2"], [FAMILY];
    qwen2moe: ["qwen2moe"], [FAMILY];
    qwen2vl: ["qwen2vl"], [FAMILY];
    qwen3: ["qwen3"], [FAMILY];
    qwen35: ["qwen35", "qwen35moe"], [FAMILY, EXPERTS_FAMILY];
    qwen3moe: ["qwen3moe"], [FAMILY];
    qwen3next: ["qwen3next"], [FAMILY];
    qwen3vl: ["qwen3vl", "qwen3vlmoe"], [FAMILY, MOE];
    seed_oss: ["seed_oss"], [FAMILY];
    smollm3: ["smollm3"], [FAMILY];
    step35: ["step35"], [FAMILY];
}

/// Reads the spec of a tower from the keys of its file.
type ReadTower = fn(&KeyReader) -> Result<TowerSpec>;

/// Declares every tower once: its folder, the `clip.projector_type` names that its `spec.rs` reads, and the tables in its
/// `published.rs`.
macro_rules! towers {
    ($($folder:ident: [$($name:literal),+], [$($published:ident),+];)*) => {
        $(mod $folder {
            pub(super) mod published;
            pub(super) mod spec;
        })*

        const TOWERS: &[(&str, ReadTower)] = &[$($(($name, $folder::spec::spec),)+)*];

        const TOWER_FAMILIES: &[&TowerFamily] = &[$($(&$folder::published::$published,)+)*];
    };
}

towers! {
    gemma3_vl: ["gemma3"], [TOWER];
    gemma4_vl: ["gemma4v", "gemma4uv"], [TOWER];
    lfm2_vl: ["lfm2"], [TOWER];
    mistral3_vl: ["pixtral"], [TOWER];
    qwen_vl: ["qwen3vl_merger"], [TOWER, WITHOUT_DEEPSTACK];
}

/// Unsupported architectures, each with the missing feature.
const MISSING: &[(&str, &[&str])] = &[
    ("latent attention (MLA)", &["deepseek2-ocr", "deepseek32", "dots3note", "glm-dsa", "kimi-k3", "minicpm3", "plm"]),
    ("a selective state space (Mamba)", &["mamba", "plamo2"]),
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
    ("positions of several dimensions, those of images", &["hunyuan_vl", "paddleocr"]),
    ("positions without RoPE (ALiBi or a table)", &["bloom", "gpt2", "jais", "mpt", "refact", "starcoder"]),
    ("the hidden states of another model, for which it drafts", &["dflash", "eagle3", "gemma4-assistant"]),
    ("images: it is the tower of a vision model", &["clip"]),
];

/// The missing feature of an unsupported architecture.
fn missing(name: &str) -> Option<&'static str> {
    MISSING.iter().find(|(_, names)| names.contains(&name)).map(|(part, _)| *part)
}

/// Reads the spec of a file.
pub(crate) fn spec(source: &Source) -> Result<ModelSpec> {
    let (arch, read) = architecture(source.required("general.architecture")?)?;
    read(&KeyReader::new(source, arch))
}

/// Reads the spec of the tower in an `mmproj` file.
pub(crate) fn tower(file: &GgufFile) -> Result<TowerSpec> {
    let source = Source::new(file);
    let architecture: &str = source.required("general.architecture")?;
    if architecture != "clip" {
        return Err(Error::NotATower { architecture: architecture.to_owned() });
    }
    let projector = read::projector(&source)?;
    let unknown = || {
        let known = TOWERS.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
        Error::Projector { found: projector.clone(), known }
    };
    let (_, read) = TOWERS.iter().find(|(name, _)| *name == projector).ok_or_else(unknown)?;
    read(&KeyReader::new(&source, "clip"))
}

/// Fails for a file whose architecture is not supported. The rest of the file is not read.
///
/// # Errors
/// [`Error::Architecture`], and [`Error::Metadata`] without an architecture.
pub fn check_architecture(file: &GgufFile) -> Result<()> {
    architecture(file.metadata().required("general.architecture")?).map(|_| ())
}

fn architecture(name: &str) -> Result<&'static (&'static str, Read)> {
    let unknown = || Error::Architecture { found: name.to_owned(), missing: missing(name), known: names() };
    ARCHITECTURES.iter().find(|(known, _)| *known == name).ok_or_else(unknown)
}

/// The names of all supported architectures.
fn names() -> String {
    ARCHITECTURES.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}
