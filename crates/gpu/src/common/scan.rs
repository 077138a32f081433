//! The selective scan: `kernels/selective_scan.gpu`.

use super::grid::{MOST_BLOCKS, MOST_BLOCKS_Y, count};
use super::kv::limit;
use super::{RowAlignment, aligned};
use crate::{Access, Arg, Device, Kernel, Launch, Unit};
use gristmill_kernels::error::Result;
use gristmill_kernels::ops::{Operation, SCAN_STATES, SCAN_TILE, SCAN_VALUES, SelectiveScan};

/// Threads of a block, as in the kernel.
const BLOCK: u32 = 128;

/// The definitions of a number of state elements, with a decay for each head or for each element.
fn defines(state: usize, by_element: bool) -> [(&'static str, &'static str); 2] {
    let state = match state {
        16 => "16",
        32 => "32",
        64 => "64",
        128 => "128",
        _ => "256",
    };
    [("STATE", state), ("BY_ELEMENT", if by_element { "1" } else { "0" })]
}

/// The units of the scan: one for each number of state elements, and one with decays for each element.
pub(super) fn units() -> impl Iterator<Item = Unit> {
    let by_head = SCAN_STATES.map(|state| defines(state, false));
    by_head.into_iter().chain([defines(SCAN_STATES[0], true)]).map(|d| Unit::new("selective_scan.gpu", &d))
}

shared_struct! {
    pub(super) struct ScanParams {
        // Elements from one row to the next.
        xbc_stride: u64,
        dt_stride: u64,
        state_stride: u64,
        out_stride: u64,
        values: u32,
        // Values of a head.
        width: u32,
        groups: u32,
        rows: u32,
        slots: u32,
        // States allow accesses of the values of a thread at once.
        aligned: u32,
    }
}

on_device! { selective_scan(SelectiveScan) }

pub(crate) fn selective_scan(device: &Device, call: SelectiveScan) -> Result<()> {
    const OP: &str = SelectiveScan::NAME;
    let defines = defines(call.heads.state, call.has_element_decays());
    let SelectiveScan { xbc, dt, a, d, dt_bias, heads, state, runs, out } = call;
    if xbc.rows() == 0 || runs.count == 0 {
        return Ok(());
    }
    let params = ScanParams {
        xbc_stride: xbc.layout().stride() as u64,
        dt_stride: dt.layout().stride() as u64,
        state_stride: state.layout().stride() as u64,
        out_stride: out.layout().stride() as u64,
        values: count(OP, "values", heads.values(), MOST_BLOCKS)?,
        width: limit(heads.width),
        groups: limit(heads.groups),
        rows: limit(xbc.rows()),
        slots: limit(state.rows()),
        aligned: aligned(SCAN_TILE, [RowAlignment::of_mut(&state)]),
    };
    let grid = [params.values / SCAN_VALUES as u32, count(OP, "runs", runs.count, MOST_BLOCKS_Y)?, 1];
    let [a, d, dt_bias] = [a, d, dt_bias].map(|vector| Arg::buffer(vector, Access::Read));
    let runs = Arg::buffer(&runs.list, Access::Read);
    let (xbc, dt) = (Arg::read(&xbc), Arg::read(&dt));
    let (state, out) = (Arg::change(&state), Arg::write(&out));
    let args = [xbc, dt, a, d, dt_bias, runs, state, out, device.flag(), Arg::params(&params)];
    let kernel = Kernel { file: "selective_scan.gpu", entry: "selective_scan", defines: &defines };
    device.launch(&Launch::new(kernel, grid, BLOCK, &args))
}
