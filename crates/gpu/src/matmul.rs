//! Matrix operations as products that one launch computes.

use crate::common::activations::prepare_activations;
use crate::epilogue::ProductEpilogue;
use crate::layout::{PlaneRows, pair, parts};
use crate::product::{Bias, PairOrder, Product, RowSelection};
use crate::storage::{ActOutput, GpuAct};
use crate::vendor::Vendor;
use gristmill_kernels::act::{ACT_BLOCK, Act};
use gristmill_kernels::error::Result;
use gristmill_kernels::ops::{Activation, GateUp, Matmul, MoeGateUp, MoeMatmul, Operation};
use gristmill_kernels::tensor::{Buffer, ViewMut};
use gristmill_kernels::weight::Weight;
use std::slice::from_ref;

/// X · Wᵀ + bias in Y: `launch` gets a product for each run of up to `joined` neighbouring parts of one format. Experts
/// are not joined.
pub fn each_run(
    op: &'static str,
    w: &Weight,
    joined: usize,
    x: &Act,
    rows: RowSelection,
    bias: Option<&Buffer<f32>>,
    epilogue: ProductEpilogue,
    y: &mut ViewMut<f32>,
    mut launch: impl FnMut(&Product) -> Result<()>,
) -> Result<()> {
    let same = |a: &PlaneRows, b: &PlaneRows| a.format == b.format && a.experts == 1;
    let mut first = 0;
    for parts in parts(op, w)?.chunk_by(same).flat_map(|run| run.chunks(joined)) {
        let end = first + parts.iter().map(|part| part.rows).sum::<usize>();
        let y = y.reborrow().columns(first..end)?;
        let bias = bias.map(|values| Bias { values, first, matrix: w.rows() });
        let biases = [bias, None];
        let y = &y;
        launch(&Product {
            op,
            parts,
            first,
            up: None,
            x,
            rows,
            biases,
            epilogue,
            y,
            act: None,
            spare: None,
            rounded: false,
        })?;
        first = end;
    }
    Ok(())
}

pub(crate) fn matmul<V: Vendor>(vendor: &V, call: Matmul) -> Result<()> {
    let Matmul { weight, x, rows, bias, epilogue, y } = call;
    let rows = rows.map_or(RowSelection::All, RowSelection::Ids);
    multiply(vendor, Matmul::NAME, weight, x, rows, bias, epilogue.into(), y)
}

/// [`MoeMatmul`].
pub fn moe_matmul<V: Vendor>(vendor: &V, call: MoeMatmul) -> Result<()> {
    let MoeMatmul { weight, x, groups, top_k, bias, out } = call;
    // A row of X for each pair, or for each token.
    let rows = RowSelection::Pairs {
        groups,
        pairs_per_row: if x.rows() == out.rows() { 1 } else { top_k },
        order: PairOrder::ByPair,
    };
    multiply(vendor, MoeMatmul::NAME, weight, x, rows, bias, ProductEpilogue::Store, out)
}

fn multiply<V: Vendor>(
    vendor: &V,
    op: &'static str,
    w: &Weight,
    x: &Act,
    rows: RowSelection,
    bias: Option<&Buffer<f32>>,
    epilogue: ProductEpilogue,
    mut y: ViewMut<f32>,
) -> Result<()> {
    if y.rows() == 0 {
        return Ok(());
    }
    each_run(op, w, V::JOINED_PARTS, x, rows, bias, epilogue, &mut y, |product| vendor.multiply(product))
}

/// [`GateUp`]; with activations [`gristmill_kernels::ops::GateUpAct`], and `h` may be left undefined.
pub(crate) fn gate_up<V: Vendor>(vendor: &V, call: GateUp, act: Option<&mut Act>) -> Result<()> {
    let GateUp { weight, x, bias, activation, h } = call;
    let gate_up = parts(GateUp::NAME, weight)?;
    multiply_gated(vendor, GateUp::NAME, gate_up, x, RowSelection::All, bias, activation, h, act)
}

/// [`MoeGateUp`]; with activations [`gristmill_kernels::ops::MoeGateUpAct`], and `h` may be left undefined.
pub fn moe_gate_up<V: Vendor>(vendor: &V, call: MoeGateUp, act: Option<&mut Act>) -> Result<()> {
    let MoeGateUp { weight, x, groups, top_k, bias, activation, h } = call;
    let rows = RowSelection::Pairs { groups, pairs_per_row: top_k, order: PairOrder::ByPair };
    let gate_up = parts(MoeGateUp::NAME, weight)?;
    multiply_gated(vendor, MoeGateUp::NAME, gate_up, x, rows, bias, activation, h, act)
}

/// The products of gate and up, or of up without a gate, with their activation, in H or as activations.
pub fn multiply_gated<V: Vendor>(
    vendor: &V,
    op: &'static str,
    gate_up: &[PlaneRows],
    x: &Act,
    rows: RowSelection,
    bias: Option<[&Buffer<f32>; 2]>,
    activation: Activation,
    h: ViewMut<f32>,
    act: Option<&mut Act>,
) -> Result<()> {
    if h.rows() == 0 {
        return Ok(());
    }
    let [gate, up] = pair(op, gate_up)?;
    let matrix = gate.rows;
    let (h, act) = gated_output::<V>(op, matrix, h, act)?;
    let [gate_bias, up_bias] =
        bias.map_or([None; 2], |both| both.map(|values| Some(Bias { values, first: 0, matrix })));
    let epilogue = ProductEpilogue::of_activation(activation);
    let biases = [gate_bias, up_bias];
    let second = (gate_up.len() > 1).then_some(up);
    let both = Product { up: second, biases, epilogue, act, ..Product::new(op, gate, x, rows, &h) };
    // No block of activations belongs to two kernels, and none has padding.
    let whole = gate.rows.is_multiple_of(ACT_BLOCK) && act.is_some_and(|act| act.only_bf16());
    let rounded = gate.format == up.format && whole && vendor.rounds_results(&both)?;
    match second {
        _ if rounded => return vendor.multiply(&Product { rounded, ..both }),
        Some(_) if gate.format == up.format => return vendor.multiply(&both),
        // Two formats are two products: the gates, then what they gate.
        Some(_) => {
            let stored = ProductEpilogue::Store;
            let gates = Product { up: None, biases: [gate_bias, None], epilogue: stored, act: None, ..both };
            vendor.multiply(&gates)?;
            vendor.multiply(&Product { parts: from_ref(up), biases: [up_bias, None], epilogue, ..gates })?;
        }
        None => vendor.multiply(&Product { act: None, ..both })?,
    }
    act.map_or(Ok(()), |act| prepare_activations(vendor.device(), h.as_view(), act))
}

/// Where gated results go: H and activations; or activations in the place of H where these are floats alone.
pub fn gated_output<'a, V: Vendor>(
    op: &'static str,
    outputs: usize,
    h: ViewMut<'a, f32>,
    act: Option<&'a mut Act>,
) -> Result<(ViewMut<'a, f32>, Option<ActOutput<'a>>)> {
    let Some(act) = act else { return Ok((h, None)) };
    if V::ROUNDS_ACTIVATIONS {
        return Ok((h, Some(ActOutput::new(op, act)?)));
    }
    let exact = act.storage_mut::<GpuAct>(op)?.exact.view_mut(h.rows(), outputs)?;
    Ok((exact, None))
}
