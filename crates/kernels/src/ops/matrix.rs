//! Embeddings, activations and dense products.

use super::check::*;
use super::operation::{Check, Operation};
use crate::act::Act;
use crate::error::Result;
use crate::tensor::{Buffer, DeviceId, View, ViewMut};
use crate::weight::{Role, Weight};

/// The activation of an MLP: of gate and up, or of up without a gate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Activation {
    /// silu(gate) · up.
    SwiGlu,
    /// gelu(gate) · up with the tanh approximation.
    GeGlu,
    /// gate' · sigmoid(alpha · gate') · (up' + 1), gate' = min(gate, limit), up' = clamp(up, −limit, limit) (gpt-oss).
    ClampedSwiGlu {
        /// Slope of the sigmoid.
        alpha: f32,
        /// Clamp limit.
        limit: f32,
    },
    /// min(silu(gate), limit) · clamp(up, −limit, limit) (Step 3.5).
    LimitedSwiGlu {
        /// Clamp limit.
        limit: f32,
    },
    /// max(up, 0)², without a gate: the weight is a [`Role::Up`], and has no biases (Nemotron).
    SquaredRelu,
}

impl Activation {
    /// The role of the weight whose products it is applied to.
    pub fn role(self) -> Role {
        match self {
            Self::SquaredRelu => Role::Up,
            Self::SwiGlu | Self::GeGlu | Self::ClampedSwiGlu { .. } | Self::LimitedSwiGlu { .. } => Role::GateUp,
        }
    }

    pub(super) fn check(self, op: &'static str, has_biases: bool) -> Result<()> {
        let limit = match self {
            Self::SquaredRelu => {
                return require(!has_biases, op, "biases", "biases", "an activation without a gate has none");
            }
            Self::SwiGlu | Self::GeGlu => return Ok(()),
            Self::ClampedSwiGlu { alpha, limit } => {
                require(alpha.is_finite(), op, "alpha", alpha, "must be finite")?;
                limit
            }
            Self::LimitedSwiGlu { limit } => limit,
        };
        require(limit > 0.0, op, "limit", limit, "must be above 0")
    }
}

/// What a product does with its output when it stores it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Epilogue {
    /// y = output.
    Store,
    /// y += scale · output.
    Add {
        /// The factor.
        scale: f32,
    },
}

impl Epilogue {
    pub(super) fn check(self, op: &'static str) -> Result<()> {
        let Self::Add { scale } = self else { return Ok(()) };
        require(scale.is_finite(), op, "scale", scale, "must be finite")
    }
}

/// Decodes row `rows[i]` of a [`Role::Table`] weight into row `i` of `out` (T × cols), times `scale`. A padding id
/// ([`PADDING`]) gives a row of zeros on a GPU and an error on the CPU.
#[derive(Debug)]
pub struct Embed<'a> {
    /// The embedding table.
    pub table: &'a Weight,
    /// Row ids, T × 1.
    pub rows: View<'a, u32>,
    /// Multiplies every element.
    pub scale: f32,
    /// T × cols.
    pub out: ViewMut<'a, f32>,
}

constructor! { Embed<'a>(table: &'a Weight, rows: View<'a, u32>, out: ViewMut<'a, f32>) default(scale: f32 = 1.0) }

impl Check for Embed<'_> {
    fn check(&mut self, device: DeviceId) -> Result<()> {
        let Self { table, rows, out, .. } = self;
        on_device(Self::NAME, device, &[table.device(), out.device()])?;
        role(Self::NAME, table, Role::Table)?;
        column(Self::NAME, "number of row ids", device, rows, out.rows())?;
        shape(Self::NAME, OUTPUT, out, rows.rows(), table.cols())?;
        ids(Self::NAME, "row", rows, table.rows(), false)
    }
}

/// Prepares activations (T × K) for products.
#[derive(Debug)]
pub struct PrepareActivations<'a> {
    /// T × K.
    pub x: View<'a, f32>,
    /// Receives the rows, in all representations that weights can read.
    pub act: &'a mut Act,
}

constructor! { PrepareActivations<'a>(x: View<'a, f32>, act: &'a mut Act) }

impl Check for PrepareActivations<'_> {
    fn check(&mut self, device: DeviceId) -> Result<()> {
        let Self { x, act } = self;
        on_device(Self::NAME, device, &[x.device()])?;
        fill(Self::NAME, device, act, x.rows(), x.cols())
    }
}

/// Checks that activations have capacity for this shape, and records the shape. Must be an operation's last check.
pub(super) fn fill(op: &'static str, device: DeviceId, act: &mut Act, rows: usize, cols: usize) -> Result<()> {
    fits(op, device, act, rows, cols)?;
    act.fill(rows, cols);
    Ok(())
}

/// Checks that activations have capacity for this shape.
pub(super) fn fits(op: &'static str, device: DeviceId, act: &Act, rows: usize, cols: usize) -> Result<()> {
    on_device(op, device, &[act.device()])?;
    act.check_capacity(op, rows, cols)
}

/// Y (T × N) = X · Wᵀ + bias, for all rows of X or for selected rows.
#[derive(Debug)]
pub struct Matmul<'a> {
    /// W, a dense [`Role::Matrix`] weight: N × K.
    pub weight: &'a Weight,
    /// X.
    pub x: &'a Act,
    /// The rows of X to multiply, T × 1, for example in the output head. `None` selects all rows in order.
    pub rows: Option<View<'a, u32>>,
    /// N.
    pub bias: Option<&'a Buffer<f32>>,
    /// Applied to the product when it is stored.
    pub epilogue: Epilogue,
    /// T × N.
    pub y: ViewMut<'a, f32>,
}

constructor! {
    Matmul<'a>(weight: &'a Weight, x: &'a Act, y: ViewMut<'a, f32>)
        optional(rows: View<'a, u32>, bias: &'a Buffer<f32>)
        default(epilogue: Epilogue = Epilogue::Store)
}

impl Check for Matmul<'_> {
    fn check(&mut self, device: DeviceId) -> Result<()> {
        let Self { weight, x, rows, bias, epilogue, y } = self;
        product(Self::NAME, device, weight, Role::Matrix, [x.cols(), y.cols()], y)?;
        on_device(Self::NAME, device, &[x.device()])?;
        match rows {
            Some(rows) => {
                column(Self::NAME, "number of row ids", device, rows, y.rows())?;
                ids(Self::NAME, "row", rows, x.rows(), false)?;
            }
            None => expect(Self::NAME, OUTPUT[0], y.rows(), x.rows())?,
        }
        vectors(Self::NAME, "length of the bias", device, *bias, weight.rows())?;
        epilogue.check(Self::NAME)
    }
}

/// The common check of dense products: the weight is dense and has this role, and its columns match the input's.
pub(super) fn product(
    op: &'static str,
    device: DeviceId,
    weight: &Weight,
    wanted: Role,
    [inputs, outputs]: [usize; 2],
    y: &ViewMut<f32>,
) -> Result<()> {
    on_device(op, device, &[weight.device(), y.device()])?;
    role(op, weight, wanted)?;
    dense(op, weight)?;
    expect(op, "columns of the activations", inputs, weight.cols())?;
    if y.rows() == 0 { Ok(()) } else { expect(op, OUTPUT[1], outputs, weight.rows()) }
}

/// H (T × N) = activation(gate · x + bias, up · x + bias), or activation(up · x).
#[derive(Debug)]
pub struct GateUp<'a> {
    /// Gate and up, a dense weight of the activation's role ([`Activation::role`]): N × K per matrix.
    pub weight: &'a Weight,
    /// T × K.
    pub x: &'a Act,
    /// Biases of gate and up, N per bias.
    pub bias: Option<[&'a Buffer<f32>; 2]>,
    /// The activation.
    pub activation: Activation,
    /// T × N.
    pub h: ViewMut<'a, f32>,
}

constructor! {
    GateUp<'a>(weight: &'a Weight, x: &'a Act, h: ViewMut<'a, f32>)
        optional(bias: [&'a Buffer<f32>; 2])
        default(activation: Activation = Activation::SwiGlu)
}

impl<'a> GateUp<'a> {
    /// The call with shorter borrows.
    pub fn reborrow(&mut self) -> GateUp<'_> {
        GateUp { h: self.h.reborrow(), ..*self }
    }
}

impl Check for GateUp<'_> {
    fn check(&mut self, device: DeviceId) -> Result<()> {
        let Self { weight, x, bias, activation, h } = self;
        product(Self::NAME, device, weight, activation.role(), [x.cols(), h.cols()], h)?;
        on_device(Self::NAME, device, &[x.device()])?;
        expect(Self::NAME, OUTPUT[0], h.rows(), x.rows())?;
        vectors(Self::NAME, "length of a bias", device, bias.iter().flatten().copied(), weight.rows())?;
        activation.check(Self::NAME, bias.is_some())
    }
}

/// [`GateUp`], with its output prepared as activations.
#[derive(Debug)]
pub struct GateUpAct<'a> {
    /// The product. Its `h` can stay undefined.
    pub gate_up: GateUp<'a>,
    /// Receives H as activations.
    pub act: &'a mut Act,
}

constructor! { GateUpAct<'a>(gate_up: GateUp<'a>, act: &'a mut Act) }

impl Check for GateUpAct<'_> {
    fn check(&mut self, device: DeviceId) -> Result<()> {
        self.gate_up.check(device)?;
        fill(Self::NAME, device, self.act, self.gate_up.h.rows(), self.gate_up.h.cols())
    }
}
