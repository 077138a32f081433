//! Matrix operations: every weight row is decoded once and multiplied with every activation row that needs it.

use super::rows::{Rows, RowsMut};
use crate::act::Act;
use crate::error::{Error, Result};
use crate::ops::{Activation, Embed, Epilogue, GateUp, Matmul, Operation, PrepareActivations};
use crate::tensor::Buffer;
use crate::weight::{TensorView, Weight};

/// The tensors of a weight that the reference has prepared.
pub(super) fn tensors<'a>(op: &'static str, w: &'a Weight) -> Result<&'a [TensorView]> {
    w.storage::<Vec<TensorView>>(op).map(|tensors| &tensors[..])
}

/// The two tensors of a gate and up weight; without a gate up in both places.
pub(super) fn gate_and_up<'a>(op: &'static str, w: &'a Weight) -> Result<[&'a TensorView; 2]> {
    match tensors(op, w)? {
        [gate, up] => Ok([gate, up]),
        [up] => Ok([up, up]),
        tensors => Err(Error::Shape { op, what: "tensors of the weight", found: tensors.len(), expected: 2 }),
    }
}

pub(super) fn embed(call: Embed) -> Result<()> {
    let Embed { table, rows, scale, mut out } = call;
    let tensors = tensors(Embed::NAME, table)?;
    let ids = Rows::new(Embed::NAME, rows)?;
    RowsMut::new(Embed::NAME, &mut out)?.each(|t, out| {
        for tensor in tensors {
            decode(tensor, 0, ids.row(t)[0] as usize, out);
        }
        out.iter_mut().for_each(|x| *x *= scale);
    });
    Ok(())
}

pub(super) fn prepare_activations(call: PrepareActivations) -> Result<()> {
    let PrepareActivations { x, act } = call;
    let x = Rows::new(PrepareActivations::NAME, x)?;
    let copy = act.storage_mut::<Buffer<f32>>(PrepareActivations::NAME)?.as_host_mut().unwrap_or(&mut []);
    copy.iter_mut().zip(x.elements()).for_each(|(copy, x)| *copy = x);
    Ok(())
}

pub(super) fn matmul(call: Matmul) -> Result<()> {
    const OP: &str = Matmul::NAME;
    let Matmul { weight, x, rows, bias, epilogue, mut y } = call;
    let (tensors, x) = (tensors(OP, weight)?, activations(OP, x)?);
    let pairs: Vec<RowPair> = match rows {
        None => (0..x.len).map(|t| RowPair { x: t, y: t }).collect(),
        Some(rows) => Rows::new(OP, rows)?.elements().enumerate().map(|(y, x)| RowPair { x: x as usize, y }).collect(),
    };
    multiply_pairs(tensors, 0, x, vector(bias), &pairs, epilogue, &mut RowsMut::new(OP, &mut y)?);
    Ok(())
}

pub(super) fn gate_up(call: GateUp) -> Result<()> {
    const OP: &str = GateUp::NAME;
    let GateUp { weight, x, bias, activation, mut h } = call;
    let (tensors, x) = (gate_and_up(OP, weight)?, activations(OP, x)?);
    let pairs: Vec<RowPair> = (0..x.len).map(|t| RowPair { x: t, y: t }).collect();
    multiply_gate_up(tensors, 0, x, both(bias), activation, &pairs, &mut RowsMut::new(OP, &mut h)?);
    Ok(())
}

/// The elements of optional biases of gate and up.
pub(super) fn both(bias: Option<[&Buffer<f32>; 2]>) -> Option<[&[f32]; 2]> {
    bias.and_then(|[gate, up]| Some([gate.as_host()?, up.as_host()?]))
}

/// The element that an epilogue stores over `before`.
pub(super) fn apply_epilogue(epilogue: Epilogue, before: f32, output: f64) -> f32 {
    match epilogue {
        Epilogue::Store => output as f32,
        Epilogue::Add { scale } => (f64::from(before) + f64::from(scale) * output) as f32,
    }
}

/// Decodes one row of one matrix of a tensor.
pub(super) fn decode(tensor: &TensorView, expert: usize, row: usize, out: &mut [f32]) {
    let bytes = tensor.format.row_bytes(tensor.cols).and_then(|len| {
        let start = (expert * tensor.rows + row) * len;
        tensor.bytes.as_slice().get(start..start + len)
    });
    // `prepare` has checked the size; bytes whose owner shrinks read as zeros.
    if bytes.and_then(|b| tensor.format.decode(b, out)).is_none() {
        out.fill(0.0);
    }
}

/// The exact activations, row by row.
pub(super) fn activations<'a>(op: &'static str, x: &'a Act) -> Result<Rows<'a, f32>> {
    Rows::new(op, x.storage::<Buffer<f32>>(op)?.view(x.rows(), x.cols())?)
}

/// The elements of an optional vector.
pub(super) fn vector(v: Option<&Buffer<f32>>) -> Option<&[f32]> {
    v.and_then(Buffer::as_host)
}

/// The products are exact. There are eight sums, because the additions of one wait for each other: the tests of
/// attention take a quarter less time.
pub(super) fn dot(a: &[f32], b: &[f32]) -> f64 {
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<8>(), b.as_chunks::<8>());
    let mut sums = [0.0; 8];
    for (a, b) in a.iter().zip(b) {
        for (sum, (&a, &b)) in sums.iter_mut().zip(a.iter().zip(b)) {
            *sum += f64::from(a) * f64::from(b);
        }
    }
    let rest = a_rest.iter().zip(b_rest).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum::<f64>();
    sums.iter().sum::<f64>() + rest
}

/// One matrix-vector product: the row of X to read and the row of Y to write.
pub(super) struct RowPair {
    pub(super) x: usize,
    pub(super) y: usize,
}

/// Y[pair.y] = W[expert] · X[pair.x] + bias[expert] for all pairs, by the epilogue.
pub(super) fn multiply_pairs(
    tensors: &[TensorView],
    expert: usize,
    x: Rows<f32>,
    bias: Option<&[f32]>,
    pairs: &[RowPair],
    epilogue: Epilogue,
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
                let y = &mut y.row(pair.y)[output];
                *y = apply_epilogue(epilogue, *y, dot(&weights, x.row(pair.x)) + bias);
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
    pairs: &[RowPair],
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
pub(super) fn activate(activation: Activation, gate: f64, up: f64) -> f64 {
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
        Activation::LimitedSwiGlu { limit } => {
            let limit = f64::from(limit);
            let silu = gate * sigmoid(gate);
            (if silu > limit { limit } else { silu }) * up.clamp(-limit, limit)
        }
        Activation::SquaredRelu => (if up < 0.0 { 0.0 } else { up }).powi(2),
    }
}
