//! Routing and grouping.

use super::common::*;
use super::experts::Assignment;
use crate::guarded::buffer;
use crate::rng::Rng;
use crate::suite::Output;

/// Logits that a router may meet: normal, with ties, far apart, and with what is not finite.
fn logits(rng: &mut Rng, count: usize) -> Vec<f32> {
    let sort = rng.below(5);
    let spread = rng.pick(&[1.0, 4.0, 60.0]);
    let one = |rng: &mut Rng| match sort {
        0 => (rng.normal() * 2.0).round() as f32 / 2.0,
        1 if rng.chance(0.2) => rng.pick(&[f32::NAN, f32::INFINITY, f32::NEG_INFINITY]),
        2 if rng.chance(0.8) => rng.pick(&[f32::NAN, f32::NEG_INFINITY]),
        _ => (rng.normal() * spread) as f32,
    };
    (0..count).map(|_| one(rng)).collect()
}

/// A selection bias, now and then: of normals; or one with which all scores of the first token are nearly 1, so near
/// that 32 bits would order them wrongly, and 64 bits do not.
pub(super) fn selection_bias(
    rng: &mut Rng,
    chance: f64,
    logits: &[f32],
    experts: usize,
    gating: Gating,
) -> Option<Vec<f32>> {
    if !rng.chance(chance) {
        return None;
    }
    let finite = |first: &&[f32]| experts <= 128 && first.iter().all(|x| x.is_finite());
    let alike = !matches!(gating, Gating::SparseMixer { .. }) && rng.chance(0.4);
    let Some(first) = logits.get(..experts).filter(finite).filter(|_| alike) else { return Some(rng.normals(experts)) };
    let logits: Vec<f64> = first.iter().map(|&x| f64::from(x)).collect();
    let max = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = logits.iter().map(|x| (x - max).exp()).sum();
    let value = |x: f64| match gating {
        Gating::Softmax => (x - max).exp() / sum,
        Gating::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        Gating::SoftmaxOfChosen | Gating::SparseMixer { .. } => x,
    };
    let near = |x: f64, rng: &mut Rng| (1.0 - value(x) + rng.normal() * 2.0_f64.powi(-23)) as f32;
    Some(logits.into_iter().map(|x| near(x, rng)).collect())
}

/// Scales of experts, now and then, of either sign; and the error of a router's weights.
pub(super) fn expert_scales(rng: &mut Rng, experts: usize) -> (Option<Vec<f32>>, f64) {
    if rng.chance(0.6) { (None, ROUTE) } else { (Some(rng.normals(experts)), SCALED_ROUTE) }
}

/// Ids of tokens of which some are padding, most often the last ones; or none.
pub(super) fn some_padding(rng: &mut Rng, tokens: usize) -> Option<Vec<u32>> {
    let given = rng.chance(0.6);
    let live = rng.between(0, tokens);
    let scattered = rng.chance(0.3);
    let pads = |rng: &mut Rng, token| if scattered { rng.chance(0.4) } else { token >= live };
    given.then(|| (0..tokens).map(|token| if pads(rng, token) { PADDING } else { token as u32 }).collect())
}

/// [`Route`]: ids exactly, weights closely; of a row that is not finite distinct ids, and NaN alone as weights.
pub fn route(suite: &Suite) {
    let rng = &mut suite.rng("route");
    for round in suite.some("route", 0..300) {
        let experts: usize = rng.pick(&[1, 2, 5, 8, 60, 64, 128, 256, 512, 1024]);
        let tokens = rng.pick(&[0, 1, 2, 17]);
        let groups = (1..=8).filter(|&g| experts.is_multiple_of(g)).collect::<Vec<_>>();
        let groups = if rng.chance(0.5) { 1 } else { rng.pick(&groups) };
        let top_groups = rng.between(1, groups);
        let most = top_groups * (experts / groups);
        let top_k = if rng.chance(0.1) { most.min(64) } else { rng.between(1, most.min(9)) };
        let sparse_mixer = Gating::SparseMixer { near: rng.pick(&[0.0, 0.02, 0.3]) };
        let gating = [Gating::Softmax, Gating::SoftmaxOfChosen, Gating::Sigmoid, sparse_mixer][round % 4];
        let normalise = rng.chance(0.5);
        let scale = rng.pick(&[1.0, 2.5]);
        let worth = rng.pick(&[GroupWorth::TwoHighest, GroupWorth::Highest]);
        let routing = Routing { top_k, gating, normalise, scale, groups, top_groups, worth };
        let values: Vec<f32> = (0..tokens).flat_map(|_| logits(rng, experts)).collect();
        let mut bias = selection_bias(rng, 0.4, &values, experts, gating);
        if let Some(bias) = bias.as_mut().filter(|_| rng.chance(0.1)) {
            bias[rng.below(experts)] = rng.pick(&[f32::NAN, f32::INFINITY, f32::NEG_INFINITY]);
        }
        let (scales, error) = expert_scales(rng, experts);
        let ids_of_tokens = some_padding(rng, tokens);
        let padding = |token: usize| ids_of_tokens.as_ref().is_some_and(|ids| ids[token] == PADDING);
        let finite: Vec<bool> = (values.chunks(experts).enumerate())
            .map(|(token, logits)| padding(token) || logits.iter().chain(bias.iter().flatten()).all(|x| x.is_finite()))
            .collect();
        let case = format!(
            "{tokens} tokens, {experts} experts, {routing:?}, bias {}, scales {}, tokens {ids_of_tokens:?}",
            bias.is_some(),
            scales.is_some()
        );
        let run = |b: &Backend| {
            let token_ids = ids_of_tokens.as_ref().map(|ids| Guarded::of(b, ids, tokens, 1, Guard::ODD));
            let values = Guarded::of(b, &values, tokens, experts, Guard::ODD);
            let bias = bias.as_ref().map(|bias| buffer(b, bias));
            let scales = scales.as_ref().map(|scales| buffer(b, scales));
            let mut ids = Guarded::poisoned(b, tokens, top_k, Guard::ODD);
            let mut weights = Guarded::poisoned(b, tokens, top_k, Guard::ODD);
            b.run(Route {
                logits: values.view(),
                routing: &routing,
                selection_bias: bias.as_ref(),
                expert_scales: scales.as_ref(),
                tokens: token_ids.as_ref().map(Guarded::view),
                ids: ids.view_mut(),
                weights: weights.view_mut(),
            })
            .expect("route");
            let mut words = ids.read(b);
            for (token, ids) in words.chunks_mut(top_k).enumerate().filter(|(token, _)| !padding(*token)) {
                let mut sorted = ids.to_vec();
                sorted.sort_unstable();
                sorted.dedup();
                if sorted.len() != top_k || sorted.iter().any(|&id| id as usize >= experts) {
                    suite.fail(&case, format_args!("token {token} goes to {ids:?}"));
                }
                if !finite[token] {
                    ids.fill(0);
                }
            }
            Output { floats: weights.read(b), words }
        };
        let got = suite.check("route", &case, nmse_of_shares(error), &run);
        for (weights, finite) in got.floats.chunks(top_k).zip(finite) {
            if !weights
                .iter()
                .all(|w| if finite { w.is_finite() && (*w >= 0.0 || scales.is_some()) } else { w.is_nan() })
            {
                suite.fail(&case, format_args!("the weights of a row that is finite ({finite}) are {weights:?}"));
            }
        }
    }
}

/// [`GroupByExpert`] against what its contract says.
pub fn group(suite: &Suite) {
    grouped(suite, Assignment::several(&mut suite.rng("group_by_expert")));
}

/// The same of more pairs than one block of a GPU sorts.
pub fn group_many(suite: &Suite) {
    let rng = &mut suite.rng("group_many");
    let many = [(1_300, 128, 8), (20_000, 1000, 1)].map(|(tokens, experts, top_k)| {
        let id = |rng: &mut Rng| if rng.chance(0.1) { u32::MAX } else { rng.below(experts) as u32 };
        Assignment { tokens, experts, top_k, ids: (0..tokens * top_k).map(|_| id(rng)).collect() }
    });
    grouped(suite, many);
}

fn grouped(suite: &Suite, assignments: impl IntoIterator<Item = Assignment>) {
    for assignment in suite.some("groups", assignments) {
        let run = |b: &Backend| {
            let groups = assignment.group(b);
            let read = |buffer: &gristmill_kernels::tensor::Buffer<u32>, len: usize| {
                let mut words = vec![0; len];
                b.download(buffer.view(1, len).expect("within"), &mut words).expect("download");
                words
            };
            let live = assignment.ids.iter().filter(|&&id| id != u32::MAX).count();
            let counts = read(groups.counts(), assignment.experts);
            let pairs = read(groups.pairs(), live);
            let tile_count = read(groups.tile_count(), 1)[0] as usize;
            let tiles = read(groups.tiles(), 3 * tile_count);
            (counts, pairs, tiles, groups.tile_rows())
        };
        let (counts, pairs, tiles, tile_rows) = run(suite.backend());
        let mut order: Vec<usize> = (0..assignment.pairs()).filter(|&p| assignment.ids[p] != u32::MAX).collect();
        order.sort_by_key(|&p| assignment.ids[p]);
        let expected: Vec<u32> = order.iter().map(|&p| p as u32).collect();
        suite.same(&format_args!("{assignment}: pairs"), &expected.into(), &pairs.clone().into());
        let count = |e: usize| assignment.ids.iter().filter(|&&id| id as usize == e).count() as u32;
        let expected: Vec<u32> = (0..assignment.experts).map(count).collect();
        suite.same(&format_args!("{assignment}: counts"), &expected.into(), &counts.clone().into());

        // Tiles cover the pairs in order, each within one expert, and are as few as they can be.
        let mut next = 0;
        for tile in tiles.chunks_exact(3) {
            let expert = tile[0];
            let first = tile[1] as usize;
            let rows = tile[2] as usize;
            let one = pairs[first..first + rows].iter().all(|&p| assignment.ids[p as usize] == expert);
            if first != next || rows == 0 || rows > tile_rows || !one {
                suite.fail(&assignment, format_args!("tile {tile:?} after {next} pairs"));
            }
            next += rows;
        }
        let fewest: usize = counts.iter().map(|&c| (c as usize).div_ceil(tile_rows)).sum();
        if next != pairs.len() || tiles.len() != 3 * fewest {
            suite.fail(&assignment, format_args!("{} tiles cover {next} pairs", tiles.len() / 3));
        }
    }
}
