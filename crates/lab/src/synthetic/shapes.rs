//! The shapes of the models, as data.

use gristmill_convert::quantize::{Choice, Facts, Mix, choose, unquantised};
use gristmill_engine::model::spec::QkNorm;
use gristmill_files::gguf::{GgufWriter, WriteError};
use gristmill_kernels::format::Format;

use super::SyntheticError;
use super::mixers::Mixers;
use super::windowed::Windowed;

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
    /// YaRN's magnitude of logits is 1 + this · ln(factor), squared.
    pub(super) yarn_log: Option<f32>,
    /// Layers that read features of images.
    pub(super) deepstack: Option<u32>,
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
    /// Pairs of a head that each of the three positions rotates, in this order.
    pub(super) sections: Option<[i32; 4]>,
    /// Which layers have attention.
    pub(super) mixers: Mixers,
    /// Name of the norm before the output head.
    pub(super) output_norm: &'static str,
    /// A prediction head follows the layers.
    pub(super) mtp: bool,
    /// Layers with experts have an index of blocks of tokens.
    pub(super) index: Option<Index>,
}

/// An index of blocks of tokens.
#[derive(Debug, Clone, Copy)]
pub(super) struct Index {
    pub(super) heads: u32,
    pub(super) width: u32,
    /// Blocks that it chooses.
    pub(super) blocks: u32,
    /// Tokens in a block.
    pub(super) tokens: u32,
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
    /// Groups of experts, and how many of them a token uses.
    pub(super) groups: Option<(u32, u32)>,
    /// Multiplies the weights of experts.
    pub(super) scale: Option<f32>,
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
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Values {
    /// Of variance 1 / columns.
    Weights,
    /// Of variance 1: rows of the embedding table, which dominate the residual stream.
    Embedding,
    /// Of variance 1 / (columns × this number of residual branches): the last matrix of a branch. So all branches
    /// together add about as much to the residual stream as the embedding did.
    Branch(u32),
    /// Near 1.
    Norm,
    /// Near 1 / √(this number of residual branches): a norm of what a branch adds.
    BranchNorm(u32),
    /// Near 1 or −1: the last norm of a model whose output head is its embedding table, so that the most likely token
    /// is not the last one again.
    SignedNorm,
    /// Near −1: a state decays.
    Decay,
    /// Of variance popularity² / columns, by row ([`Popularity`]).
    Router(Popularity),
    /// Near 0: what is added to the router's scores.
    RouterBias,
}

/// How uneven the load of experts is: the factors of the router's rows. The larger an expert's factor, the more often
/// its logit is among the largest.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Popularity {
    /// The share of experts in the most popular group, and their factor.
    pub(super) hot: (f32, f32),
    /// Likewise the next group. The rest has the factor 1.
    pub(super) warm: (f32, f32),
}

impl Popularity {
    /// The load of a router that chooses `used` of `count` experts. Of 128 experts, 8 used: 90% of the choices in 60
    /// experts, 4% on the busiest, all used by 512 tokens. A router of more than 16 experts for each that is used
    /// has a nearly even load, because one that were as uneven would leave experts unused.
    pub(super) fn of(count: u32, used: u32) -> Popularity {
        match count > 16 * used {
            true => Popularity { hot: (0.015, 6.0), warm: (0.4, 1.2) },
            false => Popularity { hot: (0.1, 5.0), warm: (0.36, 1.6) },
        }
    }

    /// The factor of the expert with this rank, from 0, among `count`.
    pub(super) fn factor(&self, rank: u64, count: u64) -> f32 {
        let quantile = (rank as f32 + 0.5) / count as f32;
        match quantile {
            quantile if quantile < self.hot.0 => self.hot.1,
            quantile if quantile < self.hot.0 + self.warm.0 => self.warm.1,
            _ => 1.0,
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
        let heads = u32::from(self.special.mtp);
        file.set(&key("block_count"), self.layers + heads)?;
        if heads > 0 {
            file.set(&key("nextn_predict_layers"), heads)?;
        }
        file.set(&key("context_length"), self.context)?;
        file.set(&key("embedding_length"), self.hidden)?;
        if self.gates_mlps() {
            file.set(&key("feed_forward_length"), self.inner)?;
        }
        self.describe_mixers(file)?;
        let [keys, values] = self.row_widths();
        file.set(&key("attention.key_length"), keys)?;
        file.set(&key("attention.value_length"), values)?;
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
            if let Some((groups, used)) = experts.groups {
                file.set(&key("expert_group_count"), groups)?;
                file.set(&key("expert_group_used_count"), used)?;
            }
            if let Some(scale) = experts.scale {
                file.set(&key("expert_weights_scale"), scale)?;
            }
            let has_width =
                matches!(self.special.mixers, Mixers::Windowed(Windowed { shared_width: true, .. }) | Mixers::Scans(_));
            if experts.shared_gate || has_width {
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
        if let Some(multiplier) = self.special.yarn_log {
            file.set(&key("rope.scaling.yarn_log_multiplier"), multiplier)?;
        }
        if let Some(Index { heads, width, blocks, tokens }) = self.special.index {
            let values = [
                ("head_count", heads),
                ("key_length", width),
                ("top_k", blocks),
                ("block_size", tokens),
                ("local_blocks", 1),
            ];
            values
                .into_iter()
                .try_for_each(|(name, value)| file.set(&key(&format!("attention.indexer.{name}")), value).map(drop))?;
        }
        if let Some(layers) = self.special.deepstack {
            file.set(&key("n_deepstack_layers"), layers)?;
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
            values: self.values(&name),
            format: choice.format.unwrap_or_else(|| unquantised(mix, &name, &shape, Format::BF16)),
            name,
            shape,
        };
        Ok(shapes.into_iter().zip(choices).map(plan).collect())
    }

    /// The distribution of a tensor's values.
    fn values(&self, name: &str) -> Values {
        let weight = name.strip_suffix(".weight").unwrap_or(name);
        let part = weight.strip_prefix("blk.").and_then(|rest| rest.split_once('.')).map_or(weight, |(_, part)| part);
        // Two branches in each layer.
        let branches = 2 * self.layers;
        // Gemma normalises what a branch adds, and multiplies embeddings by √width.
        let is_gemma = matches!(self.special.mixers, Mixers::Gemma4(_));
        match part {
            "ffn_gate_inp" => {
                self.experts.map_or(Values::Weights, |it| Values::Router(Popularity::of(it.count, it.used)))
            }
            "exp_probs_b.bias" | "ffn_gate_inp.bias" => Values::RouterBias,
            "post_attention_norm" | "post_ffw_norm" | "post_norm" if is_gemma => Values::BranchNorm(branches),
            "token_embd" if !is_gemma => Values::Embedding,
            "attn_output" | "ssm_out" | "shortconv.out_proj" | "ffn_down" | "ffn_down_exps" | "ffn_down_shexp"
                if !is_gemma =>
            {
                Values::Branch(branches)
            }
            part if part == self.special.output_norm && self.tied => Values::SignedNorm,
            "ssm_a" => Values::Decay,
            "rope_freqs" => Values::Norm,
            part if part.ends_with("norm") => Values::Norm,
            // Norms with a number, factors of a router's input and of experts, and of whole layers.
            part if part.contains("_norm_") || part.ends_with("scale") => Values::Norm,
            _ => Values::Weights,
        }
    }

    /// Names and shapes in file order.
    fn shapes(&self) -> Vec<(String, Vec<u64>)> {
        let mut list = Vec::new();
        let hidden = u64::from(self.hidden);
        list.push(("token_embd.weight".to_owned(), vec![hidden, self.vocabulary.into()]));
        if let Mixers::Gemma4(gemma) = &self.special.mixers {
            self.gemma4_global_shapes(gemma, &mut |name, shape| list.push((name.to_owned(), shape.to_vec())));
        }
        for layer in 0..self.layers + u32::from(self.special.mtp) {
            let mut push = |name: &str, shape: &[u64]| list.push((format!("blk.{layer}.{name}"), shape.to_vec()));
            if let Mixers::Gemma4(gemma) = &self.special.mixers {
                self.gemma4_layer_shapes(gemma, layer, &mut push);
                continue;
            }
            if let Mixers::Scans(scans) = &self.special.mixers {
                self.scan_layer_shapes(scans, layer, &mut push);
                self.head_shapes(layer, &mut push);
                continue;
            }
            push("attn_norm.weight", &[hidden]);
            match (&self.special.mixers, self.latent(layer)) {
                (Mixers::Windowed(windowed), _) => self.windowed_shapes(windowed, layer, &mut push),
                (_, Some(latent)) => self.latent_shapes(latent, &mut push),
                _ if self.has_attention(layer) => self.attention_shapes(&mut push),
                _ => self.mixer_shapes(&mut push),
            }
            self.add(&mut push, self.special.mlp_norm, &[hidden]);
            self.mlp_shapes(layer, &mut push);
            self.head_shapes(layer, &mut push);
        }
        list.push((format!("{}.weight", self.special.output_norm), vec![hidden]));
        if !self.tied {
            list.push(("output.weight".to_owned(), vec![hidden, self.vocabulary.into()]));
        }
        list
    }

    /// What a prediction head, the layer after the last one, has besides a layer.
    fn head_shapes(&self, layer: u32, push: Push) {
        if layer == self.layers {
            let hidden = u64::from(self.hidden);
            push("nextn.eh_proj.weight", &[2 * hidden, hidden]);
            ["nextn.enorm.weight", "nextn.hnorm.weight", "nextn.shared_head_norm.weight"]
                .into_iter()
                .for_each(|norm| push(norm, &[hidden]));
        }
    }

    /// Whether MLPs and experts have gates.
    fn gates_mlps(&self) -> bool {
        if let Mixers::Scans(scans) = &self.special.mixers { scans.gates_mlps() } else { true }
    }

    /// Adds the experts of a layer, or its dense MLP.
    pub(super) fn mlp_shapes(&self, layer: u32, push: Push) {
        match self.experts.filter(|experts| layer >= experts.dense) {
            Some(experts) => {
                self.index_shapes(push);
                self.expert_shapes(experts, push);
            }
            None => {
                let [hidden, inner] = [self.hidden, self.inner].map(u64::from);
                self.add(push, "ffn_gate", &[hidden, inner]);
                self.add(push, "ffn_up", &[hidden, inner]);
                self.add(push, "ffn_down", &[inner, hidden]);
            }
        }
    }

    /// Adds a weight, and its bias where the model has one.
    fn add(&self, push: Push, name: &str, shape: &[u64]) {
        push(&format!("{name}.weight"), shape);
        let qkv = self.special.qkv_biases && ["attn_q", "attn_k", "attn_v"].contains(&name);
        if (self.special.biases || qkv) && shape.len() > 1 {
            push(&format!("{name}.bias"), &shape[1..]);
        }
    }

    pub(super) fn attention_shapes(&self, push: Push) {
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

    fn index_shapes(&self, push: Push) {
        let Some(Index { heads, width, .. }) = self.special.index else { return };
        let [hidden, heads, width] = [self.hidden, heads, width].map(u64::from);
        push("indexer.q_proj.weight", &[hidden, heads * width]);
        push("indexer.k_proj.weight", &[hidden, width]);
        push("indexer.q_norm.weight", &[width]);
        push("indexer.k_norm.weight", &[width]);
    }

    fn expert_shapes(&self, Experts { count, inner, shared, shared_gate, sigmoid, .. }: Experts, push: Push) {
        let [hidden, count, inner, shared] = [self.hidden, count, inner, shared].map(u64::from);
        self.add(push, "ffn_gate_inp", &[hidden, count]);
        if self.gates_mlps() {
            self.add(push, "ffn_gate_exps", &[hidden, inner, count]);
        }
        self.add(push, "ffn_up_exps", &[hidden, inner, count]);
        self.add(push, "ffn_down_exps", &[inner, hidden, count]);
        if shared_gate {
            self.add(push, "ffn_gate_inp_shexp", &[hidden]);
        }
        if shared > 0 {
            if self.gates_mlps() {
                self.add(push, "ffn_gate_shexp", &[hidden, shared]);
            }
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
