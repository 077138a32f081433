//! Norms, rotation and what works element by element.

use super::rows::{Rows, RowsMut};
use crate::error::Result;
use crate::ops::{
    Add, AddGated, Clamp, CopyRows, GatherColumns, LayerNorm, Operation, QkNorm, RmsNorm, Rope, RopeStyle, Scale,
    SoftCap,
};
use crate::tensor::{View, ViewMut};

/// 1 / sqrt(mean(x²) + eps).
pub(super) fn inverse_rms(x: &[f32], eps: f32) -> f64 {
    let squares: f64 = x.iter().map(|&x| f64::from(x).powi(2)).sum();
    1.0 / (squares / x.len() as f64 + f64::from(eps)).sqrt()
}

pub(super) fn rms_norm(call: RmsNorm) -> Result<()> {
    let RmsNorm { x, weight, eps, mut out } = call;
    let x = Rows::new(RmsNorm::NAME, x)?;
    let weight = weight.as_host().unwrap_or(&[]);
    RowsMut::new(RmsNorm::NAME, &mut out)?.each(|t, out| {
        let factor = inverse_rms(x.row(t), eps);
        let x = x.row(t);
        for ((out, &x), &weight) in out.iter_mut().zip(x).zip(weight) {
            *out = (f64::from(x) * factor * f64::from(weight)) as f32;
        }
    });
    Ok(())
}

pub(super) fn layer_norm(call: LayerNorm) -> Result<()> {
    let LayerNorm { x, weight, bias, eps, mut out } = call;
    let x = Rows::new(LayerNorm::NAME, x)?;
    let (weight, bias) = (weight.as_host().unwrap_or(&[]), bias.as_host().unwrap_or(&[]));
    RowsMut::new(LayerNorm::NAME, &mut out)?.each(|t, out| {
        let (x, n) = (x.row(t), x.row(t).len() as f64);
        let mean = x.iter().map(|&x| f64::from(x)).sum::<f64>() / n;
        let variance = x.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>() / n;
        let factor = 1.0 / (variance + f64::from(eps)).sqrt();
        for (i, out) in out.iter_mut().enumerate() {
            *out = ((f64::from(x[i]) - mean) * factor * f64::from(weight[i]) + f64::from(bias[i])) as f32;
        }
    });
    Ok(())
}

pub(super) fn qk_norm(call: QkNorm) -> Result<()> {
    let QkNorm { mut x, weight, eps } = call;
    let weight = weight.as_host().unwrap_or(&[]);
    RowsMut::new(QkNorm::NAME, &mut x)?.each(|_, row| {
        for head in row.chunks_exact_mut(weight.len()) {
            let factor = inverse_rms(head, eps);
            for (x, &weight) in head.iter_mut().zip(weight) {
                *x = (f64::from(*x) * factor * f64::from(weight)) as f32;
            }
        }
    });
    Ok(())
}

pub(super) fn rope(call: Rope) -> Result<()> {
    let Rope { mut x, head_width, first, positions, rotary } = call;
    let positions = Rows::new(Rope::NAME, positions)?;
    let frequencies = rotary.frequencies.as_host().unwrap_or(&[]);
    RowsMut::new(Rope::NAME, &mut x)?.each(|t, row| {
        let position = f64::from(positions.row(t)[0]);
        for head in row.chunks_exact_mut(head_width).map(|head| &mut head[first..]) {
            for (i, &frequency) in frequencies.iter().enumerate() {
                let (sin, cos) = (position * f64::from(frequency)).sin_cos();
                let (sin, cos) = (sin * f64::from(rotary.magnitude), cos * f64::from(rotary.magnitude));
                let (a, b) = match rotary.style {
                    RopeStyle::Halves => (i, i + frequencies.len()),
                    RopeStyle::Interleaved => (2 * i, 2 * i + 1),
                };
                let (x, y) = (f64::from(head[a]), f64::from(head[b]));
                head[a] = (x * cos - y * sin) as f32;
                head[b] = (x * sin + y * cos) as f32;
            }
        }
    });
    Ok(())
}

pub(super) fn copy_rows(call: CopyRows) -> Result<()> {
    let CopyRows { x, mut out } = call;
    let x = Rows::new(CopyRows::NAME, x)?;
    RowsMut::new(CopyRows::NAME, &mut out)?.each(|t, out| out.copy_from_slice(x.row(t)));
    Ok(())
}

pub(super) fn gather_columns(call: GatherColumns) -> Result<()> {
    let GatherColumns { x, order, mut out } = call;
    let (x, order) = (Rows::new(GatherColumns::NAME, x)?, Rows::new(GatherColumns::NAME, order)?);
    RowsMut::new(GatherColumns::NAME, &mut out)?.each(|t, out| {
        out.iter_mut().zip(order.elements()).for_each(|(out, column)| *out = x.row(t)[column as usize]);
    });
    Ok(())
}

pub(super) fn add(call: Add) -> Result<()> {
    let Add { x, scale, y } = call;
    add_rows(Add::NAME, x, y, |_| scale.into())
}

/// y += factor(row) · x.
fn add_rows(op: &'static str, x: View<f32>, mut y: ViewMut<f32>, factor: impl Fn(usize) -> f64) -> Result<()> {
    let x = Rows::new(op, x)?;
    RowsMut::new(op, &mut y)?.each(|t, y| {
        for (y, &x) in y.iter_mut().zip(x.row(t)) {
            *y = (f64::from(*y) + factor(t) * f64::from(x)) as f32;
        }
    });
    Ok(())
}

pub(super) fn add_gated(call: AddGated) -> Result<()> {
    let AddGated { x, gate, y } = call;
    let gate = Rows::new(AddGated::NAME, gate)?;
    add_rows(AddGated::NAME, x, y, |t| 1.0 / (1.0 + (-f64::from(gate.row(t)[0])).exp()))
}

pub(super) fn scale(call: Scale) -> Result<()> {
    let Scale { factor, mut y } = call;
    RowsMut::new(Scale::NAME, &mut y)?.each(|_, y| y.iter_mut().for_each(|y| *y *= factor));
    Ok(())
}

pub(super) fn soft_cap(call: SoftCap) -> Result<()> {
    let SoftCap { cap, mut y } = call;
    let cap = f64::from(cap);
    let capped = |y: &mut f32| *y = (cap * (f64::from(*y) / cap).tanh()) as f32;
    RowsMut::new(SoftCap::NAME, &mut y)?.each(|_, y| y.iter_mut().for_each(capped));
    Ok(())
}

pub(super) fn clamp(call: Clamp) -> Result<()> {
    let Clamp { low, high, mut y } = call;
    RowsMut::new(Clamp::NAME, &mut y)?.each(|_, y| y.iter_mut().for_each(|y| *y = y.clamp(low, high)));
    Ok(())
}
