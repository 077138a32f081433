//! Norms, and norms fused with the operations that read their output.

use super::check::*;
use super::matrix::{fill, fits, product};
use super::operation::{Check, Operation};
use crate::act::Act;
use crate::error::Result;
use crate::tensor::{Buffer, DeviceId, View, ViewMut};
use crate::weight::{Role, Weight};

/// out = x / sqrt(mean(x²) + eps) · weight, for every row.
#[derive(Debug)]
pub struct RmsNorm<'a> {
    /// T × K.
    pub x: View<'a, f32>,
    /// K.
    pub weight: &'a Buffer<f32>,
    /// Added to the mean square.
    pub eps: f32,
    /// T × K.
    pub out: ViewMut<'a, f32>,
}

constructor! { RmsNorm<'a>(x: View<'a, f32>, weight: &'a Buffer<f32>, eps: f32, out: ViewMut<'a, f32>) }

impl RmsNorm<'_> {
    /// The call with shorter borrows.
    pub fn reborrow(&mut self) -> RmsNorm<'_> {
        RmsNorm { out: self.out.reborrow(), ..*self }
    }
}

impl Check for RmsNorm<'_> {
    fn check(&mut self, device: DeviceId) -> Result<()> {
        let Self { x, weight, eps, out } = self;
        same_shape(Self::NAME, device, x, out)?;
        epsilon(Self::NAME, *eps)?;
        vector(Self::NAME, "length of the weight", device, weight, x.cols())
    }
}

/// Fails unless both matrices are on the device and have the same shape.
pub(super) fn same_shape(op: &'static str, device: DeviceId, x: &View<f32>, y: &ViewMut<f32>) -> Result<()> {
    on_device(op, device, &[x.device(), y.device()])?;
    shape(op, OUTPUT, y, x.rows(), x.cols())
}

fn epsilon(op: &'static str, eps: f32) -> Result<()> {
    require(eps.is_finite() && eps >= 0.0, op, "epsilon", eps, "must be finite and not negative")
}

/// out = (x − mean(x)) / sqrt(variance(x) + eps) · weight + bias, for every row. The variance is the population
/// variance (divided by K).
#[derive(Debug)]
pub struct LayerNorm<'a> {
    /// T × K.
    pub x: View<'a, f32>,
    /// K.
    pub weight: &'a Buffer<f32>,
    /// K.
    pub bias: &'a Buffer<f32>,
    /// Added to the variance.
    pub eps: f32,
    /// T × K.
    pub out: ViewMut<'a, f32>,
}

constructor! {
    LayerNorm<'a>(x: View<'a, f32>, weight: &'a Buffer<f32>, bias: &'a Buffer<f32>, eps: f32, out: ViewMut<'a, f32>)
}

impl Check for LayerNorm<'_> {
    fn check(&mut self, device: DeviceId) -> Result<()> {
        let Self { x, weight, bias, eps, out } = self;
        same_shape(Self::NAME, device, x, out)?;
        epsilon(Self::NAME, *eps)?;
        vector(Self::NAME, "length of the weight", device, weight, x.cols())?;
        vector(Self::NAME, "length of the bias", device, bias, x.cols())
    }
}

/// Normalises each segment of `weight.len()` columns in place. A segment is a head if the length is D, and the whole
/// row if it is the row's.
#[derive(Debug)]
pub struct QkNorm<'a> {
    /// T × columns, a multiple of the weight's length.
    pub x: ViewMut<'a, f32>,
    /// Weights of a segment.
    pub weight: &'a Buffer<f32>,
    /// Added to the mean square.
    pub eps: f32,
}

constructor! { QkNorm<'a>(x: ViewMut<'a, f32>, weight: &'a Buffer<f32>, eps: f32) }

impl Check for QkNorm<'_> {
    fn check(&mut self, device: DeviceId) -> Result<()> {
        segments(Self::NAME, device, self.weight, self.eps, self.x.cols())?;
        on_device(Self::NAME, device, &[self.x.device()])
    }
}

/// Fails unless segments of the weight's length divide this number of columns.
pub(super) fn segments(
    op: &'static str,
    device: DeviceId,
    weight: &Buffer<f32>,
    eps: f32,
    columns: usize,
) -> Result<()> {
    on_device(op, device, &[weight.device()])?;
    epsilon(op, eps)?;
    let divides = !weight.is_empty() && columns.is_multiple_of(weight.len());
    require(divides, op, "length of the weight", weight.len(), "must divide the columns")
}

/// [`RmsNorm`], with its output also prepared as activations.
#[derive(Debug)]
pub struct NormAct<'a> {
    /// The norm.
    pub norm: RmsNorm<'a>,
    /// Receive the output as activations.
    pub acts: [Option<&'a mut Act>; 2],
}

constructor! { NormAct<'a>(norm: RmsNorm<'a>, acts: [Option<&'a mut Act>; 2]) }

impl Check for NormAct<'_> {
    fn check(&mut self, device: DeviceId) -> Result<()> {
        let Self { norm, acts } = self;
        let (rows, cols) = (norm.x.rows(), norm.x.cols());
        norm.check(device)?;
        acts.iter().flatten().try_for_each(|act| fits(Self::NAME, device, act, rows, cols))?;
        acts.iter_mut().flatten().try_for_each(|act| fill(Self::NAME, device, act, rows, cols))
    }
}

/// y = factor · (y + scale · norm(x)), for every row: [`RmsNorm`], then [`Add`](super::Add) of its output, then [`Scale`](super::Scale).
#[derive(Debug)]
pub struct AddNorm<'a> {
    /// The norm. Its output can stay undefined.
    pub norm: RmsNorm<'a>,
    /// Multiplies the norm's output.
    pub scale: f32,
    /// Multiplies the sum.
    pub factor: f32,
    /// T × K.
    pub y: ViewMut<'a, f32>,
}

constructor! { AddNorm<'a>(norm: RmsNorm<'a>, y: ViewMut<'a, f32>) default(scale: f32 = 1.0, factor: f32 = 1.0) }

impl Check for AddNorm<'_> {
    fn check(&mut self, device: DeviceId) -> Result<()> {
        let Self { norm, scale, factor, y } = self;
        norm.check(device)?;
        same_shape(Self::NAME, device, &norm.x, y)?;
        factors(Self::NAME, *scale, *factor)
    }
}

/// Fails unless the factors of a sum and of its term are finite.
fn factors(op: &'static str, scale: f32, factor: f32) -> Result<()> {
    require(scale.is_finite(), op, "scale", scale, "must be finite")?;
    require(factor.is_finite(), op, "factor", factor, "must be finite")
}

/// [`AddNorm`], with its sum or a norm of the sum prepared as activations.
#[derive(Debug)]
pub struct AddNormAct<'a> {
    /// The sum.
    pub sum: AddNorm<'a>,
    /// The weight of the sum's norm (K), and its epsilon.
    pub next: Option<(&'a Buffer<f32>, f32)>,
    /// Receives the sum, or its norm, as activations.
    pub act: &'a mut Act,
}

constructor! { AddNormAct<'a>(sum: AddNorm<'a>, act: &'a mut Act) optional(next: (&'a Buffer<f32>, f32)) }

impl Check for AddNormAct<'_> {
    fn check(&mut self, device: DeviceId) -> Result<()> {
        let Self { sum, next, act } = self;
        let (rows, cols) = (sum.y.rows(), sum.y.cols());
        sum.check(device)?;
        if let Some((weight, eps)) = next {
            vector(Self::NAME, "length of the sum's weight", device, weight, cols)?;
            epsilon(Self::NAME, *eps)?;
        }
        fill(Self::NAME, device, act, rows, cols)
    }
}

/// y = factor · (y + scale · norm(norm₁(x₁) + norm₂(x₂))), for every row. It joins two parallel blocks: each output is
/// normalised, and so is their sum.
#[derive(Debug)]
pub struct AddNorms<'a> {
    /// The norms of both blocks. Their outputs can stay undefined.
    pub norms: [RmsNorm<'a>; 2],
    /// K: the weight of the sum's norm.
    pub weight: &'a Buffer<f32>,
    /// Added to the mean square of the sum.
    pub eps: f32,
    /// Multiplies the norm of the sum.
    pub scale: f32,
    /// Multiplies the result.
    pub factor: f32,
    /// T × K.
    pub y: ViewMut<'a, f32>,
}

constructor! {
    AddNorms<'a>(norms: [RmsNorm<'a>; 2], weight: &'a Buffer<f32>, eps: f32, y: ViewMut<'a, f32>)
        default(scale: f32 = 1.0, factor: f32 = 1.0)
}

impl Check for AddNorms<'_> {
    fn check(&mut self, device: DeviceId) -> Result<()> {
        let Self { norms, weight, eps, scale, factor, y } = self;
        norms.iter_mut().try_for_each(|norm| norm.check(device))?;
        norms.iter().try_for_each(|norm| same_shape(Self::NAME, device, &norm.x, y))?;
        vector(Self::NAME, "length of the sum's weight", device, weight, y.cols())?;
        epsilon(Self::NAME, *eps)?;
        factors(Self::NAME, *scale, *factor)
    }
}

/// [`NormAct`] for `act` and another, then [`Matmul`](super::Matmul) of `act`.
#[derive(Debug)]
pub struct NormMatmul<'a> {
    /// The norm.
    pub norm: RmsNorm<'a>,
    /// Receives the norm's output, and is multiplied.
    pub act: &'a mut Act,
    /// Also receives the norm's output.
    pub other: Option<&'a mut Act>,
    /// A dense [`Role::Matrix`] weight: N × K.
    pub weight: &'a Weight,
    /// N.
    pub bias: Option<&'a Buffer<f32>>,
    /// T × N.
    pub y: ViewMut<'a, f32>,
}

constructor! {
    NormMatmul<'a>(norm: RmsNorm<'a>, act: &'a mut Act, weight: &'a Weight, y: ViewMut<'a, f32>)
        optional(other: &'a mut Act, bias: &'a Buffer<f32>)
}

impl Check for NormMatmul<'_> {
    fn check(&mut self, device: DeviceId) -> Result<()> {
        let Self { norm, act, other, weight, bias, y } = self;
        let (rows, cols) = (norm.x.rows(), norm.x.cols());
        norm.check(device)?;
        product(Self::NAME, device, weight, Role::Matrix, [cols, y.cols()], y)?;
        expect(Self::NAME, OUTPUT[0], y.rows(), rows)?;
        vectors(Self::NAME, "length of the bias", device, *bias, weight.rows())?;
        fits(Self::NAME, device, act, rows, cols)?;
        other.iter_mut().try_for_each(|other| fill(Self::NAME, device, other, rows, cols))?;
        fill(Self::NAME, device, act, rows, cols)
    }
}
