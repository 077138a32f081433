//! Layers whose state has a fixed size: causal convolution, the gated delta rule, and their gates and norms.

use super::check::*;
use super::matrix::fill;
use super::norm::{same_shape, segments};
use super::operation::{Check, Operation};
use crate::act::Act;
use crate::error::Result;
use crate::tensor::{Buffer, DeviceId, View, ViewMut};

/// Words per run in [`Runs::list`].
pub const RUN_WORDS: usize = 4;

/// Supported numbers of taps of a convolution.
pub const CONV_TAPS: std::ops::RangeInclusive<usize> = 2..=4;

/// Supported head widths of [`DeltaRule`].
pub const DELTA_WIDTHS: [usize; 5] = [16, 32, 64, 128, 256];

/// Columns of a head of [`DeltaRule`] whose state is contiguous.
pub const DELTA_TILE: usize = 16;

/// Added to the sum of squares when [`DeltaRule`] normalises queries and keys.
pub const DELTA_EPS: f32 = 1e-6;

/// The runs of a flat batch. A run is the next tokens of one sequence. It consists of rows of the batch, the slot with
/// the sequence's state before them, and the slot for the state after them. Runs share neither rows nor written slots.
/// No written slot is read, so a run can be repeated. Rows outside all runs are not written.
#[derive(Debug)]
pub struct Runs {
    /// [`RUN_WORDS`] words per run: first row, number of rows, read slot, written slot. A read slot of [`PADDING`] is
    /// an empty sequence, whose state is zeros. If a run has no rows, its other words are ignored.
    pub list: Buffer<u32>,
    /// Number of runs.
    pub count: usize,
}

/// One run of [`Runs`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// First row of the batch.
    pub first: usize,
    /// Number of rows, at least one.
    pub rows: usize,
    /// Slot with the state before the run; `None` if the state is zeros.
    pub read: Option<usize>,
    /// Slot for the state after the run.
    pub written: usize,
}

impl Runs {
    /// The runs that have rows, if the list is in host memory.
    pub fn of_host(&self) -> Option<impl Iterator<Item = Run> + '_> {
        let words = self.list.as_host()?.as_chunks::<RUN_WORDS>().0.iter().take(self.count);
        let run = |&[first, rows, read, written]: &[u32; RUN_WORDS]| Run {
            first: first as usize,
            rows: rows as usize,
            read: (read != PADDING).then_some(read as usize),
            written: written as usize,
        };
        Some(words.map(run).filter(|run| run.rows > 0))
    }

    /// Fails unless the runs are on the device. If the list is in host memory, also checks rows and slots against their
    /// limits.
    pub(super) fn check(&self, op: &'static str, device: DeviceId, [rows, slots]: [usize; 2]) -> Result<()> {
        on_device(op, device, &[self.list.device()])?;
        at_least(op, "words of the runs", self.list.len(), elements("the runs", &[self.count, RUN_WORDS])?)?;
        let Some(runs) = self.of_host() else { return Ok(()) };
        let runs: Vec<Run> = runs.collect();
        let mut next = 0;
        for (index, run) in runs.iter().enumerate() {
            let last = u32::try_from(run.first.saturating_add(run.rows - 1)).unwrap_or(u32::MAX);
            id(op, "row", last, index, rows)?;
            require(run.first >= next, op, "first row of a run", run.first, "must be behind the run before it")?;
            next = run.first + run.rows;
            for slot in run.read.into_iter().chain([run.written]) {
                id(op, "state slot", slot as u32, index, slots)?;
            }
            let twice = runs[..index].iter().any(|other| other.written == run.written);
            require(!twice, op, "state slot", run.written, "must be written by one run alone")?;
            let read = runs.iter().any(|other| other.read == Some(run.written));
            require(!read, op, "state slot", run.written, "must not be read by a run, since one writes it")?;
        }
        Ok(())
    }
}

/// Causal convolution of each channel by itself: with `k` taps
///
/// ```text
/// out[t, c] = silu?(bias[c] + Σ weight[c, i] · x[t − k + 1 + i, c])     i = 0 … k − 1
/// ```
///
/// The state of a sequence is its last `k − 1` inputs, oldest first; inputs before its beginning are 0. Taps are summed
/// in order, then the bias is added.
#[derive(Debug)]
pub struct CausalConv<'a> {
    /// T × C.
    pub x: View<'a, f32>,
    /// C × k, the tap of the oldest input first.
    pub weight: &'a Buffer<f32>,
    /// C.
    pub bias: Option<&'a Buffer<f32>>,
    /// The output is x · sigmoid(x) of the sum.
    pub silu: bool,
    /// Slots × C · (k − 1): for each channel its inputs.
    pub state: ViewMut<'a, f32>,
    /// Which rows and slots belong together.
    pub runs: &'a Runs,
    /// T × C.
    pub out: ViewMut<'a, f32>,
}

constructor! {
    CausalConv<'a>(
        x: View<'a, f32>, weight: &'a Buffer<f32>, state: ViewMut<'a, f32>, runs: &'a Runs, out: ViewMut<'a, f32>
    )
        optional(bias: &'a Buffer<f32>)
        default(silu: bool = false)
}

impl CausalConv<'_> {
    /// The number of taps, k.
    pub fn taps(&self) -> usize {
        self.weight.len() / self.x.cols().max(1)
    }
}

impl Check for CausalConv<'_> {
    fn check(&mut self, device: DeviceId) -> Result<()> {
        const OP: &str = CausalConv::NAME;
        let (channels, taps) = (self.x.cols(), self.taps());
        let Self { x, weight, bias, state, runs, out, .. } = self;
        same_shape(OP, device, x, out)?;
        on_device(OP, device, &[state.device()])?;
        if x.rows() == 0 || channels == 0 {
            return Ok(());
        }
        require(CONV_TAPS.contains(&taps), OP, "taps", taps, "must be 2, 3 or 4")?;
        vector(OP, "length of the weight", device, weight, taps * channels)?;
        vectors(OP, "length of the bias", device, *bias, channels)?;
        expect(OP, "columns of the state", state.cols(), (taps - 1) * channels)?;
        runs.check(OP, device, [x.rows(), state.rows()])
    }
}

/// The mapping from value heads to key heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadMap {
    /// Adjacent value heads share a key head: `value / (values / keys)`.
    Grouped,
    /// Interleaved value heads: `value % keys`.
    Tiled,
}

/// The heads of [`DeltaRule`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeltaHeads {
    /// Heads of queries and keys.
    pub keys: usize,
    /// Heads of values, a multiple of `keys`.
    pub values: usize,
    /// Elements of a query, key or value, D: one of [`DELTA_WIDTHS`].
    pub width: usize,
    /// The mapping from value heads to key heads.
    pub map: HeadMap,
}

impl DeltaHeads {
    /// Columns of concatenated queries, keys and values.
    pub fn columns(&self) -> usize {
        (2 * self.keys + self.values) * self.width
    }

    /// Elements of a sequence's state.
    pub fn state(&self) -> usize {
        self.values * self.width * self.width
    }

    /// The key head of a value head.
    pub fn key_of(&self, value: usize) -> usize {
        match self.map {
            HeadMap::Grouped => value / (self.values / self.keys),
            HeadMap::Tiled => value % self.keys,
        }
    }

    /// Index of element (key, value) of a head's state in a slot: tiles of [`DELTA_TILE`] values, key by key.
    pub fn state_at(&self, head: usize, key: usize, value: usize) -> usize {
        let tile = head * (self.width / DELTA_TILE) + value / DELTA_TILE;
        (tile * self.width + key) * DELTA_TILE + value % DELTA_TILE
    }

    fn check(&self, op: &'static str) -> Result<()> {
        let Self { keys, values, width, .. } = *self;
        require(keys > 0, op, "key heads", keys, "must be at least 1")?;
        let divides = values > 0 && values.is_multiple_of(keys);
        require(divides, op, "value heads", values, "must be a multiple of the key heads")?;
        require(DELTA_WIDTHS.contains(&width), op, "head width", width, "must be 16, 32, 64, 128 or 256")
    }
}

/// The logarithm g of the factor by which the state of [`DeltaRule`] decays, with x = `alpha` + `dt_bias`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum DecayKind {
    /// g = decay · ln(1 + e^x).
    Softplus,
    /// g = bound · sigmoid(−decay · x), so that no token decays the state by more than e^bound. The bound is finite and
    /// below 0.
    Bounded(f32),
}

/// The gated delta rule, token by token, with one gate for each value head (<https://arxiv.org/abs/2412.06464>) or with
/// one for each element of its key (KDA, <https://arxiv.org/abs/2510.26692>). For each value head, with its state S of
/// D × D, the query q and the key k of its key head divided by √(Σx² + [`DELTA_EPS`]), q then by √D:
///
/// ```text
/// g: see DecayKind,   β = sigmoid(beta)
/// S ← diag(e^g) S;   u = β · (v − Sᵀk);   S ← S + k uᵀ;   out = Sᵀq
/// ```
#[derive(Debug)]
pub struct DeltaRule<'a> {
    /// T × (2 · keys + values) · D: concatenated queries, keys and values.
    pub qkv: View<'a, f32>,
    /// T × values: how much of the state's error is corrected, before the sigmoid.
    pub beta: View<'a, f32>,
    /// T × values, or T × values · D with a gate for each element of the keys: how far the state decays, before
    /// `dt_bias`.
    pub alpha: View<'a, f32>,
    /// Values; not positive in a trained model.
    pub decay: &'a Buffer<f32>,
    /// One for each column of `alpha`.
    pub dt_bias: &'a Buffer<f32>,
    /// How `alpha`, `dt_bias` and `decay` become the decay of the state.
    pub kind: DecayKind,
    /// The heads.
    pub heads: DeltaHeads,
    /// Slots × values · D · D, in the order of [`DeltaHeads::state_at`].
    pub state: ViewMut<'a, f32>,
    /// Rows and slots of each run.
    pub runs: &'a Runs,
    /// T × values · D.
    pub out: ViewMut<'a, f32>,
}

impl DeltaRule<'_> {
    /// Whether each element of a key has a gate of its own.
    pub fn has_channel_gates(&self) -> bool {
        self.alpha.cols() > self.heads.values
    }
}

impl Check for DeltaRule<'_> {
    fn check(&mut self, device: DeviceId) -> Result<()> {
        const OP: &str = DeltaRule::NAME;
        let gates = self.heads.values.saturating_mul(if self.has_channel_gates() { self.heads.width } else { 1 });
        let Self { qkv, beta, alpha, decay, dt_bias, kind, heads, state, runs, out } = self;
        let rows = qkv.rows();
        let values = heads.values;
        heads.check(OP)?;
        on_device(OP, device, &[qkv.device(), beta.device(), alpha.device(), state.device(), out.device()])?;
        for (view, cols) in [(&*qkv, heads.columns()), (&*beta, values), (&*alpha, gates)] {
            expect(OP, "rows of an input", view.rows(), rows)?;
            if rows > 0 {
                expect(OP, "columns of an input", view.cols(), cols)?;
            }
        }
        shape(OP, OUTPUT, out, rows, values * heads.width)?;
        vector(OP, "length of the decay", device, decay, values)?;
        vector(OP, "length of dt_bias", device, dt_bias, gates)?;
        if let DecayKind::Bounded(bound) = *kind {
            require(bound.is_finite() && bound < 0.0, OP, "bound of the decay", bound, "must be finite and below 0")?;
        }
        if rows == 0 {
            return Ok(());
        }
        expect(OP, "columns of the state", state.cols(), heads.state())?;
        runs.check(OP, device, [rows, state.rows()])
    }
}

/// Whether [`GatedNorm`] applies its gate to the norm's output or input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateOrder {
    /// x ← weight · norm(x) · silu(gate).
    AfterNorm,
    /// x ← weight · norm(x · silu(gate)).
    BeforeNorm,
}

/// Normalises each segment of `width` columns like [`QkNorm`](super::QkNorm), in place, and multiplies by
/// silu(gate) = gate · sigmoid(gate).
#[derive(Debug)]
pub struct GatedNorm<'a> {
    /// T × columns, a multiple of `width`.
    pub x: ViewMut<'a, f32>,
    /// T × columns.
    pub gate: View<'a, f32>,
    /// One weight per element of a segment, for all segments, or one per column.
    pub weight: &'a Buffer<f32>,
    /// Columns of a segment.
    pub width: usize,
    /// Whether the gate applies to the norm's output or input.
    pub order: GateOrder,
    /// Added to the mean square.
    pub eps: f32,
}

constructor! {
    GatedNorm<'a>(x: ViewMut<'a, f32>, gate: View<'a, f32>, weight: &'a Buffer<f32>, eps: f32)
        default(width: usize = weight.len(), order: GateOrder = GateOrder::AfterNorm)
}

impl Check for GatedNorm<'_> {
    fn check(&mut self, device: DeviceId) -> Result<()> {
        let Self { x, gate, weight, width, order: _, eps } = self;
        same_shape(Self::NAME, device, gate, x)?;
        segments(Self::NAME, device, weight, *eps, x.cols())?;
        let divides = *width > 0 && x.cols().is_multiple_of(*width);
        require(divides, Self::NAME, "width of a segment", *width, "must divide the columns")?;
        match weight.len() == x.cols() {
            true => Ok(()),
            false => expect(Self::NAME, "length of the weight", weight.len(), *width),
        }
    }
}

/// The function that is applied to the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateKind {
    /// The gate itself.
    Linear,
    /// 1 / (1 + e^−gate).
    Sigmoid,
    /// gate / (1 + e^−gate).
    Silu,
    /// gelu(gate), with the tanh approximation.
    Gelu,
    /// ln(1 + e^gate).
    Softplus,
    /// Φ(gate), the distribution function of the standard normal distribution: x · Φ(x) is gelu(x).
    Normal,
    /// Φ(gate) with the tanh approximation of gelu.
    NormalTanh,
}

/// out = x · kind(gate). Element i of a row of x is multiplied by element ⌊i / (K / G)⌋ of the gate row.
#[derive(Debug)]
pub struct Multiply<'a> {
    /// T × K.
    pub x: View<'a, f32>,
    /// T × G, where G divides K.
    pub gate: View<'a, f32>,
    /// The function that is applied to the gate.
    pub kind: GateKind,
    /// T × K.
    pub out: ViewMut<'a, f32>,
}

constructor! { Multiply<'a>(x: View<'a, f32>, gate: View<'a, f32>, kind: GateKind, out: ViewMut<'a, f32>) }

impl Check for Multiply<'_> {
    fn check(&mut self, device: DeviceId) -> Result<()> {
        let Self { x, gate, out, .. } = self;
        same_shape(Self::NAME, device, x, out)?;
        on_device(Self::NAME, device, &[gate.device()])?;
        expect(Self::NAME, "rows of the gate", gate.rows(), out.rows())?;
        match gate.cols() > 0 && out.cols().is_multiple_of(gate.cols()) {
            true => Ok(()),
            false => expect(Self::NAME, "columns of the gate", gate.cols(), out.cols()),
        }
    }
}

/// [`Multiply`], with its output prepared as activations.
#[derive(Debug)]
pub struct MultiplyAct<'a> {
    /// The product. Its output can stay undefined.
    pub multiply: Multiply<'a>,
    /// Receives the product as activations.
    pub act: &'a mut Act,
}

constructor! { MultiplyAct<'a>(multiply: Multiply<'a>, act: &'a mut Act) }

impl Check for MultiplyAct<'_> {
    fn check(&mut self, device: DeviceId) -> Result<()> {
        let Self { multiply, act } = self;
        multiply.check(device)?;
        fill(Self::NAME, device, act, multiply.out.rows(), multiply.out.cols())
    }
}
