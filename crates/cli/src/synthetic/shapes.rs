//! The models: their shapes as data.

use gristmill_engine::gguf::{GgufWriter, WriteError};
use gristmill_kernels::format::Format;

use super::SyntheticError;
use super::mix::{Mix, Part};

/// More layers than any model has.
pub(crate) const MAX_LAYERS: u32 = 1024;

/// The shapes of a model of the Qwen3 family.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Model {
    /// On the command line.
    pub(crate) name: &'static str,
    title: &'static str,
    pub(crate) layers: u32,
    hidden: u32,
    heads: u32,
    kv_heads: u32,
    head_width: u32,
    /// Width of the dense MLP. An MoE model states it and does not use it.
    inner: u32,
    experts: Option<Experts>,
    pub(crate) vocabulary: u32,
    context: u32,
    rope_base: f32,
}

#[derive(Debug, Clone, Copy)]
struct Experts {
    count: u32,
    used: u32,
    inner: u32,
}

/// Every model. Published shapes are those of the `config.json` of the model's repository.
pub(crate) const MODELS: &[Model] = &[
    Model {
        name: "qwen3-30b-a3b",
        title: "Qwen3 30B A3B shapes",
        layers: 48,
        hidden: 2048,
        heads: 32,
        kv_heads: 4,
        head_width: 128,
        inner: 6144,
        experts: Some(Experts { count: 128, used: 8, inner: 768 }),
        vocabulary: 151_936,
        context: 40_960,
        rope_base: 1e6,
    },
    Model {
        name: "qwen3-8b",
        title: "Qwen3 8B shapes",
        layers: 36,
        hidden: 4096,
        heads: 32,
        kv_heads: 8,
        head_width: 128,
        inner: 12_288,
        experts: None,
        vocabulary: 151_936,
        context: 40_960,
        rope_base: 1e6,
    },
    Model {
        name: "mini-moe",
        title: "Mini MoE",
        layers: 4,
        hidden: 256,
        heads: 8,
        kv_heads: 2,
        head_width: 64,
        inner: 512,
        experts: Some(Experts { count: 16, used: 4, inner: 256 }),
        vocabulary: 4096,
        context: 8192,
        rope_base: 1e6,
    },
];

/// One tensor to be written.
#[derive(Debug, Clone)]
pub(crate) struct TensorPlan {
    pub(crate) name: String,
    pub(crate) format: Format,
    /// Innermost dimension first.
    pub(crate) shape: Vec<u64>,
    /// Weights have a variance of 1 / inputs; norms are near 1.
    pub(crate) is_norm: bool,
}

impl Model {
    fn architecture(&self) -> &'static str {
        if self.experts.is_some() { "qwen3moe" } else { "qwen3" }
    }

    /// Writes the architecture's metadata.
    pub(super) fn describe(&self, file: &mut GgufWriter) -> Result<(), WriteError> {
        let arch = self.architecture();
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
        Ok(())
    }

    /// Every tensor in file order.
    pub(super) fn tensors(&self, mix: &Mix) -> Result<Vec<TensorPlan>, SyntheticError> {
        let mut list = List { mix, layers: self.layers, tensors: Vec::new() };
        let wide = |n: u32| u64::from(n);
        let (hidden, head) = (wide(self.hidden), wide(self.head_width));
        let (queries, keys) = (wide(self.heads) * head, wide(self.kv_heads) * head);

        list.add("token_embd", Part::Plain, &[hidden, wide(self.vocabulary)])?;
        for layer in 0..self.layers {
            let sensitive = Part::Sensitive { layer };
            let mut add = |name: &str, part, shape: &[u64]| list.add(&format!("blk.{layer}.{name}"), part, shape);
            add("attn_norm", Part::Small, &[hidden])?;
            add("attn_q", Part::Plain, &[hidden, queries])?;
            add("attn_q_norm", Part::Small, &[head])?;
            add("attn_k", Part::Plain, &[hidden, keys])?;
            add("attn_k_norm", Part::Small, &[head])?;
            add("attn_v", sensitive, &[hidden, keys])?;
            add("attn_output", Part::Plain, &[queries, hidden])?;
            add("ffn_norm", Part::Small, &[hidden])?;
            match self.experts {
                Some(Experts { count, inner, .. }) => {
                    let (count, inner) = (wide(count), wide(inner));
                    add("ffn_gate_inp", Part::Small, &[hidden, count])?;
                    add("ffn_gate_exps", Part::Plain, &[hidden, inner, count])?;
                    add("ffn_up_exps", Part::Plain, &[hidden, inner, count])?;
                    add("ffn_down_exps", sensitive, &[inner, hidden, count])?;
                }
                None => {
                    let inner = wide(self.inner);
                    add("ffn_gate", Part::Plain, &[hidden, inner])?;
                    add("ffn_up", Part::Plain, &[hidden, inner])?;
                    add("ffn_down", sensitive, &[inner, hidden])?;
                }
            }
        }
        list.add("output_norm", Part::Small, &[hidden])?;
        list.add("output", Part::Output, &[hidden, wide(self.vocabulary)])?;
        Ok(list.tensors)
    }
}

struct List<'a> {
    mix: &'a Mix,
    layers: u32,
    tensors: Vec<TensorPlan>,
}

impl List<'_> {
    fn add(&mut self, name: &str, part: Part, shape: &[u64]) -> Result<(), SyntheticError> {
        let name = format!("{name}.weight");
        let format = self.mix.format(part, self.layers);
        let (columns, block) = (shape[0], format.block_len());
        if !columns.is_multiple_of(block as u64) {
            return Err(SyntheticError::Rows { tensor: name, format, columns, block });
        }
        self.tensors.push(TensorPlan { is_norm: shape.len() == 1, name, format, shape: shape.to_vec() });
        Ok(())
    }
}
