//! Norms of rows.

use super::common::*;
use super::refuse::{Kind, ones, refused, vector};
use super::rows::{finite_rows, rows_of, with_wild_rows};
use crate::guarded::buffer;

/// [`RmsNorm`].
pub fn rms_norm(suite: &Suite) {
    let rng = &mut suite.rng("rms_norm");
    for &tokens in suite.some("rows", TOKENS) {
        for cols in [1, 15, 16, 17, 203, 2048] {
            let x = with_wild_rows(rng, tokens, cols);
            let weight = rng.normals(cols);
            let eps = rng.pick(&[1e-5, 1e-6]);
            let run = |b: &Backend| {
                let x = Guarded::of(b, &x, tokens, cols, Guard::ODD);
                let weight = buffer(b, &weight);
                let mut out = Guarded::poisoned(b, tokens, cols, Guard { left: 0, right: 5, below: 2 });
                b.run(RmsNorm { x: x.view(), weight: &weight, eps, out: out.view_mut() }).expect("rms_norm");
                finite_rows(Output::from(out.read(b)), &rows_of(&x.read(b), cols), cols)
            };
            suite.check("rms_norm", &format_args!("{tokens} × {cols}"), nmse(exact(cols), 0.1), &run);
        }
    }
}

/// [`QkNorm`], per head and for whole rows.
pub fn qk_norm(suite: &Suite) {
    let rng = &mut suite.rng("qk_norm");
    for &tokens in suite.some("rows", TOKENS) {
        for (heads, width) in [(1, 1), (3, 48), (5, 64), (2, 80), (7, 128), (1, 896)] {
            let x = with_wild_rows(rng, tokens * heads, width);
            let weight = rng.normals(width);
            let finite = rows_of(&x, width);
            let run = |b: &Backend| {
                let weight = buffer(b, &weight);
                let mut x = Guarded::of(b, &x, tokens, heads * width, Guard::ODD);
                b.run(QkNorm { x: x.view_mut(), weight: &weight, eps: 1e-6 }).expect("qk_norm");
                finite_rows(Output::from(x.read(b)), &finite, width)
            };
            suite.check("qk_norm", &format_args!("{tokens} × {heads} × {width}"), nmse(exact(width), 0.1), &run);
        }
    }
}

/// [`LayerNorm`], with means near 0 and far from it.
pub fn layer_norm(suite: &Suite) {
    let rng = &mut suite.rng("layer_norm");
    for &tokens in suite.some("rows", TOKENS) {
        for cols in [1, 15, 16, 17, 203, 2048] {
            let mut x = with_wild_rows(rng, tokens, cols);
            let weight = rng.normals(cols);
            let bias = rng.normals(cols);
            let mean = rng.pick(&[0.0, 1.0, -100.0]);
            x.iter_mut().for_each(|x| *x += mean);
            let run = |b: &Backend| {
                let (x, weight, bias) =
                    (Guarded::of(b, &x, tokens, cols, Guard::ODD), buffer(b, &weight), buffer(b, &bias));
                let mut out = Guarded::poisoned(b, tokens, cols, Guard { left: 0, right: 5, below: 2 });
                b.run(LayerNorm { x: x.view(), weight: &weight, bias: &bias, eps: 1e-5, out: out.view_mut() })
                    .expect("layer_norm");
                finite_rows(Output::from(out.read(b)), &rows_of(&x.read(b), cols), cols)
            };
            suite.check("layer_norm", &format_args!("{tokens} × {cols}, mean {mean}"), nmse(exact(cols), 0.1), &run);
        }
    }
}

/// Bad arguments of norms.
pub fn refuse(suite: &Suite) {
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
