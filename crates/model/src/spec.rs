//! The parts of a model, as data: `family` reads it from a file, and `program` computes with it.

use std::slice;

use gristmill_kernels::kv::{KvFormat, KvSpec};
use gristmill_kernels::ops::{
    Activation, DecayKind, DeltaHeads, GateKind, RopeStyle, Routing, ScanHeads, Temperature, Window,
};

/// The tensor of a file that has only two rows of the head.
pub(crate) const CLASSIFIER: &str = "cls.output.weight";

/// A decoder-only transformer. With x the residual stream, a layer is
///
/// ```text
/// x += residual_scale · post_norm(mixer(norm(x)))
/// x += residual_scale · post_norm(mlp(norm(x)))
/// ```
///
/// unless [`inputs`](Self::inputs) says otherwise.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ModelSpec {
    /// `general.architecture`.
    pub architecture: String,
    /// `general.name`.
    pub name: Option<String>,
    /// Rows of the embedding table.
    pub vocab: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Positions that the model was trained on.
    pub context_length: usize,
    /// The longest context in which the model attends to all tokens. In longer ones an index chooses blocks of tokens,
    /// which is not implemented; such a context is refused.
    pub unindexed_context: Option<usize>,
    /// The kind of all norms of rows.
    pub norm: NormKind,
    /// Added to the mean square (or the variance) in every norm.
    pub norm_eps: f32,
    /// The input of a layer's blocks.
    pub inputs: BlockInputs,
    /// `blk.N.{mlp_norm}` names the norm before an MLP.
    pub mlp_norm: &'static str,
    /// The name of the norm after the last layer.
    pub output_norm: &'static str,
    /// The output of a block is normalised before it is added to the residual stream.
    pub post_norms: bool,
    /// Added to the mean square in these norms, if it is not [`norm_eps`](Self::norm_eps).
    pub post_norm_eps: Option<f32>,
    /// The embeddings are divided by the root of their mean square.
    pub embedding_norm: bool,
    /// Multiplies the embeddings.
    pub embedding_scale: f32,
    /// Multiplies the output of a block before it is added to the residual stream.
    pub residual_scale: f32,
    /// Multiplies the logits.
    pub logit_scale: f32,
    /// After each layer the residual stream is multiplied by a number of that layer.
    pub layer_scales: bool,
    /// The width of the input that each layer has of its own. With t the token, x₀ the scaled embedding and l the layer
    /// it is inputₗ = (√width · tableₗ(t) + norm(projectionₗ · x₀ / √hidden)) / √2, and after the MLP
    ///
    /// ```text
    /// x += norm(projection(gelu(gate · x) · inputₗ))
    /// ```
    pub layer_inputs: Option<usize>,
    /// Logits, after their scale, become cap · tanh(logit / cap).
    pub logit_cap: Option<f32>,
    /// The output head is the embedding table.
    pub tied_embeddings: bool,
    /// The output head has a bias.
    pub output_bias: bool,
    /// The pooling of hidden states; `None` if the file turns it off.
    pub pooling: Option<Pooling>,
    /// The first layers, to whose output a tower adds rows of pictures.
    pub picture_layers: usize,
    /// The layers, first to last.
    pub layers: Vec<LayerSpec>,
    /// Layers of the file after `layers` that predict further tokens (multi-token prediction, MTP).
    pub prediction_layers: usize,
    /// The layers of the prediction heads to load: `blk.N` with N the number of `layers`, and those after it. With y the
    /// hidden state of a position and t the next token, the input of the head's layer is
    ///
    /// ```text
    /// eh_proj [norm(embedding(t)) | norm(y)]
    /// ```
    ///
    /// and the logits of the token after t are the output matrix · norm(output of the layer). `head_inputs` defines y, also
    /// of the further heads.
    pub heads: Vec<LayerSpec>,
    /// What the prediction heads read of the tokens before.
    pub head_inputs: HeadInputs,
    /// The kind of the last norm of prediction heads.
    pub head_norm: NormKind,
}

/// The hidden states y that prediction heads read ([`ModelSpec::heads`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeadInputs {
    /// y is the output of the last norm: of the model's, and of that of a head. Otherwise y is the residual stream before
    /// that norm.
    pub normed: bool,
    /// A head after the first reads y of the head before it, and drafts after the last head read y of the last head.
    /// Otherwise each head reads y of the model, each one token further back than the head before it, and there are at
    /// most as many drafts as heads.
    pub chained: bool,
}

impl Default for HeadInputs {
    fn default() -> Self {
        Self { normed: true, chained: true }
    }
}

impl ModelSpec {
    /// All layers to load: those of the model, then those of its prediction heads.
    pub fn all_layers(&self) -> impl Iterator<Item = &LayerSpec> {
        self.layers.iter().chain(&self.heads)
    }

    /// Whether the tokens of an image see each other in some layer, so that one step must have all of them.
    pub fn has_whole_images(&self) -> bool {
        self.layers.iter().any(|layer| layer.attention().is_some_and(|attention| attention.both_ways))
    }

    /// Whether a tensor is not loaded: those of prediction heads that are not loaded, keys and values of a layer that reads
    /// the cache of another, those of an index that no context needs, and the head of a reranker.
    pub fn leaves_out(&self, tensor: &str) -> bool {
        let part = |tensor: &'_ str| {
            let (layer, part) = tensor.strip_prefix("blk.")?.split_once('.')?;
            Some((layer.parse::<usize>().ok()?, part.to_owned()))
        };
        // A reranker has no pooling, and reads the head on the host.
        let Some((layer, part)) = part(tensor) else { return self.pooling.is_none() && tensor == CLASSIFIER };
        match self.layers.get(layer) {
            None => (self.heads.len()..self.prediction_layers).contains(&(layer - self.layers.len())),
            Some(_) if self.unindexed_context.is_some() && part.starts_with("indexer.") => true,
            Some(spec) => {
                let shares = spec.attention().is_some_and(|attention| attention.kv_from.is_some());
                shares && ["attn_k.", "attn_v.", "attn_k_norm."].iter().any(|start| part.starts_with(start))
            }
        }
    }
}

impl ModelSpec {
    /// The router of each layer.
    pub fn routers(&self) -> Vec<RouterSize> {
        let size = |mlp: Option<&MlpSpec>| match mlp {
            Some(MlpSpec::Moe(MoeSpec { experts, routing, .. })) => {
                RouterSize { experts: *experts, top_k: routing.top_k }
            }
            Some(MlpSpec::Dense { .. }) | None => RouterSize::default(),
        };
        self.layers.iter().map(|layer| size(layer.mlp.as_ref())).collect()
    }
}

/// The numbers of a layer's router; both are 0 for a layer without experts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RouterSize {
    /// Experts to choose from.
    pub experts: usize,
    /// Experts that each token gets.
    pub top_k: usize,
}

/// How the hidden states of a text's tokens become one vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Pooling {
    /// Their mean.
    Mean,
    /// That of the first token.
    First,
    /// That of the last token, which has seen all others.
    Last,
}

/// The kinds of norms of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NormKind {
    /// Divides by the root of the mean square; has a weight.
    Rms,
    /// Takes off the mean and divides by the standard deviation; has a weight and a bias.
    Layer,
    /// The same without a bias.
    LayerUnbiased,
}

/// The input of a layer's blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BlockInputs {
    /// Each block reads the residual stream through a norm of its own.
    Normed,
    /// Each block reads the residual stream as it is.
    Residual,
    /// The mixer and the MLP of a layer read the same: the residual stream before the layer, through one norm.
    Shared,
}

/// One layer: a mixer, then an MLP. A layer can also be one of them; an MLP without a mixer reads the residual stream through
/// the norm of a mixer.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct LayerSpec {
    /// The block in which a token sees those before it.
    pub mixer: Mixer,
    /// The position-wise block; `None` for a layer that has only a mixer. With an MLP next to the experts, and x the
    /// residual stream, it is
    ///
    /// ```text
    /// post_norm_1(mlp(norm(x))) + post_norm_2(experts(norm_2(x)))
    /// ```
    pub mlp: Option<MlpSpec>,
}

/// A block in which a token sees those before it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Mixer {
    /// Attention to keys and values of all tokens, or of those in a window.
    Attention(AttentionSpec),
    /// The gated delta rule: a state of fixed size takes each token.
    Delta(DeltaSpec),
    /// A short convolution between two gates.
    Convolution(ConvolutionSpec),
    /// Attention to a latent row of each token, from which all heads make their keys and values.
    Latent(LatentSpec),
    /// A selective state space: a state of fixed size takes each token.
    Scan(ScanSpec),
    /// The sum of these mixers, which read the same input. They differ in kind. None for a layer that has only an MLP.
    Sum(Vec<Mixer>),
}

/// A selective state space (Mamba-2), with a convolution before and a gated norm after it. With x the normalised residual
/// stream
///
/// ```text
/// (z | v | Δ) = W_in x
/// output(norm(scan(silu(convolution(v)), Δ) · silu(z)))
/// ```
///
/// In Mamba-1 ([`ScanSpec::rank`]), B, C and Δ are products of the convolution's output:
///
/// ```text
/// (v | z) = W_in x,  y = silu(convolution(v)),  (δ | B | C) = W_x y,  Δ = W_Δ norm(δ)
/// output(scan(y | norm(B) | norm(C), Δ) · silu(z))
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScanSpec {
    /// The heads of values.
    pub heads: ScanHeads,
    /// Taps of the convolution.
    pub taps: usize,
    /// The convolution has a bias.
    pub bias: bool,
    /// There is a norm, over the values of each group.
    pub norm: bool,
    /// Elements of δ in Mamba-1, where each channel is a head; `None` for Mamba-2.
    pub rank: Option<usize>,
}

impl ScanSpec {
    /// Columns of the convolution.
    pub fn convolved(&self) -> usize {
        match self.rank {
            None => self.heads.columns(),
            Some(_) => self.heads.values(),
        }
    }
}

/// The gated delta rule, with a convolution before and a gated norm after it. With x the normalised residual stream
///
/// ```text
/// qkv = silu(convolution(W_qkv x))
/// output(gated_norm(delta_rule(qkv, W_β x, W_α x), W_z x))
/// ```
///
/// If each element of a key has a gate (KDA, [`ChannelGates`]), it is
///
/// ```text
/// output(norm(delta_rule(qkv, W_β x, W_α x)) · sigmoid(W_z x))
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct DeltaSpec {
    /// The heads of queries, keys and values.
    pub heads: DeltaHeads,
    /// Taps of the convolution.
    pub taps: usize,
    /// How the file has the projections.
    pub projections: DeltaProjections,
}

/// Which tensors are the projections of [`DeltaSpec`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum DeltaProjections {
    /// Queries, keys and values, the gate, β and α: four tensors.
    Apart,
    /// The tensors of `Apart`, but β and α are one tensor: for each key head the rows of its value heads' β, then of
    /// their α.
    GatesJoined,
    /// Two tensors: β and α as in `GatesJoined`; for each key head the rows of its query, key, values and gates.
    Joined,
    /// Queries, keys and values are three tensors or one, and have a convolution each. α has an element for each element
    /// of the keys. There are as many heads of keys as of values.
    PerChannel(ChannelGates),
}

/// The gates of a delta rule in which each element of a key has one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChannelGates {
    /// How α becomes the decay of the state.
    pub decay: DecayKind,
    /// The file has the negative of the decay of [`DeltaRule`](gristmill_kernels::ops::DeltaRule).
    pub is_negated: bool,
    /// W_α and W_z are products of two matrices each, with so many elements between them; `None` for one matrix.
    pub rank: Option<usize>,
}

/// A short convolution: with (b, c, x) = input · row, the output is output(c · convolution(b · x)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConvolutionSpec {
    /// Taps of the convolution.
    pub taps: usize,
}

/// A buffer of a sequence's state in a layer whose state has a fixed size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateBuffer {
    /// The buffer; a layer has each name once.
    pub name: StateName,
    /// f32 elements of a sequence.
    pub elements: usize,
}

/// The buffers of states of fixed size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StateName {
    /// The last inputs of a convolution.
    Convolution,
    /// The matrices of a delta rule.
    Delta,
    /// The matrices of a selective scan.
    Scan,
    /// The hidden state of the last token, which a prediction head reads.
    Hidden,
}

impl StateName {
    /// Multiplications with each element for one token.
    pub fn products(self) -> usize {
        match self {
            StateName::Convolution => 1,
            // The matrix is read twice and written once.
            StateName::Delta | StateName::Scan => 3,
            StateName::Hidden => 0,
        }
    }
}

impl Mixer {
    /// The mixers whose outputs are added.
    pub fn parts(&self) -> &[Mixer] {
        match self {
            Mixer::Sum(parts) => parts,
            mixer => slice::from_ref(mixer),
        }
    }

    /// Whether the layer writes a row for each token, and reads the rows of earlier tokens.
    pub fn has_own_cache(&self) -> bool {
        match self {
            Mixer::Attention(spec) => spec.kv_from.is_none(),
            Mixer::Latent(_) => true,
            Mixer::Delta(_) | Mixer::Convolution(_) | Mixer::Scan(_) => false,
            Mixer::Sum(parts) => parts.iter().any(Mixer::has_own_cache),
        }
    }

    /// The state of a layer, if it has a fixed size, else none; `hidden` is the width of the residual stream.
    pub fn fixed_state(&self, hidden: usize) -> Vec<StateBuffer> {
        let convolution =
            |taps: usize, columns: usize| StateBuffer { name: StateName::Convolution, elements: (taps - 1) * columns };
        match self {
            Mixer::Attention(_) | Mixer::Latent(_) => Vec::new(),
            Mixer::Delta(DeltaSpec { heads, taps, .. }) => {
                let delta = StateBuffer { name: StateName::Delta, elements: heads.state() };
                vec![convolution(*taps, heads.columns()), delta]
            }
            Mixer::Convolution(ConvolutionSpec { taps }) => vec![convolution(*taps, hidden)],
            Mixer::Scan(spec) => {
                let scan = StateBuffer { name: StateName::Scan, elements: spec.heads.elements() };
                vec![convolution(spec.taps, spec.convolved()), scan]
            }
            Mixer::Sum(parts) => parts.iter().flat_map(|part| part.fixed_state(hidden)).collect(),
        }
    }
}

/// Causal attention with grouped queries (GQA).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct AttentionSpec {
    /// Query heads, a multiple of `kv_heads`.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Elements of a query or key.
    pub key_width: usize,
    /// Elements of a value.
    pub value_width: usize,
    /// Multiplies q · k.
    pub scale: f32,
    /// Then q · k becomes cap · tanh(q · k / cap).
    pub cap: Option<f32>,
    /// A factor of queries that grows with their position.
    pub temperature: Option<Temperature>,
    /// The positions that a token sees; `None` for all up to its own.
    pub window: Option<Window>,
    /// Tokens of an image also see the later tokens of that image, if there is a vision tower.
    pub both_ways: bool,
    /// Each head has a logit that takes part in the softmax and has no value.
    pub sinks: bool,
    /// Norm of queries and keys.
    pub qk_norm: Option<QkNorm>,
    /// That norm follows the rotation instead of preceding it.
    pub norm_after_rope: bool,
    /// Each head's value is divided by the root of its mean square. Queries and keys have a norm too.
    pub value_norm: bool,
    /// The projection of keys, before their norm and rotation, gives the values too.
    pub values_are_keys: bool,
    /// Q, K and V have biases.
    pub qkv_bias: bool,
    /// The output projection has a bias.
    pub output_bias: bool,
    /// Multiplies the values, and so the output.
    pub value_scale: f32,
    /// The output is multiplied by a gate.
    pub gate: Option<OutputGate>,
    /// The layer before, whose keys and values are read; this one has none of its own.
    pub kv_from: Option<usize>,
    /// The rotary position embedding; `None` for queries and keys that are not rotated.
    pub rope: Option<RopeSpec>,
    /// In the tensors of queries and keys, the rows of a head's two halves alternate. They are loaded half by half.
    pub halves_alternate: bool,
}

/// Multi-head latent attention (MLA, <https://arxiv.org/abs/2405.04434>). With x the normalised residual stream, of which
/// a token keeps the row (l | p), and h a head
///
/// ```text
/// (a | p) = W_kva x,  l = norm(a),  p = rope(p)
/// (q | r) = W_q x, or W_qb norm(W_qa x),  r = rope(r)
/// logit = scale · (W_kb[h]ᵀ q · l + r · p)
/// output(W_vb[h] Σ weight · l), or output(W_vb[h] Σ weight · l · sigmoid((W_g x)[h]))
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct LatentSpec {
    /// Query heads.
    pub heads: usize,
    /// Elements between the two projections of queries; `None` for one projection.
    pub query_rank: Option<usize>,
    /// Elements of the latent row without the rotated ones: l.
    pub latent: usize,
    /// Elements of a query that are not rotated: q.
    pub plain: usize,
    /// Elements of a query, and of the latent row, that are rotated: r and p.
    pub rotated: usize,
    /// Elements of a head's value.
    pub value_width: usize,
    /// Multiplies the logits.
    pub scale: f32,
    /// Each head's output is multiplied by the sigmoid of a logit of the token.
    pub is_gated: bool,
    /// A factor of queries that grows with their position.
    pub temperature: Option<Temperature>,
    /// The rotary position embedding of the rotated elements.
    pub rope: Option<RopeSpec>,
}

impl LatentSpec {
    /// Elements of a query.
    pub fn query_width(&self) -> usize {
        self.plain + self.rotated
    }

    /// Elements of the row that the cache has for a token.
    pub fn row(&self) -> usize {
        self.latent + self.rotated
    }
}

/// A gate of attention's output: a function of a product with the input of attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OutputGate {
    /// Which rows are the gate.
    pub rows: GateRows,
    /// The function.
    pub kind: GateKind,
    /// There is a number for each head, not for each element of the output.
    pub per_head: bool,
}

/// Which rows are the gate of attention's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GateRows {
    /// In the tensor of queries, each head's after those of its query.
    WithQueries,
    /// A tensor of its own.
    Apart,
}

/// The elements over which queries and keys are normalised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum QkNorm {
    /// Each head by itself, all with the same weight.
    PerHead,
    /// The same without a weight.
    PerHeadUnweighted,
    /// All heads of a token together.
    WholeRow,
}

/// Rotary position embedding (RoPE).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RopeSpec {
    /// How pairs are in a head.
    pub style: RopeStyle,
    /// Pair `i` turns by `base^(−2·i / width)` per position.
    pub base: f32,
    /// Elements of a head that are rotated, even.
    pub width: usize,
    /// How the frequencies are scaled for a longer context.
    pub scaling: RopeScaling,
    /// The tensor `rope_freqs.weight` divides the frequencies (Llama 3's scaling, computed by the converter).
    pub factors: bool,
    /// The pairs of three positions, which are equal for text; `None` if a token has one position.
    pub axes: Option<RopeAxes>,
}

/// Multimodal RoPE: which pairs use the position in time, in rows and in columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RopeAxes {
    /// Pairs of each axis.
    pub sections: [usize; 3],
    /// Pairs of the axes take turns. Otherwise those of an axis are adjacent.
    pub is_interleaved: bool,
}

impl RopeAxes {
    /// The axis of a pair.
    pub(crate) fn of_pair(&self, pair: usize) -> usize {
        let [time, rows, columns] = self.sections;
        match (self.is_interleaved, pair % 3) {
            (true, 1) if pair < 3 * rows => 1,
            (true, 2) if pair < 3 * columns => 2,
            (true, _) => 0,
            (false, _) => usize::from(pair >= time) + usize::from(pair >= time.saturating_add(rows)),
        }
    }
}

/// How RoPE's frequencies are scaled for a longer context.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum RopeScaling {
    /// Not at all.
    None,
    /// All frequencies divided by a factor.
    Linear {
        /// The factor.
        factor: f32,
    },
    /// YaRN (<https://arxiv.org/abs/2309.00071>): low frequencies divided, high ones kept, a ramp between.
    Yarn {
        /// The factor.
        factor: f32,
        /// The context before scaling.
        original_context: usize,
        /// Pairs that turn more often than this over the original context are kept.
        beta_fast: f32,
        /// Pairs that turn less often than this are divided by the factor.
        beta_slow: f32,
        /// The ramp starts and ends at whole pairs.
        truncate: bool,
        /// Multiplies YaRN's magnitude `0.1 · ln(factor) + 1`.
        attention_factor: f32,
    },
    /// LongRoPE (<https://arxiv.org/abs/2402.13753>): each frequency divided by a factor of its own, from the tensor
    /// `rope_factors_long.weight` if the context is longer than the original one, else `rope_factors_short.weight`.
    Long {
        /// The context before scaling.
        original_context: usize,
        /// Multiplies sine and cosine.
        magnitude: f32,
    },
}

/// A gated MLP.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum MlpSpec {
    /// One for all tokens.
    Dense {
        /// Width of the gate.
        inner: usize,
        /// The gated activation.
        activation: Activation,
    },
    /// Mixture of experts.
    Moe(MoeSpec),
}

/// Mixture of experts: a router chooses a few for each token.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct MoeSpec {
    /// Experts.
    pub experts: usize,
    /// Width of one expert's gate.
    pub inner: usize,
    /// The gated activation.
    pub activation: Activation,
    /// How the router makes weights of its logits.
    pub routing: Routing,
    /// Each expert has a bias that is added to its score for the choice, and not to its weight.
    pub selection_bias: bool,
    /// Router and experts have biases.
    pub bias: bool,
    /// The expert that serves every token.
    pub shared: Option<SharedExpert>,
    /// The router reads the residual stream through a norm of its own, whose weight is divided by √hidden.
    pub router_norm: bool,
    /// Each expert has a number that multiplies its weight.
    pub expert_scales: bool,
    /// The weight multiplies the expert's input instead of its output; one expert is chosen.
    pub weighs_input: bool,
    /// Width of an MLP that reads and writes what the experts do: see [`LayerSpec::mlp`].
    pub beside: Option<usize>,
    /// The experts read and write rows of this width: one projection makes theirs of the input, another the output of their
    /// sum. The router and the shared expert read the input itself.
    pub latent: Option<usize>,
}

/// An expert that serves every token. It has no biases.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SharedExpert {
    /// Width of its gate.
    pub inner: usize,
    /// The gated activation.
    pub activation: Activation,
    /// The output is multiplied by the sigmoid of a logit of the token.
    pub gated: bool,
}

impl MlpSpec {
    /// The MLP with these activations: of routed experts, and of a shared expert or a dense MLP.
    pub(crate) fn with_activations(self, [routed, other]: [Activation; 2]) -> Self {
        match self {
            MlpSpec::Dense { inner, .. } => MlpSpec::Dense { inner, activation: other },
            MlpSpec::Moe(spec) => {
                let shared = spec.shared.map(|shared| SharedExpert { activation: other, ..shared });
                MlpSpec::Moe(MoeSpec { activation: routed, shared, ..spec })
            }
        }
    }
}

impl LayerSpec {
    /// The mixer, or the part of it, that is attention.
    pub fn attention(&self) -> Option<&AttentionSpec> {
        self.mixer.parts().iter().find_map(|part| match part {
            Mixer::Attention(attention) => Some(attention),
            _ => None,
        })
    }

    /// The mixer, or the part of it, that is latent attention.
    fn latent(&self) -> Option<&LatentSpec> {
        self.mixer.parts().iter().find_map(|part| match part {
            Mixer::Latent(latent) => Some(latent),
            _ => None,
        })
    }

    /// The form of the layer's cache; `None` for a layer without keys and values of its own.
    pub fn cache(&self, format: KvFormat) -> Option<KvSpec> {
        let (heads, key_width, value_width, values_in_keys) = match (self.attention(), self.latent()) {
            (Some(spec), _) if spec.kv_from.is_none() => (spec.kv_heads, spec.key_width, spec.value_width, false),
            (None, Some(spec)) => (1, spec.row(), spec.latent, true),
            _ => return None,
        };
        Some(KvSpec { heads, key_width, value_width, format, values_in_keys })
    }

    /// Query heads; 0 for a layer without attention.
    pub fn query_heads(&self) -> usize {
        let heads = self.attention().map(|attention| attention.heads);
        heads.or(self.latent().map(|latent| latent.heads)).unwrap_or(0)
    }

    /// The rotary position embedding, if the mixer has one.
    pub fn rope(&self) -> Option<&RopeSpec> {
        match (self.attention(), self.latent()) {
            (Some(attention), _) => attention.rope.as_ref(),
            (None, latent) => latent?.rope.as_ref(),
        }
    }
}

impl AttentionSpec {
    /// Width of all queries of a token.
    pub fn query_columns(&self) -> usize {
        self.heads * self.key_width
    }

    /// Width of all keys of a token.
    pub fn key_columns(&self) -> usize {
        self.kv_heads * self.key_width
    }

    /// Width of all values of a token.
    pub fn value_columns(&self) -> usize {
        self.kv_heads * self.value_width
    }

    /// Width of queries, keys and values side by side; of queries alone where another layer has the rest.
    pub fn qkv_columns(&self) -> usize {
        match self.kv_from {
            Some(_) => self.query_columns(),
            None => self.query_columns() + self.key_columns() + self.value_columns(),
        }
    }

    /// Width of the gate of attention's output.
    pub fn gate_columns(&self) -> usize {
        self.gate.map_or(0, |gate| if gate.per_head { self.heads } else { self.attended_columns() })
    }

    /// Width of the output of attention, before the output projection.
    pub fn attended_columns(&self) -> usize {
        self.heads * self.value_width
    }
}
