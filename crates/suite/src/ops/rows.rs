//! Operations that work row by row: look-ups, norms, rotations and additions.

use super::common::*;
use crate::guarded::buffer;
use crate::rng::Rng;
use crate::suite::Output;
use crate::weights::tensor;
use gristmill_kernels::weight::Role;

/// [`Embed`]: bit by bit.
pub fn embed(suite: &Suite) {
    let rng = &mut suite.rng("embed");
    for &format in suite.some("embed", suite.formats()) {
        // Whole blocks, of float formats any number of elements.
        let rows = rng.between(1, 50);
        let block = format.block_len();
        let cols = block * rng.between(1, 600_usize.div_ceil(block));
        let table = tensor(rng, format, 1, rows, cols);
        let tokens = rng.pick(TOKENS);
        let scale = rng.pick(&[1.0, 45.254834]);
        let role = rng.pick(&[Role::Table, Role::Tied]);
        let ids: Vec<u32> = (0..tokens).map(|_| rng.below(rows) as u32).collect();
        let run = |b: &Backend| {
            let table = b.prepare(std::slice::from_ref(&table), role).expect("prepare");
            let ids = Guarded::of(b, &ids, tokens, 1, Guard::ODD);
            let mut out = Guarded::poisoned(b, tokens, cols, Guard::ODD);
            b.run(Embed { table: &table, rows: ids.view(), scale, out: out.view_mut() }).expect("embed");
            Output::from(out.read(b))
        };
        suite.check(
            "embed",
            &format_args!("{format}, {tokens} of {rows} rows of {cols}, × {scale}, {role:?}"),
            Tolerance::Exact,
            &run,
        );
    }
}

/// A row whose neighbours are NaN, infinite and huge must be as if alone.
fn with_wild_rows(rng: &mut Rng, rows: usize, cols: usize) -> Vec<f32> {
    let mut x = rng.normals(rows * cols);
    for row in x.chunks_exact_mut(cols.max(1)) {
        let at = rng.below(cols);
        match rng.below(8) {
            0 => row[at] = f32::NAN,
            1 => row[at] = f32::INFINITY,
            2 => row.iter_mut().for_each(|x| *x *= 1e6),
            3 => row.fill(0.0),
            _ => {}
        }
    }
    x
}

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

fn rows_of(x: &[f32], cols: usize) -> Vec<bool> {
    x.chunks(cols).map(|row| row.iter().all(|x| x.is_finite())).collect()
}

/// Rows that are not finite have results that nobody promises, except that they are written.
fn finite_rows(mut out: Output, finite: &[bool], cols: usize) -> Output {
    for (row, &finite) in out.floats.chunks_mut(cols).zip(finite) {
        if !finite {
            assert!(
                row.iter().all(|x| x.to_bits() != <f32 as crate::guarded::Element>::POISON),
                "a row was not written"
            );
            row.fill(0.0);
        }
    }
    out
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

/// [`Rope`], whole and partial, at near and far positions.
pub fn rope(suite: &Suite) {
    let rng = &mut suite.rng("rope");
    for &tokens in suite.some("rows", TOKENS) {
        for width in [2, 48, 64, 80, 128] {
            let style = rng.pick(&[RopeStyle::Halves, RopeStyle::Interleaved]);
            let first = rng.pick(&[0, 0, width / 2, width / 4]);
            let pairs = (width - first) / 2 / rng.pick(&[1, 1, 2, width]);
            let frequencies: Vec<f32> =
                (0..pairs).map(|i| 1e4_f32.powf(-(i as f32) / pairs as f32) * rng.uniform(0.5, 1.0) as f32).collect();
            let heads = rng.between(1, 5);
            let magnitude = rng.pick(&[1.0, 1.2]);
            let x = rng.normals(tokens * heads * width);
            let furthest = rng.pick(&[8, 40_000, 1 << 20]);
            let positions: Vec<u32> = (0..tokens).map(|_| rng.below(furthest) as u32).collect();
            let run = |b: &Backend| {
                let positions = Guarded::of(b, &positions, tokens, 1, Guard::ODD);
                let rotary = Rotary { style, frequencies: buffer(b, &frequencies), magnitude };
                let mut x = Guarded::of(b, &x, tokens, heads * width, Guard::ODD);
                let positions = positions.view();
                b.run(Rope { x: x.view_mut(), head_width: width, first, positions, rotary: &rotary }).expect("rope");
                Output::from(x.read(b))
            };
            // Angles are products of a position and a frequency: they need f64 or care, an f32 is off by 0.002 here.
            let case =
                format!("{tokens} × {heads} × {width}, {pairs} pairs from {first}, {style:?}, positions {positions:?}");
            suite.check("rope", &case, nmse(5e-14, 1.0), &run);
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

/// [`Scale`].
pub fn scale(suite: &Suite) {
    let rng = &mut suite.rng("scale");
    for &tokens in suite.some("rows", TOKENS) {
        for cols in [1, 17, 300] {
            let y = with_wild_rows(rng, tokens, cols);
            let scale = rng.pick(&[1.0, -0.0625, 0.1, 45.254834]);
            let run = |b: &Backend| {
                let mut y = Guarded::of(b, &y, tokens, cols, Guard::ODD);
                b.run(Scale { factor: scale, y: y.view_mut() }).expect("scale");
                let finite = rows_of(&y.read(b), cols);
                finite_rows(Output::from(y.read(b)), &finite, cols)
            };
            suite.check("scale", &format_args!("{tokens} × {cols}, × {scale}"), Tolerance::Exact, &run);
        }
    }
}

/// [`SoftCap`]: values far below the cap, near it and far beyond.
pub fn soft_cap(suite: &Suite) {
    let rng = &mut suite.rng("soft_cap");
    for &tokens in suite.some("rows", TOKENS) {
        for cols in [1, 17, 300] {
            let mut y = with_wild_rows(rng, tokens, cols);
            let cap = rng.pick(&[1.0, 30.0, 50.0]);
            let size = cap * rng.pick(&[0.5, 1.0, 3.0]);
            y.iter_mut().for_each(|y| *y *= size);
            let run = |b: &Backend| {
                let mut y = Guarded::of(b, &y, tokens, cols, Guard::ODD);
                let finite = rows_of(&y.read(b), cols);
                b.run(SoftCap { cap, y: y.view_mut() }).expect("soft_cap");
                finite_rows(Output::from(y.read(b)), &finite, cols)
            };
            let energy = f64::from(cap * cap);
            suite.check("soft_cap", &format_args!("{tokens} × {cols}, {cap}, × {size}"), nmse(SOFT_CAP, energy), &run);
        }
    }
}

/// [`Clamp`]: values on both sides of the range, or of one side of it, infinities and NaN.
pub fn clamp(suite: &Suite) {
    let rng = &mut suite.rng("clamp");
    for &tokens in suite.some("rows", TOKENS) {
        for cols in [1, 17, 300] {
            let y = with_wild_rows(rng, tokens, cols);
            let (low, high) = rng.pick(&[(-0.5, 0.7), (-1.0, f32::INFINITY), (f32::NEG_INFINITY, 0.25), (0.5, 0.5)]);
            let run = |b: &Backend| {
                let mut y = Guarded::of(b, &y, tokens, cols, Guard::ODD);
                b.run(Clamp { low, high, y: y.view_mut() }).expect("clamp");
                // NaN is not equal to itself.
                Output::from(y.read(b).iter().map(|y| if y.is_nan() { 1e9 } else { *y }).collect::<Vec<f32>>())
            };
            suite.check("clamp", &format_args!("{tokens} × {cols}, {low} to {high}"), Tolerance::Exact, &run);
        }
    }
}

/// [`CopyRows`].
pub fn copy_rows(suite: &Suite) {
    let rng = &mut suite.rng("copy_rows");
    for &tokens in suite.some("rows", TOKENS) {
        for (cols, guard) in
            [(1, Guard::ODD), (17, Guard::ODD), (300, Guard::ODD), (64, Guard { left: 4, right: 4, below: 1 })]
        {
            let x = with_wild_rows(rng, tokens, cols);
            let run = |b: &Backend| {
                let x = Guarded::of(b, &x, tokens, cols, guard);
                let mut out = Guarded::poisoned(b, tokens, cols, guard);
                b.run(CopyRows { x: x.view(), out: out.view_mut() }).expect("copy_rows");
                Output::from(out.read(b))
            };
            suite.check("copy_rows", &format_args!("{tokens} × {cols}"), Tolerance::Exact, &run);
        }
    }
}

/// [`GatherColumns`]: a permutation, and columns that are read twice.
pub fn gather_columns(suite: &Suite) {
    let rng = &mut suite.rng("gather_columns");
    for &tokens in suite.some("rows", TOKENS) {
        for (cols, guard) in
            [(1, Guard::ODD), (17, Guard::ODD), (600, Guard::ODD), (64, Guard { left: 4, right: 4, below: 1 })]
        {
            let x = with_wild_rows(rng, tokens, cols);
            let mut order: Vec<u32> = (0..cols as u32).collect();
            for last in (1..cols).rev() {
                order.swap(last, rng.below(last + 1));
            }
            order[cols / 2] = order[0];
            let run = |b: &Backend| {
                let x = Guarded::of(b, &x, tokens, cols, guard);
                let mut out = Guarded::poisoned(b, tokens, cols, guard);
                let order = Guarded::of(b, &order, cols, 1, Guard::ODD);
                b.run(GatherColumns { x: x.view(), order: order.view(), out: out.view_mut() }).expect("gather_columns");
                Output::from(out.read(b))
            };
            suite.check("gather_columns", &format_args!("{tokens} × {cols}"), Tolerance::Exact, &run);
        }
    }
}

/// [`Add`] and [`AddGated`].
pub fn add(suite: &Suite) {
    let rng = &mut suite.rng("add");
    for &tokens in suite.some("rows", TOKENS) {
        for cols in [1, 17, 300] {
            let (x, y) = (rng.normals(tokens * cols), rng.normals(tokens * cols));
            let scale = rng.pick(&[1.0, 0.22, -3.0]);
            let gate: Vec<f32> = rng.normals(tokens).iter().map(|g| g * 9.0).collect();
            let run = |b: &Backend, op: usize| {
                let x = Guarded::of(b, &x, tokens, cols, Guard::ODD);
                let mut y = Guarded::of(b, &y, tokens, cols, Guard { left: 1, right: 0, below: 1 });
                match op {
                    0 => b.run(Add { x: x.view(), scale, y: y.view_mut() }).expect("add"),
                    _ => {
                        let gate = Guarded::of(b, &gate, tokens, 1, Guard::ODD);
                        b.run(AddGated { x: x.view(), gate: gate.view(), y: y.view_mut() }).expect("add_gated");
                    }
                }
                Output::from(y.read(b))
            };
            let case = format!("{tokens} × {cols}");
            suite.check("add", &format_args!("{case}, × {scale}"), nmse(exact(2), 1.0), &|b| run(b, 0));
            suite.check("add_gated", &case, nmse(exact(2), 1.0), &|b| run(b, 1));
        }
    }
}

/// Up to a device and down again: the start and the end of a buffer, and views with gaps.
pub fn copies(suite: &Suite) {
    let rng = &mut suite.rng("copies");
    for (rows, cols) in [(0, 3), (1, 1), (5, 7), (33, 200)] {
        let values = rng.normals(rows * cols);
        let short = rng.normals(rows * cols / 3);
        let run = |b: &Backend| {
            let guarded = Guarded::of(b, &values, rows, cols, Guard::ODD);
            let mut down = vec![0.0; rows * cols];
            b.download(guarded.view(), &mut down).expect("download_f32");
            let words: Vec<u32> = values.iter().map(|v| v.to_bits()).collect();
            let guarded = Guarded::of(b, &words, rows, cols, Guard::ODD);
            let mut words = vec![0; rows * cols];
            b.download(guarded.view(), &mut words).expect("download_u32");
            // Memory between the values keeps its content.
            let mut longer = buffer(b, &values);
            b.upload(&short, &mut longer).expect("upload_f32");
            let end = longer.len() - short.len();
            b.upload_at(&short, &mut longer, end).expect("upload_f32");
            let mut all = vec![0.0; longer.len()];
            b.download(longer.view(1, longer.len()).expect("all of it"), &mut all).expect("download_f32");
            Output { floats: [down, all].concat(), words }
        };
        let case = format!("{rows} × {cols}");
        let got = suite.check("copies", &case, Tolerance::Exact, &run);
        let expected = [&values[..], &short, &values[short.len()..values.len() - short.len()], &short].concat();
        let words = values.iter().map(|v| v.to_bits()).collect();
        suite.same(&case, &Output { floats: expected, words }, &got);
    }
}
