//! The selective scan of Mamba layers.

use super::check::*;
use super::operation::{Check, Operation};
use super::recurrent::Runs;
use crate::error::Result;
use crate::tensor::{Buffer, DeviceId, View, ViewMut};

/// Supported numbers of state elements per value of [`SelectiveScan`].
pub const SCAN_STATES: [usize; 5] = [16, 32, 64, 128, 256];

/// A group of [`ScanHeads`] has a multiple of this number of values.
pub const SCAN_VALUES: usize = 32;

/// Values of [`SelectiveScan`] whose states are contiguous.
pub const SCAN_TILE: usize = 16;

/// The heads of [`SelectiveScan`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanHeads {
    /// Heads, H. Each has one Δ.
    pub heads: usize,
    /// Values of a head, P; 1 for Mamba-1.
    pub width: usize,
    /// Groups of adjacent heads that share B and C, G. It divides `heads`, and a group has a multiple of
    /// [`SCAN_VALUES`] values.
    pub groups: usize,
    /// State elements of a value, N: one of [`SCAN_STATES`].
    pub state: usize,
}

impl ScanHeads {
    /// Values of all heads.
    pub fn values(&self) -> usize {
        self.heads * self.width
    }

    /// Columns of concatenated values, B and C.
    pub fn columns(&self) -> usize {
        self.values() + 2 * self.groups * self.state
    }

    /// Elements of a sequence's state.
    pub fn elements(&self) -> usize {
        self.values() * self.state
    }

    /// The group of a value.
    pub fn group_of(&self, value: usize) -> usize {
        value / (self.values() / self.groups)
    }

    /// Index of an element of a value's state in a slot: tiles of [`SCAN_TILE`] values, element by element.
    pub fn state_at(&self, value: usize, element: usize) -> usize {
        (value / SCAN_TILE * self.state + element) * SCAN_TILE + value % SCAN_TILE
    }

    fn check(&self, op: &'static str) -> Result<()> {
        let Self { heads, width, groups, state } = *self;
        require(groups > 0, op, "groups", groups, "must be at least 1")?;
        require(heads > 0 && heads.is_multiple_of(groups), op, "heads", heads, "must be a multiple of the groups")?;
        require(SCAN_STATES.contains(&state), op, "state", state, "must be 16, 32, 64, 128 or 256")?;
        elements("the scan's state", &[heads, width, state])?;
        let columns = heads / groups * width;
        let whole = columns > 0 && columns.is_multiple_of(SCAN_VALUES);
        require(whole, op, "values of a group", columns, "must be a multiple of 32")
    }
}

/// The selective state space of Mamba-2 (<https://arxiv.org/abs/2405.21060>) or Mamba-1
/// (<https://arxiv.org/abs/2312.00752>), token by token. For each head, with Δ = ln(1 + e^(dt + dt_bias)), for each of
/// its values x with state s of N elements, B and C of its group:
///
/// ```text
/// s[m] ← e^(Δ·a[m]) · s[m] + Δ · x · B[m];   out = Σ C[m] · s[m] + d · x
/// ```
#[derive(Debug)]
pub struct SelectiveScan<'a> {
    /// T × (H·P + 2·G·N): concatenated values, B and C. B and C are group by group.
    pub xbc: View<'a, f32>,
    /// T × H: Δ before `dt_bias` and softplus.
    pub dt: View<'a, f32>,
    /// −e^A_log: H, or with N = 16 also H·N, one for each state element of a head.
    pub a: &'a Buffer<f32>,
    /// H: the weight of a value in its output.
    pub d: &'a Buffer<f32>,
    /// H.
    pub dt_bias: &'a Buffer<f32>,
    /// The heads.
    pub heads: ScanHeads,
    /// Slots × H·P·N, in the order of [`ScanHeads::state_at`].
    pub state: ViewMut<'a, f32>,
    /// Rows and slots of each run.
    pub runs: &'a Runs,
    /// T × H·P.
    pub out: ViewMut<'a, f32>,
}

impl SelectiveScan<'_> {
    /// Whether each state element of a head has a decay of its own, as in Mamba-1.
    pub fn has_element_decays(&self) -> bool {
        self.a.len() > self.heads.heads
    }
}

impl Check for SelectiveScan<'_> {
    fn check(&mut self, device: DeviceId) -> Result<()> {
        const OP: &str = SelectiveScan::NAME;
        let decays = if self.has_element_decays() { self.heads.state } else { 1 };
        let Self { xbc, dt, a, d, dt_bias, heads, state, runs, out } = self;
        heads.check(OP)?;
        on_device(OP, device, &[xbc.device(), dt.device(), state.device(), out.device()])?;
        let rows = xbc.rows();
        expect(OP, "rows of dt", dt.rows(), rows)?;
        shape(OP, OUTPUT, out, rows, heads.values())?;
        let few = decays <= SCAN_STATES[0];
        require(few, OP, "state with a decay for each element", heads.state, "must be 16")?;
        vector(OP, "length of a", device, a, heads.heads.saturating_mul(decays))?;
        vector(OP, "length of d", device, d, heads.heads)?;
        vector(OP, "length of dt_bias", device, dt_bias, heads.heads)?;
        if rows == 0 {
            return Ok(());
        }
        expect(OP, "columns of the input", xbc.cols(), heads.columns())?;
        expect(OP, "columns of dt", dt.cols(), heads.heads)?;
        expect(OP, "columns of the state", state.cols(), heads.elements())?;
        runs.check(OP, device, [rows, state.rows()])
    }
}
