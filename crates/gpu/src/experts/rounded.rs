//! The experts of many tokens by products of bfloat16 activations: gate and up write the activations that down reads, and down
//! writes its outputs in 16 bits, which are summed in 32. Otherwise each pair's numbers would be written in 32 bits and, for
//! down, read again to be prepared in all representations.

use super::OP;
use crate::common::{elementwise, group, route};
use crate::epilogue::ProductEpilogue;
use crate::layout::{PlaneRows, pair, parts};
use crate::product::{Bias, PairOrder, Product, RowSelection};
use crate::storage::ActOutput;
use crate::vendor::Vendor;
use gristmill_kernels::act::ACT_BLOCK;
use gristmill_kernels::error::Result;
use gristmill_kernels::groups::GroupLists;
use gristmill_kernels::ops::{Checked, Experts, Fused, MoeCombine, Route};

/// [`Experts`] so, where the vendor's kernels for both products can.
pub(super) fn experts<V: Vendor>(vendor: &V, call: &mut Checked<Experts>) -> Result<Fused> {
    let (gate_up, down) = (parts(OP, call.weights.gate_up)?, parts(OP, call.weights.down)?);
    let ([gate, up], [down]) = (pair(OP, gate_up)?, down) else { return Ok(Fused::No) };
    // Activations end with a row: no block of them belongs to two kernels, and none has padding.
    let fits = gate.format == up.format && gate.rows.is_multiple_of(ACT_BLOCK);
    if !fits || call.y.rows() == 0 {
        return Ok(Fused::No);
    }
    let serves = |product: &Product| vendor.rounds_results(product);
    if !gate_up_product(call, gate_up, serves)? || !down_product(call, down, serves)? {
        return Ok(Fused::No);
    }
    let pairs = call.scratch.groups.total_pairs();
    let (route, lists) = call.lists();
    route_and_group(vendor, route, lists, pairs)?;
    gate_up_product(call, gate_up, |product| vendor.multiply(product))?;
    down_product(call, down, |product| vendor.multiply(product))?;
    let Experts { route, scratch, epilogue, y, .. } = &mut **call;
    let (out, weights) = (scratch.out.as_view(), route.weights.as_view());
    let combine = MoeCombine { out, weights, epilogue: *epilogue, y: y.reborrow() };
    elementwise::moe_combine(vendor.device(), combine, true)?;
    Ok(Fused::Yes)
}

fn route_and_group<V: Vendor>(vendor: &V, call: &Route, lists: GroupLists, pairs: usize) -> Result<()> {
    *lists.tile_rows = vendor.tile_rows(lists.counts.len(), pairs, true);
    if route::route_and_group(vendor.device(), call, &lists)? == Fused::Yes {
        return Ok(());
    }
    route::route(vendor.device(), call)?;
    group::group_by_expert(vendor.device(), call.ids.as_view(), &lists)
}

/// Calls `then` with the product of gate and up, or of up without a gate.
fn gate_up_product<T>(call: &Experts, gate_up: &[PlaneRows], then: impl FnOnce(&Product) -> Result<T>) -> Result<T> {
    let Experts { route, weights, x, scratch, .. } = call;
    let [gate, up] = pair(OP, gate_up)?;
    let bias = |values| Some(Bias { values, first: 0, matrix: gate.rows });
    let rows =
        RowSelection::Pairs { groups: scratch.groups, pairs_per_row: route.routing.top_k, order: PairOrder::YByExpert };
    then(&Product {
        up: (gate_up.len() > 1).then_some(up),
        biases: weights.gate_up_bias.map_or([None; 2], |both| both.map(bias)),
        epilogue: ProductEpilogue::of_activation(weights.activation),
        act: Some(ActOutput::new(OP, scratch.act)?),
        // It is written by down.
        spare: Some(&scratch.out),
        rounded: true,
        ..Product::new(OP, gate, x, rows, &scratch.h)
    })
}

/// Calls `then` with the product of down.
fn down_product<T>(call: &Experts, down: &PlaneRows, then: impl FnOnce(&Product) -> Result<T>) -> Result<T> {
    let Experts { weights, scratch, .. } = call;
    let bias = weights.down_bias.map(|values| Bias { values, first: 0, matrix: down.rows });
    let rows = RowSelection::Pairs { groups: scratch.groups, pairs_per_row: 1, order: PairOrder::XByExpert };
    let product = Product::new(OP, down, scratch.act, rows, &scratch.out);
    then(&Product { biases: [bias, None], rounded: true, ..product })
}
