//! Element-wise operations: rotary embedding, sums, factors, soft caps.

use super::check::*;
use super::norm::same_shape;
use super::operation::{Check, Operation};
use crate::error::Result;
use crate::tensor::{Buffer, DeviceId, View, ViewMut};

/// Which elements of a head form a rotated pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RopeStyle {
    /// Elements `i` and `i + rotated / 2` (GPT-NeoX; Hugging Face order).
    Halves,
    /// Elements `2·i` and `2·i + 1` (Llama's GGUF order).
    Interleaved,
}

/// Precomputed rotary position embedding: the angle of pair `i` at position `p` is `p · frequencies[i]`.
///
/// All scalings (linear, YaRN, Llama 3) are expressed as frequencies and one magnitude.
#[derive(Debug)]
pub struct Rotary {
    /// Pair order.
    pub style: RopeStyle,
    /// Angle per position of each pair. `2 · len` elements of a head are rotated; the others are unchanged.
    pub frequencies: Buffer<f32>,
    /// Multiplies sine and cosine (YaRN's attention factor; otherwise 1).
    pub magnitude: f32,
}

impl Rotary {
    /// Fails unless heads of `head_width` in rows of `columns` can be rotated.
    pub(super) fn check(&self, op: &'static str, device: DeviceId, head_width: usize, columns: usize) -> Result<()> {
        on_device(op, device, &[self.frequencies.device()])?;
        let divides = head_width > 0 && columns.is_multiple_of(head_width);
        require(divides, op, "head width", head_width, "must divide the columns")?;
        let pairs = self.frequencies.len();
        require(pairs <= head_width / 2, op, "frequencies", pairs, "at most half the head width")
    }
}

/// Rotates the heads of each row in place, from element `first` of each head on.
#[derive(Debug)]
pub struct Rope<'a> {
    /// T × H·D.
    pub x: ViewMut<'a, f32>,
    /// D.
    pub head_width: usize,
    /// Elements of each head that precede the rotated elements.
    pub first: usize,
    /// T × 1.
    pub positions: View<'a, u32>,
    /// The rotation angles.
    pub rotary: &'a Rotary,
}

constructor! {
    Rope<'a>(x: ViewMut<'a, f32>, head_width: usize, positions: View<'a, u32>, rotary: &'a Rotary)
        default(first: usize = 0)
}

impl Check for Rope<'_> {
    fn check(&mut self, device: DeviceId) -> Result<()> {
        let Self { x, head_width, first, positions, rotary } = self;
        on_device(Self::NAME, device, &[x.device()])?;
        rotary.check(Self::NAME, device, *head_width, x.cols())?;
        let pairs = rotary.frequencies.len();
        let fits = *first <= *head_width && pairs <= (*head_width - *first) / 2;
        require(fits, Self::NAME, "elements before the rotated ones", first, "must leave two for each frequency")?;
        column(Self::NAME, "number of positions", device, positions, x.rows())
    }
}

/// out = x.
#[derive(Debug)]
pub struct CopyRows<'a> {
    /// T × K.
    pub x: View<'a, f32>,
    /// T × K.
    pub out: ViewMut<'a, f32>,
}

constructor! { CopyRows<'a>(x: View<'a, f32>, out: ViewMut<'a, f32>) }

impl Check for CopyRows<'_> {
    fn check(&mut self, device: DeviceId) -> Result<()> {
        same_shape(Self::NAME, device, &self.x, &self.out)
    }
}

/// `out[t, j] = x[t, order[j]]`: the columns of X in another order. An id out of range gives a zero on a GPU and an error
/// on the CPU.
#[derive(Debug)]
pub struct GatherColumns<'a> {
    /// T × K.
    pub x: View<'a, f32>,
    /// Columns of X, K × 1.
    pub order: View<'a, u32>,
    /// T × K.
    pub out: ViewMut<'a, f32>,
}

constructor! { GatherColumns<'a>(x: View<'a, f32>, order: View<'a, u32>, out: ViewMut<'a, f32>) }

impl Check for GatherColumns<'_> {
    fn check(&mut self, device: DeviceId) -> Result<()> {
        let Self { x, order, out } = self;
        same_shape(Self::NAME, device, x, out)?;
        column(Self::NAME, "number of columns in the order", device, order, x.cols())?;
        ids(Self::NAME, "column", order, x.cols(), false)
    }
}

/// y += scale · x.
#[derive(Debug)]
pub struct Add<'a> {
    /// T × K.
    pub x: View<'a, f32>,
    /// The factor.
    pub scale: f32,
    /// T × K.
    pub y: ViewMut<'a, f32>,
}

constructor! { Add<'a>(x: View<'a, f32>, y: ViewMut<'a, f32>) default(scale: f32 = 1.0) }

impl Check for Add<'_> {
    fn check(&mut self, device: DeviceId) -> Result<()> {
        same_shape(Self::NAME, device, &self.x, &self.y)?;
        require(self.scale.is_finite(), Self::NAME, "scale", self.scale, "must be finite")
    }
}

/// `y[t] += sigmoid(gate[t]) · x[t]`, the gate of a shared expert.
#[derive(Debug)]
pub struct AddGated<'a> {
    /// T × K.
    pub x: View<'a, f32>,
    /// T × 1.
    pub gate: View<'a, f32>,
    /// T × K.
    pub y: ViewMut<'a, f32>,
}

constructor! { AddGated<'a>(x: View<'a, f32>, gate: View<'a, f32>, y: ViewMut<'a, f32>) }

impl Check for AddGated<'_> {
    fn check(&mut self, device: DeviceId) -> Result<()> {
        same_shape(Self::NAME, device, &self.x, &self.y)?;
        column(Self::NAME, "number of gates", device, &self.gate, self.x.rows())
    }
}

/// y = factor · y.
#[derive(Debug)]
pub struct Scale<'a> {
    /// The factor.
    pub factor: f32,
    /// T × K.
    pub y: ViewMut<'a, f32>,
}

constructor! { Scale<'a>(factor: f32, y: ViewMut<'a, f32>) }

impl Check for Scale<'_> {
    fn check(&mut self, device: DeviceId) -> Result<()> {
        on_device(Self::NAME, device, &[self.y.device()])?;
        require(self.factor.is_finite(), Self::NAME, "factor", self.factor, "must be finite")
    }
}

/// y = cap · tanh(y / cap): limits values to (−cap, cap) and leaves small values nearly unchanged.
#[derive(Debug)]
pub struct SoftCap<'a> {
    /// The limit; must be above 0.
    pub cap: f32,
    /// T × K.
    pub y: ViewMut<'a, f32>,
}

constructor! { SoftCap<'a>(cap: f32, y: ViewMut<'a, f32>) }

impl Check for SoftCap<'_> {
    fn check(&mut self, device: DeviceId) -> Result<()> {
        on_device(Self::NAME, device, &[self.y.device()])?;
        let positive = self.cap.is_finite() && self.cap > 0.0;
        require(positive, Self::NAME, "cap", self.cap, "must be finite and above 0")
    }
}

/// y = min(max(y, low), high). NaN stays NaN.
#[derive(Debug)]
pub struct Clamp<'a> {
    /// The least value; −∞ for none.
    pub low: f32,
    /// The greatest value; ∞ for none. Not below `low`.
    pub high: f32,
    /// T × K.
    pub y: ViewMut<'a, f32>,
}

constructor! { Clamp<'a>(low: f32, high: f32, y: ViewMut<'a, f32>) }

impl Check for Clamp<'_> {
    fn check(&mut self, device: DeviceId) -> Result<()> {
        on_device(Self::NAME, device, &[self.y.device()])?;
        let Self { low, high, .. } = *self;
        require(low <= high, Self::NAME, "range", format_args!("{low} to {high}"), "must not be empty")
    }
}
