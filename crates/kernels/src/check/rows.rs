//! Norms, RoPE, sums, and what is done to logits.

use super::{PADDING, column, columns_of, home, homes, id, prepare_activations, require, vector};
use crate::act::Act;
use crate::error::{Result, expect};
use crate::ops::{Finish, Norm, Rope, Sampling};
use crate::tensor::{Buffer, DeviceId, View, ViewMut};

fn same(op: &'static str, device: DeviceId, x: &View<f32>, y: &ViewMut<f32>) -> Result<()> {
    homes(op, device, &[x.device(), y.device()])?;
    expect(op, "rows of the output", y.rows(), x.rows())?;
    columns_of(op, "columns of the output", y, x.cols())
}

fn epsilon(op: &'static str, eps: f32) -> Result<()> {
    require(eps.is_finite() && eps >= 0.0, op, "epsilon", eps, "must be finite and not negative")
}

/// [`crate::ops::Backend::rms_norm`].
pub(crate) fn rms_norm(
    device: DeviceId,
    x: &View<f32>,
    weight: &Buffer<f32>,
    eps: f32,
    out: &ViewMut<f32>,
) -> Result<()> {
    let op = "rms_norm";
    same(op, device, x, out)?;
    epsilon(op, eps)?;
    vector(op, "length of the weight", device, weight, x.cols())
}

/// [`crate::ops::Backend::norm_act`].
pub(crate) fn norm_act(device: DeviceId, norm: &Norm, normed: &ViewMut<f32>, acts: &[&mut Act]) -> Result<()> {
    rms_norm(device, &norm.x, norm.weight, norm.eps, normed)?;
    acts.iter().try_for_each(|act| prepare_activations(device, &normed.as_view(), act))
}

/// How an answer finishes in `y`.
pub(crate) fn finish(device: DeviceId, finish: &Finish, y: &ViewMut<f32>) -> Result<()> {
    match finish {
        Finish::Store => Ok(()),
        Finish::Add { scale, room } => add(device, &room.as_view(), *scale, y),
    }
}

/// [`crate::ops::Backend::layer_norm`].
pub(crate) fn layer_norm(
    device: DeviceId,
    x: &View<f32>,
    weight: &Buffer<f32>,
    bias: &Buffer<f32>,
    eps: f32,
    out: &ViewMut<f32>,
) -> Result<()> {
    let op = "layer_norm";
    same(op, device, x, out)?;
    epsilon(op, eps)?;
    vector(op, "length of the weight", device, weight, x.cols())?;
    vector(op, "length of the bias", device, bias, x.cols())
}

/// [`crate::ops::Backend::qk_norm`].
pub(crate) fn qk_norm(device: DeviceId, x: &ViewMut<f32>, weight: &Buffer<f32>, eps: f32) -> Result<()> {
    let op = "qk_norm";
    homes(op, device, &[x.device(), weight.device()])?;
    epsilon(op, eps)?;
    let divides = !weight.is_empty() && x.cols().is_multiple_of(weight.len());
    require(divides, op, "length of the weight", weight.len(), "must divide the columns")
}

/// [`crate::ops::Backend::rope`].
pub(crate) fn rope(
    device: DeviceId,
    x: &ViewMut<f32>,
    head_width: usize,
    positions: &View<u32>,
    rope: &Rope,
) -> Result<()> {
    let op = "rope";
    homes(op, device, &[x.device(), rope.frequencies.device()])?;
    let divides = head_width > 0 && x.cols().is_multiple_of(head_width);
    require(divides, op, "head width", head_width, "must divide the columns")?;
    let pairs = rope.frequencies.len();
    require(pairs <= head_width / 2, op, "frequencies", pairs, "at most half the head width")?;
    column(op, "number of positions", device, positions, x.rows())
}

/// [`crate::ops::Backend::add`].
pub(crate) fn add(device: DeviceId, x: &View<f32>, scale: f32, y: &ViewMut<f32>) -> Result<()> {
    same("add", device, x, y)?;
    require(scale.is_finite(), "add", "scale", scale, "must be finite")
}

/// [`crate::ops::Backend::add_gated`].
pub(crate) fn add_gated(device: DeviceId, x: &View<f32>, gate: &View<f32>, y: &ViewMut<f32>) -> Result<()> {
    same("add_gated", device, x, y)?;
    column("add_gated", "number of gates", device, gate, x.rows())
}

/// [`crate::ops::Backend::add_bias`].
pub(crate) fn add_bias(device: DeviceId, bias: &Buffer<f32>, y: &ViewMut<f32>) -> Result<()> {
    home("add_bias", device, y.device())?;
    vector("add_bias", "length of the bias", device, bias, y.cols())
}

/// [`crate::ops::Backend::scale`].
pub(crate) fn scale(device: DeviceId, scale: f32, y: &ViewMut<f32>) -> Result<()> {
    home("scale", device, y.device())?;
    require(scale.is_finite(), "scale", "scale", scale, "must be finite")
}

/// [`crate::ops::Backend::argmax`].
pub(crate) fn argmax(device: DeviceId, x: &View<f32>, out: &ViewMut<u32>) -> Result<()> {
    let op = "argmax";
    home(op, device, x.device())?;
    column(op, "rows of the output", device, &out.as_view(), x.rows())?;
    let fits = x.rows() == 0 || (1..=PADDING as usize).contains(&x.cols());
    require(fits, op, "columns", x.cols(), "from 1 to 2^32 - 1")
}

/// [`crate::ops::Backend::sample`].
pub(crate) fn sample(
    device: DeviceId,
    logits: &ViewMut<f32>,
    parameters: &[Sampling],
    out: &ViewMut<u32>,
) -> Result<()> {
    let op = "sample";
    home(op, device, logits.device())?;
    expect(op, "number of parameter sets", parameters.len(), logits.rows())?;
    column(op, "rows of the output", device, &out.as_view(), logits.rows())?;
    if logits.rows() == 0 {
        return Ok(());
    }
    let vocabulary = logits.cols();
    require((1..=PADDING as usize).contains(&vocabulary), op, "vocabulary", vocabulary, "from 1 to 2^32 - 1")?;
    parameters.iter().try_for_each(|p| sampling(op, p, vocabulary))
}

fn sampling(op: &'static str, p: &Sampling, vocabulary: usize) -> Result<()> {
    let finite = "must be finite";
    let share = "must be from 0 to 1";
    let t = p.temperature;
    require(t.is_finite() && t >= 0.0, op, "temperature", t, "must be finite and not negative")?;
    require((0.0..=1.0).contains(&p.top_p), op, "top-p", p.top_p, share)?;
    require((0.0..=1.0).contains(&p.min_p), op, "min-p", p.min_p, share)?;
    let repeat = p.repeat_penalty;
    require(repeat.is_finite() && repeat > 0.0, op, "repeat penalty", repeat, "must be finite and above 0")?;
    require(p.presence_penalty.is_finite(), op, "presence penalty", p.presence_penalty, finite)?;
    require(p.frequency_penalty.is_finite(), op, "frequency penalty", p.frequency_penalty, finite)?;
    for (index, &(token, bias)) in p.bias.iter().enumerate() {
        id(op, "biased token", token, index, vocabulary)?;
        require(!bias.is_nan(), op, "bias", bias, "must be a number")?;
    }
    for (index, &(token, _)) in p.counts.iter().enumerate() {
        id(op, "counted token", token, index, vocabulary)?;
    }
    let Some(mask) = p.mask else { return Ok(()) };
    expect(op, "words of the mask", mask.len(), vocabulary.div_ceil(32))?;
    let tail = vocabulary % 32;
    let allows = mask.iter().enumerate().any(|(i, &word)| {
        let last = i + 1 == mask.len() && tail != 0;
        (if last { word & ((1 << tail) - 1) } else { word }) != 0
    });
    require(allows, op, "allowed tokens", 0, "the mask must allow at least one token")
}
