//! Compositions of norms, of sums and of products that are prepared refuse what their parts refuse.

use super::common::*;
use super::compositions::{Shape, assert_empty, empty, poisoned};
use super::matrices::Weights;
use gristmill_kernels::weight::Weight;

/// All of these.
pub(super) fn compositions(suite: &Suite) {
    add_norm(suite);
    prepared(suite);
    add_norms(suite);
    norms(suite);
}

/// [`AddNorm`] of three rows of 64.
fn add_norm(suite: &Suite) {
    let b = suite.backend();
    let x = ones(b, 3, 64);
    let refused = |case: &str, kind, weight: usize, [scale, factor]: [f32; 2], out: Shape, shape: Shape| {
        let case = &format!("add_norm: {case}");
        let weight = buffer(b, &vec![1.0; weight]);
        let mut out = poisoned(b, out);
        let mut y = poisoned(b, shape);
        let norm = RmsNorm { x: x.view(), weight: &weight, eps: 1e-6, out: out.view_mut() };
        expect(suite, case, kind, b.run(AddNorm { norm, scale, factor, y: y.view_mut() }));
        [&out, &y].into_iter().for_each(|out| out.assert_untouched(b, case));
    };
    refused("weight", Kind::Shape, 63, [1.0; 2], (3, 64), (3, 64));
    refused("normed columns", Kind::Shape, 64, [1.0; 2], (3, 63), (3, 64));
    refused("rows", Kind::Shape, 64, [1.0; 2], (3, 64), (2, 64));
    refused("columns", Kind::Shape, 64, [1.0; 2], (3, 64), (3, 65));
    refused("scale", Kind::Range, 64, [f32::NAN, 1.0], (3, 64), (3, 64));
    refused("factor", Kind::Range, 64, [1.0, f32::INFINITY], (3, 64), (3, 64));
}

/// [`AddNormAct`] and [`MultiplyAct`] of three rows of 64.
fn prepared(suite: &Suite) {
    let b = suite.backend();
    let (x, gate) = (ones(b, 3, 64), ones(b, 3, 64));
    let refused = |case: &str, kind, weights: [usize; 2], eps: f32, scale: f32, y: Shape, act: Shape| {
        let case = &format!("add_norm_act: {case}");
        let [weight, of_sum] = weights.map(|len| buffer(b, &vec![1.0; len]));
        let mut out = poisoned(b, (3, 64));
        let mut y = poisoned(b, y);
        let mut act = empty(b, act);
        let norm = RmsNorm { x: x.view(), weight: &weight, eps: 1e-6, out: out.view_mut() };
        let sum = AddNorm { norm, scale, factor: 1.0, y: y.view_mut() };
        expect(suite, case, kind, b.run(AddNormAct { sum, next: Some((&of_sum, eps)), act: &mut act }));
        [&out, &y].into_iter().for_each(|out| out.assert_untouched(b, case));
        assert_empty(b, case, kind, &act);
    };
    let weights = [64; 2];
    let eps = 1e-6;
    let shape = (3, 64);
    refused("weight", Kind::Shape, [63, 64], eps, 1.0, shape, shape);
    refused("the sum's weight", Kind::Shape, [64, 63], eps, 1.0, shape, shape);
    refused("the sum's epsilon", Kind::Range, weights, f32::NAN, 1.0, shape, shape);
    refused("scale", Kind::Range, weights, eps, f32::NAN, shape, shape);
    refused("rows", Kind::Shape, weights, eps, 1.0, (2, 64), shape);
    refused("activations", Kind::Shape, weights, eps, 1.0, shape, (2, 64));

    let refused = |case: &str, rows: Shape, act: Shape, gate: &Guarded<f32>| {
        let case = &format!("multiply_act: {case}");
        let mut out = poisoned(b, rows);
        let mut act = empty(b, act);
        let multiply = Multiply { x: x.view(), gate: gate.view(), kind: GateKind::Gelu, out: out.view_mut() };
        expect(suite, case, Kind::Shape, b.run(MultiplyAct { multiply, act: &mut act }));
        out.assert_untouched(b, case);
        assert_empty(b, case, Kind::Shape, &act);
    };
    refused("rows", (2, 64), shape, &gate);
    refused("activations", shape, (2, 64), &gate);
    refused("gates", shape, shape, &ones(b, 3, 63));
}

/// [`AddNorms`] of three rows of 64.
fn add_norms(suite: &Suite) {
    let b = suite.backend();
    let x = ones(b, 3, 64);
    let refused =
        |case: &str, kind, weights: [usize; 3], eps: [f32; 3], [scale, factor]: [f32; 2], rows: [Shape; 3]| {
            let case = &format!("add_norms: {case}");
            let [first, second, weight] = weights.map(|len| buffer(b, &vec![1.0; len]));
            let [mut sum, mut normed, mut y] = rows.map(|shape| poisoned(b, shape));
            let norms = [
                RmsNorm { x: x.view(), weight: &first, eps: eps[0], out: sum.view_mut() },
                RmsNorm { x: x.view(), weight: &second, eps: eps[1], out: normed.view_mut() },
            ];
            let call = AddNorms { norms, weight: &weight, eps: eps[2], scale, factor, y: y.view_mut() };
            expect(suite, case, kind, b.run(call));
            [&sum, &normed, &y].into_iter().for_each(|out| out.assert_untouched(b, case));
        };
    let weights = [64; 3];
    let eps = [1e-6; 3];
    let by = [1.0; 2];
    let rows = [(3, 64); 3];
    for (i, part) in ["first", "second", "sum's"].into_iter().enumerate() {
        let with = |of: [usize; 3], n| std::array::from_fn(|at| if at == i { n } else { of[at] });
        refused(&format!("{part} weight"), Kind::Shape, with(weights, 63), eps, by, rows);
        let wrong = std::array::from_fn(|at| if at == i { -1.0 } else { eps[at] });
        refused(&format!("{part} epsilon"), Kind::Range, weights, wrong, by, rows);
        let short = std::array::from_fn(|at| if at == i { (2, 64) } else { rows[at] });
        refused(&format!("{part} rows"), Kind::Shape, weights, eps, by, short);
        let narrow = std::array::from_fn(|at| if at == i { (3, 63) } else { rows[at] });
        refused(&format!("{part} columns"), Kind::Shape, weights, eps, by, narrow);
    }
    refused("scale", Kind::Range, weights, eps, [f32::NAN, 1.0], rows);
    refused("factor", Kind::Range, weights, eps, [1.0, f32::INFINITY], rows);
}

/// Arguments of [`NormAct`] and of [`NormMatmul`] over three rows of 64.
#[derive(Clone, Copy)]
struct Norm {
    weight: usize,
    eps: f32,
    out: Shape,
    acts: [Shape; 2],
    y: Shape,
    bias: usize,
}

impl Norm {
    const GOOD: Norm = Norm { weight: 64, eps: 1e-6, out: (3, 64), acts: [(3, 64); 2], y: (3, 20), bias: 20 };

    /// Runs the composition with a product if there is a matrix.
    fn refused(self, suite: &Suite, case: &str, kind: Kind, matrix: Option<&Weight>) {
        let b = suite.backend();
        let x = ones(b, 3, 64);
        let weight = buffer(b, &vec![1.0; self.weight]);
        let (mut out, mut y) = (poisoned(b, self.out), poisoned(b, self.y));
        let mut acts = self.acts.map(|shape| empty(b, shape));
        let [first, second] = &mut acts;
        let norm = RmsNorm { x: x.view(), weight: &weight, eps: self.eps, out: out.view_mut() };
        let bias = buffer(b, &vec![0.0; self.bias]);
        let result = match matrix {
            None => b.run(NormAct { norm, acts: [Some(first), Some(second)] }),
            Some(weight) => {
                let bias = Some(&bias);
                let other = Some(second);
                let y = y.view_mut();
                b.run(NormMatmul { norm, act: first, other, weight, bias, y })
            }
        };
        expect(suite, case, kind, result);
        [&out, &y].into_iter().for_each(|out| assert_refused(b, case, kind, out));
        acts.iter().for_each(|act| assert_empty(b, case, kind, act));
    }
}

/// [`NormAct`] and [`NormMatmul`].
fn norms(suite: &Suite) {
    let good = Norm::GOOD;
    let Weights { matrix, table, experts, foreign, .. } = &Weights::new(suite);
    for (case, kind, call) in [
        ("weight", Kind::Shape, Norm { weight: 63, ..good }),
        ("epsilon", Kind::Range, Norm { eps: f32::NAN, ..good }),
        ("rows", Kind::Shape, Norm { out: (2, 64), ..good }),
        ("columns", Kind::Shape, Norm { out: (3, 63), ..good }),
        ("first activations", Kind::Shape, Norm { acts: [(2, 64), (3, 64)], ..good }),
        ("second activations", Kind::Shape, Norm { acts: [(3, 64), (2, 64)], ..good }),
    ] {
        call.refused(suite, &format!("norm_act: {case}"), kind, None);
        call.refused(suite, &format!("norm_matmul: {case}"), kind, Some(matrix));
    }
    for (case, kind, call, weight) in [
        ("product rows", Kind::Shape, Norm { y: (2, 20), ..good }, matrix),
        ("product columns", Kind::Shape, Norm { y: (3, 21), ..good }, matrix),
        ("bias", Kind::Shape, Norm { bias: 19, ..good }, matrix),
        ("table", Kind::Range, good, table),
        ("experts", Kind::Range, good, experts),
    ] {
        call.refused(suite, &format!("norm_matmul: {case}"), kind, Some(weight));
    }
    if suite.backend().device() != DeviceId::Cpu {
        good.refused(suite, "norm_matmul: another device", Kind::Foreign, Some(foreign));
    }
}
