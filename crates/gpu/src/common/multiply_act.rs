//! Products element by element as activations: `kernels/multiply_act.h`.

use super::activations::THREADS;
use super::grid::{MOST_BLOCKS, count};
use super::row_alignment::{RowAlignment, aligned};
use gristmill_kernels::error::Result;

use crate::storage::ActOutput;
use crate::{Arg, Device, Kernel, Launch};
use gristmill_kernels::ops::{Fused, GateKind, Multiply, MultiplyAct, Operation, elements};

shared_struct! {
    pub(super) struct MultiplyActParams {
        // Elements from one row to the next.
        x_stride: u64,
        gate_stride: u64,
        rows: u32,
        cols: u32,
        // Columns of x for each of a gate.
        span: u32,
        // A GateKind.
        kind: u32,
        aligned: u32,
        // The parts that are written, of ActPart; the other pointers say nothing.
        parts: u32,
    }
}

/// [`MultiplyAct`] in one launch.
pub(crate) fn multiply_act(device: &Device, call: &MultiplyAct) -> Result<Fused> {
    let MultiplyAct { multiply: Multiply { x, gate, kind, out }, act } = call;
    let op = MultiplyAct::NAME;
    let act = ActOutput::new(MultiplyAct::NAME, act)?;
    if out.rows() == 0 {
        return Ok(Fused::Yes);
    }
    let cols = count(op, "columns", out.cols(), MOST_BLOCKS)?;
    let params = MultiplyActParams {
        x_stride: x.layout().stride() as u64,
        gate_stride: gate.layout().stride() as u64,
        rows: count(op, "rows", out.rows(), MOST_BLOCKS)?,
        cols,
        span: cols.checked_div(gate.cols() as u32).unwrap_or(1),
        // `GateKind` in `elementwise.h`.
        kind: match kind {
            GateKind::Linear => 0,
            GateKind::Sigmoid => 1,
            GateKind::Gelu => 2,
            GateKind::Softplus => 3,
            GateKind::Normal => 4,
            GateKind::NormalTanh => 5,
            GateKind::Silu => 6,
        },
        aligned: aligned(out.cols(), [RowAlignment::of(x), RowAlignment::of(gate)]),
        parts: act.parts(),
    };
    let [exact, int8, bf16] = act.storage.outputs();
    let args = [Arg::read(x), Arg::read(gate), exact, int8, bf16, Arg::params(&params)];
    let groups = elements("activations", &[out.rows(), out.cols().div_ceil(32)])?;
    let blocks = count(op, "blocks", groups.div_ceil(THREADS / 8), MOST_BLOCKS)?;
    device.launch(&Launch::new(Kernel::plain("rows.gpu", "multiply_act"), [blocks, 1, 1], THREADS as u32, &args))?;
    Ok(Fused::Yes)
}
