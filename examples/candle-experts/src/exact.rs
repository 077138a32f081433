//! The layer in f64, for comparison.

use crate::{Experts, TOP_K};
use candle_core::quantized::QTensor;
use candle_core::{Device, Result, Tensor};

/// The outputs of some tokens: weights as candle decodes them, sums in f64.
pub fn rows(experts: &Experts, x: &Tensor, logits: &Tensor, tokens: &[usize]) -> Result<Vec<(usize, Vec<f64>)>> {
    let (x, logits) = (x.to_vec2::<f32>()?, logits.to_vec2::<f32>()?);
    tokens.iter().map(|&token| Ok((token, row(experts, &x[token], &logits[token])?))).collect()
}

fn row(experts: &Experts, x: &[f32], logits: &[f32]) -> Result<Vec<f64>> {
    let x: Vec<f64> = x.iter().map(|&x| f64::from(x)).collect();
    let mut ids: Vec<usize> = (0..logits.len()).collect();
    ids.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]));
    ids.truncate(TOP_K);
    let weights: Vec<f64> = ids.iter().map(|&id| f64::from(logits[id]).exp()).collect();
    let sum: f64 = weights.iter().sum();
    let mut y = vec![0.0; x.len()];
    for (id, weight) in ids.into_iter().zip(weights) {
        let (gate, up) = (multiply(&experts.gate[id], &x)?, multiply(&experts.up[id], &x)?);
        let h: Vec<f64> = gate.iter().zip(up).map(|(gate, up)| gate / (1.0 + (-gate).exp()) * up).collect();
        for (y, output) in y.iter_mut().zip(multiply(&experts.down[id], &h)?) {
            *y += weight / sum * output;
        }
    }
    Ok(y)
}

fn multiply(matrix: &QTensor, x: &[f64]) -> Result<Vec<f64>> {
    let rows = matrix.dequantize(&Device::Cpu)?.to_vec2::<f32>()?;
    Ok(rows.iter().map(|row| row.iter().zip(x).map(|(&w, x)| f64::from(w) * x).sum()).collect())
}
