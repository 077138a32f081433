//! MLPs: dense, experts and how they are chosen, experts that serve every token.

use gristmill_kernels::ops::{Activation, Gating, Routing};

use super::{MAX_EXPERTS, MAX_WIDTH, Reader};
use crate::error::{Error, Result};
use crate::model::spec::{MlpSpec, SharedExpert};

impl Reader<'_> {
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

    /// A dense MLP with this gated activation, if the file does not say.
    pub(in crate::model::arch) fn dense(&self, default: Activation) -> Result<MlpSpec> {
        let inner = self.count("feed_forward_length", MAX_WIDTH)?;
        Ok(MlpSpec::Dense { inner, activation: self.activation(default)? })
    }

    /// An expert that serves every token, behind a gate.
    pub(in crate::model::arch) fn gated_shared_expert(&self) -> Result<SharedExpert> {
        let inner = match self.optional_count("expert_shared_feed_forward_length", MAX_WIDTH)? {
            Some(inner) => inner,
            None => self.count("feed_forward_length", MAX_WIDTH)?,
        };
        Ok(SharedExpert { inner, gated: true })
    }

    /// An expert that serves every token, without a gate, if the file has its width.
    pub(in crate::model::arch) fn shared_expert(&self) -> Result<Option<SharedExpert>> {
        let inner = self.optional_count("expert_shared_feed_forward_length", MAX_WIDTH)?;
        Ok(inner.map(|inner| SharedExpert { inner, gated: false }))
    }

    /// Some experts that serve every token, each as wide as the others: together one of their summed widths.
    pub(in crate::model::arch) fn shared_experts(&self) -> Result<Option<SharedExpert>> {
        let width = self.count("expert_feed_forward_length", MAX_WIDTH)?;
        let count = self.optional_count("expert_shared_count", MAX_WIDTH / width)?;
        Ok(count.map(|count| SharedExpert { inner: count * width, gated: false }))
    }

    /// How the router's logits become weights, if the file does not say.
    pub(in crate::model::arch) fn gating(&self, default: Gating) -> Result<Gating> {
        // The numbers are those of GGUF; 2 is sigmoid.
        match self.source.optional::<u32>(&self.key("expert_gating_func"))? {
            None | Some(0) => Ok(default),
            Some(1) => Ok(Gating::Softmax),
            Some(3) => Ok(Gating::SoftmaxOfChosen),
            Some(other) => {
                let (key, found) = (self.key("expert_gating_func"), other.to_string());
                Err(Error::Unsupported { key, found, known: "1 (softmax), 3 (softmax of the chosen)" })
            }
        }
    }

    /// Experts chosen by softmax. `normalise`: the weights of the chosen are renormalised, if the file does not say.
    pub(in crate::model::arch) fn moe(&self, normalise: bool, shared: Option<SharedExpert>) -> Result<MlpSpec> {
        let experts = self.count("expert_count", MAX_EXPERTS)?;
        let rule = || format!("is more than the {experts} experts that the model has");
        let top_k = self.count_within("expert_used_count", experts, rule)?;
        // The latter is the width of a dense MLP, which a file may tell though no layer has one.
        let widths = ["expert_feed_forward_length", "feed_forward_length"];
        let [inner, dense] = widths.map(|suffix| self.optional_count(suffix, MAX_WIDTH));
        let inner = match inner?.or(dense?) {
            Some(inner) => inner,
            None => self.count("feed_forward_length", MAX_WIDTH)?,
        };
        let split = "blk.0.ffn_gate.0.weight";
        if self.tensor(split) {
            return Err(Error::SplitExperts(split.to_owned()));
        }
        Ok(MlpSpec::Moe {
            experts,
            inner,
            activation: self.activation(Activation::SwiGlu)?,
            routing: Routing {
                top_k,
                gating: self.gating(Gating::Softmax)?,
                normalise: self.source.optional(&self.key("expert_weights_norm"))?.unwrap_or(normalise),
                scale: self.number_or_zero("expert_weights_scale")?.unwrap_or(1.0),
                groups: 1,
                top_groups: 1,
            },
            bias: false,
            shared,
        })
    }
}
