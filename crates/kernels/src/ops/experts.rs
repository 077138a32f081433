//! Matrix products of experts.

use super::check::*;
use super::matrix::{Activation, Epilogue, fill};
use super::operation::{Check, Operation};
use super::route::{Route, pairs};
use crate::act::Act;
use crate::error::Result;
use crate::groups::Groups;
use crate::tensor::{Buffer, DeviceId, View, ViewMut};
use crate::weight::{Role, Weight};

/// The matrices of a layer's experts.
#[derive(Clone, Copy, Debug)]
pub struct ExpertWeights<'a> {
    /// Gate and up, a weight of the activation's role ([`Activation::role`]): inner × hidden per matrix.
    pub gate_up: &'a Weight,
    /// Down: hidden × inner.
    pub down: &'a Weight,
    /// The activation between the products.
    pub activation: Activation,
    /// Biases of gate and up, E × inner per bias.
    pub gate_up_bias: Option<[&'a Buffer<f32>; 2]>,
    /// Bias of down, E × hidden.
    pub down_bias: Option<&'a Buffer<f32>>,
}

constructor! {
    ExpertWeights<'a>(gate_up: &'a Weight, down: &'a Weight)
        optional(gate_up_bias: [&'a Buffer<f32>; 2], down_bias: &'a Buffer<f32>)
        default(activation: Activation = Activation::SwiGlu)
}

/// `out[p]` (T·k × N) = `W[id of pair p] · x + bias[id]`. For any number of tokens. Rows of padding pairs are zeroed.
#[derive(Debug)]
pub struct MoeMatmul<'a> {
    /// W, a [`Role::Matrix`] weight: E × N × K.
    pub weight: &'a Weight,
    /// One row per token (T), or one per pair (T·k).
    pub x: &'a Act,
    /// The pairs, grouped by expert.
    pub groups: &'a Groups,
    /// k.
    pub top_k: usize,
    /// E × N.
    pub bias: Option<&'a Buffer<f32>>,
    /// T·k × N.
    pub out: ViewMut<'a, f32>,
}

constructor! {
    MoeMatmul<'a>(weight: &'a Weight, x: &'a Act, groups: &'a Groups, top_k: usize, out: ViewMut<'a, f32>)
        optional(bias: &'a Buffer<f32>)
}

impl Check for MoeMatmul<'_> {
    fn check(&mut self, device: DeviceId) -> Result<()> {
        let Self { weight, x, groups, top_k, bias, out } = self;
        let tokens = grouped(Self::NAME, device, weight, Role::Matrix, x, groups, *top_k, out)?;
        if x.rows() != out.rows() {
            expect(Self::NAME, "rows of the activations", x.rows(), tokens)?;
        }
        let len = elements("bias", &[weight.experts(), weight.rows()])?;
        vectors(Self::NAME, "length of the bias", device, *bias, len)
    }
}

/// The common check of expert products: the groups fit the weight, and the output has a row per pair. Returns the
/// number of tokens.
fn grouped(
    op: &'static str,
    device: DeviceId,
    weight: &Weight,
    wanted: Role,
    x: &Act,
    groups: &Groups,
    top_k: usize,
    out: &ViewMut<f32>,
) -> Result<usize> {
    on_device(op, device, &[weight.device(), x.device(), groups.device(), out.device()])?;
    role(op, weight, wanted)?;
    require(top_k > 0, op, "top-k", top_k, "must not be 0")?;
    expect(op, "experts of the groups", groups.experts(), weight.experts())?;
    shape(op, OUTPUT, out, groups.total_pairs, weight.rows())?;
    require(out.rows().is_multiple_of(top_k), op, "top-k", top_k, "must divide the number of pairs")?;
    expect(op, "columns of the activations", x.cols(), weight.cols())?;
    Ok(out.rows() / top_k)
}

/// `H[p]` (T·k × N) = `activation(gate[id of pair p] · x + bias[id], up[id] · x + bias[id])`. Rows of padding pairs are
/// zeroed. Without a gate, it is `activation(up[id of pair p] · x)`.
#[derive(Debug)]
pub struct MoeGateUp<'a> {
    /// Gate and up, a weight of the activation's role ([`Activation::role`]): E × N × K per matrix.
    pub weight: &'a Weight,
    /// One row per token (T).
    pub x: &'a Act,
    /// The pairs, grouped by expert.
    pub groups: &'a Groups,
    /// k.
    pub top_k: usize,
    /// Biases of gate and up, E × N per bias.
    pub bias: Option<[&'a Buffer<f32>; 2]>,
    /// The activation.
    pub activation: Activation,
    /// T·k × N.
    pub h: ViewMut<'a, f32>,
}

constructor! {
    MoeGateUp<'a>(weight: &'a Weight, x: &'a Act, groups: &'a Groups, top_k: usize, h: ViewMut<'a, f32>)
        optional(bias: [&'a Buffer<f32>; 2])
        default(activation: Activation = Activation::SwiGlu)
}

impl<'a> MoeGateUp<'a> {
    /// The call with shorter borrows.
    pub fn reborrow(&mut self) -> MoeGateUp<'_> {
        MoeGateUp { h: self.h.reborrow(), ..*self }
    }
}

impl Check for MoeGateUp<'_> {
    fn check(&mut self, device: DeviceId) -> Result<()> {
        let Self { weight, x, groups, top_k, bias, activation, h } = self;
        let tokens = grouped(Self::NAME, device, weight, activation.role(), x, groups, *top_k, h)?;
        expect(Self::NAME, "rows of the activations", x.rows(), tokens)?;
        let len = elements("bias", &[weight.experts(), weight.rows()])?;
        vectors(Self::NAME, "length of a bias", device, bias.iter().flatten().copied(), len)?;
        activation.check(Self::NAME, bias.is_some())
    }
}

/// [`MoeGateUp`], with its output prepared as activations, one row per pair.
#[derive(Debug)]
pub struct MoeGateUpAct<'a> {
    /// The product. Its `h` can stay undefined.
    pub gate_up: MoeGateUp<'a>,
    /// Receives H as activations.
    pub act: &'a mut Act,
}

constructor! { MoeGateUpAct<'a>(gate_up: MoeGateUp<'a>, act: &'a mut Act) }

impl Check for MoeGateUpAct<'_> {
    fn check(&mut self, device: DeviceId) -> Result<()> {
        self.gate_up.check(device)?;
        fill(Self::NAME, device, self.act, self.gate_up.h.rows(), self.gate_up.h.cols())
    }
}

/// `output[t] = Σ weights[t, slot] · out[t·k + slot]`, summed over slots in order.
#[derive(Debug)]
pub struct MoeCombine<'a> {
    /// Outputs of the experts, T·k × N.
    pub out: View<'a, f32>,
    /// T × k.
    pub weights: View<'a, f32>,
    /// Applied to the sums before they are stored.
    pub epilogue: Epilogue,
    /// T × N.
    pub y: ViewMut<'a, f32>,
}

constructor! {
    MoeCombine<'a>(out: View<'a, f32>, weights: View<'a, f32>, y: ViewMut<'a, f32>)
        default(epilogue: Epilogue = Epilogue::Store)
}

impl Check for MoeCombine<'_> {
    fn check(&mut self, device: DeviceId) -> Result<()> {
        let Self { out, weights, epilogue, y } = self;
        on_device(Self::NAME, device, &[out.device(), weights.device(), y.device()])?;
        expect(Self::NAME, "rows of the weights", weights.rows(), y.rows())?;
        let pairs = elements("pairs", &[weights.rows(), weights.cols()])?;
        expect(Self::NAME, "rows of the pairs", out.rows(), pairs)?;
        if out.rows() > 0 {
            expect(Self::NAME, OUTPUT[1], y.cols(), out.cols())?;
        }
        epilogue.check(Self::NAME)
    }
}

/// Scratch between a router's logits and the experts' output. After the call its contents can be undefined, except the
/// outputs of [`Route`].
#[derive(Debug)]
pub struct ExpertScratch<'a> {
    /// The pairs, grouped by expert.
    pub groups: &'a mut Groups,
    /// T·k × inner.
    pub h: ViewMut<'a, f32>,
    /// The T·k × inner matrix as activations.
    pub act: &'a mut Act,
    /// The experts' outputs, T·k × hidden.
    pub out: ViewMut<'a, f32>,
}

constructor! { ExpertScratch<'a>(groups: &'a mut Groups, h: ViewMut<'a, f32>, act: &'a mut Act, out: ViewMut<'a, f32>) }

/// A mixture-of-experts layer from the router's logits: the weighted sum of each token's chosen experts. If the groups leave
/// experts out, the matrices are those of the grouped experts, and the others add nothing to the sum.
#[derive(Debug)]
pub struct Experts<'a> {
    /// The routing, with logits T × E.
    pub route: Route<'a>,
    /// The experts' matrices.
    pub weights: ExpertWeights<'a>,
    /// T × hidden.
    pub x: &'a Act,
    /// Intermediate results.
    pub scratch: ExpertScratch<'a>,
    /// Applied to the sums before they are stored.
    pub epilogue: Epilogue,
    /// T × hidden.
    pub y: ViewMut<'a, f32>,
}

constructor! {
    Experts<'a>(route: Route<'a>, weights: ExpertWeights<'a>, x: &'a Act, scratch: ExpertScratch<'a>, y: ViewMut<'a, f32>)
        default(epilogue: Epilogue = Epilogue::Store)
}

impl Check for Experts<'_> {
    fn check(&mut self, device: DeviceId) -> Result<()> {
        const OP: &str = Experts::NAME;
        let Self { route, weights, x, scratch, epilogue, y } = self;
        let ExpertWeights { gate_up, down, activation, gate_up_bias, down_bias } = *weights;
        let ExpertScratch { groups, h, act, out } = scratch;
        route.check(device)?;
        let (tokens, experts) = (route.logits.rows(), route.logits.cols());
        on_device(OP, device, &[gate_up.device(), down.device(), x.device(), groups.device()])?;
        on_device(OP, device, &[h.device(), out.device(), y.device()])?;
        role(OP, gate_up, activation.role())?;
        role(OP, down, Role::Matrix)?;
        if tokens > 0 {
            expect(OP, "experts of the groups", groups.all(), experts)?;
            expect(OP, "experts of gate and up", gate_up.experts(), groups.experts())?;
            expect(OP, "experts of down", down.experts(), groups.experts())?;
        }
        expect(OP, "rows of the activations", x.rows(), tokens)?;
        expect(OP, "columns of the activations", x.cols(), gate_up.cols())?;
        expect(OP, "columns of down", down.cols(), gate_up.rows())?;
        let pairs = pairs(OP, groups, tokens, route.routing.top_k)?;
        let gated = ["rows of the gated activations", "columns of the gated activations"];
        shape(OP, gated, h, pairs, gate_up.rows())?;
        shape(OP, ["rows of the experts' outputs", "columns of the experts' outputs"], out, pairs, down.rows())?;
        shape(OP, OUTPUT, y, tokens, down.rows())?;
        activation.check(OP, gate_up_bias.is_some())?;
        epilogue.check(OP)?;
        let len = elements("bias", &[gate_up.experts(), gate_up.rows()])?;
        vectors(OP, "length of a bias", device, gate_up_bias.iter().flatten().copied(), len)?;
        let len = elements("bias", &[down.experts(), down.rows()])?;
        vectors(OP, "length of the bias", device, down_bias, len)?;
        fill(OP, device, act, pairs, gate_up.rows())?;
        groups.total_pairs = pairs;
        Ok(())
    }
}
