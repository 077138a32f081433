//! Matrix operations: every weight row is decoded once and multiplied with every activation row that wants it.

use super::rows::{Rows, RowsMut};
use crate::act::Act;
use crate::error::{Error, Result};
use crate::ops::Activation;
use crate::tensor::Buffer;
use crate::weight::{Storage, TensorView, Weight};

/// The tensors of a weight that the reference has prepared.
pub(super) fn tensors<'a>(op: &'static str, w: &'a Weight) -> Result<&'a [TensorView]> {
    match &w.storage {
        Storage::Mapped(tensors) => Ok(tensors),
        _ => Err(Error::Range {
            op,
            what: "layout of the weight",
            found: "another backend's".into(),
            rule: "prepare it with the backend that uses it",
        }),
    }
}

/// Decodes one row of one matrix of a tensor.
pub(super) fn decode(tensor: &TensorView, expert: usize, row: usize, out: &mut [f32]) {
    let bytes = tensor.format.row_bytes(tensor.cols).and_then(|len| {
        let start = (expert * tensor.rows + row) * len;
        tensor.bytes.as_slice().get(start..start + len)
    });
    // `prepare` has checked the size; an owner that breaks its promise and shrinks reads as zeros.
    if bytes.and_then(|b| tensor.format.decode(b, out)).is_none() {
        out.fill(0.0);
    }
}

/// The exact activations, row by row.
pub(super) fn activations<'a>(op: &'static str, x: &'a Act) -> Result<Rows<'a, f32>> {
    Rows::new(op, x.exact.view(x.rows, x.cols)?)
}

/// The elements of an optional vector.
pub(super) fn vector(v: Option<&Buffer<f32>>) -> Option<&[f32]> {
    v.and_then(Buffer::as_host)
}

pub(super) fn dot(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum()
}

/// One product: the row of X to read and the row of Y to write.
pub(super) struct Pair {
    pub(super) x: usize,
    pub(super) y: usize,
}

/// Y[pair.y] = W[expert] · X[pair.x] + bias[expert] for all pairs.
pub(super) fn multiply(
    tensors: &[TensorView],
    expert: usize,
    x: Rows<f32>,
    bias: Option<&[f32]>,
    pairs: &[Pair],
    y: &mut RowsMut<f32>,
) {
    let outputs: usize = tensors.iter().map(|t| t.rows).sum();
    let mut weights = Vec::new();
    let mut output = 0;
    for tensor in tensors {
        weights.resize(tensor.cols, 0.0);
        for row in 0..tensor.rows {
            decode(tensor, expert, row, &mut weights);
            let bias = bias.map_or(0.0, |b| f64::from(b[expert * outputs + output]));
            for pair in pairs {
                y.row(pair.y)[output] = (dot(&weights, x.row(pair.x)) + bias) as f32;
            }
            output += 1;
        }
    }
}

/// H[pair.y] = activation(gate[expert] · X[pair.x] + bias, up[expert] · X[pair.x] + bias) for all pairs.
pub(super) fn multiply_gate_up(
    [gate, up]: [&TensorView; 2],
    expert: usize,
    x: Rows<f32>,
    bias: Option<[&[f32]; 2]>,
    activation: Activation,
    pairs: &[Pair],
    h: &mut RowsMut<f32>,
) {
    let (mut gate_row, mut up_row) = (vec![0.0; gate.cols], vec![0.0; up.cols]);
    for row in 0..gate.rows {
        decode(gate, expert, row, &mut gate_row);
        decode(up, expert, row, &mut up_row);
        let at = expert * gate.rows + row;
        let [gate_bias, up_bias] = bias.map_or([0.0; 2], |b| b.map(|b| f64::from(b[at])));
        for pair in pairs {
            let x = x.row(pair.x);
            let value = activate(activation, dot(&gate_row, x) + gate_bias, dot(&up_row, x) + up_bias);
            h.row(pair.y)[row] = value as f32;
        }
    }
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// See [`Activation`].
fn activate(activation: Activation, gate: f64, up: f64) -> f64 {
    match activation {
        Activation::SwiGlu => gate * sigmoid(gate) * up,
        Activation::GeGlu => {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (gate + 0.044715 * gate.powi(3));
            0.5 * gate * (1.0 + inner.tanh()) * up
        }
        Activation::ClampedSwiGlu { alpha, limit } => {
            let (alpha, limit) = (f64::from(alpha), f64::from(limit));
            // Comparisons rather than `min`: NaN stays NaN.
            let gate = if gate > limit { limit } else { gate };
            gate * sigmoid(alpha * gate) * (up.clamp(-limit, limit) + 1.0)
        }
    }
}
