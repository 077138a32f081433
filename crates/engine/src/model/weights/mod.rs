//! A model's weights. Which tensors they are, of what shape and for what role, is the [`table`]; it is walked twice, by
//! [`survey`] to check the file before anything is loaded, and by [`load`].

mod load;
mod mixers;
mod outer_scale;
mod survey;
mod table;

use std::sync::Arc;

use gristmill_kernels::Backend;
use gristmill_kernels::ops::{Activation, RopeStyle, Rotary, Routing};
use gristmill_kernels::tensor::{Buffer, View};
use gristmill_kernels::weight::Weight;

use super::rope;
use super::spec::{LayerSpec, ModelSpec, RopeScaling};
use crate::error::Result;

pub(crate) use load::load;
pub(crate) use survey::{WeightShapes, survey};

/// All weights of a model; `M` is the type of a matrix, `V` of a vector.
#[derive(Debug)]
pub(crate) struct Weights<M = Weight, V = Buffer<f32>> {
    /// Embedding table, vocabulary × hidden.
    pub(crate) embedding: M,
    pub(crate) layers: Vec<LayerWeights<M, V>>,
    pub(crate) output_norm: NormWeights<V>,
    /// Output head, vocabulary × hidden; `None` if the embedding table serves.
    pub(crate) output: Option<M>,
    pub(crate) output_bias: Option<V>,
    pub(crate) layer_inputs: Option<LayerInputsWeights<M, V>>,
    /// `rope_freqs.weight`, if the model has it.
    rope_factors: Option<V>,
    /// LongRoPE's factors for short and for long contexts.
    long_rope_factors: Option<[V; 2]>,
}

#[derive(Debug)]
pub(crate) struct LayerWeights<M, V> {
    pub(crate) mixer: Block<MixerWeights<M, V>, V>,
    /// `None` for a layer that is a mixer alone.
    pub(crate) mlp: Option<Block<MlpWeights<M, V>, V>>,
    /// The block that reads the layer's own input.
    pub(crate) input: Option<LayerInputWeights<M, V>>,
    /// Multiplies the residual stream after the layer.
    pub(crate) output_scale: Option<f32>,
}

/// The weights that make the inputs of all layers; those of one layer lie after those of the layer before it.
#[derive(Debug)]
pub(crate) struct LayerInputsWeights<M, V> {
    /// A row for each token of the vocabulary.
    pub(crate) table: M,
    /// The matrix that the embedding is multiplied with.
    pub(crate) projection: M,
    /// The norm of the projection, divided by √2; one weight for each element of a layer's input.
    pub(crate) norm: V,
}

/// The weights of the block that reads a layer's own input.
#[derive(Debug)]
pub(crate) struct LayerInputWeights<M, V> {
    /// Input width × hidden.
    pub(crate) gate: M,
    /// Hidden × input width.
    pub(crate) projection: M,
    pub(crate) post_norm: NormWeights<V>,
}

/// The weights of a block and of the norms before and after it.
#[derive(Debug)]
pub(crate) struct Block<W, V> {
    pub(crate) input: BlockInput<V>,
    pub(crate) weights: W,
    pub(crate) post_norm: Option<NormWeights<V>>,
}

/// The rows that a block reads.
#[derive(Debug)]
pub(crate) enum BlockInput<V> {
    /// The residual stream, normalised.
    Norm(NormWeights<V>),
    /// The residual stream.
    Residual,
    /// The normalised rows that the layer's mixer has read.
    Mixer,
}

/// The weights of a mixer.
#[derive(Debug)]
pub(crate) enum MixerWeights<M, V> {
    Attention(AttentionWeights<M, V>),
    Delta(DeltaWeights<M, V>),
    Convolution(ConvolutionWeights<M, V>),
}

/// The weights of a delta rule.
#[derive(Debug)]
pub(crate) struct DeltaWeights<M, V> {
    /// Queries, keys and values, then the gate, β and α, side by side.
    pub(crate) input: M,
    /// Taps of each channel of queries, keys and values.
    pub(crate) convolution: V,
    /// For each value head.
    pub(crate) decay: V,
    pub(crate) dt_bias: V,
    /// For each element of a head.
    pub(crate) norm: V,
    pub(crate) output: M,
}

/// The weights of a short convolution.
#[derive(Debug)]
pub(crate) struct ConvolutionWeights<M, V> {
    /// The gate of the input, that of the output, and the input, side by side.
    pub(crate) input: M,
    /// Taps of each channel.
    pub(crate) convolution: V,
    pub(crate) output: M,
}

/// A norm of rows.
#[derive(Debug)]
pub(crate) enum NormWeights<V> {
    Rms { weight: V },
    Layer { weight: V, bias: V },
}

#[derive(Debug)]
pub(crate) struct AttentionWeights<M, V> {
    /// Queries, keys and values side by side; before them the output's gate, if there is one.
    pub(crate) qkv: M,
    pub(crate) qkv_bias: Option<V>,
    pub(crate) q_norm: Option<V>,
    /// There if `q_norm` is, but for a layer without keys of its own.
    pub(crate) k_norm: Option<V>,
    /// The norm of values: a one for each element of a head.
    pub(crate) value_norm: Option<V>,
    /// One logit for each head.
    pub(crate) sinks: Option<V>,
    pub(crate) output: M,
    pub(crate) output_bias: Option<V>,
}

/// The weights of an MLP, with its activation and routing.
#[derive(Debug)]
pub(crate) enum MlpWeights<M, V> {
    Dense { activation: Activation, gate_up: M, down: M },
    Moe(MoeWeights<M, V>),
}

/// A router and its experts.
#[derive(Debug)]
pub(crate) struct MoeWeights<M, V> {
    pub(crate) activation: Activation,
    pub(crate) routing: Routing,
    /// A row for each expert; behind them, with a gated expert that serves every token, the row of its gate.
    pub(crate) router: M,
    /// Added to the scores that choose experts (E).
    pub(crate) selection_bias: Option<V>,
    pub(crate) gate_up: M,
    pub(crate) down: M,
    pub(crate) biases: Option<MoeBiases<V>>,
    pub(crate) shared: Option<SharedWeights<M>>,
    /// The norm of the router's input, if it is not that of the block.
    pub(crate) router_norm: Option<BlockInput<V>>,
    /// Multiply the experts' weights (E).
    pub(crate) expert_scales: Option<V>,
    pub(crate) beside: Option<BesideWeights<M, V>>,
    /// See [`MlpSpec::Moe`](super::spec::MlpSpec::Moe).
    pub(crate) weighs_input: bool,
}

/// An MLP beside the experts, and the norms that keep both apart. The norm of the MLP's input is that of the block.
#[derive(Debug)]
pub(crate) struct BesideWeights<M, V> {
    pub(crate) gate_up: M,
    pub(crate) down: M,
    /// The norm of the experts' input.
    pub(crate) experts_norm: BlockInput<V>,
    /// Weights of the RMS norms of the experts' output and the MLP's, and of their sum, which is added to the residual
    /// stream: the block has no other post norm.
    pub(crate) post_norms: [V; 2],
    pub(crate) sum_norm: V,
}

/// Biases of the router (E) and of each expert's matrices (E × rows).
#[derive(Debug)]
pub(crate) struct MoeBiases<V> {
    pub(crate) router: V,
    pub(crate) gate: V,
    pub(crate) up: V,
    pub(crate) down: V,
}

/// The weights of an expert that serves every token.
#[derive(Debug)]
pub(crate) struct SharedWeights<M> {
    /// The sigmoid of the router's last logit multiplies the output.
    pub(crate) gated: bool,
    pub(crate) gate_up: M,
    pub(crate) down: M,
}

impl MoeWeights<Weight, Buffer<f32>> {
    /// The experts' logits among the router's outputs for `tokens` tokens, T × E.
    pub(crate) fn logits<'a>(&self, outputs: &'a Buffer<f32>, tokens: usize) -> Result<View<'a, f32>> {
        let (rows, gates) = (self.router.rows(), self.shared.as_ref().map_or(0, |shared| shared.gated.into()));
        Ok(outputs.view(tokens, rows)?.columns(0..rows - gates)?)
    }

    /// The logit among them of the gate of the expert that serves every token, T × 1.
    pub(crate) fn shared_gate<'a>(&self, outputs: &'a Buffer<f32>, tokens: usize) -> Result<View<'a, f32>> {
        let rows = self.router.rows();
        Ok(outputs.view(tokens, rows)?.columns(rows - 1..rows)?)
    }
}

impl Weights {
    /// RoPE of every layer for sequences of up to `context` tokens; layers with the same spec share one, and a layer
    /// that rotates nothing has no frequencies.
    pub(crate) fn rotaries(&self, spec: &ModelSpec, context: usize, backend: &Backend) -> Result<Vec<Arc<Rotary>>> {
        let mut ropes: Vec<Arc<Rotary>> = Vec::new();
        for (index, layer) in spec.layers.iter().enumerate() {
            let Some(wanted) = layer.rope() else {
                let frequencies = backend.alloc::<f32>(0, "RoPE frequencies")?;
                ropes.push(Arc::new(Rotary { style: RopeStyle::Halves, frequencies, magnitude: 1.0 }));
                continue;
            };
            let same = |layer: &LayerSpec| layer.rope() == Some(wanted);
            ropes.push(match spec.layers[..index].iter().position(same) {
                Some(known) => ropes[known].clone(),
                None => {
                    let factors = match (wanted.scaling, &self.long_rope_factors) {
                        (RopeScaling::Long { original_context, .. }, Some([short, long])) => {
                            Some(if context > original_context { long } else { short })
                        }
                        _ => self.rope_factors.as_ref().filter(|_| wanted.factors),
                    };
                    let mut divisors = vec![1.0; factors.map_or(0, Buffer::len)];
                    if let Some(buffer) = factors {
                        backend.download(buffer.view(1, buffer.len())?, &mut divisors)?;
                    }
                    let (frequencies, magnitude) = rope::frequencies(wanted, factors.and(Some(&divisors)));
                    let mut buffer = backend.alloc::<f32>(frequencies.len(), "RoPE frequencies")?;
                    backend.upload(&frequencies, &mut buffer)?;
                    Arc::new(Rotary { style: wanted.style, frequencies: buffer, magnitude })
                }
            });
        }
        Ok(ropes)
    }

    /// Bytes of prepared weights, without the mapped file.
    pub(crate) fn owned_bytes(&self) -> u64 {
        let layers = self.layers.iter().flat_map(|layer| {
            let mixer = match &layer.mixer.weights {
                MixerWeights::Attention(attention) => [&attention.qkv, &attention.output],
                MixerWeights::Delta(delta) => [&delta.input, &delta.output],
                MixerWeights::Convolution(convolution) => [&convolution.input, &convolution.output],
            };
            let mlp = match layer.mlp.as_ref().map(|block| &block.weights) {
                None => Vec::new(),
                Some(MlpWeights::Dense { gate_up, down, .. }) => vec![gate_up, down],
                Some(MlpWeights::Moe(MoeWeights { router, gate_up, down, shared, beside, .. })) => {
                    let shared = shared.iter().flat_map(|s| [&s.gate_up, &s.down]);
                    let beside = beside.iter().flat_map(|mlp| [&mlp.gate_up, &mlp.down]);
                    [router, gate_up, down].into_iter().chain(shared).chain(beside).collect()
                }
            };
            let input = layer.input.iter().flat_map(|input| [&input.gate, &input.projection]);
            mlp.into_iter().chain(mixer).chain(input)
        });
        let inputs = self.layer_inputs.iter().flat_map(|inputs| [&inputs.table, &inputs.projection]);
        layers
            .chain(inputs)
            .chain([&self.embedding])
            .chain(&self.output)
            .map(|weight| weight.owned_bytes() as u64)
            .sum()
    }
}
