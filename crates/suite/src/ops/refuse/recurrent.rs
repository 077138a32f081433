//! Layers whose state has a fixed size.

use super::common::*;

/// Convolution, delta rule, selective scan, gated norm and products.
pub fn recurrent(suite: &Suite) {
    conv(suite);
    delta(suite);
    scan(suite);
    runs(suite);
    gates(suite);
}

fn vector(b: &Backend, len: usize) -> gristmill_kernels::tensor::Buffer<f32> {
    buffer(b, &vec![1.0; len])
}

fn runs_of(b: &Backend, words: &[u32], count: usize) -> Runs {
    Runs { list: buffer(b, words), count }
}

fn conv(suite: &Suite) {
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

fn delta(suite: &Suite) {
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

fn scan(suite: &Suite) {
    let good = ScanHeads { heads: 2, width: 32, groups: 2, state: 16 };
    let scan = |case: &str,
                kind,
                heads: ScanHeads,
                (xbc, dt, state): (usize, (usize, usize), usize),
                vectors: [usize; 3],
                shape| {
        refused(suite, case, kind, shape, |b, out| {
            let [a, d, dt_bias] = vectors.map(|len| vector(b, len));
            b.run(SelectiveScan {
                xbc: ones(b, 3, xbc).view(),
                dt: ones(b, dt.0, dt.1).view(),
                a: &a,
                d: &d,
                dt_bias: &dt_bias,
                heads,
                state: ones(b, 2, state).view_mut(),
                runs: &runs_of(b, &[0, 3, PADDING, 1], 1),
                out: out.view_mut(),
            })
        });
    };
    let sizes = (128, (3, 2), 1024);
    let vectors = [2, 2, 2];
    let shape = (3, 64);
    let range = |case: &str, heads| scan(case, Kind::Range, heads, sizes, vectors, shape);
    range("selective_scan: no groups", ScanHeads { groups: 0, ..good });
    range("selective_scan: groups", ScanHeads { groups: 3, ..good });
    range("selective_scan: no heads", ScanHeads { heads: 0, ..good });
    range("selective_scan: no values", ScanHeads { width: 0, ..good });
    range("selective_scan: values of a group", ScanHeads { width: 16, ..good });
    range("selective_scan: state", ScanHeads { state: 48, ..good });
    let huge = ScanHeads { heads: usize::MAX - 1, ..good };
    scan("selective_scan: huge heads", Kind::OutOfMemory, huge, sizes, vectors, shape);
    let wide = ScanHeads { state: 32, ..good };
    scan("selective_scan: decays of elements", Kind::Range, wide, (192, (3, 2), 2048), [64, 2, 2], shape);
    scan("selective_scan: values, B and C", Kind::Shape, good, (127, (3, 2), 1024), vectors, shape);
    scan("selective_scan: dt", Kind::Shape, good, (128, (3, 3), 1024), vectors, shape);
    scan("selective_scan: rows of dt", Kind::Shape, good, (128, (2, 2), 1024), vectors, shape);
    scan("selective_scan: state's columns", Kind::Shape, good, (128, (3, 2), 1023), vectors, shape);
    scan("selective_scan: a", Kind::Shape, good, sizes, [1, 2, 2], shape);
    scan("selective_scan: a of some elements", Kind::Shape, good, sizes, [31, 2, 2], shape);
    scan("selective_scan: d", Kind::Shape, good, sizes, [2, 3, 2], shape);
    scan("selective_scan: dt_bias", Kind::Shape, good, sizes, [2, 2, 1], shape);
    scan("selective_scan: rows", Kind::Shape, good, sizes, vectors, (2, 64));
    scan("selective_scan: columns", Kind::Shape, good, sizes, vectors, (3, 63));
}

fn runs(suite: &Suite) {
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

fn gates(suite: &Suite) {
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
