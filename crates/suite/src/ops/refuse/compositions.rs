//! Compositions refuse what their parts refuse, before any part runs.

use super::attention::{SPEC, bad_options, cache, placement, placements, plain};
use super::common::*;
use super::experts::{Operands as ExpertOperands, groups};
use super::matrices::{Operands, Weights};
use gristmill_kernels::kv::Placement;
use gristmill_kernels::tensor::Buffer;
use gristmill_kernels::weight::Weight;

/// Every composition.
pub fn compositions(suite: &Suite) {
    super::norms::compositions(suite);
    dense(suite);
    of_experts(suite);
    routing(suite);
    whole_experts(suite);
    attention(suite);
    super::latent::latent(suite);
}

pub(super) type Shape = (usize, usize);

pub(super) fn poisoned(b: &Backend, (rows, cols): Shape) -> Guarded<f32> {
    Guarded::poisoned(b, rows, cols, Guard::ODD)
}

/// Activations without rows, and whether they still have none.
pub(super) fn empty(b: &Backend, (rows, cols): Shape) -> Act {
    b.alloc_act(Precision::Fast, rows, cols).expect("alloc_act")
}

pub(super) fn assert_empty(b: &Backend, case: &str, kind: Kind, act: &Act) {
    assert!(found_late(b, kind) || act.rows() == 0, "{case}: refused activations count as filled");
}

/// [`GateUpAct`].
fn dense(suite: &Suite) {
    let b = suite.backend();
    let Weights { matrix, pair, pairs, .. } = &Weights::new(suite);
    let Operands { act: x, narrow, bias: long } = &Operands::new(suite, Precision::Fast);
    let plain = Activation::SwiGlu;
    let bad = Activation::ClampedSwiGlu { alpha: 1.0, limit: -1.0 };
    let refused = |case: &str, kind, weight: &Weight, x: &Act, bias: Option<&Buffer<f32>>, activation, h, act| {
        let case = &format!("gate_up_act: {case}");
        let mut h = poisoned(b, h);
        let mut act = empty(b, act);
        let gate_up = GateUp { weight, x, bias: bias.map(|bias| [bias; 2]), activation, h: h.view_mut() };
        expect(suite, case, kind, b.run(GateUpAct { gate_up, act: &mut act }));
        assert_refused(b, case, kind, &h);
        assert_empty(b, case, kind, &act);
    };
    refused("a matrix", Kind::Range, matrix, x, None, plain, (4, 20), (4, 20));
    refused("experts", Kind::Range, pairs, x, None, plain, (4, 20), (4, 20));
    refused("both halves", Kind::Shape, pair, x, None, plain, (4, 40), (4, 40));
    refused("rows", Kind::Shape, pair, x, None, plain, (3, 20), (4, 20));
    refused("inputs", Kind::Shape, pair, narrow, None, plain, (4, 20), (4, 20));
    refused("bias", Kind::Shape, pair, x, Some(long), plain, (4, 20), (4, 20));
    refused("limit", Kind::Range, pair, x, None, bad, (4, 20), (4, 20));
    refused("activations", Kind::Shape, pair, x, None, plain, (4, 20), (3, 20));
}

/// [`MoeGateUpAct`].
fn of_experts(suite: &Suite) {
    let b = suite.backend();
    let groups = &groups(suite.backend());
    let ExpertOperands { matrix, pair, act: x, five, narrow, .. } = &ExpertOperands::new(suite);
    let plain = Activation::SwiGlu;
    let bad = Activation::ClampedSwiGlu { alpha: f32::NAN, limit: 7.0 };
    let short = buffer(b, &[0.0; 59]);
    let refused =
        |case: &str, kind, weight: &Weight, x: &Act, top_k, bias: Option<&Buffer<f32>>, activation, h, act| {
            let case = &format!("moe_gate_up_act: {case}");
            let mut h = poisoned(b, h);
            let mut act = empty(b, act);
            let bias = bias.map(|bias| [bias; 2]);
            let gate_up = MoeGateUp { weight, x, groups, top_k, bias, activation, h: h.view_mut() };
            expect(suite, case, kind, b.run(MoeGateUpAct { gate_up, act: &mut act }));
            assert_refused(b, case, kind, &h);
            assert_empty(b, case, kind, &act);
        };
    refused("a matrix", Kind::Range, matrix, x, 2, None, plain, (8, 20), (8, 20));
    refused("pairs", Kind::Shape, pair, x, 2, None, plain, (9, 20), (9, 20));
    refused("columns", Kind::Shape, pair, x, 2, None, plain, (8, 40), (8, 40));
    refused("tokens", Kind::Shape, pair, five, 2, None, plain, (8, 20), (8, 20));
    refused("inputs", Kind::Shape, pair, narrow, 2, None, plain, (8, 20), (8, 20));
    refused("top 0", Kind::Range, pair, x, 0, None, plain, (8, 20), (8, 20));
    refused("bias", Kind::Shape, pair, x, 2, Some(&short), plain, (8, 20), (8, 20));
    refused("alpha", Kind::Range, pair, x, 2, None, bad, (8, 20), (8, 20));
    refused("activations", Kind::Shape, pair, x, 2, None, plain, (8, 20), (7, 20));
}

/// [`RouteAndGroup`] of two tokens.
fn routing(suite: &Suite) {
    let b = suite.backend();
    let refused = |case: &str, kind, experts: usize, top_k, bias: usize, columns, of: usize, room: usize| {
        let case = &format!("route_and_group: {case}");
        let logits = ones(b, 2, experts);
        let bias = buffer(b, &vec![0.0; bias]);
        let mut ids = Guarded::<u32>::poisoned(b, 2, columns, Guard::ODD);
        let mut weights = poisoned(b, (2, columns));
        let mut groups = b.alloc_groups(of, room).expect("alloc_groups");
        let route = Route {
            logits: logits.view(),
            routing: &Routing::softmax(top_k, true),
            selection_bias: Some(&bias),
            expert_scales: None,
            tokens: None,
            ids: ids.view_mut(),
            weights: weights.view_mut(),
        };
        expect(suite, case, kind, b.run(RouteAndGroup { route, groups: &mut groups }));
        ids.assert_untouched(b, case);
        weights.assert_untouched(b, case);
    };
    refused("top 0", Kind::Range, 8, 0, 8, 0, 8, 4);
    refused("top 9 of 8", Kind::Range, 8, 9, 8, 9, 8, 18);
    refused("1,025 experts", Kind::Range, 1025, 2, 1025, 2, 8, 4);
    refused("columns", Kind::Shape, 8, 2, 8, 3, 8, 4);
    refused("bias", Kind::Shape, 8, 2, 7, 2, 8, 4);
    refused("experts", Kind::Shape, 8, 2, 8, 2, 7, 4);
    refused("room", Kind::Shape, 8, 2, 8, 2, 8, 3);
}

/// Arguments of [`Experts`] over four tokens with two of three experts each.
#[derive(Clone, Copy)]
struct Layer<'a> {
    gate_up: &'a Weight,
    down: &'a Weight,
    x: &'a Act,
    activation: Activation,
    epilogue: Epilogue,
    /// Lengths of the biases of gate and up, and of down.
    biases: [usize; 2],
    top_k: usize,
    logits: usize,
    of: usize,
    room: usize,
    h: Shape,
    act: Shape,
    out: Shape,
    y: Shape,
}

impl Layer<'_> {
    fn refused(self, suite: &Suite, case: &str, kind: Kind) {
        let b = suite.backend();
        let case = &format!("experts: {case}");
        let Self { gate_up, down, x, activation, epilogue, top_k, .. } = self;
        let [gates, downs] = self.biases.map(|len| buffer(b, &vec![0.0; len]));
        let gate_up_bias = Some([&gates, &gates]);
        let down_bias = Some(&downs);
        let logits = ones(b, 4, self.logits);
        let mut ids = Guarded::<u32>::poisoned(b, 4, top_k, Guard::ODD);
        let [mut weights, mut h, mut out, mut y] =
            [(4, top_k), self.h, self.out, self.y].map(|shape| poisoned(b, shape));
        let mut groups = b.alloc_groups(self.of, self.room).expect("alloc_groups");
        let mut act = empty(b, self.act);
        let route = Route {
            logits: logits.view(),
            routing: &Routing::softmax(top_k, true),
            selection_bias: None,
            expert_scales: None,
            tokens: None,
            ids: ids.view_mut(),
            weights: weights.view_mut(),
        };
        let scratch = ExpertScratch { groups: &mut groups, h: h.view_mut(), act: &mut act, out: out.view_mut() };
        let weights_of = ExpertWeights { gate_up, down, activation, gate_up_bias, down_bias };
        expect(suite, case, kind, b.run(Experts { route, weights: weights_of, x, scratch, epilogue, y: y.view_mut() }));
        ids.assert_untouched(b, case);
        [&weights, &h, &out, &y].into_iter().for_each(|out| out.assert_untouched(b, case));
        assert_empty(b, case, kind, &act);
    }
}

/// [`Experts`].
fn whole_experts(suite: &Suite) {
    let ExpertOperands { matrix, of_four, pair, act: x, five, narrow } = &ExpertOperands::new(suite);
    let rng = &mut suite.rng("refuse a layer");
    let down = crate::weights::tensor(rng, Format::F32, 3, 64, 20);
    let down = &suite.backend().prepare(&[down], gristmill_kernels::weight::Role::Matrix).expect("prepare");
    let good = Layer {
        gate_up: pair,
        down,
        x,
        activation: Activation::SwiGlu,
        epilogue: Epilogue::Store,
        biases: [60, 192],
        top_k: 2,
        logits: 3,
        of: 3,
        room: 8,
        h: (8, 20),
        act: (8, 20),
        out: (8, 64),
        y: (4, 64),
    };
    let alpha = Activation::ClampedSwiGlu { alpha: f32::NAN, limit: 7.0 };
    for (case, kind, call) in [
        ("top 0", Kind::Range, Layer { top_k: 0, ..good }),
        ("top 4 of 3", Kind::Range, Layer { top_k: 4, ..good }),
        ("logits", Kind::Shape, Layer { logits: 4, ..good }),
        ("experts of the groups", Kind::Shape, Layer { of: 4, ..good }),
        ("room of the groups", Kind::Shape, Layer { room: 7, ..good }),
        ("gate and up: a matrix", Kind::Range, Layer { gate_up: matrix, ..good }),
        ("down: a pair", Kind::Range, Layer { down: pair, ..good }),
        ("down: experts", Kind::Shape, Layer { down: of_four, ..good }),
        ("down: columns", Kind::Shape, Layer { down: matrix, ..good }),
        ("tokens", Kind::Shape, Layer { x: five, ..good }),
        ("inputs", Kind::Shape, Layer { x: narrow, ..good }),
        ("gated rows", Kind::Shape, Layer { h: (7, 20), ..good }),
        ("gated columns", Kind::Shape, Layer { h: (8, 21), ..good }),
        ("gated activations", Kind::Shape, Layer { act: (7, 20), ..good }),
        ("output rows of the experts", Kind::Shape, Layer { out: (7, 64), ..good }),
        ("output columns of the experts", Kind::Shape, Layer { out: (8, 63), ..good }),
        ("rows", Kind::Shape, Layer { y: (3, 64), ..good }),
        ("columns", Kind::Shape, Layer { y: (4, 65), ..good }),
        ("alpha", Kind::Range, Layer { activation: alpha, ..good }),
        ("scale", Kind::Range, Layer { epilogue: Epilogue::Add { scale: f32::NAN }, ..good }),
        ("bias of gate and up", Kind::Shape, Layer { biases: [59, 192], ..good }),
        ("bias of down", Kind::Shape, Layer { biases: [60, 191], ..good }),
    ] {
        call.refused(suite, case, kind);
    }
}

/// Arguments of the compositions of attention over two tokens, next to their placement.
#[derive(Clone, Copy)]
struct Step<'a> {
    options: AttentionOptions<'a>,
    /// Columns of queries, keys and values.
    qkv: usize,
    /// Lengths of the norms' weights.
    norms: [usize; 3],
    eps: f32,
    frequencies: usize,
    out: Shape,
    act: Shape,
}

const STEP: Step<'static> =
    Step { options: plain(), qkv: 56, norms: [8; 3], eps: 1e-6, frequencies: 4, out: (2, 16), act: (2, 16) };

impl Step<'_> {
    fn norms<'a>(&self, [q, k, v]: &'a [Buffer<f32>; 3]) -> Option<QkNorms<'a>> {
        Some(QkNorms { weights: [q, k], values: Some(v), eps: self.eps, after_rotation: false })
    }

    /// [`QkvWrite`], and [`Attend`] whose parts it shares.
    fn write_refused(self, suite: &Suite, case: &str, kind: Kind, placement: &Placement) {
        let b = suite.backend();
        let case_of = &format!("qkv_write: {case}");
        let mut qkv = ones(b, 2, self.qkv);
        let frequencies = buffer(b, &vec![0.5; self.frequencies]);
        let rotary = &Rotary { style: RopeStyle::Halves, frequencies, magnitude: 1.0 };
        let weights = self.norms.map(|len| buffer(b, &vec![1.0; len]));
        let norms = self.norms(&weights);
        let heads = self.options.heads;
        let cache = &mut cache(b);
        expect(suite, case_of, kind, b.run(QkvWrite { qkv: qkv.view_mut(), heads, norms, rotary, cache, placement }));
        let unchanged = qkv.read(b).iter().all(|&x| x == 1.0);
        assert!(found_late(b, kind) || unchanged, "{case_of}: a refused call changed queries, keys or values");
        self.attend_refused(suite, case, kind, placement);
    }

    /// [`Attend`].
    fn attend_refused(self, suite: &Suite, case: &str, kind: Kind, placement: &Placement) {
        let b = suite.backend();
        let case = &format!("attend: {case}");
        let mut qkv = ones(b, 2, self.qkv);
        let mut out = poisoned(b, self.out);
        let mut act = empty(b, self.act);
        let frequencies = buffer(b, &vec![0.5; self.frequencies]);
        let rotary = &Rotary { style: RopeStyle::Halves, frequencies, magnitude: 1.0 };
        let weights = self.norms.map(|len| buffer(b, &vec![1.0; len]));
        let norms = self.norms(&weights);
        let options = self.options;
        let cache = &mut cache(b);
        let (qkv, y) = (qkv.view_mut(), out.view_mut());
        let call = Attend { qkv, norms, rotary, cache, placement, options, out: y, act: &mut act };
        expect(suite, case, kind, b.run(call));
        assert_refused(b, case, kind, &out);
        assert_empty(b, case, kind, &act);
    }

    /// [`AttentionAct`], and [`Attend`] whose part it is.
    fn act_refused(self, suite: &Suite, case: &str, kind: Kind, placement: &Placement) {
        let b = suite.backend();
        let case_of = &format!("attention_act: {case}");
        let q = ones(b, 2, 8 * self.options.heads);
        let mut out = poisoned(b, self.out);
        let mut act = empty(b, self.act);
        let options = self.options;
        let cache = &cache(b);
        let attention = Attention { q: q.view(), cache, placement, options, out: out.view_mut() };
        expect(suite, case_of, kind, b.run(AttentionAct { attention, act: &mut act, by_head: false }));
        assert_refused(b, case_of, kind, &out);
        assert_empty(b, case_of, kind, &act);
        self.attend_refused(suite, case, kind, placement);
    }
}

/// [`QkvWrite`], [`AttentionAct`] and [`Attend`].
fn attention(suite: &Suite) {
    let b = suite.backend();
    for (case, kind, placement) in &placements(b) {
        STEP.write_refused(suite, case, *kind, placement);
        STEP.act_refused(suite, case, *kind, placement);
    }
    let good = &placement(b, &[0, 1], &[0, 31]);
    for (case, kind, call) in [
        ("columns", Kind::Shape, Step { qkv: 57, ..STEP }),
        ("norm of queries", Kind::Range, Step { norms: [7, 8, 8], ..STEP }),
        ("norm of keys", Kind::Range, Step { norms: [8, 0, 8], ..STEP }),
        ("norm of values", Kind::Range, Step { norms: [8, 8, 7], ..STEP }),
        ("epsilon", Kind::Range, Step { eps: f32::NAN, ..STEP }),
        ("frequencies", Kind::Range, Step { frequencies: 5, ..STEP }),
    ] {
        call.write_refused(suite, case, kind, good);
    }
    for (case, call) in [
        ("rows", Step { out: (1, 16), ..STEP }),
        ("columns of the output", Step { out: (2, 17), ..STEP }),
        ("activations", Step { act: (1, 16), ..STEP }),
    ] {
        call.act_refused(suite, case, Kind::Shape, good);
    }
    for (case, kind, options) in bad_options(&buffer(b, &[0.0; 3])) {
        let heads = options.heads;
        let qkv = heads * SPEC.key_width + SPEC.heads * (SPEC.key_width + SPEC.value_width);
        let shape = (2, heads * SPEC.value_width);
        Step { options, qkv, out: shape, act: shape, ..STEP }.act_refused(suite, case, kind, good);
    }
}
