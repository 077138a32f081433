//! Expert operations: routing by a full sort, grouping by a scan of all pairs for each expert.

use super::matrix::{self, RowPair, apply_epilogue, both, gate_and_up, multiply_gate_up, multiply_pairs};
use super::rows::{Rows, RowsMut};
use crate::error::Result;
use crate::groups::{GroupLists, Groups};
use crate::ops::{
    Epilogue, Gating, GroupByExpert, GroupWorth, MAX_EXPERTS, MoeCombine, MoeGateUp, MoeMatmul, Operation, PADDING,
    Route, Routing,
};
use crate::tensor::Buffer;
use std::cmp::Ordering;

/// Indices by descending score, the smaller first on a tie, NaN last.
pub(super) fn ranking(scores: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    let key = |i: usize| (!scores[i].is_nan(), if scores[i].is_nan() { 0.0 } else { scores[i] });
    order.sort_by(|&a, &b| key(b).partial_cmp(&key(a)).unwrap_or(Ordering::Equal).then(a.cmp(&b)));
    order
}

/// Softmax of logits whose largest is finite; −∞ gives 0.
pub(super) fn softmax(logits: &[f64]) -> Vec<f64> {
    let max = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let shares: Vec<f64> = logits.iter().map(|x| (x - max).exp()).collect();
    let sum: f64 = shares.iter().sum();
    shares.iter().map(|s| s / sum).collect()
}

/// Routes one token: ids and weights in order.
fn route_row(logits: &[f32], routing: &Routing, bias: Option<&[f32]>) -> Vec<(u32, f64)> {
    if logits.iter().chain(bias.unwrap_or_default()).any(|x| !x.is_finite()) {
        return (0..routing.top_k as u32).map(|id| (id, f64::NAN)).collect();
    }
    let logits: Vec<f64> = logits.iter().map(|&x| f64::from(x)).collect();
    let values = match routing.gating {
        Gating::Softmax => softmax(&logits),
        Gating::SoftmaxOfChosen | Gating::SparseMixer { .. } => logits.clone(),
        Gating::Sigmoid => logits.iter().map(|x| 1.0 / (1.0 + (-x).exp())).collect(),
    };
    let score = |i: usize| values[i] + bias.map_or(0.0, |b| f64::from(b[i]));
    let mut scores: Vec<f64> = (0..logits.len()).map(score).collect();

    let size = logits.len() / routing.groups;
    let worth: Vec<f64> = scores
        .chunks(size)
        .map(|group| {
            let best = ranking(group);
            let counted = if routing.worth == GroupWorth::Highest { 1 } else { 2 };
            best.iter().take(counted).map(|&i| group[i]).sum()
        })
        .collect();
    let groups = &ranking(&worth)[..routing.top_groups];
    let allowed = |i: &usize| groups.contains(&(i / size));
    let ranked: Vec<usize> = ranking(&scores).into_iter().filter(allowed).collect();
    let chosen = &ranked[..routing.top_k];

    scores = chosen.iter().map(|&i| values[i]).collect();
    if routing.gating == Gating::SoftmaxOfChosen {
        scores = softmax(&scores);
    }
    if let Gating::SparseMixer { near } = routing.gating {
        // Each expert's softmax over itself and the lower-ranked experts that are near.
        let share = |slot: usize| {
            let best = logits[chosen[slot]];
            let near = |x: f64| x == best || best - x <= f64::from(near) * x.abs().max(best);
            let masked = |&i: &usize| if near(logits[i]) { logits[i] } else { f64::NEG_INFINITY };
            softmax(&ranked[slot..].iter().map(masked).collect::<Vec<_>>())[0]
        };
        scores = (0..routing.top_k).map(share).collect();
    }
    let sum = if routing.normalise { scores.iter().sum::<f64>().max(2.0_f64.powi(-14)) } else { 1.0 };
    let weight = |w: &f64| w / sum * f64::from(routing.scale);
    chosen.iter().map(|&i| i as u32).zip(scores.iter().map(weight)).collect()
}

pub(super) fn route(call: Route) -> Result<()> {
    let Route { logits, routing, selection_bias, expert_scales, tokens, mut ids, mut weights } = call;
    let (bias, scales) = (matrix::vector(selection_bias), matrix::vector(expert_scales));
    let tokens = tokens.map(|tokens| Rows::new(Route::NAME, tokens)).transpose()?;
    let (mut ids, mut weights) = (RowsMut::new(Route::NAME, &mut ids)?, RowsMut::new(Route::NAME, &mut weights)?);
    for (t, logits) in Rows::new(Route::NAME, logits)?.iter().enumerate() {
        if tokens.as_ref().is_some_and(|tokens| tokens.row(t) == [PADDING]) {
            ids.row(t).fill(PADDING);
            weights.row(t).fill(0.0);
            continue;
        }
        for (slot, (chosen, weight)) in route_row(logits, routing, bias).into_iter().enumerate() {
            ids.row(t)[slot] = chosen;
            weights.row(t)[slot] = (weight * scales.map_or(1.0, |scales| f64::from(scales[chosen as usize]))) as f32;
        }
    }
    Ok(())
}

pub(super) fn group_by_expert(call: GroupByExpert) -> Result<()> {
    let GroupByExpert { ids, groups } = call;
    let ids: Vec<u32> = Rows::new(GroupByExpert::NAME, ids)?.elements().collect();
    let GroupLists { counts, pairs, tiles, tile_count, tile_rows, first: first_expert, .. } = groups.lists();
    let of_expert = |e: usize| {
        ids.iter().zip(0_u32..).filter(move |&(&id, _)| id as usize == first_expert + e).map(|(_, pair)| pair)
    };
    let (mut sorted, mut sizes, mut cut) = (Vec::new(), Vec::new(), Vec::new());
    for expert in 0..counts.len() {
        let first = sorted.len();
        sorted.extend(of_expert(expert));
        let count = sorted.len() - first;
        sizes.push(count as u32);
        for row in (0..count).step_by(*tile_rows) {
            let rows = (*tile_rows).min(count - row);
            cut.extend([expert as u32, (first + row) as u32, rows as u32]);
        }
    }
    put(counts, &sizes);
    put(pairs, &sorted);
    put(tiles, &cut);
    put(tile_count, &[(cut.len() / 3) as u32]);
    Ok(())
}

/// Writes words to the start of a list.
fn put(list: &mut Buffer<u32>, words: &[u32]) {
    list.as_host_mut().unwrap_or(&mut []).iter_mut().zip(words).for_each(|(to, word)| *to = *word);
}

/// Calls `f` with each expert that has pairs and their rows: in X (one per token or one per pair) and in the output.
fn each_expert(groups: &Groups, per_pair: bool, top_k: usize, mut f: impl FnMut(usize, &[RowPair])) {
    let (Some(counts), Some(pairs)) = (groups.counts.as_host(), groups.pairs.as_host()) else { return };
    let mut first = 0;
    for (expert, &count) in counts.iter().enumerate().filter(|&(_, &count)| count > 0) {
        let pairs = &pairs[first..first + count as usize];
        first += count as usize;
        let pair = |&p: &u32| RowPair { x: if per_pair { p as usize } else { p as usize / top_k }, y: p as usize };
        f(expert, &pairs.iter().map(pair).collect::<Vec<_>>());
    }
}

pub(super) fn moe_matmul(call: MoeMatmul) -> Result<()> {
    const OP: &str = MoeMatmul::NAME;
    let MoeMatmul { weight, x, groups, top_k, bias, mut out } = call;
    let (tensors, rows) = (matrix::tensors(OP, weight)?, matrix::activations(OP, x)?);
    let mut out = RowsMut::new(OP, &mut out)?;
    out.each(|_, row| row.fill(0.0));
    // With one slot per token, tokens and pairs are the same.
    let per_pair = rows.len == out.len;
    each_expert(groups, per_pair, top_k, |expert, pairs| {
        multiply_pairs(tensors, expert, rows, matrix::vector(bias), pairs, Epilogue::Store, &mut out);
    });
    Ok(())
}

pub(super) fn moe_gate_up(call: MoeGateUp) -> Result<()> {
    const OP: &str = MoeGateUp::NAME;
    let MoeGateUp { weight, x, groups, top_k, bias, activation, mut h } = call;
    let tensors = gate_and_up(OP, weight)?;
    let rows = matrix::activations(OP, x)?;
    let mut h = RowsMut::new(OP, &mut h)?;
    h.each(|_, row| row.fill(0.0));
    each_expert(groups, false, top_k, |expert, pairs| {
        multiply_gate_up(tensors, expert, rows, both(bias), activation, pairs, &mut h);
    });
    Ok(())
}

pub(super) fn moe_combine(call: MoeCombine) -> Result<()> {
    const OP: &str = MoeCombine::NAME;
    let MoeCombine { out, weights, epilogue, mut y } = call;
    let (out, weights) = (Rows::new(OP, out)?, Rows::new(OP, weights)?);
    RowsMut::new(OP, &mut y)?.each(|t, y| {
        let weights = weights.row(t);
        for (i, y) in y.iter_mut().enumerate() {
            let term = |(slot, &w): (usize, &f32)| f64::from(w) * f64::from(out.row(t * weights.len() + slot)[i]);
            *y = apply_epilogue(epilogue, *y, weights.iter().enumerate().map(term).sum());
        }
    });
    Ok(())
}

// Padding is no expert.
const _: () = assert!(PADDING as usize >= MAX_EXPERTS);
