//! Layers whose state has a fixed size: convolution, delta rule, and what stands around them.

use super::common::*;
use super::refuse::{Kind, ones, refused, runs_of, vector};
use crate::guarded::buffer;
use crate::rng::Rng;

/// Runs of a batch of this number of rows, some rows in no run, and the number of slots: no slot is both read and
/// written.
pub(super) fn random_runs(rng: &mut Rng, tokens: usize) -> (Vec<Words>, usize) {
    let mut rows = Vec::new();
    let mut first = rng.below(2);
    while first < tokens {
        let count = rng.between(1, tokens - first);
        rows.push([first, count]);
        first += count + rng.below(2);
    }
    let slots = 2 * rows.len() + 1;
    let run = |(i, &[first, count]): (usize, &[usize; 2])| {
        let read = if rng.chance(0.3) { PADDING } else { (slots - 1 - i) as u32 };
        [first as u32, count as u32, read, i as u32]
    };
    let mut runs: Vec<Words> = rows.iter().enumerate().map(run).collect();
    if rng.chance(0.5) {
        runs.insert(rng.below(runs.len() + 1), [PADDING - 1, 0, 77, PADDING]);
    }
    (runs, slots)
}

pub(super) fn runs_on(b: &Backend, runs: &[Words]) -> Runs {
    Runs { list: buffer(b, runs.as_flattened()), count: runs.len() }
}

/// Fails unless rows of no run are still poison; they count as zero then.
pub(super) fn rows_in_runs(mut out: Vec<f32>, cols: usize, runs: &[Words]) -> Vec<f32> {
    for (row, out) in out.chunks_mut(cols).enumerate() {
        let row = row as u64;
        if !runs.iter().any(|&[first, rows, ..]| (u64::from(first)..u64::from(first) + u64::from(rows)).contains(&row))
        {
            let poison = <f32 as crate::guarded::Element>::POISON;
            assert!(out.iter().all(|x| x.to_bits() == poison), "row {row} is in no run and was written");
            out.fill(0.0);
        }
    }
    out
}

/// A run in two calls, through a slot of its own between them.
fn cut([first, rows, read, written]: Words, between: u32, at: u32) -> [Words; 2] {
    [[first, at, read, between], [first + at, rows - at, between, written]]
}

/// The words of a run.
pub(super) type Words = [u32; RUN_WORDS];

/// Runs an operation on lists of runs, one for each call.
pub(super) type Call<'a> = &'a dyn Fn(&Backend, &[&[Words]], Left) -> Output;

/// The result of an operation over runs that is looked at: its outputs, or the state.
#[derive(Clone, Copy)]
pub(super) enum Left {
    Outputs,
    State,
}

/// Checks an operation over runs: against the reference, and that a run has the same bits as a whole and in two parts.
/// `call` gets lists of runs, one for each call, and returns outputs and state.
pub(super) fn check_runs(
    suite: &Suite,
    [kind, kind_of_state]: [&'static str; 2],
    case: &dyn Display,
    [of_outputs, of_state]: [Tolerance; 2],
    (runs, slots): (&[Words], usize),
    call: Call,
) {
    suite.check(kind, case, of_outputs, &|b| call(b, &[runs], Left::Outputs));
    let state = suite.check(kind_of_state, case, of_state, &|b| call(b, &[runs], Left::State));
    let b = suite.backend();
    let Some(&[first, rows, read, written]) = runs.iter().find(|[_, rows, ..]| *rows > 0) else { return };
    let width = state.floats.len() / slots;
    let of_slot = |state: Output| Output::from(state.floats[written as usize * width..][..width].to_vec());
    let run = [first, rows, read, written];
    let alone = call(b, &[&[run]], Left::State);
    suite.same(&format_args!("{case}, {run:?} alone"), &of_slot(state.clone()), &of_slot(alone));
    if rows > 1 {
        let between = (slots / 2) as u32;
        let [a, z] = cut(run, between, 1 + rows / 3);
        let whole = call(b, &[&[run]], Left::Outputs);
        let parts = call(b, &[&[a], &[z]], Left::Outputs);
        suite.same(&format_args!("{case}, {run:?} in two parts"), &whole, &parts);
        let parts = call(b, &[&[a], &[z]], Left::State);
        suite.same(&format_args!("{case}, state of {run:?} in two parts"), &of_slot(state), &of_slot(parts));
    }
}

/// [`CausalConv`].
pub fn causal_conv(suite: &Suite) {
    let rng = &mut suite.rng("causal_conv");
    for &tokens in suite.some("rows", TOKENS) {
        for channels in [1, 17, 64, 300, 1024] {
            let taps = rng.pick(&[2, 3, 3, 4, 4]);
            let silu = rng.chance(0.5);
            let with_bias = rng.chance(0.5);
            let (runs, slots) = random_runs(rng, tokens);
            let x = rng.normals(tokens * channels);
            let weight = rng.normals(channels * taps);
            let bias = rng.normals(channels);
            let state = rng.normals(slots * (taps - 1) * channels);
            let call = |b: &Backend, calls: &[&[Words]], left: Left| {
                let x = Guarded::of(b, &x, tokens, channels, Guard::ODD);
                let (weight, bias) = (buffer(b, &weight), buffer(b, &bias));
                let mut state = Guarded::of(b, &state, slots, (taps - 1) * channels, Guard::ODD);
                let mut out = Guarded::poisoned(b, tokens, channels, Guard { left: 1, right: 3, below: 1 });
                for runs in calls {
                    b.run(CausalConv {
                        x: x.view(),
                        weight: &weight,
                        bias: with_bias.then_some(&bias),
                        silu,
                        state: state.view_mut(),
                        runs: &runs_on(b, runs),
                        out: out.view_mut(),
                    })
                    .expect("causal_conv");
                }
                match left {
                    Left::Outputs => rows_in_runs(out.read(b), channels, &calls.concat()).into(),
                    Left::State => state.read(b).into(),
                }
            };
            let case = format!("{tokens} × {channels}, {taps} taps, silu {silu}, bias {with_bias}, runs {runs:?}");
            let tolerances = [nmse(exact(taps + 1) + ROUTE, 0.1), Tolerance::Exact];
            check_runs(suite, ["causal_conv", "causal_conv state"], &case, tolerances, (&runs, slots), &call);
        }
    }
}

/// [`DeltaRule`].
pub fn delta_rule(suite: &Suite) {
    let rng = &mut suite.rng("delta_rule");
    let sizes = [(1, 1, 16), (2, 3, 16), (1, 2, 32), (2, 2, 64), (2, 2, 128), (1, 1, 256)];
    for &tokens in suite.some("rows", TOKENS) {
        for (keys, shared, width) in suite.some("heads", sizes) {
            let map = rng.pick(&[HeadMap::Grouped, HeadMap::Tiled]);
            let heads = DeltaHeads { keys, values: keys * shared, width, map };
            let (runs, slots) = random_runs(rng, tokens);
            let values = heads.values;
            let qkv = rng.normals(tokens * heads.columns());
            let gates = values * rng.pick(&[1, width]);
            let kind = rng.pick(&[DecayKind::Softplus, DecayKind::Bounded(-5.0)]);
            let (beta, mut alpha) = (rng.normals(tokens * values), rng.normals(tokens * gates));
            // Some gates keep everything, and some nothing.
            alpha.iter_mut().filter(|_| rng.chance(0.05)).for_each(|alpha| *alpha *= 60.0);
            let decay: Vec<f32> = (0..values).map(|_| -rng.uniform(0.01, 4.0) as f32).collect();
            let dt_bias = rng.normals(gates);
            let state: Vec<f32> = rng.normals(slots * heads.state()).iter().map(|s| s * 0.1).collect();
            let of_gates = |b: &Backend, alpha: &[f32], calls: &[&[Words]], left: Left| {
                let qkv = Guarded::of(b, &qkv, tokens, heads.columns(), Guard::ODD);
                let beta = Guarded::of(b, &beta, tokens, values, Guard::ODD);
                let alpha = Guarded::of(b, alpha, tokens, gates, Guard::ODD);
                let mut state = Guarded::of(b, &state, slots, heads.state(), Guard::ODD);
                let mut out = Guarded::poisoned(b, tokens, values * width, Guard { left: 1, right: 3, below: 1 });
                for runs in calls {
                    b.run(DeltaRule {
                        qkv: qkv.view(),
                        beta: beta.view(),
                        alpha: alpha.view(),
                        decay: &buffer(b, &decay),
                        dt_bias: &buffer(b, &dt_bias),
                        kind,
                        heads,
                        state: state.view_mut(),
                        runs: &runs_on(b, runs),
                        out: out.view_mut(),
                    })
                    .expect("delta_rule");
                }
                match left {
                    Left::Outputs => rows_in_runs(out.read(b), values * width, &calls.concat()).into(),
                    Left::State => state.read(b).into(),
                }
            };
            let call = |b: &Backend, calls: &[&[Words]], left: Left| -> Output { of_gates(b, &alpha, calls, left) };
            let case = format!("{tokens} tokens, {heads:?}, {gates} gates, {kind:?}, runs {runs:?}");
            // Each token rounds the state anew, and what earlier tokens rounded stays in it. An output of one token in
            // an empty state is u · (k · q) / √D, of mean square about 0.2 / D².
            let bound = (tokens + 1) as f64 * (exact(2 * width) + ROUTE);
            let tolerances = [nmse(bound, 0.02 / (width * width) as f64), nmse(bound, 1e-3)];
            check_runs(suite, ["delta_rule", "delta_rule state"], &case, tolerances, (&runs, slots), &call);

            // A gate that is not a number: the head's outputs of this and the run's later tokens, and no others.
            let Some(&[first, rows, ..]) = runs.iter().find(|[_, rows, ..]| *rows > 0) else { continue };
            let (row, last, gate) =
                (first as usize + rng.below(rows as usize), (first + rows) as usize, rng.below(gates));
            let mut damaged = alpha.clone();
            damaged[row * gates + gate] = f32::NAN;
            let outputs = |alpha: &[f32]| of_gates(suite.backend(), alpha, &[&runs], Left::Outputs).floats;
            for (i, (before, after)) in outputs(&alpha).iter().zip(outputs(&damaged)).enumerate() {
                let token = i / (values * width);
                let head = i % (values * width) / width;
                let follows = (row..last).contains(&token) && head == gate / (gates / values);
                let expected = if follows { after.is_nan() } else { after.to_bits() == before.to_bits() };
                assert!(expected, "{case}: token {token}, head {head} with NaN as gate {gate} of token {row}: {after}");
            }
        }
    }
}

/// [`GatedNorm`].
pub fn gated_norm(suite: &Suite) {
    let rng = &mut suite.rng("gated_norm");
    for &tokens in suite.some("rows", TOKENS) {
        for (heads, width) in [(1, 1), (3, 48), (5, 64), (2, 80), (7, 128), (1, 896)] {
            let (x, gate) = (rng.normals(tokens * heads * width), rng.normals(tokens * heads * width));
            // One weight for all segments, or one for each column.
            let shared = rng.chance(0.5);
            let weight = rng.normals(if shared { width } else { heads * width });
            let run = |b: &Backend, order: GateOrder| {
                let mut x = Guarded::of(b, &x, tokens, heads * width, Guard::ODD);
                let gate = Guarded::of(b, &gate, tokens, heads * width, Guard { left: 2, right: 0, below: 1 });
                let weight = buffer(b, &weight);
                b.run(GatedNorm { x: x.view_mut(), gate: gate.view(), weight: &weight, width, order, eps: 1e-6 })
                    .expect("gated_norm");
                Output::from(x.read(b))
            };
            let case = format!("{tokens} × {heads} × {width}, shared weight {shared}");
            let tolerance = nmse(exact(width) + ROUTE, 0.05);
            suite.check("gated_norm", &case, tolerance, &|b| run(b, GateOrder::AfterNorm));
            suite.check("gated_norm of gated", &case, tolerance, &|b| run(b, GateOrder::BeforeNorm));
        }
    }
}

/// [`Multiply`].
pub fn multiply(suite: &Suite) {
    let rng = &mut suite.rng("multiply");
    for &tokens in suite.some("rows", TOKENS) {
        // Columns, and how many of them an element of the gate serves.
        for (cols, span) in [(1, 1), (17, 1), (300, 1), (17, 17), (300, 3), (304, 16), (300, 300)] {
            let gates = cols / span;
            let (x, mut gate) = (rng.normals(tokens * cols), rng.normals(tokens * gates));
            gate.iter_mut().for_each(|gate| *gate *= 9.0);
            let run = |b: &Backend, kind: GateKind| {
                let x = Guarded::of(b, &x, tokens, cols, Guard::ODD);
                let gate = Guarded::of(b, &gate, tokens, gates, Guard { left: 1, right: 0, below: 1 });
                let mut out = Guarded::poisoned(b, tokens, cols, Guard::ODD);
                b.run(Multiply { x: x.view(), gate: gate.view(), kind, out: out.view_mut() }).expect("multiply");
                Output::from(out.read(b))
            };
            let case = format!("{tokens} × {cols}, {gates} gates");
            suite.check("multiply", &case, Tolerance::Exact, &|b| run(b, GateKind::Linear));
            // The elements of a gate share its error.
            let tolerance = Tolerance::Nmse { bound: ROUTE, unlucky: NORMAL * span as f64, energy: 0.1 };
            for (name, kind) in [
                ("multiply_sigmoid", GateKind::Sigmoid),
                ("multiply_silu", GateKind::Silu),
                ("multiply_gelu", GateKind::Gelu),
                ("multiply_softplus", GateKind::Softplus),
                ("multiply_normal", GateKind::Normal),
                ("multiply_normal_tanh", GateKind::NormalTanh),
            ] {
                suite.check(name, &case, tolerance, &|b| run(b, kind));
            }
        }
    }
}

/// Bad arguments of convolutions, delta rules, gated norms and products.
pub fn refuse(suite: &Suite) {
    refuse_conv(suite);
    refuse_delta(suite);
    refuse_runs(suite);
    refuse_gates(suite);
}

fn refuse_conv(suite: &Suite) {
    let x = ones(suite.backend(), 3, 4);
    let conv = |case: &str, kind, weight: usize, bias: usize, state: usize, shape| {
        refused(suite, case, kind, shape, |b, out| {
            b.run(CausalConv {
                x: x.view(),
                weight: &vector(b, weight),
                bias: Some(&vector(b, bias)),
                silu: true,
                state: ones(b, 2, state).view_mut(),
                runs: &runs_of(b, &[0, 3, PADDING, 1], 1),
                out: out.view_mut(),
            })
        });
    };
    conv("causal_conv: one tap", Kind::Range, 4, 4, 4, (3, 4));
    conv("causal_conv: five taps", Kind::Range, 20, 4, 16, (3, 4));
    conv("causal_conv: weight", Kind::Shape, 13, 4, 8, (3, 4));
    conv("causal_conv: bias", Kind::Shape, 12, 3, 8, (3, 4));
    conv("causal_conv: state", Kind::Shape, 12, 4, 7, (3, 4));
    conv("causal_conv: rows", Kind::Shape, 12, 4, 8, (2, 4));
    conv("causal_conv: columns", Kind::Shape, 12, 4, 8, (3, 5));
}

fn refuse_delta(suite: &Suite) {
    let good = DeltaHeads { keys: 1, values: 2, width: 16, map: HeadMap::Tiled };
    let delta_of = |case: &str, error, kind, heads: DeltaHeads, [qkv, gates, vectors, state]: [usize; 4], shape| {
        refused(suite, case, error, shape, |b, out| {
            b.run(DeltaRule {
                qkv: ones(b, 3, qkv).view(),
                beta: ones(b, 3, 2).view(),
                alpha: ones(b, 3, gates).view(),
                decay: &vector(b, vectors),
                dt_bias: &vector(b, 2),
                kind,
                heads,
                state: ones(b, 2, state).view_mut(),
                runs: &runs_of(b, &[0, 3, PADDING, 1], 1),
                out: out.view_mut(),
            })
        });
    };
    let delta = |case: &str, error, heads, sizes, shape| {
        delta_of(case, error, DecayKind::Softplus, heads, sizes, shape);
    };
    delta("delta_rule: width", Kind::Range, DeltaHeads { width: 48, ..good }, [64, 2, 2, 512], (3, 32));
    delta("delta_rule: no key heads", Kind::Range, DeltaHeads { keys: 0, ..good }, [64, 2, 2, 512], (3, 32));
    delta("delta_rule: value heads", Kind::Range, DeltaHeads { keys: 4, ..good }, [64, 2, 2, 512], (3, 32));
    delta("delta_rule: queries, keys and values", Kind::Shape, good, [63, 2, 2, 512], (3, 32));
    delta("delta_rule: gates", Kind::Shape, good, [64, 3, 2, 512], (3, 32));
    delta("delta_rule: decay", Kind::Shape, good, [64, 2, 1, 512], (3, 32));
    delta("delta_rule: state", Kind::Shape, good, [64, 2, 2, 511], (3, 32));
    delta("delta_rule: rows", Kind::Shape, good, [64, 2, 2, 512], (2, 32));
    delta("delta_rule: columns", Kind::Shape, good, [64, 2, 2, 512], (3, 31));
    delta("delta_rule: gates of some elements", Kind::Shape, good, [64, 31, 2, 512], (3, 32));
    delta("delta_rule: dt_bias of each head", Kind::Shape, good, [64, 32, 2, 512], (3, 32));
    for bound in [0.0, 1.0, f32::NAN, f32::NEG_INFINITY] {
        let kind = DecayKind::Bounded(bound);
        delta_of("delta_rule: bound", Kind::Range, kind, good, [64, 2, 2, 512], (3, 32));
    }
}

fn refuse_runs(suite: &Suite) {
    let on_host = suite.backend().device() == DeviceId::Cpu;
    let x = ones(suite.backend(), 4, 4);
    let case = |case: &str, kind, words: &[u32], count: usize| {
        refused(suite, case, kind, (4, 4), |b, out| {
            b.run(CausalConv {
                x: x.view(),
                weight: &vector(b, 12),
                bias: None,
                silu: false,
                state: ones(b, 4, 8).view_mut(),
                runs: &runs_of(b, words, count),
                out: out.view_mut(),
            })
        });
    };
    case("runs: words", Kind::Shape, &[0, 4, PADDING], 1);
    case("runs: rows", Kind::Id, &[1, 4, PADDING, 1], 1);
    case("runs: first row", Kind::Id, &[PADDING, 2, PADDING, 1], 1);
    case("runs: slot that is read", Kind::Id, &[0, 4, 4, 1], 1);
    case("runs: slot that is written", Kind::Id, &[0, 4, 0, PADDING], 1);
    // Nobody else looks at several runs together.
    if on_host {
        case("runs: shared rows", Kind::Range, &[0, 2, PADDING, 1, 1, 2, PADDING, 2], 2);
        case("runs: a slot written twice", Kind::Range, &[0, 2, PADDING, 1, 2, 2, PADDING, 1], 2);
        case("runs: a slot read and written", Kind::Range, &[0, 2, 1, 0, 2, 2, PADDING, 1], 2);
        case("runs: in place", Kind::Range, &[0, 2, 1, 1], 1);
    }
}

fn refuse_gates(suite: &Suite) {
    let b = suite.backend();
    let [x, wide] = [ones(b, 3, 4), ones(b, 3, 5)];
    for gates in [0, 3, 5] {
        let gate = ones(b, 3, gates);
        refused(suite, "multiply: columns of the gate", Kind::Shape, (3, 4), |b, out| {
            b.run(Multiply { x: x.view(), gate: gate.view(), kind: GateKind::Sigmoid, out: out.view_mut() })
        });
    }
    refused(suite, "multiply: rows", Kind::Shape, (2, 4), |b, out| {
        b.run(Multiply { x: x.view(), gate: x.view(), kind: GateKind::Linear, out: out.view_mut() })
    });
    let norm = |case: &str, kind, gate: &Guarded<f32>, [weight, width]: [usize; 2], eps: f32| {
        refused(suite, case, kind, (3, 4), |b, x| {
            b.run(GatedNorm::new(x.view_mut(), gate.view(), &vector(b, weight), eps).width(width))
        });
    };
    norm("gated_norm: gate", Kind::Shape, &wide, [4, 4], 1e-6);
    norm("gated_norm: weight", Kind::Range, &x, [3, 4], 1e-6);
    norm("gated_norm: no segment", Kind::Range, &x, [4, 0], 1e-6);
    norm("gated_norm: width of a segment", Kind::Range, &x, [4, 3], 1e-6);
    norm("gated_norm: weight of neither a segment nor all", Kind::Shape, &x, [1, 2], 1e-6);
    norm("gated_norm: epsilon", Kind::Range, &x, [4, 4], -1.0);
}
