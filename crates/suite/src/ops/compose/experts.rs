//! The router with its experts.

use super::super::common::*;
use super::super::epilogue::Target;
use super::super::gated::{self, is_smooth};
use super::super::route::{expert_scales, selection_bias, some_padding};
use crate::guarded::buffer;
use crate::rng::Rng;
use crate::suite::Output;
use crate::weights::tensor;
use gristmill_kernels::groups::Groups;
use gristmill_kernels::tensor::Buffer;
use gristmill_kernels::weight::Role;
use std::ops::Range;

fn download(b: &Backend, buffer: &Buffer<u32>, len: usize) -> Vec<u32> {
    let mut words = vec![0; len];
    b.download(buffer.view(1, len).expect("within"), &mut words).expect("download");
    words
}

/// Groups of this number of experts, and the number of chosen groups, which contain at least the chosen experts;
/// sometimes more than one group.
fn groups(rng: &mut Rng, experts: usize, top_k: usize) -> (usize, usize) {
    let divisors: Vec<usize> = [2, 4, 5].into_iter().filter(|&groups| experts.is_multiple_of(groups)).collect();
    if divisors.is_empty() || rng.chance(0.6) {
        return (1, 1);
    }
    let groups = rng.pick(&divisors);
    (groups, rng.between(top_k.div_ceil(experts / groups), groups))
}

/// The experts that are grouped: all, or some, as a device has that shares a model with others.
fn grouped(rng: &mut Rng, experts: usize) -> Range<usize> {
    if rng.chance(0.6) {
        return 0..experts;
    }
    let first = rng.below(experts);
    first..rng.between(first + 1, experts)
}

/// The number of tiles, then the tiles.
fn tiles(b: &Backend, groups: &Groups) -> Vec<u32> {
    let count = download(b, groups.tile_count(), 1);
    let tiles = download(b, groups.tiles(), 3 * count[0] as usize);
    [count, tiles].concat()
}

/// [`RouteAndGroup`]: ids, counts and pairs exactly, weights within a tolerance, tiles as in separate grouping.
pub fn route_and_group(suite: &Suite) {
    let rng = &mut suite.rng("route_and_group");
    for round in suite.some("route_and_group", 0..60) {
        let experts = rng.pick(&[1, 8, 60, 128, 256, 512, 1024]);
        let tokens = rng.pick(&[0, 1, 2, 7, 32, 33]);
        let top_k = rng.between(1, experts.min(9));
        let gating = [Gating::Softmax, Gating::SoftmaxOfChosen, Gating::Sigmoid][round % 3];
        let (groups, top_groups) = groups(rng, experts, top_k);
        let routing = Routing { gating, scale: 1.5, groups, top_groups, ..Routing::softmax(top_k, rng.chance(0.5)) };
        let logits = rng.normals(tokens * experts);
        let bias = selection_bias(rng, 0.4, &logits, experts, gating);
        let (scales, error) = expert_scales(rng, experts);
        let ids_of_tokens = some_padding(rng, tokens);
        let grouped = grouped(rng, experts);
        let run = |b: &Backend| {
            let token_ids = ids_of_tokens.as_ref().map(|ids| Guarded::of(b, ids, tokens, 1, Guard::ODD));
            let logits = Guarded::of(b, &logits, tokens, experts, Guard::ODD);
            let bias = bias.as_ref().map(|bias| buffer(b, bias));
            let scales = scales.as_ref().map(|scales| buffer(b, scales));
            let mut ids = Guarded::poisoned(b, tokens, top_k, Guard::ODD);
            let mut weights = Guarded::poisoned(b, tokens, top_k, Guard::ODD);
            let all = experts;
            let mut groups = b.alloc_groups_of(grouped.clone(), all, tokens * top_k + 3).expect("alloc_groups");
            let route = Route {
                logits: logits.view(),
                routing: &routing,
                selection_bias: bias.as_ref(),
                expert_scales: scales.as_ref(),
                tokens: token_ids.as_ref().map(Guarded::view),
                ids: ids.view_mut(),
                weights: weights.view_mut(),
            };
            b.run(RouteAndGroup { route, groups: &mut groups }).expect("route_and_group");
            let mut again = b.alloc_groups_of(grouped.clone(), all, tokens * top_k).expect("alloc_groups");
            b.run(GroupByExpert { ids: ids.view(), groups: &mut again }).expect("group_by_expert");
            suite.same(&"tiles", &tiles(b, &groups).into(), &tiles(b, &again).into());
            let counts = download(b, groups.counts(), grouped.len());
            let live = counts.iter().sum::<u32>() as usize;
            let sorted = [counts, download(b, groups.pairs(), live)].concat();
            Output { floats: weights.read(b), words: [ids.read(b), sorted].concat() }
        };
        let biased = bias.is_some();
        let scaled = scales.is_some();
        let ids = &ids_of_tokens;
        let case = format!(
            "{tokens} tokens, {experts} experts, {grouped:?} grouped, {routing:?}, bias {biased}, scales {scaled}, tokens {ids:?}"
        );
        suite.check("route_and_group", &case, nmse_of_shares(error), &run);
    }
}

/// [`Experts`]: ids exactly, weights closely, and the output.
pub fn experts(suite: &Suite) {
    let rng = &mut suite.rng("experts");
    for round in suite.some("experts", 0..40) {
        let count = rng.pick(&[1, 8, 60, 128, 200, 300]);
        let tokens = rng.pick(&[0, 1, 1, 2, 4, 5, 7, 8, 33]);
        // Often with several tokens for each expert, for which GPUs have kernels of their own.
        let (count, tokens) = if round % 8 == 7 { (8, 33) } else { (count, tokens) };
        // More than a block of the kernel that joins them has warps, now and then.
        let most = if rng.chance(0.4) { count.min(11) } else { rng.between(1, count.min(8)) };
        let precision = suite.precision(round);
        let top_k = most;
        let gating = [Gating::Softmax, Gating::SoftmaxOfChosen, Gating::Sigmoid][rng.below(3)];
        let (groups, top_groups) = groups(rng, count, top_k);
        let grouped = grouped(rng, count);
        let own = grouped.len();
        let routing = Routing { gating, scale: 1.5, groups, top_groups, ..Routing::softmax(top_k, rng.chance(0.5)) };
        // Many experts are small ones: preparing them is what the test's time goes to.
        let all = suite.formats().iter().copied();
        let mut small: Vec<Format> = all.filter(|format| format.block_len() <= 32).collect();
        if small.is_empty() {
            small.push(Format::Q8_0);
        }
        let (formats, hidden) = if count > 8 { (&small[..], 64) } else { (suite.formats(), 256) };
        let gate = rng.pick(formats);
        let up = if rng.chance(0.2) { rng.pick(formats) } else { gate };
        let down = rng.pick(formats);
        // Some kernels want whole blocks of activations.
        let any = rng.between(1, 40);
        let inner = if down.block_len() == 1 { rng.pick(&[any, 32]) } else { down.block_len() };
        let outputs = if count > 8 { rng.between(1, 9) } else { rng.between(1, 70) };
        let activation = rng.pick(&[
            Activation::SwiGlu,
            Activation::ClampedSwiGlu { alpha: 1.702, limit: 1.25 },
            Activation::LimitedSwiGlu { limit: 0.75 },
            Activation::SquaredRelu,
        ]);
        let has_gate = activation.role() == Role::GateUp;
        let formats = if has_gate { vec![gate, up] } else { vec![up] };
        let gates: Vec<_> = formats.into_iter().map(|format| tensor(rng, format, own, inner, hidden)).collect();
        let downs = [tensor(rng, down, own, outputs, inner)];
        let (mut x, logits) = (rng.normals(tokens * hidden), rng.normals(tokens * count));
        let selection_bias = selection_bias(rng, 0.3, &logits, count, gating);
        let (scales, error) = expert_scales(rng, count);
        let biases = rng.chance(0.5).then(|| {
            let all = [own * inner, own * inner, own * outputs];
            all.map(|len| rng.normals(len))
        });
        let target = Target::new(rng, tokens * outputs);
        let ids_of_tokens = some_padding(rng, tokens);
        if is_smooth(activation) {
            sometimes_huge(rng, &mut x);
        }
        let run = |b: &Backend| {
            let gate_up = &b.prepare(&gates, activation.role()).expect("prepare");
            let down = &b.prepare(&downs, Role::Matrix).expect("prepare");
            let logits = Guarded::of(b, &logits, tokens, count, Guard::ODD);
            let token_ids = ids_of_tokens.as_ref().map(|ids| Guarded::of(b, ids, tokens, 1, Guard::ODD));
            let bias = selection_bias.as_ref().map(|bias| buffer(b, bias));
            let scales = scales.as_ref().map(|scales| buffer(b, scales));
            let buffers = biases.as_ref().map(|all| all.each_ref().map(|values| buffer(b, values)));
            let experts = ExpertWeights {
                gate_up,
                down,
                activation,
                gate_up_bias: buffers.as_ref().filter(|_| has_gate).map(|[gate, up, _]| [gate, up]),
                down_bias: buffers.as_ref().map(|[_, _, down]| down),
            };
            let pairs = tokens * top_k;
            let chosen = std::cell::RefCell::new(Output::default());
            let output = target.after(b, tokens, outputs, &|y| {
                let mut ids = Guarded::poisoned(b, tokens, top_k, Guard::ODD);
                let mut weights = Guarded::poisoned(b, tokens, top_k, Guard::ODD);
                let mut groups = b.alloc_groups_of(grouped.clone(), count, pairs + 3).expect("alloc_groups");
                let mut h = Guarded::poisoned(b, pairs, inner, Guard::ODD);
                let mut inner_act = b.alloc_act(precision, pairs + 1, inner).expect("alloc_act");
                let mut out = Guarded::poisoned(b, pairs, outputs, Guard::ODD);
                let act = activations(b, precision, &x, tokens, hidden);
                let call = Experts {
                    route: Route {
                        logits: logits.view(),
                        routing: &routing,
                        selection_bias: bias.as_ref(),
                        expert_scales: scales.as_ref(),
                        tokens: token_ids.as_ref().map(Guarded::view),
                        ids: ids.view_mut(),
                        weights: weights.view_mut(),
                    },
                    weights: experts,
                    x: &act,
                    scratch: ExpertScratch {
                        groups: &mut groups,
                        h: h.view_mut(),
                        act: &mut inner_act,
                        out: out.view_mut(),
                    },
                    epilogue: target.epilogue,
                    y,
                };
                b.run(call).expect("experts");
                *chosen.borrow_mut() = Output { floats: weights.read(b), words: ids.read(b) };
            });
            (chosen.into_inner(), output)
        };
        let case = format!(
            "{tokens} tokens, {count} experts, {grouped:?} grouped, {routing:?}, {activation:?}, {:?}, {}, {precision:?}, {:?}, selection bias {}, \
             scales {}, tokens {ids_of_tokens:?}",
            gates.iter().map(|gate| &gate.name).collect::<Vec<_>>(),
            downs[0].name,
            target.epilogue,
            selection_bias.is_some(),
            scales.is_some()
        );
        suite.check("experts: weights", &case, nmse_of_shares(error), &|b| run(b).0);
        // Errors of the gated activations (see `gated`), and of the product with them, which are far from normal: a
        // few of 32 are large.
        let rounded = product_bound(&gates, precision, &x);
        let inside = 4.0 * rounded + 1e-13;
        let normals = rng.normals(64 * inner);
        let bound = 2.0 * inside + 4.0 * product_bound(&downs, precision, &normals);
        let all = [&gates[..], &downs[..]].concat();
        let kind = kind(["experts exact", "experts bf16", "experts int8"], &all, precision);
        suite.check(kind, &case, gated::sums(bound, activation, &x, inner, outputs), &|b| run(b).1);
    }
}
