//! The router for one token: scores, top k, weights. Scores are f64, so rounding creates no ties.

use super::cpu::Cpu;
use super::host;
use gristmill_kernels::error::Result;
use gristmill_kernels::ops::{Gating, GroupWorth, MAX_EXPERTS, Operation, PADDING, Route, Routing};

/// The minimum sum that weights are divided by: the smallest normal f16.
const LEAST_SUM: f64 = 6.103_515_625e-5;

on_cpu! { route_rows(Route): logits, ids, weights; }

impl Cpu {
    pub(super) fn route_rows(&self, call: Route) -> Result<()> {
        let Route { logits, routing, selection_bias, expert_scales, tokens, mut ids, mut weights } = call;
        let cols = logits.cols();
        let logits = host::rows(Route::NAME, logits)?;
        let bias = selection_bias.map(|bias| host::slice(Route::NAME, bias)).transpose()?;
        let scales = expert_scales.map(|scales| host::slice(Route::NAME, scales)).transpose()?;
        let tokens = tokens.map(|tokens| host::rows(Route::NAME, tokens)).transpose()?;
        let outputs = (host::rows_mut(Route::NAME, &mut ids)?, host::rows_mut(Route::NAME, &mut weights)?);
        // Routing a row costs about a hundred operations per chosen expert.
        self.each_row(outputs, cols * routing.top_k, &|row, (ids, weights)| {
            if tokens.as_ref().is_some_and(|tokens| tokens.row(row) == [PADDING]) {
                ids.fill(PADDING);
                return weights.fill(0.0);
            }
            route_row(logits.row(row), routing, bias, ids, weights);
            if let Some(scales) = scales {
                weights.iter_mut().zip(ids).for_each(|(weight, id)| *weight *= scales[*id as usize]);
            }
        });
        Ok(())
    }
}

/// Routes one token: `logits.len()` experts (at most 1,024) to `ids.len() == weights.len() == routing.top_k`. The
/// arguments must have passed the check of [`Route`].
fn route_row(logits: &[f32], routing: &Routing, bias: Option<&[f32]>, ids: &mut [u32], weights: &mut [f32]) {
    let experts = logits.len();
    if logits.iter().chain(bias.unwrap_or_default()).any(|x| !x.is_finite()) {
        ids.iter_mut().zip(0..).for_each(|(id, slot)| *id = slot);
        return weights.fill(f32::NAN);
    }
    let (mut values, mut scores) = ([0.0; MAX_EXPERTS], [0.0; MAX_EXPERTS]);
    let (values, scores) = (&mut values[..experts], &mut scores[..experts]);

    // Values become weights; scores (values plus bias) select the experts.
    for (value, &logit) in values.iter_mut().zip(logits) {
        *value = f64::from(logit);
    }
    match routing.gating {
        Gating::Softmax => softmax(values),
        Gating::Sigmoid => values.iter_mut().for_each(|v| *v = 1.0 / (1.0 + (-*v).exp())),
        Gating::SoftmaxOfChosen | Gating::SparseMixer { .. } => {}
    }
    scores.copy_from_slice(values);
    if let Some(bias) = bias {
        scores.iter_mut().zip(bias).for_each(|(s, &b)| *s += f64::from(b));
    }

    let mut taken = [false; MAX_EXPERTS];
    if routing.top_groups < routing.groups {
        exclude_groups(scores, routing, &mut taken);
    }
    let mut chosen = [0.0; MAX_EXPERTS];
    let chosen = &mut chosen[..ids.len()];
    for (c, id) in chosen.iter_mut().zip(ids) {
        let best = take_best(scores, &mut taken);
        *id = best as u32;
        *c = match routing.gating {
            Gating::SparseMixer { near } => share_of_near(values, &taken, best, near.into()),
            _ => values[best],
        };
    }
    if routing.gating == Gating::SoftmaxOfChosen {
        softmax(chosen);
    }
    let sum: f64 = chosen.iter().sum();
    let factor = if routing.normalise { f64::from(routing.scale) / sum.max(LEAST_SUM) } else { routing.scale.into() };
    for (weight, c) in weights.iter_mut().zip(chosen) {
        *weight = (*c * factor) as f32;
    }
}

/// Softmax in place; the values must be finite.
fn softmax(values: &mut [f64]) {
    let max = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    values.iter_mut().for_each(|v| *v = (*v - max).exp());
    let sum: f64 = values.iter().sum();
    values.iter_mut().for_each(|v| *v /= sum);
}

/// Softmax of `best`, the expert taken last, over itself and the remaining logits near it. See [`Gating::SparseMixer`].
fn share_of_near(logits: &[f64], taken: &[bool], best: usize, near: f64) -> f64 {
    let max = logits[best];
    let is_near = |&logit: &f64| logit == max || max - logit <= near * logit.abs().max(max);
    let rest = logits.iter().zip(taken).filter(|(_, taken)| !**taken).map(|(logit, _)| logit);
    let shares = rest.filter(|logit| is_near(logit)).map(|&logit| (logit - max).exp());
    1.0 / (1.0 + shares.sum::<f64>())
}

/// Returns and marks the best expert that is not taken, the smaller index on a tie. At least one must be left.
fn take_best(scores: &[f64], taken: &mut [bool]) -> usize {
    let free = (0..scores.len()).filter(|&i| !taken[i]);
    let best = free.reduce(|best, i| if scores[i] > scores[best] { i } else { best });
    let best = best.unwrap_or(0);
    taken[best] = true;
    best
}

/// Marks the experts of all groups but the best groups as taken.
fn exclude_groups(scores: &[f64], routing: &Routing, taken: &mut [bool]) {
    let size = scores.len() / routing.groups;
    let mut worth = [0.0; MAX_EXPERTS];
    let worth = &mut worth[..routing.groups];
    for (w, group) in worth.iter_mut().zip(scores.chunks_exact(size)) {
        let (mut first, mut second) = (f64::NEG_INFINITY, f64::NEG_INFINITY);
        for &score in group {
            if score > first {
                (first, second) = (score, first);
            } else if score > second {
                second = score;
            }
        }
        *w = if size == 1 || routing.worth == GroupWorth::Highest { first } else { first + second };
    }
    let mut kept = [false; MAX_EXPERTS];
    for _ in 0..routing.top_groups {
        take_best(worth, &mut kept);
    }
    for (marks, kept) in taken.chunks_exact_mut(size).zip(kept).take(routing.groups) {
        marks.fill(!kept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(logits: &[f32], routing: Routing, bias: Option<&[f32]>) -> (Vec<u32>, Vec<f32>) {
        let (mut ids, mut weights) = (vec![9; routing.top_k], vec![9.0; routing.top_k]);
        route_row(logits, &routing, bias, &mut ids, &mut weights);
        (ids, weights)
    }

    #[test]
    fn the_smaller_index_wins_a_tie() {
        let (ids, weights) = route(&[1.0, -900.0, 2.0, 2.0], Routing::softmax(4, true), None);
        assert_eq!(ids, [2, 3, 0, 1]);
        let e = (-1.0_f32).exp();
        let sum = 2.0 + e;
        for (weight, expected) in weights.iter().zip([1.0 / sum, 1.0 / sum, e / sum, 0.0]) {
            assert!((weight - expected).abs() < 1e-6, "{weights:?}");
        }
    }

    #[test]
    fn a_logit_or_a_bias_that_is_not_finite_shows_in_all_weights() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for gating in
                [Gating::Softmax, Gating::SoftmaxOfChosen, Gating::Sigmoid, Gating::SparseMixer { near: 0.02 }]
            {
                let routing = Routing { gating, ..Routing::softmax(2, true) };
                for (logits, bias) in [([0.0, bad, 1.0], None), ([0.0, 2.0, 1.0], Some(&[0.0, 0.0, bad][..]))] {
                    let (ids, weights) = route(&logits, routing, bias);
                    assert!(ids == [0, 1] && weights.iter().all(|w| w.is_nan()), "{gating:?}: {ids:?}, {weights:?}");
                }
            }
        }
    }

    #[test]
    fn sparse_mixer_shares_with_what_is_near_and_left() {
        let gating = Gating::SparseMixer { near: 0.02 };
        let route = |logits: &[f32]| route(logits, Routing { gating, ..Routing::softmax(2, false) }, None);
        let share = |distance: f64| (1.0 / (1.0 + (-distance).exp())) as f32;
        // Far apart, both have all of it; the runner-up shares only with what comes after it.
        assert_eq!(route(&[1.0, -3.0, 5.0]), (vec![2, 0], vec![1.0, 1.0]));
        assert_eq!(route(&[9.875, -3.0, 10.0]), (vec![2, 0], vec![share(0.125), 1.0]));
        assert_eq!(route(&[9.875, 10.0, 9.875]), (vec![1, 0], vec![1.0 / (1.0 + 2.0 * (-0.125_f32).exp()), 0.5]));
        // A logit near a negative one is measured by the other.
        assert_eq!(route(&[-10.0, -10.125, -10.5]), (vec![0, 1], vec![share(0.125), 1.0]));
    }

    #[test]
    fn the_sum_is_clamped_and_the_scale_comes_last() {
        let routing = Routing { gating: Gating::Sigmoid, scale: 2.5, ..Routing::softmax(2, true) };
        let (_, weights) = route(&[-20.0, -21.0], routing, None);
        let expected = (1.0 / (1.0 + 20.0_f64.exp()) / LEAST_SUM * 2.5) as f32;
        assert!((weights[0] - expected).abs() < 1e-9, "{weights:?}");
        let (_, weights) = route(&[0.0, 0.0], routing, None);
        assert_eq!(weights, [1.25, 1.25]);
    }

    #[test]
    fn the_bias_chooses_but_does_not_weigh() {
        let routing = Routing { gating: Gating::Sigmoid, ..Routing::softmax(1, false) };
        assert_eq!(route(&[0.0, 3.0], routing, Some(&[1.0, 0.0])), (vec![0], vec![0.5]));
    }

    #[test]
    fn only_the_best_groups_take_part() {
        // Worth 3 + 0, 2 + 2, 0 + 0: the best single score is in the second-best group.
        let logits = [3.0, 0.0, 2.0, 2.0, 0.0, 0.0];
        let routing = Routing { gating: Gating::SoftmaxOfChosen, groups: 3, ..Routing::softmax(2, false) };
        assert_eq!(route(&logits, routing, None), (vec![2, 3], vec![0.5, 0.5]));
        let (ids, _) = route(&logits, Routing { top_groups: 2, ..routing }, None);
        assert_eq!(ids, [0, 2]);
        let highest = Routing { worth: GroupWorth::Highest, ..routing };
        assert_eq!(route(&logits, highest, None).0, [0, 1]);
    }
}
