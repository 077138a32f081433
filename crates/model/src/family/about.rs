//! What each family is, for people: the table of docs/models.md. A test compares both.

/// A row of the table: architectures that differ in their sizes, or in whether they have experts.
struct Row {
    architectures: &'static [&'static str],
    /// The published models.
    checkpoints: &'static str,
    /// How the layers differ from Llama's.
    layers: &'static str,
    /// The form of tool calls that only this family has.
    calls: &'static str,
    lacks: &'static str,
}

const ROWS: &[Row] = &[
    Row {
        architectures: &["afmoe"],
        checkpoints: "Trinity",
        layers: "the first 2 or 6 dense; sigmoid, a shared expert; norms before and after each block, a gate of \
                 attention's output; three of four layers with a window, the fourth rotates nothing",
        calls: "",
        lacks: "",
    },
    Row {
        architectures: &["bailingmoe2"],
        checkpoints: "Ling 2, Ring 2",
        layers: "the first 1 to 4 dense; sigmoid in the best 4 of 8 groups, a shared expert; half of each head rotated",
        calls: "",
        lacks: "",
    },
    Row {
        architectures: &["bailingmoe3"],
        checkpoints: "Ling 3.0",
        layers: "as `kimi-linear`; the logarithm of a gate has a bound (`kda.gate_lower_bound`); attention with \
                 RoPE and a gate for each head; the best groups of experts",
        calls: "",
        lacks: "clamped activations of experts",
    },
    Row {
        architectures: &["cohere2"],
        checkpoints: "Command R7B and Command A",
        layers: "attention and MLP in parallel, layer norms without biases; every fourth layer has no RoPE",
        calls: "",
        lacks: "",
    },
    Row {
        architectures: &["cohere2moe"],
        checkpoints: "North-Mini-Code",
        layers: "layers of `cohere2`; the first is dense, the others have experts",
        calls: "",
        lacks: "shared experts (`expert_shared_count`), which no published model has",
    },
    Row {
        architectures: &["deepseek"],
        checkpoints: "the first DeepSeek MoE",
        layers: "experts chosen by softmax, shared experts",
        calls: "",
        lacks: "",
    },
    Row {
        architectures: &["deepseek2"],
        checkpoints: "DeepSeek V2, V2-Lite, V2.5, V3, R1 and V3.1, Kimi K2, Moonlight, GLM-4.7-Flash, GigaChat 3, \
                      Kanana 2, Youtu-LLM, Mistral Large 3",
        layers: "[latent attention](#latent-attention); softmax in groups (V2), sigmoid with a bias in groups (V3); \
                 in Youtu-LLM all layers dense",
        calls: "Kimi's, GLM's, DeepSeek's",
        lacks: "",
    },
    Row {
        architectures: &["dots1"],
        checkpoints: "dots.llm1",
        layers: "the first dense; sigmoid, two shared experts",
        calls: "",
        lacks: "",
    },
    Row {
        architectures: &["ernie4_5"],
        checkpoints: "ERNIE 4.5 0.3B",
        layers: "pairs of neighbours are rotated",
        calls: "",
        lacks: "",
    },
    Row {
        architectures: &["ernie4_5-moe"],
        checkpoints: "ERNIE 4.5 21B-A3B, 300B-A47B",
        layers: "the first 1 or 3 dense; softmax with a bias; shared experts in the smaller one",
        calls: "Hermes'; an answer in `<response>` (thinking models)",
        lacks: "",
    },
    Row { architectures: &["exaone"], checkpoints: "EXAONE 3 and 3.5", layers: "as `llama`", calls: "", lacks: "" },
    Row {
        architectures: &["exaone4"],
        checkpoints: "EXAONE 4.0 1.2B and 32B",
        layers: "norms only after the blocks; in models with windows, every fourth layer has no RoPE",
        calls: "",
        lacks: "EXAONE 4.5's vision tower",
    },
    Row {
        architectures: &["exaone-moe"],
        checkpoints: "K-EXAONE",
        layers: "the first dense; sigmoid, a shared expert; three of four layers with a window, the fourth rotates \
                 nothing",
        calls: "",
        lacks: "",
    },
    Row {
        architectures: &["falcon-h1"],
        checkpoints: "Falcon-H1",
        layers: "attention and a selective scan (Mamba-2) read the same norm in every layer; factors are part of the \
                 weights",
        calls: "",
        lacks: "the norm before the gate (`mamba_norm_before_gate`), which has no form in files",
    },
    Row {
        architectures: &["gemma"],
        checkpoints: "Gemma 1, CodeGemma",
        layers: "scaled embeddings and GeGLU",
        calls: "",
        lacks: "",
    },
    Row {
        architectures: &["gemma2"],
        checkpoints: "Gemma 2 2B, 9B and 27B",
        layers: "logits of attention and of the head are capped",
        calls: "",
        lacks: "",
    },
    Row {
        architectures: &["gemma3"],
        checkpoints: "Gemma 3",
        layers: "windows in five of six layers",
        calls: "",
        lacks: "",
    },
    Row {
        architectures: &["gemma4"],
        checkpoints: "Gemma 4 31B, 26B-A4B, 12B, E2B and E4B",
        layers: "[below](#gemma-4)",
        calls: "Gemma 4's",
        lacks: "audio",
    },
    Row {
        architectures: &["glm4"],
        checkpoints: "GLM-4 9B and 32B 0414; GLM-4.1V 9B and GLM-4.6V Flash",
        layers: "norms before and after each block, RoPE on half of each head; with [images](#images), of three positions",
        calls: "",
        lacks: "GLM-OCR",
    },
    Row {
        architectures: &["glm4moe"],
        checkpoints: "GLM-4.5, 4.5-Air, 4.6, 4.7; GLM-4.5V and 4.6V",
        layers: "the first 1 or 3 dense; sigmoid, a shared expert; half of each head rotated; norms of queries and \
                 keys in the larger ones; with [images](#images), RoPE of three positions",
        calls: "`<arg_key>`",
        lacks: "",
    },
    Row {
        architectures: &["gpt-oss"],
        checkpoints: "gpt-oss 20B, 120B",
        layers: "softmax of the chosen experts; sinks, windows in every second layer, clamped activations",
        calls: "Harmony's",
        lacks: "",
    },
    Row {
        architectures: &["granite", "granitemoe"],
        checkpoints: "Granite 3",
        layers: "factors of embeddings, residuals, attention and logits",
        calls: "",
        lacks: "",
    },
    Row {
        architectures: &["granitehybrid"],
        checkpoints: "Granite 4.0 and 4.1 h-*, Bamba",
        layers: "selective scans (Mamba-2); attention without RoPE where `attention.head_count_kv` is not 0; \
                 the factors of `granite`; experts and a shared expert, or one MLP. Bamba: RoPE on half of each head",
        calls: "",
        lacks: "",
    },
    Row {
        architectures: &["hunyuan-dense"],
        checkpoints: "Hunyuan 0.5B to 7B",
        layers: "queries and keys are normalised after their rotation; the pre-tokenizer cuts as `deepseek-v3`",
        calls: "",
        lacks: "a tokenizer in tiktoken's file",
    },
    Row {
        architectures: &["hunyuan-moe"],
        checkpoints: "Hunyuan A13B",
        layers: "queries and keys are normalised after RoPE; softmax, a shared expert",
        calls: "`<tool_calls>[…]`, answers in `<answer>`",
        lacks: "a tokenizer in a tiktoken file (`convert` needs `tokenizer.json`); the context beyond the one that \
                the published settings name",
    },
    Row {
        architectures: &["hy_v3"],
        checkpoints: "Hy3",
        layers: "the first dense; sigmoid, a shared expert",
        calls: "`<tool_sep:opensource>`",
        lacks: "",
    },
    Row {
        architectures: &["internlm2"],
        checkpoints: "InternLM 2 and 2.5",
        layers: "as `llama`",
        calls: "",
        lacks: "LoRA of InternLM-XComposer",
    },
    Row {
        architectures: &["jamba"],
        checkpoints: "Jamba 1.5 to 2",
        layers: "selective scans (Mamba-1), and attention without RoPE where `attention.head_count_kv` is not 0; experts in \
                 layers with a router, MLPs in the others; weights of the chosen experts are not renormalised",
        calls: "",
        lacks: "",
    },
    Row {
        architectures: &["kimi-linear"],
        checkpoints: "Kimi-Linear 48B-A3B",
        layers: "gated delta rules with a gate for each element of the keys (KDA); [latent \
                 attention](#latent-attention) without RoPE where `attention.head_count_kv` is not 0; experts and a \
                 shared expert after the first layer; sigmoid with a bias",
        calls: "",
        lacks: "",
    },
    Row {
        architectures: &["laguna"],
        checkpoints: "Laguna XS, S",
        layers: "the first dense; sigmoid, a shared expert; the first of four layers sees everything and has heads \
                 and a rotation of its own, the others a window; the softplus of a gate for each head or element \
                 multiplies attention's output",
        calls: "",
        lacks: "",
    },
    Row {
        architectures: &["lfm2"],
        checkpoints: "LFM2 350M to 2.6B",
        layers: "short convolutions between two gates; attention where `attention.head_count_kv` is not 0",
        calls: "a list of Python calls",
        lacks: "",
    },
    Row {
        architectures: &["lfm2moe"],
        checkpoints: "LFM2 8B-A1B, 24B-A2B",
        layers: "as `lfm2`, with experts after the first 2 layers; sigmoid with a bias",
        calls: "a list of Python calls",
        lacks: "",
    },
    Row {
        architectures: &["llama"],
        checkpoints: "Llama 1 to 3, Mistral, Mixtral, SmolLM2, InternLM 3",
        layers: "",
        calls: "",
        lacks: "Mixtral files from before April 2024",
    },
    Row {
        architectures: &["llama4"],
        checkpoints: "Llama 4 Scout and Maverick as text",
        layers: "in three of four layers a token attends to its chunk of 8,192 positions; the fourth has no RoPE, \
                 and its queries have a temperature; the router chooses one expert, and the weight multiplies its \
                 input",
        calls: "JSON objects, a list of Python calls",
        lacks: "vision towers; models in which every layer has full attention",
    },
    Row {
        architectures: &["mamba2"],
        checkpoints: "Mamba-2, Codestral Mamba",
        layers: "selective scans (Mamba-2) without MLPs",
        calls: "",
        lacks: "",
    },
    Row {
        architectures: &["mellum"],
        checkpoints: "Mellum 2 12B-A2.5B",
        layers: "`qwen3moe` with a window in three of four layers, where RoPE is not scaled",
        calls: "",
        lacks: "dense layers among those with experts",
    },
    Row {
        architectures: &["mimo2"],
        checkpoints: "MiMo V2-Flash, V2.5 and V2.5-Pro as text",
        layers: "the first dense; sigmoid; keys of 192 elements and values of 128, a third of each head rotated, \
                 values times 0.707; the first and every sixth layer see everything, the others have a window, \
                 sinks, twice the KV heads and another base",
        calls: "Qwen3-Coder's",
        lacks: "",
    },
    Row {
        architectures: &["minicpm"],
        checkpoints: "MiniCPM 1, 2 and 4",
        layers: "as `llama`, with factors of embeddings, residuals and logits",
        calls: "",
        lacks: "MiniCPM-MoE; MiniCPM 4's sparse attention, which it uses for long contexts",
    },
    Row {
        architectures: &["minimax-m2"],
        checkpoints: "MiniMax M2",
        layers: "experts in every layer; sigmoid; one norm over all query heads, one over all key heads; half of \
                 each head rotated",
        calls: "`<minimax:tool_call>`",
        lacks: "",
    },
    Row {
        architectures: &["minimax-m3"],
        checkpoints: "MiniMax M3 as text, up to 2,048 tokens",
        layers: "the first 3 dense; sigmoid, a shared expert; norms of queries and keys per head; half of each head \
                 rotated; clamped activations as in `gpt-oss`",
        calls: "nested tags, each after `]<]minimax[>[`",
        lacks: "",
    },
    Row {
        architectures: &["mistral3"],
        checkpoints: "Ministral 3 3B, 8B and 14B, and Mistral Small 3",
        layers: "queries have a temperature, which grows at each multiple of the original context (16,384 tokens)",
        calls: "",
        lacks: "magnitudes of YaRN other than 1",
    },
    Row {
        architectures: &["mistral4"],
        checkpoints: "Mistral 4 as text",
        layers: "[latent attention](#latent-attention); softmax; queries have a temperature",
        calls: "",
        lacks: "vision towers",
    },
    Row {
        architectures: &["muse-glimmer"],
        checkpoints: "Muse Glimmer 30B as text",
        layers: "embeddings are normalised, norms before and after each block, a gate of attention's output; every \
                 fourth layer rotates nothing",
        calls: "Muse Glimmer's (ATEM)",
        lacks: "the vision tower",
    },
    Row {
        architectures: &["nemotron_h"],
        checkpoints: "Nemotron-H, Nemotron Nano 2",
        layers: "a layer is a selective scan (Mamba-2), attention without RoPE, or an MLP with relu² and without a gate",
        calls: "",
        lacks: "",
    },
    Row {
        architectures: &["nemotron_h_moe"],
        checkpoints: "Nemotron 3 Nano, Super and Ultra",
        layers: "as `nemotron_h`, with experts and a shared expert in the place of MLPs; sigmoid with a bias; experts of \
                 Super and Ultra read and write rows of a smaller width",
        calls: "Qwen3-Coder's",
        lacks: "dense MLPs next to experts, which have no form in files",
    },
    Row {
        architectures: &["olmo2"],
        checkpoints: "OLMo 2 and 3",
        layers: "norms only after the blocks, one norm over all query heads and one over all key heads. OLMo 3: \
                 layers with a window, and YaRN in the layers without a window",
        calls: "",
        lacks: "",
    },
    Row {
        architectures: &["olmoe"],
        checkpoints: "OLMoE",
        layers: "experts chosen by softmax; norms over all heads",
        calls: "",
        lacks: "",
    },
    Row {
        architectures: &["phi3"],
        checkpoints: "Phi-3, Phi-3.5-mini, Phi-4, Phi-4-mini",
        layers: "fused tensors, LongRoPE, and the file's window in every layer, as in transformers (llama.cpp has \
                 no window)",
        calls: "",
        lacks: "",
    },
    Row {
        architectures: &["phimoe"],
        checkpoints: "Phi-3.5-MoE",
        layers: "layer norms with biases; two experts for each token; LongRoPE",
        calls: "",
        lacks: "",
    },
    Row {
        architectures: &["qwen2", "qwen3"],
        checkpoints: "Qwen 1.5, 2, 2.5 and 3, dense",
        layers: "",
        calls: "",
        lacks: "",
    },
    Row {
        architectures: &["qwen2moe"],
        checkpoints: "Qwen 1.5 MoE, Qwen 2 57B-A14B",
        layers: "softmax, a gated shared expert",
        calls: "",
        lacks: "",
    },
    Row {
        architectures: &["qwen2vl"],
        checkpoints: "Qwen2-VL and Qwen2.5-VL as text",
        layers: "RoPE of three positions, which are equal in text",
        calls: "",
        lacks: "vision towers",
    },
    Row {
        architectures: &["qwen3moe"],
        checkpoints: "Qwen3-30B-A3B, 235B-A22B, Qwen3-Coder",
        layers: "softmax, experts in every layer",
        calls: "",
        lacks: "",
    },
    Row {
        architectures: &["qwen3next"],
        checkpoints: "Qwen3-Next 80B-A3B, Coder-Next",
        layers: "gated delta rules, and attention with a gated output in every fourth layer; experts and a gated \
                 shared expert",
        calls: "",
        lacks: "",
    },
    Row {
        architectures: &["qwen3vl", "qwen3vlmoe"],
        checkpoints: "Qwen3-VL",
        layers: "each pair of a head turns by one of three positions, which are equal in text (llama.cpp leaves the \
                 last pairs still; gristmill rotates them, as transformers)",
        calls: "",
        lacks: "",
    },
    Row {
        architectures: &["qwen35", "qwen35moe"],
        checkpoints: "Qwen 3.5, 3.6 and 3.8, dense and with experts",
        layers: "as `qwen3next`; value head i reads key head i modulo their number; RoPE of three positions, which \
                 are equal in text",
        calls: "",
        lacks: "",
    },
    Row {
        architectures: &["seed_oss"],
        checkpoints: "Seed-OSS 36B",
        layers: "biases of queries, keys and values",
        calls: "Seed-OSS's",
        lacks: "",
    },
    Row {
        architectures: &["smollm3"],
        checkpoints: "SmolLM3 3B",
        layers: "every fourth layer has no RoPE",
        calls: "",
        lacks: "",
    },
    Row {
        architectures: &["step35"],
        checkpoints: "Step 3.5 Flash, Step 3.7 Flash as text",
        layers: "the first 3 dense; sigmoid, a shared expert; the first of four layers sees everything and rotates \
                 half of each head, the others have a window and more query heads; the sigmoid of a gate for each \
                 head multiplies attention's output; a limit of SwiGLU in some layers",
        calls: "Qwen3-Coder's",
        lacks: "",
    },
];

/// The table.
fn table() -> String {
    let row = |row: &Row| {
        let names: Vec<String> = row.architectures.iter().map(|name| format!("`{name}`")).collect();
        let cell = |text: &str| if text.is_empty() { " ".to_owned() } else { format!(" {text} ") };
        let cells = [&names.join(", "), row.checkpoints, row.layers, row.calls, row.lacks].map(cell);
        format!("|{}|\n", cells.join("|"))
    };
    let head = "| architecture | checkpoints | layers | tool calls | not supported |\n";
    head.to_owned() + "| --- | --- | --- | --- | --- |\n" + &ROWS.iter().map(row).collect::<String>()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    /// The heading of the table, and that of the section after it.
    const SECTION: [&str; 2] = ["## All architectures\n", "\n## "];

    #[test]
    fn every_architecture_has_a_row() {
        let rows: Vec<&str> = ROWS.iter().flat_map(|row| row.architectures).copied().collect();
        for (name, _) in super::super::ARCHITECTURES {
            assert_eq!(rows.iter().filter(|row| *row == name).count(), 1, "{name}: its rows in family/about.rs");
        }
        assert_eq!(rows.len(), super::super::ARCHITECTURES.len());
    }

    /// On a mismatch, the page with the right table is written next to the build.
    #[test]
    fn the_page_has_the_table() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let page = fs::read_to_string(root.join("docs/models.md")).expect("the page");
        let start = page.find(SECTION[0]).expect("the section") + SECTION[0].len();
        let section = &page[start..start + page[start..].find(SECTION[1]).expect("the next section")];
        let (before, old) = section.split_at(section.find("\n|").map_or(section.len(), |at| at + 1));
        let end = old.find("\n\n").map_or(old.len(), |at| at + 1);
        if old[..end] != table() {
            let new = format!("{}{before}{}{}", &page[..start], table(), &page[start + before.len() + end..]);
            let to = root.join("target/models.md");
            fs::write(&to, new).expect("a file");
            panic!("docs/models.md has another table; the right page is in {}", to.display());
        }
    }
}
