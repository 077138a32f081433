//! Memory for one forward pass, allocated once for the largest batch.

use gristmill_kernels::Backend;
use gristmill_kernels::act::{Act, Precision};
use gristmill_kernels::groups::Groups;
use gristmill_kernels::ops::DeltaHeads;
use gristmill_kernels::tensor::Buffer;

use super::spec::{LayerSpec, Mixer, MlpSpec, ModelSpec};
use crate::error::Result;

/// Intermediate results of up to T tokens. A buffer that serves several blocks has the size of the largest.
#[derive(Debug)]
pub(crate) struct Scratch {
    /// Token ids, T.
    pub(crate) tokens: Buffer<u32>,
    /// Rows whose logits are wanted, R.
    pub(crate) output_rows: Buffer<u32>,
    /// The residual stream, T × hidden.
    pub(crate) residual: Buffer<f32>,
    /// The residual stream normalised, T × hidden.
    pub(crate) normed: Buffer<f32>,
    /// The output of a block that a norm follows, T × hidden; empty for a model without such norms.
    pub(crate) delta: Buffer<f32>,
    /// The input of blocks, and the output of attention, as activations.
    pub(crate) act: Act,
    /// The gated activation of an MLP, prepared for its second product.
    pub(crate) inner_act: Act,
    /// The first product of a mixer: of attention queries, keys and values side by side, T × (H·Dk + KV·Dk + KV·Dv),
    /// with the output's gate before them if there is one.
    pub(crate) qkv: Buffer<f32>,
    /// The convolution's output, a gated product, or the sum of an MLP and the experts beside it; empty for a model
    /// without any.
    pub(crate) mixed: Buffer<f32>,
    /// The inputs of all layers, T × layers · width; empty for a model without them.
    pub(crate) layer_inputs: Buffer<f32>,
    /// The output of attention, T × H·Dv, or of what stands in its place.
    pub(crate) attended: Buffer<f32>,
    /// The gated activation, T × inner, or T·k × inner with experts.
    pub(crate) inner: Buffer<f32>,
    /// For experts; empty if the model has none.
    pub(crate) moe: MoeScratch,
    /// R × vocabulary.
    pub(crate) logits: Buffer<f32>,
}

/// Intermediate results of a mixture of experts.
#[derive(Debug)]
pub(crate) struct MoeScratch {
    /// The router's input, which is never quantised.
    pub(crate) act: Act,
    /// Router logits, T × E; with a gated expert that serves every token its logit behind them, T × (E + 1).
    pub(crate) router: Buffer<f32>,
    /// Chosen experts, T × k for each layer with experts, one layer after another. T is that of the step, so all
    /// choices of a step are adjacent.
    pub(crate) ids: Buffer<u32>,
    /// Their weights, likewise.
    pub(crate) weights: Buffer<f32>,
    /// Pairs grouped by expert. All layers that have experts have the same number.
    pub(crate) groups: Groups,
    /// Outputs of the experts, T·k × hidden; then that of the expert that serves every token, or of the MLP beside
    /// them, T × hidden.
    pub(crate) out: Buffer<f32>,
}

/// The largest widths that occur in a model.
#[derive(Clone, Copy, Debug, Default)]
struct Widths {
    hidden: usize,
    delta: usize,
    vocab: usize,
    qkv: usize,
    mixed: usize,
    layer_inputs: usize,
    attended: usize,
    inner: usize,
    act: usize,
    inner_act: usize,
    experts: usize,
    /// Rows of a router.
    router: usize,
    top_k: usize,
    /// The sum of `top_k` over the layers.
    choices: usize,
}

impl Widths {
    fn new(spec: &ModelSpec) -> Self {
        let whole = |n: usize| n.next_multiple_of(32);
        let (hidden, vocab, delta) = (spec.hidden, spec.vocab, if spec.post_norms { spec.hidden } else { 0 });
        let mut w = Widths { hidden, vocab, delta, act: whole(hidden), ..Self::default() };
        if let Some(width) = spec.layer_inputs {
            // The table's rows come to `inner`, a layer's gated input to `mixed`.
            let all = width.saturating_mul(spec.layers.len());
            w = Widths { layer_inputs: all, inner: all, mixed: width, delta: hidden, ..w };
            w.act = w.act.max(whole(width));
        }
        for layer in &spec.layers {
            let (attended, qkv, mixed) = match &layer.mixer {
                Mixer::Attention(attention) => {
                    let gated = if attention.gate.is_some() { attention.attended_columns() } else { 0 };
                    (attention.attended_columns(), attention.qkv_columns() + attention.gate_columns(), gated)
                }
                Mixer::Delta(delta) => {
                    let DeltaHeads { values, width, .. } = delta.heads;
                    let columns = delta.heads.columns();
                    (values * width, columns + values * width + 2 * values, columns)
                }
                Mixer::Convolution(_) => (spec.hidden, 3 * spec.hidden, spec.hidden),
            };
            let (pairs, width) = match layer.mlp {
                None => (0, 0),
                Some(MlpSpec::Dense { inner, .. }) => (1, inner),
                Some(MlpSpec::Moe { experts, inner, routing, shared, beside, .. }) => {
                    w.experts = w.experts.max(experts);
                    let gated = shared.is_some_and(|shared| shared.gated);
                    w.router = w.router.max(experts.saturating_add(gated.into()));
                    w.top_k = w.top_k.max(routing.top_k);
                    w.choices = w.choices.saturating_add(routing.top_k);
                    let all = shared.map_or(0, |shared| shared.inner).max(beside.unwrap_or(0));
                    w.inner = w.inner.max(all);
                    w.inner_act = w.inner_act.max(whole(all));
                    let of_beside = beside.map_or(0, |_| hidden);
                    w = Widths { delta: w.delta.max(of_beside), mixed: w.mixed.max(of_beside), ..w };
                    (routing.top_k, inner)
                }
            };
            w.qkv = w.qkv.max(qkv);
            w.mixed = w.mixed.max(mixed);
            w.attended = w.attended.max(attended);
            w.inner = w.inner.max(pairs * width);
            w.act = w.act.max(whole(attended));
            w.inner_act = w.inner_act.max(pairs * whole(width));
        }
        w
    }
}

impl Scratch {
    /// Bytes for `tokens` tokens and `rows` rows of logits, with the runner's tokens drawn from the rows and the
    /// layers' RoPE frequencies.
    pub(crate) fn bytes(spec: &ModelSpec, precision: Precision, tokens: usize, rows: usize) -> u64 {
        let w = Widths::new(spec);
        // Activations are kept as f32; at the fast precision also as int8, 64 bytes for 32 elements, and as bfloat16,
        // which only some CPUs use.
        let act = if precision == Precision::Exact { 4 } else { 4 + 2 + 2 };
        let moe = match w.router {
            0 => 0,
            router => 4 * (w.hidden + router + w.top_k * (w.hidden + 4) + 2 * w.choices),
        };
        let token = 4 * (1 + 2 * w.hidden + w.delta + w.qkv + w.mixed + w.layer_inputs + w.attended + w.inner)
            + act * (w.act + w.inner_act)
            + moe;
        let row = 4 * (2 + w.vocab);
        // Groups of experts, and a GPU's grids of them, have some words that do not depend on the number of tokens.
        let experts = 16 * w.experts.max(1) + 1024;
        let ropes: usize = spec.layers.iter().filter_map(LayerSpec::rope).map(|rope| 4 * rope.width.div_ceil(2)).sum();
        let total = (token as u128) * (tokens as u128) + (row as u128) * (rows as u128) + (experts + ropes) as u128;
        u64::try_from(total).unwrap_or(u64::MAX)
    }

    /// Allocates for `tokens` tokens and `rows` rows of logits. The caller has checked [`Self::bytes`].
    pub(crate) fn new(
        backend: &Backend,
        spec: &ModelSpec,
        precision: Precision,
        tokens: usize,
        rows: usize,
    ) -> Result<Self> {
        let w = Widths::new(spec);
        let floats = |cols: usize, what| backend.alloc::<f32>(tokens.saturating_mul(cols), what);
        Ok(Self {
            tokens: backend.alloc::<u32>(tokens, "token ids")?,
            output_rows: backend.alloc::<u32>(rows, "output rows")?,
            residual: floats(w.hidden, "the residual stream")?,
            normed: floats(w.hidden, "the residual stream")?,
            delta: floats(w.delta, "the residual stream")?,
            act: backend.alloc_act(precision, tokens, w.act)?,
            inner_act: backend.alloc_act(precision, tokens, w.inner_act)?,
            qkv: floats(w.qkv, "queries, keys and values")?,
            mixed: floats(w.mixed, "convolution and gates")?,
            layer_inputs: floats(w.layer_inputs, "the layers' inputs")?,
            attended: floats(w.attended, "attention")?,
            inner: floats(w.inner, "the MLP")?,
            moe: MoeScratch {
                act: backend.alloc_act(Precision::Exact, if w.experts > 0 { tokens } else { 0 }, w.hidden)?,
                router: floats(w.router, "the router")?,
                ids: backend.alloc::<u32>(tokens.saturating_mul(w.choices), "the router")?,
                weights: floats(w.choices, "the router")?,
                groups: backend.alloc_groups(w.experts.max(1), tokens.saturating_mul(w.top_k))?,
                out: floats(w.top_k.saturating_mul(w.hidden), "the experts")?,
            },
            logits: backend.alloc::<f32>(rows.saturating_mul(w.vocab), "logits")?,
        })
    }
}
