//! Experts: those of few tokens in two launches, which route for themselves, and those of many.

mod rounded;

use crate::Arg;
use crate::common::route::{self, Defines, RouteParams};
use crate::epilogue::ProductEpilogue;
use crate::layout::{pair, parts};
use crate::matmul::gated_output;
use crate::product::{Bias, Product, RowSelection};
use crate::vendor::Vendor;
use gristmill_kernels::error::Result;
use gristmill_kernels::ops::{Checked, Experts, Fused, Operation};

const OP: &str = Experts::NAME;
/// The routing of few tokens, as both launches get it.
pub struct FewTokens<'a> {
    /// The rules.
    pub route: RouteParams,
    /// The definitions of kernels that route by them.
    pub defines: Defines,
    /// Experts of a token.
    pub top_k: usize,
    /// The router's logits.
    pub logits: Arg<'a>,
    /// The selection bias, the experts' scales, and the tokens, of which some may be padding.
    pub optional: [Arg<'a>; 3],
    /// Where the chosen experts and their weights go.
    pub chosen: [Arg<'a>; 2],
}

/// [`Experts`] with fewer launches or bytes than its parts, where there is a way.
pub(crate) fn experts<V: Vendor>(vendor: &V, call: &mut Checked<Experts>) -> Result<Fused> {
    match few(vendor, call)? {
        Fused::Yes => Ok(Fused::Yes),
        Fused::No => rounded::experts(vendor, call),
    }
}

/// [`Experts`] in two launches, for few tokens. Without a gate, up is multiplied in the gate's place too: few tokens wait for
/// memory, from which its rows are read once.
fn few<V: Vendor>(vendor: &V, call: &mut Experts) -> Result<Fused> {
    let Experts { route, weights: experts, x, scratch, epilogue, y } = call;
    let params = RouteParams::new(route)?;
    let [gate, up] = pair(OP, parts(OP, experts.gate_up)?)?;
    let down = parts(OP, experts.down)?;
    let (Some(defines), [down]) = (route::lane_defines(&params, vendor.experts_per_lane()), down) else {
        return Ok(Fused::No);
    };
    let most = vendor.few_tokens(params.experts as usize, route.routing.top_k);
    // The kernels read the matrix of each chosen expert.
    let is_whole = scratch.groups.is_whole();
    if !(1..=most).contains(&x.rows()) || gate.format != up.format || !vendor.fuses_experts() || !is_whole {
        return Ok(Fused::No);
    }
    let logits = Arg::read(&route.logits);
    let chosen = [Arg::write(&route.ids), Arg::write(&route.weights)];
    let optional = route::optional_args(route);
    let top_k = route.routing.top_k;
    let few = FewTokens { route: params, defines, top_k, logits, optional, chosen };
    let bias = |values, matrix| Some(Bias { values, first: 0, matrix });

    let (h, gated) = gated_output::<V>(OP, gate.rows, scratch.h.reborrow(), Some(&mut *scratch.act))?;
    vendor.experts(
        &few,
        &Product {
            up: Some(up),
            biases: experts.gate_up_bias.map_or([None; 2], |both| both.map(|values| bias(values, gate.rows))),
            epilogue: ProductEpilogue::Gate(experts.activation),
            act: gated,
            ..Product::new(OP, gate, x, RowSelection::All, &h)
        },
    )?;
    vendor.experts(
        &few,
        &Product {
            biases: [experts.down_bias.and_then(|values| bias(values, down.rows)), None],
            epilogue: (*epilogue).into(),
            ..Product::new(OP, down, scratch.act, RowSelection::All, y)
        },
    )?;
    Ok(Fused::Yes)
}
