//! Row by row operations.

use super::common::*;
use gristmill_kernels::tensor::Buffer;

/// Norms, rotation, sums.
pub fn rows(suite: &Suite) {
    norms(suite);
    rope(suite);
    sums(suite);
}

fn vector(b: &Backend, len: usize) -> Buffer<f32> {
    buffer(b, &vec![1.0; len])
}

fn norms(suite: &Suite) {
    let x = ones(suite.backend(), 3, 4);
    let norm = |case: &str, kind, weight: usize, eps: f32, shape| {
        refused(suite, case, kind, shape, |b, out| {
            b.run(RmsNorm { x: x.view(), weight: &vector(b, weight), eps, out: out.view_mut() })
        });
    };
    norm("rms_norm: weight", Kind::Shape, 5, 1e-6, (3, 4));
    norm("rms_norm: rows", Kind::Shape, 4, 1e-6, (2, 4));
    norm("rms_norm: columns", Kind::Shape, 4, 1e-6, (3, 5));
    norm("rms_norm: epsilon", Kind::Range, 4, f32::NAN, (3, 4));
    norm("rms_norm: negative epsilon", Kind::Range, 4, -1e-6, (3, 4));
    let norm = |case: &str, kind, weight: usize, bias: usize, eps: f32, shape| {
        refused(suite, case, kind, shape, |b, out| {
            b.run(LayerNorm {
                x: x.view(),
                weight: &vector(b, weight),
                bias: &vector(b, bias),
                eps,
                out: out.view_mut(),
            })
        });
    };
    norm("layer_norm: weight", Kind::Shape, 5, 4, 1e-6, (3, 4));
    norm("layer_norm: bias", Kind::Shape, 4, 3, 1e-6, (3, 4));
    norm("layer_norm: rows", Kind::Shape, 4, 4, 1e-6, (2, 4));
    norm("layer_norm: columns", Kind::Shape, 4, 4, 1e-6, (3, 5));
    norm("layer_norm: epsilon", Kind::Range, 4, 4, f32::NAN, (3, 4));
    refused(suite, "qk_norm: weight", Kind::Range, (3, 4), |b, x| {
        b.run(QkNorm { x: x.view_mut(), weight: &vector(b, 3), eps: 1e-6 })
    });
    refused(suite, "qk_norm: no weight", Kind::Range, (3, 4), |b, x| {
        b.run(QkNorm { x: x.view_mut(), weight: &vector(b, 0), eps: 1e-6 })
    });
    refused(suite, "qk_norm: epsilon", Kind::Range, (3, 4), |b, x| {
        b.run(QkNorm { x: x.view_mut(), weight: &vector(b, 4), eps: f32::INFINITY })
    });
}

fn rope(suite: &Suite) {
    let rope_from = |case: &str, kind, first: usize, width: usize, pairs: usize, positions: usize| {
        refused(suite, case, kind, (3, 8), |b, x: &mut Guarded<f32>| {
            let positions = Guarded::of(b, &vec![0; positions], positions, 1, Guard::ODD);
            let rotary = Rotary { style: RopeStyle::Halves, frequencies: vector(b, pairs), magnitude: 1.0 };
            let positions = positions.view();
            b.run(Rope { x: x.view_mut(), head_width: width, first, positions, rotary: &rotary })
        });
    };
    let rope = |case: &str, kind, width, pairs, positions| rope_from(case, kind, 0, width, pairs, positions);
    rope_from("rope: too little after the first elements", Kind::Range, 3, 4, 1, 3);
    rope_from("rope: more first elements than there are", Kind::Range, 5, 4, 0, 3);
    rope("rope: head width", Kind::Range, 3, 1, 3);
    rope("rope: no head width", Kind::Range, 0, 0, 3);
    rope("rope: frequencies", Kind::Range, 4, 3, 3);
    rope("rope: positions", Kind::Shape, 4, 2, 2);
}

fn sums(suite: &Suite) {
    let b = suite.backend();
    let x = ones(b, 3, 4);
    refused(suite, "copy_rows: rows", Kind::Shape, (2, 4), |b, out| {
        b.run(CopyRows { x: x.view(), out: out.view_mut() })
    });
    refused(suite, "copy_rows: columns", Kind::Shape, (3, 5), |b, out| {
        b.run(CopyRows { x: x.view(), out: out.view_mut() })
    });
    for (case, kind, shape, order) in [
        ("gather_columns: rows", Kind::Shape, (2, 4), vec![0; 4]),
        ("gather_columns: columns", Kind::Shape, (3, 5), vec![0; 4]),
        ("gather_columns: order", Kind::Shape, (3, 4), vec![0; 3]),
        ("gather_columns: id", Kind::Id, (3, 4), vec![0, 1, 4, 3]),
    ] {
        refused(suite, case, kind, shape, |b, out| {
            let order = Guarded::of(b, &order, order.len(), 1, Guard::ODD);
            b.run(GatherColumns { x: x.view(), order: order.view(), out: out.view_mut() })
        });
    }
    refused(suite, "add: rows", Kind::Shape, (2, 4), |b, y| b.run(Add { x: x.view(), scale: 1.0, y: y.view_mut() }));
    refused(suite, "add: columns", Kind::Shape, (3, 5), |b, y| b.run(Add { x: x.view(), scale: 1.0, y: y.view_mut() }));
    refused(suite, "add: scale", Kind::Range, (3, 4), |b, y| {
        b.run(Add { x: x.view(), scale: f32::NAN, y: y.view_mut() })
    });
    refused(suite, "scale: infinite", Kind::Range, (3, 4), |b, y: &mut Guarded<f32>| {
        b.run(Scale { factor: f32::INFINITY, y: y.view_mut() })
    });
    for (case, cap) in [("soft_cap: none", 0.0), ("soft_cap: negative", -1.0), ("soft_cap: infinite", f32::INFINITY)] {
        refused(suite, case, Kind::Range, (3, 4), |b, y: &mut Guarded<f32>| b.run(SoftCap { cap, y: y.view_mut() }));
    }
    for (case, low, high) in
        [("clamp: empty", 1.0, 0.5), ("clamp: NaN", f32::NAN, 1.0), ("clamp: to NaN", 0.0, f32::NAN)]
    {
        refused(suite, case, Kind::Range, (3, 4), |b, y: &mut Guarded<f32>| {
            b.run(Clamp { low, high, y: y.view_mut() })
        });
    }
    let gate = Guarded::of(b, &[1.0; 2], 2, 1, Guard::ODD);
    refused(suite, "add_gated: gates", Kind::Shape, (3, 4), |b, y| {
        b.run(AddGated { x: x.view(), gate: gate.view(), y: y.view_mut() })
    });
    let gate = Guarded::of(b, &[1.0; 6], 3, 2, Guard::ODD);
    refused(suite, "add_gated: columns", Kind::Shape, (3, 4), |b, y| {
        b.run(AddGated { x: x.view(), gate: gate.view(), y: y.view_mut() })
    });
}
