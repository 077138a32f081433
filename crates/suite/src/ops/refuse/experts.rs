//! Routing and products of experts.

use super::common::*;
use crate::weights::tensor;
use gristmill_kernels::groups::Groups;
use gristmill_kernels::tensor::Buffer;
use gristmill_kernels::weight::{Role, Weight};

/// Routing, grouping, products and their sums.
pub fn experts(suite: &Suite) {
    route(suite);
    let groups = grouping(suite);
    products(suite, &groups);
    gated(suite, &groups);
    combine(suite);
}

fn route(suite: &Suite) {
    let b = suite.backend();
    let route_of = |case: &str,
                    kind,
                    experts: usize,
                    routing: Routing,
                    [bias, scales]: [Option<usize>; 2],
                    columns: usize,
                    tokens| {
        let tokens = Guarded::of(b, &vec![0; tokens], tokens, 1, Guard::ODD);
        let logits = Guarded::of(b, &vec![1.0; 2 * experts], 2, experts, Guard::ODD);
        let [bias, scales] = [bias, scales].map(|len| len.map(|len| buffer(b, &vec![0.0; len])));
        let mut ids = Guarded::<u32>::poisoned(b, 2, columns, Guard::ODD);
        let mut weights = Guarded::<f32>::poisoned(b, 2, columns, Guard::ODD);
        let result = b.run(Route {
            logits: logits.view(),
            routing: &routing,
            selection_bias: bias.as_ref(),
            expert_scales: scales.as_ref(),
            tokens: Some(tokens.view()),
            ids: ids.view_mut(),
            weights: weights.view_mut(),
        });
        expect(suite, case, kind, result);
        ids.assert_untouched(b, case);
        weights.assert_untouched(b, case);
    };
    let route = |case: &str, kind, experts, routing, bias, columns| {
        route_of(case, kind, experts, routing, [bias, None], columns, 2)
    };
    let plain = Routing::softmax(2, true);
    route_of("route: tokens", Kind::Shape, 8, plain, [None; 2], 2, 1);
    route_of("route: scales", Kind::Shape, 8, plain, [None, Some(7)], 2, 2);
    route("route: top 0", Kind::Range, 8, Routing { top_k: 0, ..plain }, None, 0);
    route("route: top 9 of 8", Kind::Range, 8, Routing { top_k: 9, ..plain }, None, 9);
    route("route: no experts", Kind::Range, 0, plain, None, 2);
    route("route: 1,025 experts", Kind::Range, 1025, plain, None, 2);
    route("route: no groups", Kind::Range, 8, Routing { groups: 0, ..plain }, None, 2);
    route("route: 3 groups of 8", Kind::Range, 8, Routing { groups: 3, ..plain }, None, 2);
    route("route: no top groups", Kind::Range, 8, Routing { groups: 4, top_groups: 0, ..plain }, None, 2);
    route("route: top 5 of 4 groups", Kind::Range, 8, Routing { groups: 4, top_groups: 5, ..plain }, None, 2);
    for near in [f32::NAN, -0.02] {
        route("route: near", Kind::Range, 6, Routing { gating: Gating::SparseMixer { near }, ..plain }, None, 2);
    }
    let few = Routing { top_k: 3, groups: 4, gating: Gating::Sigmoid, ..plain };
    route("route: groups too small", Kind::Range, 8, few, None, 3);
    route("route: columns", Kind::Shape, 8, plain, None, 3);
    route("route: bias", Kind::Shape, 8, plain, Some(7), 2);
}

/// Groups over three experts of four tokens with two pairs each, of which one is padding.
pub(super) fn groups(b: &Backend) -> Groups {
    let mut groups = b.alloc_groups(3, 8).expect("alloc_groups");
    let ids = Guarded::of(b, &[0, 1, 2, 1, 0, 2, 1, u32::MAX], 4, 2, Guard::ODD);
    b.run(GroupByExpert { ids: ids.view(), groups: &mut groups }).expect("group_by_expert");
    groups
}

/// Gives groups that have refused others.
fn grouping(suite: &Suite) -> Groups {
    let b = suite.backend();
    let mut changed = groups(b);
    let mut group = |case: &str, kind, rows: usize, cols: usize, ids: &[u32]| {
        let ids = Guarded::of(b, ids, rows, cols, Guard::ODD);
        expect(suite, case, kind, b.run(GroupByExpert { ids: ids.view(), groups: &mut changed }));
    };
    group("group_by_expert: id", Kind::Id, 2, 2, &[0, 1, 2, 3]);
    group("group_by_expert: room", Kind::Shape, 3, 3, &[0; 9]);
    // A GPU has found the id after it had changed the groups.
    if b.device() == DeviceId::Cpu { changed } else { groups(b) }
}

/// Operands of products of three experts: a matrix, one of four experts, gate and up; four rows, five, and narrow ones.
pub(super) struct Operands {
    pub(super) matrix: Weight,
    pub(super) of_four: Weight,
    pub(super) pair: Weight,
    pub(super) act: Act,
    pub(super) five: Act,
    pub(super) narrow: Act,
}

impl Operands {
    pub(super) fn new(suite: &Suite) -> Self {
        let b = suite.backend();
        let rng = &mut suite.rng("refuse experts");
        let [three, four] = [3, 4].map(|experts| tensor(rng, Format::Q8_0, experts, 20, 64));
        let prepare = |tensors: &[TensorView], role| b.prepare(tensors, role).expect("prepare");
        let [act, five, narrow] =
            [(4, 64), (5, 64), (4, 32)].map(|(r, c)| activations(b, Precision::Fast, &vec![1.0; r * c], r, c));
        Self {
            matrix: prepare(std::slice::from_ref(&three), Role::Matrix),
            of_four: prepare(&[four], Role::Matrix),
            pair: prepare(&[three.clone(), three], Role::GateUp),
            act,
            five,
            narrow,
        }
    }
}

fn products(suite: &Suite, groups: &Groups) {
    let Operands { matrix, of_four, pair, act, five, narrow } = &Operands::new(suite);
    let bias = buffer(suite.backend(), &[0.0; 59]);
    let moe = |case: &str, kind, weight: &Weight, x: &Act, top_k, bias: Option<&Buffer<f32>>, shape| {
        refused(suite, case, kind, shape, |b, out| {
            b.run(MoeMatmul { weight, x, groups, top_k, bias, out: out.view_mut() })
        });
    };
    moe("moe_matmul: pairs", Kind::Shape, matrix, act, 2, None, (7, 20));
    moe("moe_matmul: columns", Kind::Shape, matrix, act, 2, None, (8, 21));
    moe("moe_matmul: top 0", Kind::Range, matrix, act, 0, None, (8, 20));
    moe("moe_matmul: top 3 of 8 pairs", Kind::Range, matrix, act, 3, None, (8, 20));
    moe("moe_matmul: tokens", Kind::Shape, matrix, five, 2, None, (8, 20));
    moe("moe_matmul: other top-k", Kind::Shape, matrix, act, 4, None, (8, 20));
    moe("moe_matmul: inputs", Kind::Shape, matrix, narrow, 2, None, (8, 20));
    moe("moe_matmul: experts", Kind::Shape, of_four, act, 2, None, (8, 20));
    moe("moe_matmul: a pair", Kind::Range, pair, act, 2, None, (8, 20));
    moe("moe_matmul: bias", Kind::Shape, matrix, act, 2, Some(&bias), (8, 20));
}

fn gated(suite: &Suite, groups: &Groups) {
    let Operands { matrix, pair, act, five, .. } = &Operands::new(suite);
    let bias = buffer(suite.backend(), &[0.0; 59]);
    let plain = Activation::SwiGlu;
    let endless = Activation::ClampedSwiGlu { alpha: f32::NAN, limit: 7.0 };
    let gate_up = |case: &str, kind, weight: &Weight, x: &Act, bias: Option<[&Buffer<f32>; 2]>, activation, shape| {
        refused(suite, case, kind, shape, |b, h| {
            b.run(MoeGateUp { weight, x, groups, top_k: 2, bias, activation, h: h.view_mut() })
        });
    };
    gate_up("moe_gate_up: a matrix", Kind::Range, matrix, act, None, plain, (8, 20));
    gate_up("moe_gate_up: pairs", Kind::Shape, pair, act, None, plain, (9, 20));
    gate_up("moe_gate_up: columns", Kind::Shape, pair, act, None, plain, (8, 40));
    gate_up("moe_gate_up: tokens", Kind::Shape, pair, five, None, plain, (8, 20));
    gate_up("moe_gate_up: bias", Kind::Shape, pair, act, Some([&bias, &bias]), plain, (8, 20));
    gate_up("moe_gate_up: a gate that is not used", Kind::Range, pair, act, None, Activation::SquaredRelu, (8, 20));
    gate_up("moe_gate_up: alpha", Kind::Range, pair, act, None, endless, (8, 20));
}

fn combine(suite: &Suite) {
    let combine = |case: &str, pairs: (usize, usize), weights: (usize, usize), y| {
        refused(suite, case, Kind::Shape, y, |b, y: &mut Guarded<f32>| {
            let (out, weights) = (ones(b, pairs.0, pairs.1), ones(b, weights.0, weights.1));
            b.run(MoeCombine { out: out.view(), weights: weights.view(), epilogue: Epilogue::Store, y: y.view_mut() })
        });
    };
    combine("moe_combine: pairs", (5, 9), (3, 2), (3, 9));
    combine("moe_combine: tokens", (6, 9), (3, 2), (2, 9));
    combine("moe_combine: columns", (6, 9), (3, 2), (3, 8));
}
