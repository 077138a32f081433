//! Layers whose state has a fixed size, one token after another.

use super::matrix;
use super::rows::{Rows, RowsMut};
use crate::error::Result;
use crate::ops::{
    Activation, CausalConv, DELTA_EPS, DecayKind, DeltaHeads, DeltaRule, GateKind, GateOrder, GatedNorm, Multiply,
    Operation, Run, Runs,
};

fn sigmoid(x: impl Into<f64>) -> f64 {
    1.0 / (1.0 + (-x.into()).exp())
}

pub(super) fn softplus(x: f64) -> f64 {
    if x > 20.0 { x } else { x.exp().ln_1p() }
}

pub(super) fn runs(runs: &Runs) -> Vec<Run> {
    runs.of_host().into_iter().flatten().collect()
}

pub(super) fn causal_conv(call: CausalConv) -> Result<()> {
    let (taps, channels) = (call.taps(), call.x.cols());
    let CausalConv { x, weight, bias, silu, mut state, runs: list, mut out } = call;
    let x = Rows::new(CausalConv::NAME, x)?;
    let weight = weight.as_host().unwrap_or(&[]);
    let mut state = RowsMut::new(CausalConv::NAME, &mut state)?;
    let mut out = RowsMut::new(CausalConv::NAME, &mut out)?;
    for Run { first, rows, read, written } in runs(list) {
        let mut inputs = vec![0.0; (taps - 1) * channels];
        if let Some(slot) = read {
            let slot = state.row(slot);
            inputs.iter_mut().enumerate().for_each(|(at, x)| *x = slot[at % channels * (taps - 1) + at / channels]);
        }
        inputs.extend((first..first + rows).flat_map(|row| x.row(row)));
        for t in 0..rows {
            for c in 0..channels {
                let product = |i: usize| f64::from(weight[c * taps + i]) * f64::from(inputs[(t + i) * channels + c]);
                let bias = bias.and_then(|bias| bias.as_host()).map_or(0.0, |bias| f64::from(bias[c]));
                let sum = (0..taps).map(product).sum::<f64>() + bias;
                out.row(first + t)[c] = (if silu { sum / (1.0 + (-sum).exp()) } else { sum }) as f32;
            }
        }
        let slot = state.row(written);
        let last = inputs[rows * channels..].iter().enumerate();
        last.for_each(|(at, &x)| slot[at % channels * (taps - 1) + at / channels] = x);
    }
    Ok(())
}

/// Divided by √(Σx² + ε).
fn normalised(x: &[f32]) -> Vec<f64> {
    let squares: f64 = x.iter().map(|&x| f64::from(x).powi(2)).sum();
    let factor = 1.0 / (squares + f64::from(DELTA_EPS)).sqrt();
    x.iter().map(|&x| f64::from(x) * factor).collect()
}

fn dot(a: &[f64], b: impl Iterator<Item = f64>) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

pub(super) fn delta_rule(call: DeltaRule) -> Result<()> {
    const OP: &str = DeltaRule::NAME;
    let gates = if call.has_channel_gates() { call.heads.width } else { 1 };
    let DeltaRule { qkv, beta, alpha, decay, dt_bias, kind, heads, mut state, runs: list, mut out } = call;
    let DeltaHeads { keys, values, width: d, .. } = heads;
    let (qkv, beta, alpha) = (Rows::new(OP, qkv)?, Rows::new(OP, beta)?, Rows::new(OP, alpha)?);
    let (decay, dt_bias) = (decay.as_host().unwrap_or(&[]), dt_bias.as_host().unwrap_or(&[]));
    let (mut state, mut out) = (RowsMut::new(OP, &mut state)?, RowsMut::new(OP, &mut out)?);
    for Run { first, rows, read, written } in runs(list) {
        for h in 0..values {
            // s[i · d + j]: key i, value j.
            let mut s = vec![0.0; d * d];
            if let Some(slot) = read {
                let slot = state.row(slot);
                s.iter_mut().enumerate().for_each(|(i, s)| *s = f64::from(slot[heads.state_at(h, i / d, i % d)]));
            }
            for t in first..first + rows {
                let row = qkv.row(t);
                let key = heads.key_of(h) * d;
                let (q, k) = (normalised(&row[key..][..d]), normalised(&row[keys * d + key..][..d]));
                let v = &row[2 * keys * d + h * d..][..d];
                for (i, s) in s.chunks_exact_mut(d).enumerate() {
                    let (at, decay) = (h * gates + i % gates, f64::from(decay[h]));
                    let x = f64::from(alpha.row(t)[at]) + f64::from(dt_bias[at]);
                    let gate = match kind {
                        DecayKind::Softplus => decay * softplus(x),
                        DecayKind::Bounded(bound) => f64::from(bound) * sigmoid(-decay * x),
                    };
                    s.iter_mut().for_each(|s| *s *= gate.exp());
                }
                for j in 0..d {
                    let column = |s: &[f64]| (0..d).map(|i| s[i * d + j]).collect::<Vec<_>>();
                    let u = sigmoid(beta.row(t)[h]) * (f64::from(v[j]) - dot(&k, column(&s).into_iter()));
                    // A state is rounded as a slot keeps it, so that a run has the same state in one part and in several.
                    (0..d).for_each(|i| s[i * d + j] = f64::from((s[i * d + j] + k[i] * u) as f32));
                    out.row(t)[h * d + j] = (dot(&q, column(&s).into_iter()) / (d as f64).sqrt()) as f32;
                }
            }
            let slot = state.row(written);
            s.iter().enumerate().for_each(|(i, &s)| slot[heads.state_at(h, i / d, i % d)] = s as f32);
        }
    }
    Ok(())
}

pub(super) fn gated_norm(call: GatedNorm) -> Result<()> {
    let GatedNorm { mut x, gate, weight, width, order, eps } = call;
    let gate = Rows::new(GatedNorm::NAME, gate)?;
    let weight = weight.as_host().unwrap_or(&[]);
    RowsMut::new(GatedNorm::NAME, &mut x)?.each(|t, row| {
        let weights = weight.chunks_exact(width).cycle();
        for ((x, gate), weight) in row.chunks_exact_mut(width).zip(gate.row(t).chunks_exact(width)).zip(weights) {
            let silu: Vec<f64> = gate.iter().map(|&gate| f64::from(gate) * sigmoid(gate)).collect();
            let normed: Vec<f64> = match order {
                GateOrder::AfterNorm => x.iter().map(|&x| x.into()).collect(),
                GateOrder::BeforeNorm => x.iter().zip(&silu).map(|(&x, silu)| f64::from(x) * silu).collect(),
            };
            let squares: f64 = normed.iter().map(|x| x * x).sum();
            let factor = 1.0 / (squares / width as f64 + f64::from(eps)).sqrt();
            for (i, x) in x.iter_mut().enumerate() {
                let gate = if order == GateOrder::AfterNorm { silu[i] } else { 1.0 };
                *x = (normed[i] * factor * f64::from(weight[i]) * gate) as f32;
            }
        }
    });
    Ok(())
}

pub(super) fn multiply(call: Multiply) -> Result<()> {
    let Multiply { x, gate, kind, mut out } = call;
    let (x, gate) = (Rows::new(Multiply::NAME, x)?, Rows::new(Multiply::NAME, gate)?);
    RowsMut::new(Multiply::NAME, &mut out)?.each(|t, out| {
        let gates = gate.row(t);
        let columns = out.len();
        for (i, (out, &x)) in out.iter_mut().zip(x.row(t)).enumerate() {
            let gate = gates[i / (columns / gates.len())];
            let factor = match kind {
                GateKind::Linear => f64::from(gate),
                GateKind::Sigmoid => sigmoid(gate),
                GateKind::Silu => f64::from(gate) * sigmoid(gate),
                GateKind::Softplus => softplus(f64::from(gate)),
                GateKind::Gelu => matrix::activate(Activation::GeGlu, f64::from(gate), 1.0),
                GateKind::Normal => normal(f64::from(gate)),
                GateKind::NormalTanh => {
                    let x = f64::from(gate);
                    0.5 * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh())
                }
            };
            *out = (f64::from(x) * factor) as f32;
        }
    });
    Ok(())
}

/// The distribution function of the standard normal distribution: ½ + density · Σ x^(2n + 1) / (2n + 1)!!. All terms
/// have one sign, so nothing cancels but the half; beyond 9 the rest is below the precision of f64.
fn normal(x: f64) -> f64 {
    if x.abs() > 9.0 {
        return if x > 0.0 { 1.0 } else { 0.0 };
    }
    let (mut term, mut sum) = (x, x);
    for n in 1..300 {
        term *= x * x / f64::from(2 * n + 1);
        sum += term;
    }
    0.5 + sum * (-0.5 * x * x).exp() / (2.0 * std::f64::consts::PI).sqrt()
}
