//! Architectures that are refused by name.

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
pub(super) fn missing(name: &str) -> Option<&'static str> {
    MISSING.iter().find(|(_, names)| names.contains(&name)).map(|(part, _)| *part)
}
