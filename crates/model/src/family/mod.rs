//! The model families. Each has a folder, and a line in the table below. `spec.rs` reads the [`ModelSpec`](crate::spec::ModelSpec) from
//! metadata keys. `published.rs` maps the settings and tensors of a published folder to keys and tensors.
//!
//! # A family is one folder
//!
//! `model/src/family/NAME/spec.rs` turns metadata keys into a `ModelSpec`. `published.rs` in the same folder maps
//! settings of published folders to keys, and published tensors to tensors. *A family contains no maths. Only these
//! folders and `quantize/facts.rs` branch on the name of an architecture.*

#[macro_use]
mod table;

#[cfg(test)]
mod about;
mod architecture;
mod missing;
mod parts;
#[doc(hidden)]
pub mod published;
mod read;

pub use architecture::check_architecture;
pub(crate) use architecture::{spec, tower};
pub(crate) use read::Source;

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
    glm4: ["glm4"], [FAMILY, WITHIN];
    glm4moe: ["glm4moe"], [FAMILY, WITHIN];
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
    llama: ["llama"], [FAMILY, IDEFICS3, INTERNLM3, MIXTRAL];
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

towers! {
    gemma3_vl: ["gemma3"], [TOWER];
    gemma4_vl: ["gemma4v", "gemma4uv"], [TOWER, UNIFIED];
    glm4_vl: ["glm4v"], [TOWER];
    idefics3_vl: ["idefics3"], [TOWER, SMOLVLM];
    lfm2_vl: ["lfm2"], [TOWER];
    mistral3_vl: ["pixtral"], [TOWER];
    qwen_vl: ["qwen3vl_merger"], [TOWER, WITHOUT_DEEPSTACK];
}
