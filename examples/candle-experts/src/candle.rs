//! The layer by candle's own products.

use crate::{EXPERTS, Experts, Layer, TOP_K};
use candle_core::quantized::{QMatMul, QTensor};
use candle_core::{D, Device, Module, Result, Tensor};
use std::sync::Arc;

/// Routes, then multiplies each expert with the rows of its tokens, as the Qwen3-MoE of candle-transformers does.
pub struct Candle<'a> {
    pub experts: &'a Experts,
    /// Whether gate and up are one fused product (`QTensor::gemv_fused_shared_lhs`), of all experts if there is one token.
    pub fused: bool,
}

impl Layer for Candle<'_> {
    fn name(&self) -> String {
        let how = if self.fused { "gate and up fused" } else { "QMatMul of each expert" };
        format!("candle, {how}")
    }

    fn forward(&mut self, x: &Tensor, logits: &Tensor) -> Result<Tensor> {
        let shares = candle_nn::ops::softmax_last_dim(logits)?;
        let ids = shares.arg_sort_last_dim(false)?.narrow(D::Minus1, 0, TOP_K)?.contiguous()?;
        let shares = shares.gather(&ids, D::Minus1)?;
        let shares = shares.broadcast_div(&shares.sum_keepdim(D::Minus1)?)?;
        let (ids, shares) = (ids.to_vec2::<u32>()?, shares.to_vec2::<f32>()?);
        match &ids[..] {
            [ids] if self.fused => self.one_token(x, ids, &shares[0]),
            _ => self.by_expert(x, &ids, &shares),
        }
    }
}

impl Candle<'_> {
    fn one_token(&self, x: &Tensor, ids: &[u32], shares: &[f32]) -> Result<Tensor> {
        let pair = |&id: &u32| [&*self.experts.gate[id as usize], &*self.experts.up[id as usize]];
        let matrices: Vec<&QTensor> = ids.iter().flat_map(pair).collect();
        let Some(outputs) = QTensor::gemv_fused_shared_lhs(&matrices, x)? else {
            candle_core::bail!("candle has no fused product on this CPU");
        };
        let mut y = x.zeros_like()?;
        for (slot, (id, share)) in ids.iter().zip(shares).enumerate() {
            let h = (outputs[2 * slot].silu()? * &outputs[2 * slot + 1])?;
            y = (y + (multiply(&self.experts.down[*id as usize], &h)? * f64::from(*share))?)?;
        }
        Ok(y)
    }

    fn by_expert(&self, x: &Tensor, ids: &[Vec<u32>], shares: &[Vec<f32>]) -> Result<Tensor> {
        let mut tokens = vec![(Vec::new(), Vec::new()); EXPERTS];
        for (token, (ids, shares)) in ids.iter().zip(shares).enumerate() {
            for (id, share) in ids.iter().zip(shares) {
                let (tokens, weights) = &mut tokens[*id as usize];
                tokens.push(token as u32);
                weights.push(*share);
            }
        }
        let mut y = x.zeros_like()?;
        for (expert, (tokens, weights)) in tokens.into_iter().enumerate() {
            if tokens.is_empty() {
                continue;
            }
            let rows = tokens.len();
            let (tokens, weights) =
                (Tensor::new(&tokens[..], &Device::Cpu)?, Tensor::from_vec(weights, (rows, 1), &Device::Cpu)?);
            let x = x.index_select(&tokens, 0)?;
            let (gate, up) = (&self.experts.gate[expert], &self.experts.up[expert]);
            let [gate, up] = match self.fused.then(|| QTensor::gemv_fused_shared_lhs(&[gate, up], &x)).transpose()? {
                Some(Some(outputs)) => [outputs[0].clone(), outputs[1].clone()],
                _ => [multiply(gate, &x)?, multiply(up, &x)?],
            };
            let outputs = multiply(&self.experts.down[expert], &(gate.silu()? * up)?)?;
            y = y.index_add(&tokens, &outputs.broadcast_mul(&weights)?, 0)?;
        }
        Ok(y)
    }
}

fn multiply(matrix: &Arc<QTensor>, x: &Tensor) -> Result<Tensor> {
    QMatMul::from_arc(matrix.clone())?.forward(x)
}
