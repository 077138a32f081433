//! Gate and up with their activation, dense and of experts.

use super::common::*;
use super::experts::Assignment;
use crate::guarded::buffer;
use crate::rng::Rng;
use crate::suite::PRODUCT;
use crate::weights::tensor;
use gristmill_kernels::weight::Role;

const ACTIVATIONS: [Activation; 5] = [
    Activation::SwiGlu,
    Activation::GeGlu,
    Activation::ClampedSwiGlu { alpha: 1.702, limit: 1.25 },
    Activation::LimitedSwiGlu { limit: 0.75 },
    Activation::SquaredRelu,
];

/// Outputs are products of two numbers of about the inputs' mean square, one of them halved by its activation, or
/// limited. The error of one factor is multiplied by the other.
fn product(bound: f64, activation: Activation, x: &[f32]) -> Tolerance {
    Tolerance::Nmse { bound, unlucky: PRODUCT, energy: product_energy(activation, x) }
}

/// The same of `outputs` sums over `inner` such numbers, whose errors they share: the fewer of the two counts.
pub(super) fn sums(bound: f64, activation: Activation, x: &[f32], inner: usize, outputs: usize) -> Tolerance {
    let unlucky = PRODUCT * (outputs as f64 / inner as f64).max(1.0);
    Tolerance::Nmse { bound, unlucky, energy: product_energy(activation, x) }
}

/// Mean square of such outputs.
fn product_energy(activation: Activation, x: &[f32]) -> f64 {
    match activation {
        Activation::ClampedSwiGlu { .. } => 0.25,
        Activation::LimitedSwiGlu { .. } => 0.05,
        _ => 0.25 * mean_square(x).powi(2),
    }
}

fn mean_square(x: &[f32]) -> f64 {
    x.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / x.len().max(1) as f64
}

/// An activation costs a few roundings of its own, which products of small numbers show; int8's error comes twice, once
/// in each factor, and steeper than 1 in some activations.
fn bound(tensors: &[TensorView], precision: Precision, x: &[f32]) -> f64 {
    4.0 * product_bound(tensors, precision, x) + 1e-13
}

/// Whether a small error of huge inputs is a small error of what an activation makes of them. A limit of about 1 makes
/// it a large one, if only where a product happens to cancel to within the limit: in f32 that failed one run in a
/// hundred.
pub(super) fn is_smooth(activation: Activation) -> bool {
    !matches!(activation, Activation::ClampedSwiGlu { .. } | Activation::LimitedSwiGlu { .. })
}

/// Gate and up, or up where the activation has no gate.
fn gate_and_up(
    suite: &Suite,
    rng: &mut Rng,
    activation: Activation,
    experts: usize,
    rows: usize,
    cols: usize,
) -> Vec<TensorView> {
    // Mostly one format, as files have it, and sometimes two.
    let gate = rng.pick(suite.formats());
    let up = if rng.chance(0.3) { rng.pick(suite.formats()) } else { gate };
    let formats = if activation.role() == Role::Up { vec![up] } else { vec![gate, up] };
    formats.into_iter().map(|format| tensor(rng, format, experts, rows, cols)).collect()
}

fn names(tensors: &[TensorView]) -> String {
    tensors.iter().map(|tensor| &tensor.name[..]).collect::<Vec<_>>().join(" ")
}

fn biases(rng: &mut Rng, activation: Activation, count: usize) -> Option<[Vec<f32>; 2]> {
    (activation.role() == Role::GateUp && rng.chance(0.5)).then(|| [rng.normals(count), rng.normals(count)])
}

/// [`GateUp`].
pub fn dense(suite: &Suite) {
    let rng = &mut suite.rng("gate_up");
    for activation in ACTIVATIONS {
        for &precision in suite.precisions() {
            for (i, &tokens) in suite.some("gate_up", TOKENS.iter().enumerate()) {
                let rows = if i < OUTPUTS.len() { OUTPUTS[i] } else { rng.between(1, 60) };
                let cols = 256;
                let tensors = gate_and_up(suite, rng, activation, 1, rows, cols);
                let mut x = rng.normals(tokens * cols);
                let bias = biases(rng, activation, rows);
                if is_smooth(activation) {
                    sometimes_huge(rng, &mut x);
                }
                let run = |b: &Backend, first: usize, count: usize| {
                    let weight = b.prepare(&tensors, activation.role()).expect("prepare");
                    let bias = bias.as_ref().map(|both| both.each_ref().map(|v| buffer(b, v)));
                    let mut h = Guarded::poisoned(b, count, rows, Guard::ODD);
                    let bias = bias.as_ref().map(|both| both.each_ref());
                    let act = activations(b, precision, &x[first * cols..(first + count) * cols], count, cols);
                    b.run(GateUp { weight: &weight, x: &act, bias, activation, h: h.view_mut() }).expect("gate_up");
                    Output::from(h.read(b))
                };
                let case = format!("{} · {tokens}, {activation:?}", names(&tensors));
                let kind = kind(["gate_up exact", "gate_up bf16", "gate_up int8"], &tensors, precision);
                let tolerance = product(bound(&tensors, precision, &x), activation, &x);
                let whole = suite.check(kind, &case, tolerance, &|b| run(b, 0, tokens));
                if tokens > 0 {
                    let row = tokens / 2;
                    let alone = run(suite.backend(), tokens / 2, 1);
                    let of_whole = whole.floats[row * rows..(row + 1) * rows].to_vec();
                    as_alone(
                        suite,
                        by_rows(&tensors, precision),
                        kind,
                        &format_args!("{case}, row {row} alone"),
                        tolerance,
                        &of_whole.into(),
                        &alone,
                    );
                }
            }
        }
    }
}

/// [`GateUpAct`]: the product of a matrix with the activations.
pub fn act(suite: &Suite) {
    let rng = &mut suite.rng("gate_up_act");
    for (i, &tokens) in suite.some("gate_up_act", TOKENS.iter().chain(TOKENS).enumerate()) {
        let precision = PRECISIONS[i % 2];
        let activation = rng.pick(&ACTIVATIONS);
        let named = rng.chance(0.5);
        // Blocks of 32 that are whole and not, and a format of the matrix for which they must be.
        let (inner, format) =
            rng.pick(&[(1, Format::F32), (203, Format::F16), (64, Format::Q8_0), (256, Format::Q4_K)]);
        let tensors = gate_and_up(suite, rng, activation, 1, inner, 256);
        let down = [tensor(rng, format, 1, 40, inner)];
        let mut x = rng.normals(tokens * 256);
        let bias = biases(rng, activation, inner);
        if is_smooth(activation) {
            sometimes_huge(rng, &mut x);
        }
        let run = |b: &Backend| {
            let weight = b.prepare(&tensors, activation.role()).expect("prepare");
            let down = b.prepare(&down, Role::Matrix).expect("prepare");
            let bias = bias.as_ref().map(|both| both.each_ref().map(|v| buffer(b, v)));
            let bias = bias.as_ref().map(|both| both.each_ref());
            let mut h = Guarded::poisoned(b, tokens, inner, Guard::ODD);
            let mut y = Guarded::poisoned(b, tokens, 40, Guard::ODD);
            let x = activations(b, precision, &x, tokens, 256);
            let mut act = b.alloc_act(precision, tokens + 1, inner).expect("alloc_act");
            if named {
                b.name_readers(&mut act, &[ActReader::dense(&down, tokens)]);
            }
            let gate_up = GateUp { weight: &weight, x: &x, bias, activation, h: h.view_mut() };
            b.run(GateUpAct { gate_up, act: &mut act }).expect("gate_up_act");
            b.run(Matmul::new(&down, &act, y.view_mut())).expect("matmul");
            Output::from(y.read(b))
        };
        let names = [names(&tensors), names(&down)];
        let case = format!("{names:?} · {tokens}, {activation:?}, readers named: {named}");
        // The gated activations are far from normal: a few of 32 are large.
        let normals = rng.normals(64 * inner);
        let bound = 2.0 * bound(&tensors, precision, &x) + 4.0 * product_bound(&down, precision, &normals);
        let all = [&tensors[..], &down[..]].concat();
        let kind = kind(["gate_up_act exact", "gate_up_act bf16", "gate_up_act int8"], &all, precision);
        suite.check(kind, &case, sums(bound, activation, &x, inner, 40), &run);
    }
}

/// [`MoeGateUp`].
pub fn experts(suite: &Suite) {
    let rng = &mut suite.rng("moe_gate_up");
    for (i, assignment) in suite.some("assignments", Assignment::several(rng).into_iter().enumerate()) {
        let precision = suite.precision(i);
        let activation = rng.pick(&ACTIVATIONS);
        let rows = rng.between(1, 40);
        let cols = 256;
        let tensors = gate_and_up(suite, rng, activation, assignment.experts, rows, cols);
        let mut x = rng.normals(assignment.tokens * cols);
        if is_smooth(activation) {
            sometimes_huge(rng, &mut x);
        }
        let bias = biases(rng, activation, assignment.experts * rows);
        let run = |b: &Backend| {
            let weight = b.prepare(&tensors, activation.role()).expect("prepare");
            let bias = bias.as_ref().map(|both| both.each_ref().map(|v| buffer(b, v)));
            let bias = bias.as_ref().map(|both| both.each_ref());
            let mut h = Guarded::poisoned(b, assignment.pairs(), rows, Guard::ODD);
            let act = activations(b, precision, &x, assignment.tokens, cols);
            let groups = assignment.group(b);
            b.run(MoeGateUp {
                weight: &weight,
                x: &act,
                groups: &groups,
                top_k: assignment.top_k,
                bias,
                activation,
                h: h.view_mut(),
            })
            .expect("moe_gate_up");
            Output::from(h.read(b))
        };
        let case = format!("{}, {assignment}, {activation:?}", names(&tensors));
        let kind = kind(["moe_gate_up exact", "moe_gate_up bf16", "moe_gate_up int8"], &tensors, precision);
        let got = suite.check(kind, &case, product(bound(&tensors, precision, &x), activation, &x), &run);
        assignment.assert_padding_is_zero(suite, &case, &got, rows);
    }
}
