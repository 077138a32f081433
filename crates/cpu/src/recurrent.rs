//! Layers whose state has a fixed size. The tokens of a run are computed in order, so a result does not depend on how a
//! prompt is cut into chunks. Threads divide channels and heads.

use super::cpu::Cpu;
use super::host::{self, HostRows};
use super::math::{self, LANES, exp, gelu, normal, normal_tanh, sigmoid};
use super::out::RunColumns;
use super::rows::sum;
use gristmill_kernels::error::Result;
use gristmill_kernels::ops::{
    CausalConv, DELTA_EPS, DELTA_TILE, DELTA_WIDTHS, DecayKind, DeltaHeads, DeltaRule, GateKind, GateOrder, GatedNorm,
    Multiply, Operation, Run,
};
use gristmill_kernels::simd::{Kernel, Simd};

/// Elements of the widest key.
const WIDEST_KEY: usize = DELTA_WIDTHS[4];
/// Elements of the largest tile of a head's state.
const LARGEST_TILE: usize = WIDEST_KEY * DELTA_TILE;
/// Maximum number of convolution channels per thread.
const CHANNELS: usize = 512;

/// x · sigmoid(x) in place, by vectors and then for the rest of the row.
struct Silu<'a>(&'a mut [f32]);

impl Kernel for Silu<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let mut vectors = self.0.chunks_exact_mut(LANES);
        for x in &mut vectors {
            let v = s.load_f32(x, 0);
            s.store_f32(s.mul(v, sigmoid(s, v)), x, 0);
        }
        let rest = vectors.into_remainder();
        let mut padded = [0.0; LANES];
        padded[..rest.len()].copy_from_slice(rest);
        let v = s.load_f32(&padded, 0);
        s.store_f32(s.mul(v, sigmoid(s, v)), &mut padded, 0);
        rest.copy_from_slice(&padded[..rest.len()]);
    }
}

/// out = x · f(gate). Each element of the gate can serve several adjacent elements of x.
struct MultiplyRow<'a> {
    x: &'a [f32],
    gate: &'a [f32],
    kind: GateKind,
    out: &'a mut [f32],
}

impl Kernel for MultiplyRow<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { x, gate, kind, out } = self;
        let span = x.len() / gate.len().max(1);
        let chunks = out.chunks_mut(LANES * span.max(1)).zip(x.chunks(LANES * span.max(1)));
        for ((out, x), gate) in chunks.zip(gate.chunks(LANES)) {
            let mut padded = [[0.0; LANES]; 2];
            padded[1][..gate.len()].copy_from_slice(gate);
            let gate = s.load_f32(&padded[1], 0);
            let factors = match kind {
                GateKind::Linear => gate,
                GateKind::Sigmoid => sigmoid(s, gate),
                GateKind::Silu => s.mul(gate, sigmoid(s, gate)),
                GateKind::Gelu => gelu(s, gate),
                GateKind::Normal => normal(s, gate),
                GateKind::NormalTanh => normal_tanh(s, gate),
                GateKind::Softplus => {
                    padded[1].iter_mut().for_each(|x| *x = softplus(*x));
                    s.load_f32(&padded[1], 0)
                }
            };
            if span == 1 {
                padded[0][..x.len()].copy_from_slice(x);
                let product = s.to_array(s.mul(s.load_f32(&padded[0], 0), factors));
                out.copy_from_slice(&product[..out.len()]);
                continue;
            }
            for ((out, x), factor) in out.chunks_mut(span).zip(x.chunks(span)).zip(s.to_array(factors)) {
                out.iter_mut().zip(x).for_each(|(out, x)| *out = x * factor);
            }
        }
    }
}

/// One row of a convolution: the inputs of some channels, oldest first.
struct Taps<'a, const K: usize> {
    inputs: [&'a [f32]; K],
    /// Weights of these channels, `K` per channel.
    weight: &'a [f32],
    bias: Option<&'a [f32]>,
    out: &'a mut [f32],
}

impl<const K: usize> Kernel for Taps<'_, K> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let Self { inputs, weight, bias, out } = self;
        for (c, (out, taps)) in out.iter_mut().zip(weight.as_chunks::<K>().0).enumerate() {
            let mut sum = taps[0] * inputs[0][c];
            for i in 1..K {
                sum += taps[i] * inputs[i][c];
            }
            *out = sum;
        }
        if let Some(bias) = bias {
            out.iter_mut().zip(bias).for_each(|(out, bias)| *out += bias);
        }
    }
}

/// A run of the delta rule for [`DELTA_TILE`] values of a head; the values are the lanes of a vector. `CHANNELS`: each
/// element of the key has a gate.
struct DeltaRun<'a, const CHANNELS: bool> {
    qkv: HostRows<'a, f32>,
    beta: HostRows<'a, f32>,
    alpha: HostRows<'a, f32>,
    decay: f32,
    /// Of the head: one, or one for each element of the key.
    dt_bias: &'a [f32],
    kind: DecayKind,
    heads: DeltaHeads,
    head: usize,
    tile: usize,
    run: Run,
    unit: RunColumns<'a>,
}

impl<const CHANNELS: bool> Kernel for DeltaRun<'_, CHANNELS> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { qkv, beta, alpha, decay, dt_bias, kind, heads, head, tile, run, mut unit } = self;
        let d = heads.width;
        let gates = dt_bias.len();
        let (mut kept, mut kept_keys) = ([0.0; WIDEST_KEY], [0.0; WIDEST_KEY]);
        let mut state = [0.0; LARGEST_TILE];
        let state = &mut state[..d * DELTA_TILE];
        if let Some(before) = unit.before {
            state.copy_from_slice(before);
        }
        let (key, value) = (heads.key_of(head) * d, 2 * heads.keys * d + head * d + tile * DELTA_TILE);
        for row in 0..run.rows {
            let t = run.first + row;
            let inputs = qkv.row(t);
            let (q, k) = (&inputs[key..][..d], &inputs[heads.keys * d + key..][..d]);
            let alpha = &alpha.row(t)[gates * head..][..gates];
            let beta = 1.0 / (1.0 + (-beta.row(t)[head]).exp());
            let seen_keys = match CHANNELS {
                true => {
                    kept_of_channels(s, kind, decay, [alpha, dt_bias, k], [&mut kept, &mut kept_keys]);
                    &kept_keys[..d]
                }
                false => {
                    kept[0] = kept_of_head(kind, decay, alpha[0] + dt_bias[0]);
                    k
                }
            };
            let v = s.load_f32(inputs, value);
            let out = delta_step::<S, CHANNELS>(s, state, [q, k, seen_keys], v, &kept, beta);
            s.store_f32(out, unit.out.row(row), 0);
        }
        unit.after.copy_from_slice(state);
    }
}

/// e^g of a head.
fn kept_of_head(kind: DecayKind, decay: f32, x: f32) -> f32 {
    match kind {
        DecayKind::Softplus => decay * softplus(x),
        DecayKind::Bounded(bound) => bound / (1.0 + (decay * x).exp()),
    }
    .exp()
}

/// e^g of each element of a key, and their product with the key.
#[inline(always)]
fn kept_of_channels<S: Simd>(
    s: S,
    kind: DecayKind,
    decay: f32,
    [alpha, dt_bias, k]: [&[f32]; 3],
    [kept, kept_keys]: [&mut [f32; WIDEST_KEY]; 2],
) {
    for i in (0..k.len()).step_by(LANES) {
        let x = s.add(s.load_f32(alpha, i), s.load_f32(dt_bias, i));
        let g = match kind {
            DecayKind::Softplus => s.mul(s.splat(decay), math::softplus(s, x)),
            DecayKind::Bounded(bound) => s.mul(s.splat(bound), sigmoid(s, s.mul(s.splat(-decay), x))),
        };
        let factor = exp(s, g);
        s.store_f32(factor, kept, i);
        s.store_f32(s.mul(factor, s.load_f32(k, i)), kept_keys, i);
    }
}

/// One token: the key and value update the state, and the query reads it. Sums go over the elements of the key in
/// order, in four partial sums. `kept` has e^g of each element of the key, and `seen_keys` their products with the key.
/// Without `CHANNELS`, only the first element of `kept` is used, and `seen_keys` is the key.
#[inline(always)]
fn delta_step<S: Simd, const CHANNELS: bool>(
    s: S,
    state: &mut [f32],
    [q, k, seen_keys]: [&[f32]; 3],
    v: S::F32,
    kept: &[f32; WIDEST_KEY],
    beta: f32,
) -> S::F32 {
    let inverse = |squares: f32| 1.0 / (squares + DELTA_EPS).sqrt();
    let (of_k, of_q) = (inverse(sum::<S, true>(s, k)), inverse(sum::<S, true>(s, q)) / (q.len() as f32).sqrt());
    let mut seen = [s.splat(0.0); 4];
    for (at, keys) in state.chunks_exact(4 * LANES).zip(seen_keys.as_chunks::<4>().0) {
        for i in 0..4 {
            seen[i] = s.mul_add(s.load_f32(at, LANES * i), s.splat(keys[i]), seen[i]);
        }
    }
    let seen = s.add(s.add(seen[0], seen[1]), s.add(seen[2], seen[3]));
    let error = s.sub(v, s.mul(seen, s.splat(if CHANNELS { of_k } else { kept[0] * of_k })));
    let update = s.mul(error, s.splat(beta * of_k));
    let mut out = [s.splat(0.0); 4];
    let rows = state.chunks_exact_mut(4 * LANES).zip(k.as_chunks::<4>().0).zip(q.as_chunks::<4>().0);
    for (((at, k), q), kept_rows) in rows.zip(kept.as_chunks::<4>().0) {
        for i in 0..4 {
            let decayed = s.mul(s.load_f32(at, LANES * i), s.splat(if CHANNELS { kept_rows[i] } else { kept[0] }));
            let new = s.mul_add(s.splat(k[i]), update, decayed);
            s.store_f32(new, at, LANES * i);
            out[i] = s.mul_add(new, s.splat(q[i]), out[i]);
        }
    }
    s.mul(s.add(s.add(out[0], out[1]), s.add(out[2], out[3])), s.splat(of_q))
}

/// ln(1 + e^x).
fn softplus(x: f32) -> f32 {
    if x > 20.0 { x } else { x.exp().ln_1p() }
}

/// A segment of [`GatedNorm`], in place.
struct GatedSegment<'a> {
    x: &'a mut [f32],
    gate: &'a [f32],
    weight: &'a [f32],
    order: GateOrder,
    eps: f32,
}

impl Kernel for GatedSegment<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { x, gate, weight, order, eps } = self;
        if order == GateOrder::BeforeNorm {
            multiply_by_silu(s, x, gate);
        }
        let scale = 1.0 / (sum::<S, true>(s, x) / x.len() as f32 + eps).sqrt();
        x.iter_mut().zip(weight).for_each(|(x, weight)| *x = *x * scale * weight);
        if order == GateOrder::AfterNorm {
            multiply_by_silu(s, x, gate);
        }
    }
}

/// x ← x · gate · sigmoid(gate).
#[inline(always)]
fn multiply_by_silu<S: Simd>(s: S, x: &mut [f32], gate: &[f32]) {
    for (x, gate) in x.chunks_mut(LANES).zip(gate.chunks(LANES)) {
        let mut padded = [0.0; LANES];
        padded[..gate.len()].copy_from_slice(gate);
        let v = s.load_f32(&padded, 0);
        let silu = s.to_array(s.mul(v, sigmoid(s, v)));
        for i in 0..x.len() {
            x[i] *= silu[i];
        }
    }
}

on_cpu! {
    causal_conv_rows(CausalConv);
    delta_rule_rows(DeltaRule);
    gated_norm_rows(GatedNorm): x * 2, gate;
    multiply_rows(Multiply): x, gate, out;
}

impl Cpu {
    pub(super) fn causal_conv_rows(&self, call: CausalConv) -> Result<()> {
        match call.taps() {
            2 => self.causal_conv::<2>(call),
            3 => self.causal_conv::<3>(call),
            _ => self.causal_conv::<4>(call),
        }
    }

    fn causal_conv<const K: usize>(&self, call: CausalConv) -> Result<()> {
        const OP: &str = CausalConv::NAME;
        let CausalConv { x, weight, bias, silu, mut state, runs, mut out } = call;
        let channels = x.cols();
        let (x, weight) = (host::rows(OP, x)?, host::slice(OP, weight)?);
        let bias = bias.map(|bias| host::slice(OP, bias)).transpose()?;
        let runs: Vec<Run> = runs.of_host().into_iter().flatten().collect();
        let (state, out) = (host::rows_mut(OP, &mut state)?, host::rows_mut(OP, &mut out)?);
        if channels == 0 {
            return Ok(());
        }
        let units = (1..=channels.div_ceil(CHANNELS)).rev().find(|&n| channels.is_multiple_of(n)).unwrap_or(1);
        self.pool.each_unit(&runs, &state, &out, units, &|run, mut unit: RunColumns| {
            let count = channels / units;
            let columns = count * unit.index..count * (unit.index + 1);
            // The K − 1 inputs before the run, one after another.
            let mut before = vec![0.0; (K - 1) * count];
            for (at, input) in unit.before.unwrap_or(&[]).iter().enumerate() {
                before[at % (K - 1) * count + at / (K - 1)] = *input;
            }
            let input = |i: usize| match i.checked_sub(K - 1) {
                None => &before[i * count..][..count],
                Some(row) => &x.row(run.first + row)[columns.clone()],
            };
            let weight = &weight[K * columns.start..K * columns.end];
            let bias = bias.map(|bias| &bias[columns.clone()]);
            for row in 0..run.rows {
                let mut inputs = [&before[..0]; K];
                inputs.iter_mut().enumerate().for_each(|(i, of)| *of = input(row + i));
                let out = unit.out.row(row);
                self.level.run(Taps { inputs, weight, bias, out });
                if silu {
                    self.level.run(Silu(out));
                }
            }
            for i in 0..K - 1 {
                let after = unit.after.iter_mut().skip(i).step_by(K - 1);
                after.zip(input(run.rows + i)).for_each(|(after, input)| *after = *input);
            }
        });
        Ok(())
    }

    pub(super) fn delta_rule_rows(&self, call: DeltaRule) -> Result<()> {
        match call.has_channel_gates() {
            true => self.delta_rule::<true>(call),
            false => self.delta_rule::<false>(call),
        }
    }

    fn delta_rule<const CHANNELS: bool>(&self, call: DeltaRule) -> Result<()> {
        const OP: &str = DeltaRule::NAME;
        let DeltaRule { qkv, beta, alpha, decay, dt_bias, kind, heads, mut state, runs, mut out } = call;
        let (qkv, beta, alpha) = (host::rows(OP, qkv)?, host::rows(OP, beta)?, host::rows(OP, alpha)?);
        let (decay, dt_bias) = (host::slice(OP, decay)?, host::slice(OP, dt_bias)?);
        let runs: Vec<Run> = runs.of_host().into_iter().flatten().collect();
        let (state, out) = (host::rows_mut(OP, &mut state)?, host::rows_mut(OP, &mut out)?);
        let tiles = heads.width / DELTA_TILE;
        let gates = if CHANNELS { heads.width } else { 1 };
        self.pool.each_unit(&runs, &state, &out, heads.values * tiles, &|run, unit| {
            let (head, tile) = (unit.index / tiles, unit.index % tiles);
            let (decay, dt_bias) = (decay[head], &dt_bias[gates * head..][..gates]);
            self.level.run(DeltaRun::<CHANNELS> {
                qkv,
                beta,
                alpha,
                decay,
                dt_bias,
                kind,
                heads,
                head,
                tile,
                run,
                unit,
            });
        });
        Ok(())
    }

    pub(super) fn gated_norm_rows(&self, call: GatedNorm) -> Result<()> {
        let GatedNorm { mut x, gate, weight, width, order, eps } = call;
        let (gate, weight) = (host::rows(GatedNorm::NAME, gate)?, host::slice(GatedNorm::NAME, weight)?);
        self.each_row_of(GatedNorm::NAME, &mut x, &|row, x| {
            let weights = weight.chunks_exact(width).cycle();
            for ((x, gate), weight) in x.chunks_exact_mut(width).zip(gate.row(row).chunks_exact(width)).zip(weights) {
                self.level.run(GatedSegment { x, gate, weight, order, eps });
            }
        })
    }

    pub(super) fn multiply_rows(&self, call: Multiply) -> Result<()> {
        let Multiply { x, gate, kind, mut out } = call;
        let (x, gate) = (host::rows(Multiply::NAME, x)?, host::rows(Multiply::NAME, gate)?);
        self.each_row_of(Multiply::NAME, &mut out, &|row, out| {
            self.level.run(MultiplyRow { x: x.row(row), gate: gate.row(row), kind, out });
        })
    }
}
