//! Every operation, once. The only door to a backend.
//!
//! Letters: T tokens, K inputs, N outputs, E experts, k top-k, H heads, D head width. Matrices are row-major; a
//! dimension that an operation can see from two arguments must agree, or it is an [`Error::Shape`]. Outputs and
//! scratch come from the caller; no operation allocates. Every operation accepts zero rows, and does nothing then.
//! The reduction order of an output depends on nothing but its own row: not on the other rows of the batch, nor on
//! the number of threads. (On a GPU, attention may also look at how many tokens of its own sequence are in the batch,
//! and products of rounded activations, [`Precision::Fast`], or with weights in F32, at how many rows there are.)
//!
//! [`Error::Shape`]: crate::error::Error::Shape

use crate::act::{Act, Precision};
use crate::compose;
use crate::error::Result;
pub use crate::gpu::Recording;
use crate::kv::{KvCache, KvSpec, Placement};
use crate::tensor::{Buffer, DeviceId, View, ViewMut};
use crate::weight::{Footprint, Role, Shape, TensorView, Weight};
use std::sync::MutexGuard;

/// What a router does with its logits.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Gating {
    /// Softmax over all experts, then the top k.
    Softmax,
    /// The top k, then softmax over those alone.
    SoftmaxOfChosen,
    /// Sigmoid of each logit, then the top k.
    Sigmoid,
    /// SparseMixer (<https://arxiv.org/abs/2409.12136>, in its inference form; Phi-3.5-MoE): the chosen come one after
    /// another, each the best that is left, of logit m. Its weight is its softmax over those of the rest whose logits
    /// are near: (m − logit) ≤ `near` · max(|logit|, m).
    SparseMixer {
        /// How far a logit may be below the best and still be near it, as a share: at least 0.
        near: f32,
    },
}

/// The router's parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Routing {
    /// Experts per token, 1..=E.
    pub top_k: usize,
    /// How logits become weights.
    pub gating: Gating,
    /// Divide the chosen weights by their sum (at least 6.1e-5, the smallest normal f16, as everyone does).
    pub normalise: bool,
    /// Multiplies the final weights.
    pub scale: f32,
    /// Experts are in this many equal groups (1: no groups); only the best `top_groups` groups take part, judged by
    /// the sum of their two highest selection scores (DeepSeek-V3).
    pub groups: usize,
    /// Groups that take part.
    pub top_groups: usize,
}

impl Routing {
    /// Top-k softmax routing without groups.
    pub fn softmax(top_k: usize, normalise: bool) -> Self {
        Self { top_k, gating: Gating::Softmax, normalise, scale: 1.0, groups: 1, top_groups: 1 }
    }
}

/// The gated activation of an MLP.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Activation {
    /// silu(gate) · up.
    SwiGlu,
    /// gelu(gate) · up with the tanh approximation.
    GeGlu,
    /// gate' · sigmoid(alpha · gate') · (up' + 1), gate' = min(gate, limit), up' = clamp(up, −limit, limit) (gpt-oss).
    ClampedSwiGlu {
        /// Slope of the sigmoid.
        alpha: f32,
        /// The clamp.
        limit: f32,
    },
}

/// How a rotation's pairs lie in a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RopeStyle {
    /// Elements `i` and `i + rotated / 2` (GPT-NeoX; Hugging Face order).
    Halves,
    /// Elements `2·i` and `2·i + 1` (Llama's GGUF order).
    Interleaved,
}

/// Rotary position embedding, prepared: the angle of pair `i` at position `p` is `p · frequencies[i]`.
///
/// All scalings (linear, YaRN, Llama 3) are frequencies and one magnitude.
#[derive(Debug)]
pub struct Rope {
    /// Pair order.
    pub style: RopeStyle,
    /// Angle per position of each pair; `2 · len` elements of a head are rotated, the rest pass.
    pub frequencies: Buffer<f32>,
    /// Multiplies sine and cosine (YaRN's attention factor; otherwise 1).
    pub magnitude: f32,
}

/// Parameters of attention.
#[derive(Debug)]
pub struct Attention<'a> {
    /// Query heads; a multiple of the cache's heads.
    pub heads: usize,
    /// Multiplies q · k.
    pub scale: f32,
    /// Only the last `window` positions, the token's own included, are seen.
    pub window: Option<usize>,
    /// A logit per query head that takes part in the softmax and has no value (gpt-oss).
    pub sinks: Option<&'a Buffer<f32>>,
    /// Logits become `softcap · tanh(logit / softcap)` (Gemma 2).
    pub softcap: Option<f32>,
}

/// Experts grouped for matrix operations, filled by [`Backend::group_by_expert`] alone (its readers trust it). Pair
/// `p` is slot `p % k` of token `p / k`.
#[derive(Debug)]
pub struct Groups {
    pub(crate) counts: Buffer<u32>,
    /// On a GPU, pairs without an expert follow the others, to the end of those that were given.
    pub(crate) pairs: Buffer<u32>,
    pub(crate) tiles: Buffer<u32>,
    /// On Metal also grids, see `kernels/group.h`.
    pub(crate) tile_count: Buffer<u32>,
    pub(crate) tile_rows: usize,
    /// Pairs that the last grouping sorted.
    pub(crate) live_pairs: usize,
    /// Pairs that the last grouping was given, padding included: T·k.
    pub(crate) total_pairs: usize,
}

impl Groups {
    /// Pairs of each expert, E.
    pub fn counts(&self) -> &Buffer<u32> {
        &self.counts
    }
    /// Pairs sorted by expert, ascending within an expert; room for T·k, padding pairs left out.
    pub fn pairs(&self) -> &Buffer<u32> {
        &self.pairs
    }
    /// Tiles: expert, first index into `pairs`, rows. Three words each, at most ⌊T·k / tile⌋ + min(E, T·k).
    pub fn tiles(&self) -> &Buffer<u32> {
        &self.tiles
    }
    /// Number of tiles: the first word. On Metal grids of launches follow.
    pub fn tile_count(&self) -> &Buffer<u32> {
        &self.tile_count
    }
    /// Rows of a full tile, of the last grouping.
    pub fn tile_rows(&self) -> usize {
        self.tile_rows
    }
}

/// A root-mean-square norm of rows.
#[derive(Clone, Copy, Debug)]
pub struct Norm<'a> {
    /// The rows, T × K.
    pub x: View<'a, f32>,
    /// K.
    pub weight: &'a Buffer<f32>,
    /// Added to the mean square.
    pub eps: f32,
}

/// Norms of queries and of keys, each with its weight, and what is added to the mean square.
pub type Norms<'a> = Option<([&'a Buffer<f32>; 2], f32)>;

/// What becomes of an answer.
#[derive(Debug)]
pub enum Finish<'a> {
    /// y = answer.
    Store,
    /// y += scale · answer.
    Add {
        /// The factor.
        scale: f32,
        /// Room of y's shape for the answer on its way; left undefined.
        room: ViewMut<'a, f32>,
    },
}

/// The matrices of a layer's experts.
#[derive(Clone, Copy, Debug)]
pub struct Experts<'a> {
    /// Gate and up, a [`Role::GateUp`] weight: inner × hidden each.
    pub gate_up: &'a Weight,
    /// Down: hidden × inner.
    pub down: &'a Weight,
    /// Between them.
    pub activation: Activation,
    /// Biases of gate and up, E × inner each.
    pub gate_up_bias: Option<[&'a Buffer<f32>; 2]>,
    /// Bias of down, E × hidden.
    pub down_bias: Option<&'a Buffer<f32>>,
}

/// Room for what is between a router's logits and the experts' answer.
#[derive(Debug)]
pub struct ExpertsRoom<'a> {
    /// The chosen experts, T × k: given back.
    pub ids: ViewMut<'a, u32>,
    /// Their weights, T × k: given back.
    pub weights: ViewMut<'a, f32>,
    /// The pairs by expert; may be left undefined.
    pub groups: &'a mut Groups,
    /// T·k × inner; may be left undefined.
    pub h: ViewMut<'a, f32>,
    /// The same as activations; may be left undefined.
    pub act: &'a mut Act,
    /// The experts' answers, T·k × hidden; may be left undefined.
    pub out: ViewMut<'a, f32>,
}

/// Bias that a router adds to its scores for selection only (DeepSeek-V3), E.
pub type SelectionBias<'a> = Option<&'a Buffer<f32>>;

/// Sampling parameters of one row of logits, applied in this order: mask, bias, penalties, temperature, top-k, top-p,
/// min-p, draw.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling<'a> {
    /// Bit `i % 32` of word `i / 32` allows token `i` (a grammar); `None` allows all.
    pub mask: Option<&'a [u32]>,
    /// Added to the logits of these tokens.
    pub bias: &'a [(u32, f32)],
    /// How often each token occurs in the text so far; what penalties look at. Each token once.
    pub counts: &'a [(u32, u32)],
    /// Divides a positive and multiplies a negative logit of tokens that occur; 1 changes nothing.
    pub repeat_penalty: f32,
    /// Subtracted once from tokens that occur.
    pub presence_penalty: f32,
    /// Subtracted for each occurrence.
    pub frequency_penalty: f32,
    /// 0 is greedy (argmax after mask, bias and penalties).
    pub temperature: f32,
    /// Keep the k most likely; 0 keeps all.
    pub top_k: u32,
    /// Keep the smallest set with at least this much probability, and at least one; 1 keeps all.
    pub top_p: f32,
    /// Drop what is less likely than this share of the most likely; 0 keeps all.
    pub min_p: f32,
    /// The generator's key.
    pub seed: u64,
    /// The generator's counter: the position of the token to be drawn.
    pub position: u64,
}

/// What a device can do at most.
#[derive(Clone, Copy, Debug)]
pub struct Rates {
    /// Bytes read from its memory.
    pub read_bytes_per_second: f64,
    /// Operations (a product and a sum are two) of its fastest products that the kernels use: bfloat16 for CUDA.
    pub ops_per_second: f64,
}

/// One device. All of it is `&self`: a backend may be shared, operations of several threads take turns.
pub trait Backend: Send + Sync {
    /// The device's name and level, for people.
    fn name(&self) -> String;
    /// Which device.
    fn device(&self) -> DeviceId;
    /// Bytes that can still be allocated, or `None` for host memory, which is the system's to tell.
    fn free_memory(&self) -> Result<Option<u64>> {
        Ok(None)
    }

    /// What the device can do at most, measured in a moment; `None` for the CPU, whose levels others can measure.
    fn rates(&self) -> Result<Option<Rates>> {
        Ok(None)
    }

    // ── steps that come again ──

    /// How many rows a step of `rows` rows is padded to, so that it can be recorded once for several counts. A backend
    /// that does not record answers `rows`.
    fn bucket(&self, rows: usize) -> usize {
        rows
    }
    /// How many columns of its block table a step is told to reach ([`Placement::reach`]) whose tokens reach `columns`, so
    /// that it can be recorded once for several lengths. A backend that does not record answers `columns`.
    fn reach(&self, columns: usize) -> usize {
        columns
    }
    /// Keeps the operations that `work` calls instead of running them, to be replayed with the same buffers. `work` must
    /// have run once before, with the same shapes. `None` if this backend does not record; `work` has not run then.
    fn record(&self, work: &mut dyn FnMut() -> Result<()>) -> Result<Option<Box<dyn Recording>>> {
        let _ = work;
        Ok(None)
    }

    /// Makes ready what `work` would need, without doing it: on a GPU kernels are compiled, several at a time. `work` is
    /// given a backend that takes this one's buffers and weights, and computes nothing. `progress` is told how many are
    /// ready, of how many.
    ///
    /// # Errors
    /// What `work` refuses, or why something cannot be made ready.
    fn make_ready(
        &self,
        work: &mut dyn FnMut(&dyn Backend) -> Result<()>,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<()> {
        let _ = (work, progress);
        Ok(())
    }

    /// Held by those who work with a backend from several threads, around operations that belong together: a GPU does its
    /// work in one order, records whatever is launched meanwhile, and has one workspace. On a CPU operations share nothing
    /// but what they are given.
    fn turn(&self) -> Option<MutexGuard<'_, ()>> {
        None
    }

    /// What people should know although nothing failed: for instance that compiled kernels cannot be kept.
    fn notice(&self) -> Option<String> {
        None
    }

    // ── memory ──

    /// A zeroed buffer of floats. `what` names it in an out-of-memory error.
    fn alloc_f32(&self, len: usize, what: &'static str) -> Result<Buffer<f32>>;
    /// A zeroed buffer of words.
    fn alloc_u32(&self, len: usize, what: &'static str) -> Result<Buffer<u32>>;
    /// Room for activations of up to `rows` × `cols`.
    fn alloc_act(&self, precision: Precision, rows: usize, cols: usize) -> Result<Act>;
    /// A zeroed cache.
    fn alloc_kv(&self, spec: KvSpec, blocks: usize) -> Result<KvCache>;
    /// Room for grouping up to `pairs` pairs over `experts`.
    fn alloc_groups(&self, experts: usize, pairs: usize) -> Result<Groups>;
    /// Copies host values into the start of a buffer.
    fn upload_f32(&self, values: &[f32], to: &mut Buffer<f32>) -> Result<()>;
    /// Copies host values into the start of a buffer.
    fn upload_u32(&self, values: &[u32], to: &mut Buffer<u32>) -> Result<()>;
    /// Copies a view to host memory, contiguous.
    fn download_f32(&self, from: View<f32>, to: &mut [f32]) -> Result<()>;
    /// Copies a view to host memory, contiguous.
    fn download_u32(&self, from: View<u32>, to: &mut [u32]) -> Result<()>;
    /// Bytes that [`Backend::alloc_kv`] takes.
    fn kv_bytes(&self, spec: KvSpec, blocks: usize) -> u64 {
        (spec.block_bytes() as u64).saturating_mul(blocks as u64)
    }
    /// Bytes that [`Backend::prepare`] takes for a tensor; for several, their sum.
    fn footprint(&self, shape: &Shape, role: Role) -> Footprint;
    /// Brings weights into this backend's layout. The only door for weights. [`Role::Matrix`] joins any number of
    /// tensors of equal `cols` and `experts`; [`Role::GateUp`] takes two of one shape; [`Role::Table`] and [`Role::Tied`]
    /// one. A weight of role Tied serves wherever one of role Table or Matrix does.
    fn prepare(&self, tensors: &[TensorView], role: Role) -> Result<Weight>;

    // ── matrices ──

    /// Decodes row `rows[i]` of a [`Role::Table`] weight into row `i` of `out` (T × cols), times `scale`.
    fn embed(&self, table: &Weight, rows: View<u32>, scale: f32, out: ViewMut<f32>) -> Result<()>;
    /// Prepares activations (T × K) for the matrix operations.
    fn prepare_activations(&self, x: View<f32>, act: &mut Act) -> Result<()>;
    /// Y (T × N) = X · Wᵀ + bias (N).
    fn matmul(&self, w: &Weight, x: &Act, bias: Option<&Buffer<f32>>, y: ViewMut<f32>) -> Result<()>;
    /// As [`Backend::matmul`], for only these rows of X (row indices, R): Y is R × N. For the output head.
    fn matmul_rows(&self, w: &Weight, x: &Act, rows: View<u32>, y: ViewMut<f32>) -> Result<()>;
    /// H (T × rows) = activation(gate · x + bias, up · x + bias) for a [`Role::GateUp`] weight. Biases: gate, up.
    fn gate_up(
        &self,
        w: &Weight,
        x: &Act,
        bias: Option<[&Buffer<f32>; 2]>,
        activation: Activation,
        h: ViewMut<f32>,
    ) -> Result<()>;

    // ── experts ──

    /// Router: logits (T × E) to expert ids (T × k) and weights (T × k), by descending score, the smaller index
    /// first on a tie. NaN counts as the smallest score.
    fn route(
        &self,
        logits: View<f32>,
        routing: &Routing,
        bias: SelectionBias,
        ids: ViewMut<u32>,
        weights: ViewMut<f32>,
    ) -> Result<()>;
    /// Sorts the (token, slot) pairs of `ids` (T × k) by expert. `u32::MAX` is padding.
    fn group_by_expert(&self, ids: View<u32>, experts: usize, groups: &mut Groups) -> Result<()>;
    /// `out[p]` (T·k × N) = `W[id of pair p] · x + bias[id]` (E × N). X has a row per token (T), or one per pair (T·k).
    /// Serves one token and many. Padding pairs' rows are zeroed.
    fn moe_matmul(
        &self,
        w: &Weight,
        x: &Act,
        groups: &Groups,
        top_k: usize,
        bias: Option<&Buffer<f32>>,
        out: ViewMut<f32>,
    ) -> Result<()>;
    /// `H[p]` (T·k × rows) = `activation(gate[id] · x, up[id] · x)` for a [`Role::GateUp`] weight; X has a row per token.
    /// Biases: gate, up, E × rows each.
    fn moe_gate_up(
        &self,
        w: &Weight,
        x: &Act,
        groups: &Groups,
        top_k: usize,
        bias: Option<[&Buffer<f32>; 2]>,
        activation: Activation,
        h: ViewMut<f32>,
    ) -> Result<()>;
    /// `y[t] = Σ weights[t, slot] · out[t·k + slot]` over slots, in order.
    fn moe_combine(&self, out: View<f32>, weights: View<f32>, y: ViewMut<f32>) -> Result<()>;

    // ── element-wise and norms ──

    /// out = x / sqrt(mean(x²) + eps) · weight, for every row. T × K.
    fn rms_norm(&self, x: View<f32>, weight: &Buffer<f32>, eps: f32, out: ViewMut<f32>) -> Result<()>;
    /// out = (x − mean(x)) / sqrt(variance(x) + eps) · weight + bias, for every row; the variance is that of all K, not
    /// of a sample. T × K.
    fn layer_norm(
        &self,
        x: View<f32>,
        weight: &Buffer<f32>,
        bias: &Buffer<f32>,
        eps: f32,
        out: ViewMut<f32>,
    ) -> Result<()>;
    /// In place, each stretch of `weight.len()` columns normalised by itself: per head if that is D, whole row if
    /// that is the row.
    fn qk_norm(&self, x: ViewMut<f32>, weight: &Buffer<f32>, eps: f32) -> Result<()>;
    /// Rotates the heads (of `head_width` columns) of each row in place.
    fn rope(&self, x: ViewMut<f32>, head_width: usize, positions: View<u32>, rope: &Rope) -> Result<()>;
    /// y += scale · x. T × K.
    fn add(&self, x: View<f32>, scale: f32, y: ViewMut<f32>) -> Result<()>;
    /// `y[t] += sigmoid(gate[t]) · x[t]` (a shared expert's gate, T × 1).
    fn add_gated(&self, x: View<f32>, gate: View<f32>, y: ViewMut<f32>) -> Result<()>;
    /// y += bias for every row (K).
    fn add_bias(&self, bias: &Buffer<f32>, y: ViewMut<f32>) -> Result<()>;
    /// y = scale · y. T × K.
    fn scale(&self, scale: f32, y: ViewMut<f32>) -> Result<()>;
    /// Index of the largest element of each row, the smaller index on a tie; NaN is the smallest. R × 1.
    fn argmax(&self, x: View<f32>, out: ViewMut<u32>) -> Result<()>;
    /// Draws one token per row of logits (R × vocabulary), which are left penalised. R × 1. The uniform number of a
    /// draw is a function of (seed, position) alone, never of the batch row.
    fn sample(&self, logits: ViewMut<f32>, parameters: &[Sampling], out: ViewMut<u32>) -> Result<()>;

    // ── attention ──

    /// Writes keys (T × H·Dk) and values (T × H·Dv) to their places.
    fn kv_write(&self, cache: &mut KvCache, k: View<f32>, v: View<f32>, place: &Placement) -> Result<()>;
    /// Copies whole blocks within a cache: (from, to).
    fn kv_copy(&self, cache: &mut KvCache, blocks: &[(u32, u32)]) -> Result<()>;
    /// Causal attention of each token over its own sequence's cache, itself included: Q (T × heads·Dk) to
    /// out (T × heads·Dv). The keys of all positions up to the token's must have been written.
    fn attention(
        &self,
        q: View<f32>,
        cache: &KvCache,
        place: &Placement,
        parameters: &Attention,
        out: ViewMut<f32>,
    ) -> Result<()>;

    // ── compositions, which a backend may do at once ──
    //
    // Each means what its body says, here or in `compose.rs`, where those are that an override falls back to. A backend
    // where launches cost time overrides them; the suite compares them with their parts. Of what the parts would write on
    // the way, `h` and `out` of the experts and `qkv` of `attend` may be left undefined.

    /// `normed` is the norm's answer, and each of `acts` is that as activations.
    fn norm_act(&self, norm: Norm, normed: ViewMut<f32>, acts: &mut [&mut Act]) -> Result<()> {
        compose::norm_act(self, norm, normed, acts)
    }

    /// [`Backend::norm_act`] for `act` and another, then [`Backend::matmul`] of `act`.
    fn norm_matmul(
        &self,
        norm: Norm,
        normed: ViewMut<f32>,
        act: &mut Act,
        other: Option<&mut Act>,
        w: &Weight,
        bias: Option<&Buffer<f32>>,
        y: ViewMut<f32>,
    ) -> Result<()> {
        compose::norm_matmul(self, norm, normed, act, other, w, bias, y)
    }

    /// [`Backend::matmul`], whose answer finishes as asked.
    fn matmul_finish(
        &self,
        w: &Weight,
        x: &Act,
        bias: Option<&Buffer<f32>>,
        finish: Finish,
        y: ViewMut<f32>,
    ) -> Result<()> {
        match finish {
            Finish::Store => self.matmul(w, x, bias, y),
            Finish::Add { scale, mut room } => {
                self.matmul(w, x, bias, room.reborrow())?;
                self.add(room.as_view(), scale, y)
            }
        }
    }

    /// Queries, keys and values as they come from their product, side by side (T × heads·Dk + H·Dk + H·Dv): queries and
    /// keys are normalised and turned in place, keys and values written to the cache.
    fn place_qkv(
        &self,
        qkv: ViewMut<f32>,
        heads: usize,
        norms: Norms,
        rope: &Rope,
        cache: &mut KvCache,
        place: &Placement,
    ) -> Result<()> {
        compose::place_qkv(self, qkv, heads, norms, rope, cache, place)
    }

    /// [`Backend::route`], then [`Backend::group_by_expert`] of its ids.
    fn route_and_group(
        &self,
        logits: View<f32>,
        routing: &Routing,
        bias: SelectionBias,
        mut ids: ViewMut<u32>,
        weights: ViewMut<f32>,
        groups: &mut Groups,
    ) -> Result<()> {
        self.route(logits, routing, bias, ids.reborrow(), weights)?;
        self.group_by_expert(ids.as_view(), logits.cols(), groups)
    }

    /// [`Backend::gate_up`], prepared as activations.
    fn gate_up_act(
        &self,
        w: &Weight,
        x: &Act,
        bias: Option<[&Buffer<f32>; 2]>,
        activation: Activation,
        mut h: ViewMut<f32>,
        act: &mut Act,
    ) -> Result<()> {
        self.gate_up(w, x, bias, activation, h.reborrow())?;
        self.prepare_activations(h.as_view(), act)
    }

    /// The experts that the router's logits (T × E) choose for each token: what each answers to x (T × hidden), by its
    /// weight, finishes in y (T × hidden) as asked.
    fn experts(
        &self,
        experts: &Experts,
        x: &Act,
        logits: View<f32>,
        routing: &Routing,
        room: ExpertsRoom,
        finish: Finish,
        y: ViewMut<f32>,
    ) -> Result<()> {
        let ExpertsRoom { mut ids, mut weights, groups, mut h, act, mut out } = room;
        self.route_and_group(logits, routing, None, ids.reborrow(), weights.reborrow(), groups)?;
        let (k, activation) = (routing.top_k, experts.activation);
        self.moe_gate_up(experts.gate_up, x, groups, k, experts.gate_up_bias, activation, h.reborrow())?;
        self.prepare_activations(h.as_view(), act)?;
        self.moe_matmul(experts.down, act, groups, k, experts.down_bias, out.reborrow())?;
        match finish {
            Finish::Store => self.moe_combine(out.as_view(), weights.as_view(), y),
            Finish::Add { scale, mut room } => {
                self.moe_combine(out.as_view(), weights.as_view(), room.reborrow())?;
                self.add(room.as_view(), scale, y)
            }
        }
    }

    /// [`Backend::attention`], prepared as activations.
    fn attention_act(
        &self,
        q: View<f32>,
        cache: &KvCache,
        place: &Placement,
        parameters: &Attention,
        mut out: ViewMut<f32>,
        act: &mut Act,
    ) -> Result<()> {
        self.attention(q, cache, place, parameters, out.reborrow())?;
        self.prepare_activations(out.as_view(), act)
    }

    /// [`Backend::place_qkv`], then [`Backend::attention_act`] of the queries.
    fn attend(
        &self,
        qkv: ViewMut<f32>,
        norms: Norms,
        rope: &Rope,
        cache: &mut KvCache,
        place: &Placement,
        parameters: &Attention,
        out: ViewMut<f32>,
        act: &mut Act,
    ) -> Result<()> {
        compose::attend(self, qkv, norms, rope, cache, place, parameters, out, act)
    }
}
