//! Operations that work row by row: look-ups, rotations and additions.

use super::common::*;
use super::refuse::{Kind, ones, refused, vector};
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
pub(super) fn with_wild_rows(rng: &mut Rng, rows: usize, cols: usize) -> Vec<f32> {
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

pub(super) fn rows_of(x: &[f32], cols: usize) -> Vec<bool> {
    x.chunks(cols).map(|row| row.iter().all(|x| x.is_finite())).collect()
}

/// Rows that are not finite have results that nobody promises, except that they are written.
pub(super) fn finite_rows(mut out: Output, finite: &[bool], cols: usize) -> Output {
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

/// Bad arguments of rotations and sums.
pub fn refuse(suite: &Suite) {
    refuse_rope(suite);
    refuse_sums(suite);
}

fn refuse_rope(suite: &Suite) {
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

fn refuse_sums(suite: &Suite) {
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
