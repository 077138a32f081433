//! MLPs: dense, routed experts and their router, shared experts.

use std::iter::repeat;

use gristmill_files::gguf::Value;
use gristmill_kernels::ops::{Activation, Gating, GroupWorth, Routing};

use super::keys::{KeyReader, MAX_EXPERTS, MAX_WIDTH};
use crate::error::{Error, Result};
use crate::spec::{AttentionSpec, LayerSpec, Mixer, MlpSpec, MoeSpec, SharedExpert};

impl KeyReader<'_> {
    fn activation(&self, default: Activation) -> Result<Activation> {
        match self.source.optional::<&str>(&self.key("hidden_activation"))? {
            None => Ok(default),
            Some("silu" | "swish" | "swiglu") => Ok(Activation::SwiGlu),
            Some("gelu_pytorch_tanh") => Ok(Activation::GeGlu),
            Some(other) => {
                let (key, found) = (self.key("hidden_activation"), other.to_owned());
                Err(Error::Unsupported { key, found, known: "silu, gelu_pytorch_tanh" })
            }
        }
    }

    /// SwiGLU of each layer and then of each MTP layer, with its limit if the file has one: a number for all layers, or an
    /// array. 0 means none; an array of the model's layers alone has none for MTP layers.
    pub(in crate::family) fn swiglu_of_each_layer(&self, suffix: &str) -> Result<Vec<Activation>> {
        let blocks = self.layers()? + self.prediction_layers()?;
        let limits = match self.source.file.metadata().value(&self.key(suffix)) {
            Some(Value::Array(_)) => {
                let all: &[f32] = self.source.required(&self.key(suffix))?;
                self.of_layers(suffix, all, "numbers")?;
                all.iter().copied().chain(repeat(0.0)).take(blocks).collect()
            }
            _ => vec![self.source.optional::<f32>(&self.key(suffix))?.unwrap_or(0.0); blocks],
        };
        if let Some(found) = limits.iter().find(|&&limit| !(limit.is_finite() && limit >= 0.0)) {
            return self.wrong(suffix, found, "must be finite and not negative");
        }
        let activation = |limit: f32| match limit > 0.0 {
            true => Activation::LimitedSwiGlu { limit },
            false => Activation::SwiGlu,
        };
        Ok(limits.into_iter().map(activation).collect())
    }

    /// A dense MLP; this gated activation is the default.
    pub(in crate::family) fn dense(&self, default: Activation) -> Result<MlpSpec> {
        let inner = self.count("feed_forward_length", MAX_WIDTH)?;
        Ok(MlpSpec::Dense { inner, activation: self.activation(default)? })
    }

    /// Dense MLPs per layer: the file has one width for all layers, or an array.
    pub(in crate::family) fn dense_of_each_layer(&self, default: Activation) -> Result<Vec<MlpSpec>> {
        let (suffix, activation) = ("feed_forward_length", self.activation(default)?);
        let widths = self.of_each_layer(suffix)?;
        if widths.contains(&0) {
            return self.wrong(suffix, 0, "must be at least 1 in every layer");
        }
        Ok(widths.into_iter().map(|inner| MlpSpec::Dense { inner, activation }).collect())
    }

    /// The width of each layer's MLP: one number for all layers, or an array, in which 0 is a layer without an MLP.
    pub(in crate::family) fn widths(&self) -> Result<Vec<usize>> {
        self.of_each_layer("feed_forward_length")
    }

    /// The experts of a layer, and its shared expert, all without a gate. They are routed by sigmoid with a selection bias.
    /// `width` is the layer's width of an MLP, from which older files have that of an expert.
    pub(in crate::family) fn ungated_moe(&self, layer: usize, width: usize) -> Result<MlpSpec> {
        let top_k = self.number_of_layer("expert_used_count", layer)?;
        let top_k = match top_k {
            Some(top_k) => top_k,
            None => self.count("expert_used_count", MAX_EXPERTS)?,
        };
        let inner = self.number_of_layer("expert_feed_forward_length", layer)?.unwrap_or(width / top_k.max(1));
        let activation = Activation::SquaredRelu;
        let shared = match self.optional_count("expert_shared_feed_forward_length", MAX_WIDTH)? {
            Some(shared) => Some(shared),
            None => Some(self.count_or_zero("expert_shared_count")?.saturating_mul(inner)).filter(|&shared| shared > 0),
        };
        self.source.optional::<u64>(&self.key("expert_shared_count"))?;
        let shared = shared.map(|inner| SharedExpert { inner, activation, gated: false });
        let latent = self.optional_count("moe_latent_size", MAX_WIDTH)?;
        let MlpSpec::Moe(mut moe) = self.moe_of([inner, top_k], true, shared)? else {
            return self.wrong("expert_count", 0, "must be at least 1");
        };
        moe.routing.gating = self.gating(Gating::Sigmoid)?;
        Ok(MlpSpec::Moe(MoeSpec { activation, selection_bias: true, latent, ..moe }))
    }

    /// A gated shared expert.
    pub(in crate::family) fn gated_shared_expert(&self) -> Result<SharedExpert> {
        let inner = match self.optional_count("expert_shared_feed_forward_length", MAX_WIDTH)? {
            Some(inner) => inner,
            None => self.count("feed_forward_length", MAX_WIDTH)?,
        };
        Ok(SharedExpert { inner, activation: self.activation(Activation::SwiGlu)?, gated: true })
    }

    /// The shared experts, without a gate, as one expert of their total width. The file has the total width, or the
    /// number of shared experts with the width of routed experts.
    pub(in crate::family) fn shared_experts(&self) -> Result<Option<SharedExpert>> {
        const WIDTH: &str = "expert_shared_feed_forward_length";
        let own = self.optional_count(WIDTH, MAX_WIDTH)?;
        let count = self.source.optional::<usize>(&self.key("expert_shared_count"))?;
        let inner = match (count, own) {
            (None, own) => own,
            (Some(0), None) => None,
            (Some(_), own) => {
                let width = self.expert_width()?;
                let count = self.optional_count("expert_shared_count", MAX_WIDTH / width)?.unwrap_or(0);
                if let Some(own) = own.filter(|&own| own != count * width) {
                    let (key, width) = (self.key("expert_shared_count"), width);
                    return self.wrong(
                        WIDTH,
                        own,
                        format!("is not `{key}`, {count}, times the width of an expert, {width}"),
                    );
                }
                Some(count * width)
            }
        };
        let activation = self.activation(Activation::SwiGlu)?;
        Ok(inner.map(|inner| SharedExpert { inner, activation, gated: false }))
    }

    /// Width of a routed expert.
    fn expert_width(&self) -> Result<usize> {
        // The second key is the dense MLP's width, which a file can have although no layer is dense.
        let widths = ["expert_feed_forward_length", "feed_forward_length"];
        let [inner, dense] = widths.map(|suffix| self.optional_count(suffix, MAX_WIDTH));
        match inner?.or(dense?) {
            Some(inner) => Ok(inner),
            None => self.count("feed_forward_length", MAX_WIDTH),
        }
    }

    /// Layers with the same attention. The file states the number of leading dense MLPs. Of the layers after them,
    /// every n-th has experts and the others are dense MLPs.
    pub(in crate::family) fn dense_first(
        &self,
        attention: AttentionSpec,
        dense: MlpSpec,
        moe: MlpSpec,
    ) -> Result<Vec<LayerSpec>> {
        let layer = |mlp| LayerSpec { mixer: Mixer::Attention(attention.clone()), mlp: Some(mlp) };
        Ok(self.dense_mlps_first(&dense, &moe)?.into_iter().map(layer).collect())
    }

    /// The MLPs of these layers.
    pub(in crate::family) fn dense_mlps_first(&self, dense: &MlpSpec, moe: &MlpSpec) -> Result<Vec<MlpSpec>> {
        let has_experts = self.has_experts()?;
        let mlp = |layer| if has_experts(layer) { moe.clone() } else { dense.clone() };
        Ok((0..self.layers()?).map(mlp).collect())
    }

    /// The MLPs of all layers: layers with a router have experts, the others are dense.
    pub(in crate::family) fn mlps_by_router(&self, dense: &MlpSpec, moe: &MlpSpec) -> Result<Vec<MlpSpec>> {
        let has_router = |layer: usize| self.tensor(&format!("blk.{layer}.ffn_gate_inp.weight"));
        let mlp = |layer| if has_router(layer) { moe.clone() } else { dense.clone() };
        Ok((0..self.layers()?).map(mlp).collect())
    }

    /// Whether a layer has experts.
    fn has_experts(&self) -> Result<impl Fn(usize) -> bool + use<>> {
        let (layers, suffix) = (self.layers()?, "leading_dense_block_count");
        let first = self.count_or_zero(suffix)?;
        if first > layers {
            return self.wrong(suffix, first, format!("is more than the {layers} layers that the model has"));
        }
        let step = self.optional_count("interleave_moe_layer_step", MAX_WIDTH)?.unwrap_or(1);
        Ok(move |layer: usize| layer >= first && (layer + 1).is_multiple_of(step))
    }

    /// Whether the first layer with experts has a selection bias.
    pub(in crate::family) fn has_selection_bias(&self) -> Result<bool> {
        let has_experts = self.has_experts()?;
        let first = (0..self.layers()?).find(|&layer| has_experts(layer));
        Ok(first.is_some_and(|layer| self.tensor(&format!("blk.{layer}.exp_probs_b.bias"))))
    }

    /// How router logits become weights, with a default.
    pub(in crate::family) fn gating(&self, default: Gating) -> Result<Gating> {
        // The values are those of GGUF.
        match self.source.optional::<u32>(&self.key("expert_gating_func"))? {
            None | Some(0) => Ok(default),
            Some(1) => Ok(Gating::Softmax),
            Some(2) => Ok(Gating::Sigmoid),
            Some(3) => Ok(Gating::SoftmaxOfChosen),
            Some(other) => {
                let (key, found) = (self.key("expert_gating_func"), other.to_string());
                Err(Error::Unsupported { key, found, known: "1 (softmax), 2 (sigmoid), 3 (softmax of the chosen)" })
            }
        }
    }

    /// [`Self::moe`] with sigmoid routing and a selection bias.
    pub(in crate::family) fn sigmoid_moe(&self, normalise: bool, shared: Option<SharedExpert>) -> Result<MlpSpec> {
        let mut mlp = self.moe(normalise, shared)?;
        if let MlpSpec::Moe(MoeSpec { routing, selection_bias, .. }) = &mut mlp {
            routing.gating = self.gating(Gating::Sigmoid)?;
            *selection_bias = true;
        }
        Ok(mlp)
    }

    /// One routed expert, whose sigmoid weight scales its input, and one shared expert of equal width.
    pub(in crate::family) fn input_weighed_moe(&self) -> Result<MlpSpec> {
        let (inner, activation) = (self.expert_width()?, self.activation(Activation::SwiGlu)?);
        let shared = SharedExpert { inner, activation, gated: false };
        let mut mlp = self.moe(false, Some(shared))?;
        if let MlpSpec::Moe(MoeSpec { routing, weighs_input, .. }) = &mut mlp {
            *weighs_input = true;
            routing.gating = self.gating(Gating::Sigmoid)?;
            let unsupported = |suffix, found: String, known| {
                let key = self.key(suffix);
                Err(Error::Unsupported { key, found, known })
            };
            if routing.top_k != 1 {
                return unsupported(
                    "expert_used_count",
                    routing.top_k.to_string(),
                    "1, whose weight multiplies its input",
                );
            }
            if routing.gating != Gating::Sigmoid {
                return unsupported("expert_gating_func", format!("{:?}", routing.gating), "2 (sigmoid)");
            }
            if routing.normalise {
                return unsupported("expert_weights_norm", "true".to_owned(), "false");
            }
        }
        Ok(mlp)
    }

    /// Experts with GeGLU in parallel with an MLP. Weights are softmax times a factor per expert.
    pub(in crate::family) fn moe_beside_mlp(&self) -> Result<MlpSpec> {
        let mut mlp = self.moe(true, None)?;
        if let MlpSpec::Moe(MoeSpec { activation, router_norm, expert_scales, beside, .. }) = &mut mlp {
            *activation = self.activation(Activation::GeGlu)?;
            (*router_norm, *expert_scales) = (true, true);
            *beside = Some(self.count("feed_forward_length", MAX_WIDTH)?);
        }
        Ok(mlp)
    }

    /// The number of expert groups, and of the groups that take part.
    fn expert_groups(&self, experts: usize, top_k: usize) -> Result<(usize, usize)> {
        const GROUPS: &str = "expert_group_count";
        let groups = self.optional_count(GROUPS, MAX_EXPERTS)?.unwrap_or(1);
        if !experts.is_multiple_of(groups) {
            return self.wrong(GROUPS, groups, format!("does not divide the {experts} experts"));
        }
        let used = "expert_group_used_count";
        let top_groups = self.optional_count(used, MAX_EXPERTS)?.unwrap_or(groups);
        if top_groups > groups {
            return self.wrong(used, top_groups, format!("is more than the {groups} groups that the experts have"));
        }
        let within = top_groups * (experts / groups);
        if within < top_k {
            let rule = format!("groups have {within} experts, but {top_k} are chosen");
            return self.wrong(used, top_groups, rule);
        }
        Ok((groups, top_groups))
    }

    /// Experts routed by softmax. `normalise`: default for renormalising the weights of the chosen experts.
    pub(in crate::family) fn moe(&self, normalise: bool, shared: Option<SharedExpert>) -> Result<MlpSpec> {
        let top_k = self.count("expert_used_count", MAX_EXPERTS)?;
        self.moe_of([self.expert_width()?, top_k], normalise, shared)
    }

    /// [`Self::moe`] with this width of an expert, and this number of experts for each token.
    fn moe_of(&self, [inner, top_k]: [usize; 2], normalise: bool, shared: Option<SharedExpert>) -> Result<MlpSpec> {
        let experts = self.count("expert_count", MAX_EXPERTS)?;
        if top_k > experts {
            let rule = format!("is more than the {experts} experts that the model has");
            return self.wrong("expert_used_count", top_k, rule);
        }
        let (groups, top_groups) = self.expert_groups(experts, top_k)?;
        if let Some(split) = self.source.file.tensors().iter().find(|it| it.name.ends_with(".ffn_gate.0.weight")) {
            return Err(Error::SplitExperts(split.name.clone()));
        }
        Ok(MlpSpec::Moe(MoeSpec {
            experts,
            inner,
            activation: self.activation(Activation::SwiGlu)?,
            routing: Routing {
                top_k,
                gating: self.gating(Gating::Softmax)?,
                normalise: self.source.optional(&self.key("expert_weights_norm"))?.unwrap_or(normalise),
                scale: self.number_or_zero("expert_weights_scale")?.unwrap_or(1.0),
                groups,
                top_groups,
                worth: GroupWorth::TwoHighest,
            },
            selection_bias: false,
            bias: false,
            shared,
            router_norm: false,
            expert_scales: false,
            weighs_input: false,
            beside: None,
            latent: None,
        }))
    }
}
