//! Sums and products, element by element, and the combination of experts: `kernels/elementwise.h`.

use super::grid::{MOST_BLOCKS, MOST_BLOCKS_Y, count};
use super::row_alignment::{RowAlignment, aligned};
use crate::epilogue::{EpilogueParams, ProductEpilogue};
use gristmill_kernels::error::Result;

use crate::{Arg, Device, Kernel, Launch};
use gristmill_kernels::ops::{
    Add, AddGated, Clamp, CopyRows, GateKind, GatherColumns, MoeCombine, Multiply, Operation, Scale, SoftCap,
};
use gristmill_kernels::tensor::{View, ViewMut};

/// Columns of a block: four for each thread.
const BLOCK_COLUMNS: usize = 4 * BLOCK as usize;
const BLOCK: u32 = 128;

shared_struct! {
    pub(super) struct ElementsParams {
        rows: u64,
        cols: u64,
        // Elements from one row to the next.
        x_stride: u64,
        y_stride: u64,
        gate_stride: u64,
        scale: f32,
        aligned: u32,
        // Columns of x for each of a gate.
        span: u32,
        // The least value, where the scale is the greatest.
        low: f32,
    }
}

impl ElementsParams {
    /// For an output alone.
    fn of(y: &ViewMut<f32>) -> Self {
        Self {
            rows: y.rows() as u64,
            cols: y.cols() as u64,
            x_stride: 0,
            y_stride: y.layout().stride() as u64,
            gate_stride: 0,
            scale: 1.0,
            aligned: aligned(y.cols(), [RowAlignment::of_mut(y)]),
            span: 1,
            low: 0.0,
        }
    }

    /// For an input and an output.
    fn of_two(x: &View<f32>, y: &ViewMut<f32>) -> Self {
        let aligned = aligned(y.cols(), [RowAlignment::of(x), RowAlignment::of_mut(y)]);
        Self { x_stride: x.layout().stride() as u64, aligned, ..Self::of(y) }
    }
}

/// One block for each row and [`BLOCK_COLUMNS`]; none for no elements.
fn launch(device: &Device, entry: &'static str, y: &ViewMut<f32>, args: &[Arg]) -> Result<()> {
    if y.rows() == 0 || y.cols() == 0 {
        return Ok(());
    }
    let rows = count(entry, "rows", y.rows(), MOST_BLOCKS)?;
    let columns = count(entry, "blocks of columns", y.cols().div_ceil(BLOCK_COLUMNS), MOST_BLOCKS_Y)?;
    device.launch(&Launch::new(Kernel::plain("rows.gpu", entry), [rows, columns, 1], BLOCK, args))
}

on_device! {
    copy_rows(CopyRows), gather_columns(GatherColumns), add(Add), add_gated(AddGated), scale(Scale), soft_cap(SoftCap), clamp(Clamp), multiply(Multiply)
}

pub(crate) fn copy_rows(device: &Device, call: CopyRows) -> Result<()> {
    let CopyRows { x, out } = call;
    let params = ElementsParams::of_two(&x, &out);
    launch(device, "copy_rows", &out, &[Arg::read(&x), Arg::write(&out), Arg::params(&params)])
}

/// The stride of the order is the gate's.
pub(crate) fn gather_columns(device: &Device, call: GatherColumns) -> Result<()> {
    let GatherColumns { x, order, out } = call;
    count(GatherColumns::NAME, "columns", x.cols(), MOST_BLOCKS)?;
    let params = ElementsParams {
        x_stride: x.layout().stride() as u64,
        gate_stride: order.layout().stride() as u64,
        ..ElementsParams::of(&out)
    };
    let args = [Arg::read(&x), Arg::read(&order), Arg::write(&out), device.flag(), Arg::params(&params)];
    launch(device, "gather_columns", &out, &args)
}

pub(crate) fn add(device: &Device, call: Add) -> Result<()> {
    let Add { x, scale, y } = call;
    let params = ElementsParams { scale, ..ElementsParams::of_two(&x, &y) };
    launch(device, "add_rows", &y, &[Arg::read(&x), Arg::change(&y), Arg::params(&params)])
}

/// Adds rows without gaps, which start at 16 bytes if those of `y` do.
pub(crate) fn add_part(device: &Device, part: Arg, y: &ViewMut<f32>) -> Result<()> {
    let aligned = aligned(y.cols(), [RowAlignment::of_mut(y)]);
    let params = ElementsParams { x_stride: y.cols() as u64, aligned, ..ElementsParams::of(y) };
    launch(device, "add_rows", y, &[part, Arg::change(y), Arg::params(&params)])
}

pub(crate) fn add_gated(device: &Device, call: AddGated) -> Result<()> {
    let AddGated { x, gate, y } = call;
    let gate_stride = gate.layout().stride() as u64;
    let params = ElementsParams { gate_stride, ..ElementsParams::of_two(&x, &y) };
    launch(device, "add_gated", &y, &[Arg::read(&x), Arg::read(&gate), Arg::change(&y), Arg::params(&params)])
}

pub(crate) fn scale(device: &Device, call: Scale) -> Result<()> {
    let Scale { factor, y } = call;
    let params = ElementsParams { scale: factor, ..ElementsParams::of(&y) };
    launch(device, "scale_rows", &y, &[Arg::change(&y), Arg::params(&params)])
}

pub(crate) fn soft_cap(device: &Device, call: SoftCap) -> Result<()> {
    let SoftCap { cap, y } = call;
    let params = ElementsParams { scale: cap, ..ElementsParams::of(&y) };
    launch(device, "soft_cap", &y, &[Arg::change(&y), Arg::params(&params)])
}

pub(crate) fn clamp(device: &Device, call: Clamp) -> Result<()> {
    let Clamp { low, high, y } = call;
    let params = ElementsParams { scale: high, low, ..ElementsParams::of(&y) };
    launch(device, "clamp_rows", &y, &[Arg::change(&y), Arg::params(&params)])
}

pub(crate) fn multiply(device: &Device, call: Multiply) -> Result<()> {
    let Multiply { x, gate, kind, out } = call;
    let aligned = aligned(out.cols(), [RowAlignment::of(&x), RowAlignment::of(&gate), RowAlignment::of_mut(&out)]);
    let gate_stride = gate.layout().stride() as u64;
    let columns = count(Multiply::NAME, "columns", out.cols(), MOST_BLOCKS)? as usize;
    let span = columns.checked_div(gate.cols()).unwrap_or(1) as u32;
    let params = ElementsParams { gate_stride, aligned, span, ..ElementsParams::of_two(&x, &out) };
    let entry = match kind {
        GateKind::Linear => "multiply",
        GateKind::Sigmoid => "multiply_sigmoid",
        GateKind::Gelu => "multiply_gelu",
        GateKind::Softplus => "multiply_softplus",
        GateKind::Normal => "multiply_normal",
        GateKind::NormalTanh => "multiply_normal_tanh",
        GateKind::Silu => "multiply_silu",
    };
    launch(device, entry, &out, &[Arg::read(&x), Arg::read(&gate), Arg::write(&out), Arg::params(&params)])
}

shared_struct! {
    pub(super) struct CombineParams {
        rows: u64,
        cols: u64,
        out_stride: u64,
        weights_stride: u64,
        y_stride: u64,
        top_k: u32,
        aligned: u32,
        epilogue: EpilogueParams,
        padding: u32,
    }
}

/// [`MoeCombine`]; if `rounded`, the outputs are bfloat16 in the first half of each row.
pub fn moe_combine(device: &Device, call: MoeCombine, rounded: bool) -> Result<()> {
    let MoeCombine { out, weights, epilogue, y } = call;
    let (entry, per_float) = if rounded { ("moe_combine_bf16", 2) } else { ("moe_combine", 1) };
    let epilogue = ProductEpilogue::from(epilogue);
    let params = CombineParams {
        rows: y.rows() as u64,
        cols: y.cols() as u64,
        out_stride: (per_float * out.layout().stride()) as u64,
        weights_stride: weights.layout().stride() as u64,
        y_stride: y.layout().stride() as u64,
        top_k: count(MoeCombine::NAME, "top-k", weights.cols(), MOST_BLOCKS)?,
        aligned: aligned(y.cols(), [RowAlignment::of(&out), RowAlignment::of_mut(&y)]),
        epilogue: epilogue.into(),
        padding: 0,
    };
    let args = [Arg::read(&out), Arg::read(&weights), epilogue.output(&y), Arg::params(&params)];
    launch(device, entry, &y, &args)
}
