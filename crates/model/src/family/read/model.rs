//! A model of given layers, with what all architectures have in common.

use super::keys::KeyReader;
use crate::error::{Error, Result};
use crate::spec::{AttentionSpec, BlockInputs, HeadInputs, LayerSpec, Mixer, MlpSpec, ModelSpec, NormKind, Pooling};

impl KeyReader<'_> {
    /// A model with equal layers.
    pub(in crate::family) fn uniform(&self, attention: AttentionSpec, mlp: MlpSpec) -> Result<ModelSpec> {
        self.model(vec![LayerSpec { mixer: Mixer::Attention(attention), mlp: Some(mlp) }; self.layers()?])
    }

    pub(in crate::family) fn model(&self, layers: Vec<LayerSpec>) -> Result<ModelSpec> {
        self.model_with_epsilon("attention.layer_norm_rms_epsilon", layers)
    }

    /// A model whose norm epsilon has this key.
    pub(in crate::family) fn model_with_epsilon(&self, suffix: &str, layers: Vec<LayerSpec>) -> Result<ModelSpec> {
        let eps = self.source.required::<f32>(&self.key(suffix))?;
        if !(eps.is_finite() && eps >= 0.0) {
            return self.wrong(suffix, eps, "must be finite and not negative");
        }
        self.insist("attention.causal", "true (a token sees those before it)")?;
        let hidden = self.hidden()?;
        let prediction_layers = self.check_prediction_layers(layers.len(), hidden)?;
        let heads = match self.source.with_heads {
            true => {
                let blocks = layers.len()..layers.len() + prediction_layers;
                blocks.map(|block| self.head_layer(&layers, block)).collect::<Result<_>>()?
            }
            false => Vec::new(),
        };
        Ok(ModelSpec {
            architecture: self.arch.to_owned(),
            name: self.source.optional::<&str>("general.name")?.map(str::to_owned),
            vocab: self.vocab(hidden)?,
            hidden,
            context_length: self.context_length()?,
            unindexed_context: None,
            norm: NormKind::Rms,
            head_norm: NormKind::Rms,
            norm_eps: eps,
            inputs: BlockInputs::Normed,
            mlp_norm: "ffn_norm",
            output_norm: "output_norm",
            post_norms: false,
            post_norm_eps: None,
            embedding_norm: false,
            embedding_scale: 1.0,
            residual_scale: 1.0,
            logit_scale: 1.0,
            layer_scales: false,
            layer_inputs: None,
            logit_cap: None,
            tied_embeddings: !self.tensor("output.weight"),
            output_bias: self.tensor("output.bias"),
            pooling: self.pooling()?,
            picture_layers: 0,
            layers,
            prediction_layers,
            heads,
            head_inputs: HeadInputs::default(),
        })
    }

    /// The pooling of hidden states; the default is the last token.
    fn pooling(&self) -> Result<Option<Pooling>> {
        match self.source.optional::<u32>(&self.key("pooling_type"))? {
            None | Some(3) => Ok(Some(Pooling::Last)),
            Some(1) => Ok(Some(Pooling::Mean)),
            Some(2) => Ok(Some(Pooling::First)),
            // No pooling, and reranker scores.
            Some(0 | 4) => Ok(None),
            Some(found) => {
                self.wrong("pooling_type", found, "must be 0 (none), 1 (mean), 2 (CLS), 3 (last) or 4 (rank)")
            }
        }
    }

    /// The vocabulary has the size of the embedding table; a key with another size is an error.
    fn vocab(&self, hidden: usize) -> Result<usize> {
        let name = "token_embd.weight";
        let rows = |shape: &[u64]| match *shape {
            [_, rows] => i32::try_from(rows).ok().and_then(|n| usize::try_from(n).ok()),
            _ => None,
        };
        let key = self.source.optional::<usize>(&self.key("vocab_size"))?;
        let expected = || vec![hidden as u64, key.unwrap_or(0) as u64];
        let Some(tensor) = self.source.file.tensor(name) else {
            return Err(Error::MissingTensor { name: name.to_owned(), shape: expected() });
        };
        match rows(&tensor.shape) {
            Some(rows) if key.is_none_or(|n| n == rows) => Ok(rows),
            _ => Err(Error::TensorShape {
                name: name.to_owned(),
                offset: tensor.offset,
                found: tensor.shape.clone(),
                expected: expected(),
            }),
        }
    }
}
