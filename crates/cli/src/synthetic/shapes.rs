//! The shapes of the models, as data.

use gristmill_convert::quantize::{Choice, Facts, Mix, choose, unquantised};
use gristmill_engine::model::spec::QkNorm;
use gristmill_files::gguf::{GgufWriter, WriteError};
use gristmill_kernels::format::Format;

use super::SyntheticError;
use super::mixers::Mixers;

/// More layers than any model has.
pub(crate) const MAX_LAYERS: u32 = 1024;

/// The shapes of a model.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Model {
    /// On the command line.
    pub(crate) name: &'static str,
    pub(super) title: &'static str,
    /// `general.architecture`.
    pub(super) architecture: &'static str,
    pub(crate) layers: u32,
    pub(super) hidden: u32,
    pub(super) heads: u32,
    pub(super) kv_heads: u32,
    pub(super) head_width: u32,
    pub(super) qk_norm: Option<QkNorm>,
    /// Width of the dense MLP. The files of MoE models state it too; those models have no dense MLP.
    pub(super) inner: u32,
    pub(super) experts: Option<Experts>,
    pub(crate) vocabulary: u32,
    /// The output head is the embedding table.
    pub(super) tied: bool,
    pub(super) context: u32,
    pub(super) rope_base: f32,
    pub(super) special: Special,
}

/// Features of some models.
#[derive(Debug, Clone, Copy)]
pub(super) struct Special {
    /// The mix of the published model, and the default.
    pub(super) mix: &'static str,
    /// Positions in the window of layers with sliding-window attention.
    pub(super) window: Option<u32>,
    /// YaRN's factor and original context.
    pub(super) yarn: Option<(f32, u32)>,
    /// Name of the norm before the MLP.
    pub(super) mlp_norm: &'static str,
    /// Each head has an attention sink.
    pub(super) sinks: bool,
    /// Attention, router and experts have biases.
    pub(super) biases: bool,
    /// Queries, keys and values have biases.
    pub(super) qkv_biases: bool,
    /// Elements of a head that are rotated; `None` for all.
    pub(super) rotated: Option<u32>,
    /// Pairs of a head that turn by each of three positions in turn.
    pub(super) sections: Option<[i32; 4]>,
    /// Which layers have attention.
    pub(super) mixers: Mixers,
    /// Name of the norm before the output head.
    pub(super) output_norm: &'static str,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Experts {
    pub(super) count: u32,
    pub(super) used: u32,
    pub(super) inner: u32,
    /// Width of the expert that serves every token; 0 for none.
    pub(super) shared: u32,
    /// That expert is behind a gate.
    pub(super) shared_gate: bool,
    /// Leading layers that have a dense MLP instead.
    pub(super) dense: u32,
    /// The sigmoid of logits chooses, with a bias.
    pub(super) sigmoid: bool,
}

/// A tensor before it is written.
#[derive(Debug, Clone)]
pub(crate) struct TensorPlan {
    pub(crate) name: String,
    pub(crate) format: Format,
    /// Innermost dimension first.
    pub(crate) shape: Vec<u64>,
    pub(crate) values: Values,
}

/// The distribution of a tensor's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Values {
    /// Of variance 1 / columns.
    Weights,
    /// Near 1.
    Norm,
    /// Near −1: a state decays.
    Decay,
}

impl Values {
    fn of(name: &str) -> Values {
        match name {
            name if name.ends_with("norm.weight") => Values::Norm,
            // Norms with a number, factors of a router's input and of experts, of pairs and of whole layers.
            name if name.contains("_norm_") || name.ends_with("scale.weight") || name.ends_with(".scale") => {
                Values::Norm
            }
            "rope_freqs.weight" => Values::Norm,
            name if name.ends_with("ssm_a") => Values::Decay,
            _ => Values::Weights,
        }
    }
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
        self.describe_mixers(file)?;
        file.set(&key("attention.key_length"), self.head_width)?;
        file.set(&key("attention.value_length"), self.head_width)?;
        file.set(&key("attention.layer_norm_rms_epsilon"), 1e-6f32)?;
        file.set(&key("rope.freq_base"), self.rope_base)?;
        if let Some(experts) = self.experts {
            file.set(&key("expert_count"), experts.count)?;
            file.set(&key("expert_used_count"), experts.used)?;
            file.set(&key("expert_feed_forward_length"), experts.inner)?;
            if experts.sigmoid {
                file.set(&key("expert_gating_func"), 2u32)?;
                file.set(&key("expert_weights_norm"), true)?;
            }
            if experts.shared_gate {
                file.set(&key("expert_shared_feed_forward_length"), experts.shared)?;
            } else if experts.shared > 0 {
                file.set(&key("expert_shared_count"), experts.shared / experts.inner)?;
            }
            if experts.dense > 0 {
                file.set(&key("leading_dense_block_count"), experts.dense.min(self.layers))?;
            }
        }
        if let Some(width) = self.special.rotated {
            file.set(&key("rope.dimension_count"), width)?;
        }
        if let Some(sections) = self.special.sections {
            file.set(&key("rope.dimension_sections"), sections.to_vec())?;
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
            kv_heads: self.first_kv_heads(),
            experts: self.experts.map_or(0, |experts| experts.count),
            ..Facts::default()
        };
        let facts = facts.of(self.architecture);
        let shapes = self.shapes();
        let named: Vec<(&str, &[u64])> = shapes.iter().map(|(name, shape)| (name.as_str(), &shape[..])).collect();
        let choices = choose(mix, &[], &facts, &named)?;
        let plan = |((name, shape), choice): ((String, Vec<u64>), Choice)| TensorPlan {
            values: Values::of(&name),
            format: choice.format.unwrap_or_else(|| unquantised(mix, &name, &shape, Format::BF16)),
            name,
            shape,
        };
        Ok(shapes.into_iter().zip(choices).map(plan).collect())
    }

    /// Names and shapes in file order.
    fn shapes(&self) -> Vec<(String, Vec<u64>)> {
        let mut list = Vec::new();
        let hidden = u64::from(self.hidden);
        list.push(("token_embd.weight".to_owned(), vec![hidden, self.vocabulary.into()]));
        if let Mixers::Gemma4(gemma) = &self.special.mixers {
            self.gemma4_global_shapes(gemma, &mut |name, shape| list.push((name.to_owned(), shape.to_vec())));
        }
        for layer in 0..self.layers {
            let mut push = |name: &str, shape: &[u64]| list.push((format!("blk.{layer}.{name}"), shape.to_vec()));
            if let Mixers::Gemma4(gemma) = &self.special.mixers {
                self.gemma4_layer_shapes(gemma, layer, &mut push);
                continue;
            }
            push("attn_norm.weight", &[hidden]);
            if self.has_attention(layer) {
                self.attention_shapes(&mut push);
            } else {
                self.mixer_shapes(&mut push);
            }
            self.add(&mut push, self.special.mlp_norm, &[hidden]);
            match self.experts.filter(|experts| layer >= experts.dense) {
                Some(experts) => self.expert_shapes(experts, &mut push),
                None => {
                    let inner = u64::from(self.inner);
                    self.add(&mut push, "ffn_gate", &[hidden, inner]);
                    self.add(&mut push, "ffn_up", &[hidden, inner]);
                    self.add(&mut push, "ffn_down", &[inner, hidden]);
                }
            }
        }
        list.push((format!("{}.weight", self.special.output_norm), vec![hidden]));
        if !self.tied {
            list.push(("output.weight".to_owned(), vec![hidden, self.vocabulary.into()]));
        }
        list
    }

    /// Adds a weight, and its bias where the model has one.
    fn add(&self, push: Push, name: &str, shape: &[u64]) {
        push(&format!("{name}.weight"), shape);
        let qkv = self.special.qkv_biases && ["attn_q", "attn_k", "attn_v"].contains(&name);
        if (self.special.biases || qkv) && shape.len() > 1 {
            push(&format!("{name}.bias"), &shape[1..]);
        }
    }

    fn attention_shapes(&self, push: Push) {
        let wide = |n: u32| u64::from(n);
        let (hidden, head) = (wide(self.hidden), wide(self.head_width));
        let (queries, keys) = (wide(self.heads) * head, wide(self.kv_heads) * head);
        let gates = if self.gates_attention() { queries } else { 0 };
        self.add(push, "attn_q", &[hidden, queries + gates]);
        self.add(push, "attn_k", &[hidden, keys]);
        if let Some(over) = self.qk_norm {
            let widths = match over {
                QkNorm::WholeRow => [queries, keys],
                _ => [head; 2],
            };
            self.add(push, "attn_q_norm", &widths[..1]);
            self.add(push, "attn_k_norm", &widths[1..]);
        }
        self.add(push, "attn_v", &[hidden, keys]);
        self.add(push, "attn_output", &[queries, hidden]);
        if self.special.sinks {
            self.add(push, "attn_sinks", &[wide(self.heads)]);
        }
    }

    fn expert_shapes(&self, Experts { count, inner, shared, shared_gate, sigmoid, .. }: Experts, push: Push) {
        let [hidden, count, inner, shared] = [self.hidden, count, inner, shared].map(u64::from);
        self.add(push, "ffn_gate_inp", &[hidden, count]);
        self.add(push, "ffn_gate_exps", &[hidden, inner, count]);
        self.add(push, "ffn_up_exps", &[hidden, inner, count]);
        self.add(push, "ffn_down_exps", &[inner, hidden, count]);
        if shared_gate {
            self.add(push, "ffn_gate_inp_shexp", &[hidden]);
        }
        if shared > 0 {
            self.add(push, "ffn_gate_shexp", &[hidden, shared]);
            self.add(push, "ffn_up_shexp", &[hidden, shared]);
            self.add(push, "ffn_down_shexp", &[shared, hidden]);
        }
        if sigmoid {
            push("exp_probs_b.bias", &[count]);
        }
    }
}

/// Takes a tensor of a layer: the name without the layer, and the shape.
pub(super) type Push<'a> = &'a mut dyn FnMut(&str, &[u64]);
