//! The shapes of the models, as data.

use gristmill_convert::quantize::{Choice, Facts, Mix, choose};
use gristmill_engine::model::spec::QkNorm;
use gristmill_files::gguf::{GgufWriter, WriteError};
use gristmill_kernels::format::Format;

use super::SyntheticError;

/// More layers than any model has.
pub(crate) const MAX_LAYERS: u32 = 1024;

/// The shapes of a model.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Model {
    /// On the command line.
    pub(crate) name: &'static str,
    title: &'static str,
    /// `general.architecture`.
    architecture: &'static str,
    pub(crate) layers: u32,
    hidden: u32,
    heads: u32,
    kv_heads: u32,
    head_width: u32,
    qk_norm: Option<QkNorm>,
    /// Width of the dense MLP. The files of MoE models state it too; those models have no dense MLP.
    inner: u32,
    experts: Option<Experts>,
    pub(crate) vocabulary: u32,
    /// The output head is the embedding table.
    tied: bool,
    context: u32,
    rope_base: f32,
    special: Special,
}

/// Features of some models.
#[derive(Debug, Clone, Copy)]
struct Special {
    /// The mix of the published model, and the default.
    mix: &'static str,
    /// Positions in the window of layers with sliding-window attention.
    window: Option<u32>,
    /// YaRN's factor and original context.
    yarn: Option<(f32, u32)>,
    /// Name of the norm before the MLP.
    mlp_norm: &'static str,
    /// Each head has an attention sink.
    sinks: bool,
    /// Attention, router and experts have biases.
    biases: bool,
}

const NOTHING: Special =
    Special { mix: "Q4_K_M", window: None, yarn: None, mlp_norm: "ffn_norm", sinks: false, biases: false };

const GPT_OSS: Special = Special {
    mix: "MXFP4_MOE",
    window: Some(128),
    yarn: Some((32.0, 4096)),
    mlp_norm: "post_attention_norm",
    sinks: true,
    biases: true,
};

#[derive(Debug, Clone, Copy)]
struct Experts {
    count: u32,
    used: u32,
    inner: u32,
}

/// All models. The shapes are those of `config.json` in the published repositories.
pub(crate) const MODELS: &[Model] = &[
    Model {
        name: "qwen3-30b-a3b",
        title: "Qwen3 30B A3B shapes",
        architecture: "qwen3moe",
        layers: 48,
        hidden: 2048,
        heads: 32,
        kv_heads: 4,
        head_width: 128,
        qk_norm: Some(QkNorm::PerHead),
        inner: 6144,
        experts: Some(Experts { count: 128, used: 8, inner: 768 }),
        vocabulary: 151_936,
        tied: false,
        context: 40_960,
        rope_base: 1e6,
        special: NOTHING,
    },
    Model {
        name: "qwen3-8b",
        title: "Qwen3 8B shapes",
        architecture: "qwen3",
        layers: 36,
        hidden: 4096,
        heads: 32,
        kv_heads: 8,
        head_width: 128,
        qk_norm: Some(QkNorm::PerHead),
        inner: 12_288,
        experts: None,
        vocabulary: 151_936,
        tied: false,
        context: 40_960,
        rope_base: 1e6,
        special: NOTHING,
    },
    Model {
        name: "mixtral-8x7b",
        title: "Mixtral 8x7B shapes",
        architecture: "llama",
        layers: 32,
        hidden: 4096,
        heads: 32,
        kv_heads: 8,
        head_width: 128,
        qk_norm: None,
        inner: 14_336,
        experts: Some(Experts { count: 8, used: 2, inner: 14_336 }),
        vocabulary: 32_000,
        tied: false,
        context: 32_768,
        rope_base: 1e6,
        special: NOTHING,
    },
    Model {
        name: "olmoe-1b-7b",
        title: "OLMoE 1B 7B shapes",
        architecture: "olmoe",
        layers: 16,
        hidden: 2048,
        heads: 16,
        kv_heads: 16,
        head_width: 128,
        qk_norm: Some(QkNorm::WholeRow),
        inner: 1024,
        experts: Some(Experts { count: 64, used: 8, inner: 1024 }),
        vocabulary: 50_304,
        tied: false,
        context: 4096,
        rope_base: 1e4,
        special: NOTHING,
    },
    Model {
        name: "smollm2-135m",
        title: "SmolLM2 135M shapes",
        architecture: "llama",
        layers: 30,
        hidden: 576,
        heads: 9,
        kv_heads: 3,
        head_width: 64,
        qk_norm: None,
        inner: 1536,
        experts: None,
        vocabulary: 49_152,
        tied: true,
        context: 8192,
        rope_base: 1e5,
        special: NOTHING,
    },
    Model {
        name: "gpt-oss-20b",
        title: "gpt-oss 20B shapes",
        architecture: "gpt-oss",
        layers: 24,
        hidden: 2880,
        heads: 64,
        kv_heads: 8,
        head_width: 64,
        qk_norm: None,
        inner: 2880,
        experts: Some(Experts { count: 32, used: 4, inner: 2880 }),
        vocabulary: 201_088,
        tied: false,
        context: 131_072,
        rope_base: 150_000.0,
        special: GPT_OSS,
    },
    Model {
        name: "mini-oss",
        title: "Mini OSS",
        architecture: "gpt-oss",
        layers: 4,
        hidden: 288,
        heads: 8,
        kv_heads: 2,
        head_width: 32,
        qk_norm: None,
        inner: 288,
        experts: Some(Experts { count: 8, used: 2, inner: 288 }),
        vocabulary: 4096,
        tied: false,
        context: 8192,
        rope_base: 150_000.0,
        special: Special { window: Some(32), ..GPT_OSS },
    },
    Model {
        name: "mini-moe",
        title: "Mini MoE",
        architecture: "qwen3moe",
        layers: 4,
        hidden: 256,
        heads: 8,
        kv_heads: 2,
        head_width: 64,
        qk_norm: Some(QkNorm::PerHead),
        inner: 512,
        experts: Some(Experts { count: 16, used: 4, inner: 256 }),
        vocabulary: 4096,
        tied: false,
        context: 8192,
        rope_base: 1e6,
        special: NOTHING,
    },
];

/// A tensor before it is written.
#[derive(Debug, Clone)]
pub(crate) struct TensorPlan {
    pub(crate) name: String,
    pub(crate) format: Format,
    /// Innermost dimension first.
    pub(crate) shape: Vec<u64>,
    /// Weights and biases have a variance of 1 / their columns; norms are near 1.
    pub(crate) is_norm: bool,
}

impl Model {
    /// The default mix.
    pub(super) fn mix(&self) -> &'static str {
        self.special.mix
    }

    /// Writes the architecture's metadata.
    pub(super) fn describe(&self, file: &mut GgufWriter) -> Result<(), WriteError> {
        let arch = self.architecture;
        let key = |name: &str| format!("{arch}.{name}");
        file.set("general.architecture", arch)?;
        file.set("general.type", "model")?;
        file.set("general.name", self.title)?;
        file.set("general.quantization_version", 2u32)?;
        file.set(&key("block_count"), self.layers)?;
        file.set(&key("context_length"), self.context)?;
        file.set(&key("embedding_length"), self.hidden)?;
        file.set(&key("feed_forward_length"), self.inner)?;
        file.set(&key("attention.head_count"), self.heads)?;
        file.set(&key("attention.head_count_kv"), self.kv_heads)?;
        file.set(&key("attention.key_length"), self.head_width)?;
        file.set(&key("attention.value_length"), self.head_width)?;
        file.set(&key("attention.layer_norm_rms_epsilon"), 1e-6f32)?;
        file.set(&key("rope.freq_base"), self.rope_base)?;
        if let Some(experts) = self.experts {
            file.set(&key("expert_count"), experts.count)?;
            file.set(&key("expert_used_count"), experts.used)?;
            file.set(&key("expert_feed_forward_length"), experts.inner)?;
        }
        if let Some(window) = self.special.window {
            file.set(&key("attention.sliding_window"), window)?;
        }
        if let Some((factor, context)) = self.special.yarn {
            file.set(&key("rope.scaling.type"), "yarn")?;
            file.set(&key("rope.scaling.factor"), factor)?;
            file.set(&key("rope.scaling.original_context_length"), context)?;
        }
        Ok(())
    }

    /// Every tensor in file order.
    pub(super) fn tensors(&self, mix: &Mix) -> Result<Vec<TensorPlan>, SyntheticError> {
        let facts = Facts {
            layers: self.layers,
            heads: self.heads,
            kv_heads: self.kv_heads,
            experts: self.experts.map_or(0, |experts| experts.count),
            ..Facts::default()
        };
        let facts = facts.of(self.architecture);
        let shapes = self.shapes();
        let named: Vec<(&str, &[u64])> = shapes.iter().map(|(name, shape)| (name.as_str(), &shape[..])).collect();
        let choices = choose(mix, &[], &facts, &named)?;
        let plan = |((name, shape), choice): ((String, Vec<u64>), Choice)| TensorPlan {
            is_norm: name.ends_with("norm.weight"),
            format: choice.format.unwrap_or(Format::F32),
            name,
            shape,
        };
        Ok(shapes.into_iter().zip(choices).map(plan).collect())
    }

    /// Names and shapes in file order.
    fn shapes(&self) -> Vec<(String, Vec<u64>)> {
        let mut list = Vec::new();
        let wide = |n: u32| u64::from(n);
        let (hidden, head) = (wide(self.hidden), wide(self.head_width));
        let (queries, keys) = (wide(self.heads) * head, wide(self.kv_heads) * head);

        list.push(("token_embd.weight".to_owned(), vec![hidden, wide(self.vocabulary)]));
        for layer in 0..self.layers {
            let mut push = |name: String, shape: &[u64]| list.push((format!("blk.{layer}.{name}"), shape.to_vec()));
            let mut add = |name: &str, shape: &[u64]| {
                push(format!("{name}.weight"), shape);
                if self.special.biases && shape.len() > 1 {
                    push(format!("{name}.bias"), &shape[1..]);
                }
            };
            add("attn_norm", &[hidden]);
            add("attn_q", &[hidden, queries]);
            add("attn_k", &[hidden, keys]);
            if let Some(over) = self.qk_norm {
                let widths = match over {
                    QkNorm::WholeRow => [queries, keys],
                    _ => [head; 2],
                };
                add("attn_q_norm", &widths[..1]);
                add("attn_k_norm", &widths[1..]);
            }
            add("attn_v", &[hidden, keys]);
            add("attn_output", &[queries, hidden]);
            if self.special.sinks {
                add("attn_sinks", &[wide(self.heads)]);
            }
            add(self.special.mlp_norm, &[hidden]);
            match self.experts {
                Some(Experts { count, inner, .. }) => {
                    let (count, inner) = (wide(count), wide(inner));
                    add("ffn_gate_inp", &[hidden, count]);
                    add("ffn_gate_exps", &[hidden, inner, count]);
                    add("ffn_up_exps", &[hidden, inner, count]);
                    add("ffn_down_exps", &[inner, hidden, count]);
                }
                None => {
                    let inner = wide(self.inner);
                    add("ffn_gate", &[hidden, inner]);
                    add("ffn_up", &[hidden, inner]);
                    add("ffn_down", &[inner, hidden]);
                }
            }
        }
        list.push(("output_norm.weight".to_owned(), vec![hidden]));
        if !self.tied {
            list.push(("output.weight".to_owned(), vec![hidden, wide(self.vocabulary)]));
        }
        list
    }
}
