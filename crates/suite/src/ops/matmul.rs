//! Dense matrix products.

use super::common::*;
use crate::guarded::buffer;
use crate::rng::Rng;

use crate::weights::{columns, energy, tensor};
use gristmill_kernels::weight::Role;

/// Y = X · Wᵀ + bias.
struct Product {
    tensors: Vec<TensorView>,
    role: Role,
    precision: Precision,
    x: Vec<f32>,
    tokens: usize,
    bias: Option<Vec<f32>>,
}

impl Product {
    fn new(rng: &mut Rng, tensors: Vec<TensorView>, precision: Precision, tokens: usize) -> Self {
        let outputs = tensors.iter().map(|t| t.rows).sum();
        let x = rng.normals(tokens * tensors[0].cols);
        let bias = rng.chance(0.5).then(|| rng.normals(outputs));
        let role = if tensors.len() == 1 && rng.chance(0.2) { Role::Tied } else { Role::Matrix };
        Self { tensors, role, precision, x, tokens, bias }
    }

    fn cols(&self) -> usize {
        self.tensors[0].cols
    }

    fn outputs(&self) -> usize {
        self.tensors.iter().map(|t| t.rows).sum()
    }

    /// Runs rows `first..first + count` of X.
    fn run(&self, b: &Backend, first: usize, count: usize) -> Output {
        let x = &self.x[first * self.cols()..(first + count) * self.cols()];
        let weight = b.prepare(&self.tensors, self.role).expect("prepare");
        let bias = self.bias.as_ref().map(|bias| buffer(b, bias));
        let mut y = Guarded::poisoned(b, count, self.outputs(), Guard::ODD);
        let act = activations(b, self.precision, x, count, self.cols());
        b.run(Matmul { bias: bias.as_ref(), ..Matmul::new(&weight, &act, y.view_mut()) }).expect("matmul");
        y.read(b).into()
    }

    fn check(&self, suite: &Suite) -> Output {
        let names: Vec<_> = self.tensors.iter().map(|t| t.name.as_str()).collect();
        let Self { tokens, precision, role, .. } = self;
        let case = format!("{names:?} · {tokens} tokens, {precision:?}, {role:?}, bias {}", self.bias.is_some());
        let tolerance = nmse(product_bound(&self.tensors, self.precision, &self.x), energy(&self.tensors, &self.x));
        let kind = kind(["matmul exact", "matmul bf16", "matmul int8"], &self.tensors, self.precision);
        let whole = suite.check(kind, &case, tolerance, &|b| self.run(b, 0, self.tokens));
        // A row depends on only itself.
        if let Some(row) = self.tokens.checked_sub(1).map(|last| last / 2) {
            let alone = self.run(suite.backend(), row, 1);
            let of_whole = whole.floats[row * self.outputs()..(row + 1) * self.outputs()].to_vec();
            as_alone(
                suite,
                by_rows(&self.tensors, self.precision),
                kind,
                &format_args!("{case}, row {row} alone"),
                tolerance,
                &of_whole.into(),
                &alone,
            );
        }
        whole
    }
}

/// Every format with every number of tokens and of outputs, at both precisions.
pub fn shapes(suite: &Suite) {
    let rng = &mut suite.rng("matmul");
    for &format in suite.some("matmul", suite.formats()) {
        let long = |rng: &mut Rng| {
            let blocks = if format.block_len() == 256 { rng.between(1, 3) } else { rng.between(1, 9) };
            columns(rng, format, blocks)
        };
        for &precision in suite.precisions() {
            let mut product = |tokens, outputs, cols| {
                let tensor = tensor(rng, format, 1, outputs, cols);
                Product::new(rng, vec![tensor], precision, tokens).check(suite);
            };
            let mut sizes = suite.rng(&format!("sizes {format} {precision:?}"));
            if format == Format::F32 {
                // A router's product: enough rows for kernels that few do not pay for, and rows that are longer than a
                // block of few rows takes at once.
                product(300, 45, 4 * sizes.between(1, 70));
                // As many outputs as a router of many experts.
                product(sizes.between(257, 310), sizes.between(64, 140), 4 * sizes.between(1, 40));
                product(sizes.between(5, 20), 9, 1024 + 4 * sizes.between(1, 70));
            }
            for &tokens in TOKENS {
                product(tokens, sizes.between(1, 40), long(&mut sizes));
            }
            for &outputs in OUTPUTS {
                product(sizes.between(1, 9), outputs, long(&mut sizes));
            }
            product(sizes.between(1, 40), sizes.between(1, 100), format.block_len());
        }
    }
    // Long rows, and more work than threads.
    let long = [Format::Q4_K, Format::F16].into_iter().filter(|format| suite.formats().contains(format));
    for format in suite.some("long rows", long) {
        let tensor = tensor(rng, format, 1, 140, 2048);
        Product::new(rng, vec![tensor], Precision::Fast, 70).check(suite);
    }
}

/// Tensors under one input, of different formats and of one.
pub fn joined(suite: &Suite) {
    let rng = &mut suite.rng("joined");
    for round in suite.some("joined", 0..24) {
        let parts = rng.between(2, 5);
        let mut format = rng.pick(suite.formats());
        let tensors = (0..parts).map(|_| {
            if rng.chance(0.4) {
                format = rng.pick(suite.formats());
            }
            let rows = rng.between(1, 40);
            tensor(rng, format, 1, rows, 512)
        });
        let tensors = tensors.collect();
        let tokens = rng.between(1, 20);
        Product::new(rng, tensors, PRECISIONS[round % 2], tokens).check(suite);
    }
}

/// Only some rows of X.
pub fn rows(suite: &Suite) {
    let rng = &mut suite.rng("matmul_rows");
    let some: Vec<&Format> = SOME_FORMATS.iter().filter(|format| suite.formats().contains(format)).collect();
    // A suite that is limited to other formats takes those.
    let formats = if some.is_empty() { suite.formats().iter().collect() } else { some };
    let cases = [0, 1, 2, 7, 19, 5].iter().zip(formats.into_iter().cycle());
    for (&chosen, &format) in suite.some("matmul_rows", cases) {
        for &precision in suite.precisions() {
            let tensors = vec![tensor(rng, format, 1, 77, 256)];
            let product = Product { bias: None, ..Product::new(rng, tensors, precision, 13) };
            // In any order, some twice.
            let ids: Vec<u32> = (0..chosen).map(|_| rng.below(13) as u32).collect();
            let run = |b: &Backend| {
                let weight = b.prepare(&product.tensors, product.role).expect("prepare");
                let ids = Guarded::of(b, &ids, chosen, 1, Guard::ODD);
                let mut y = Guarded::poisoned(b, chosen, 77, Guard::ODD);
                let act = activations(b, precision, &product.x, 13, 256);
                b.run(Matmul { rows: Some(ids.view()), ..Matmul::new(&weight, &act, y.view_mut()) })
                    .expect("matmul_rows");
                Output::from(y.read(b))
            };
            let tolerance =
                nmse(product_bound(&product.tensors, precision, &product.x), energy(&product.tensors, &product.x));
            let case = format!("{format} rows {ids:?} {precision:?}");
            let got = suite.check("matmul_rows", &case, tolerance, &run);
            let whole = product.run(suite.backend(), 0, 13).floats;
            let picked: Vec<f32> = ids.iter().flat_map(|&id| whole[id as usize * 77..][..77].to_vec()).collect();
            as_alone(
                suite,
                by_rows(&product.tensors, precision),
                "matmul_rows",
                &format_args!("{case} as in matmul"),
                tolerance,
                &picked.into(),
                &got,
            );
        }
    }
}

/// Rows of NaN, of infinities, of zeros, of 1e6 and of denormals: each shows in its own outputs and no others. Among
/// few rows, and among enough for kernels that few do not pay for.
pub fn extremes(suite: &Suite) {
    let rng = &mut suite.rng("extremes");
    let cases = suite.formats().iter().flat_map(|&format| [(format, 6), (format, 19)]);
    for (format, tokens) in suite.some("extremes", cases) {
        for &precision in suite.precisions() {
            let tensors = vec![tensor(rng, format, 1, 35, 256)];
            let clean = Product { bias: None, ..Product::new(rng, tensors, precision, tokens) };
            let mut wild = Product { x: clean.x.clone(), tensors: clean.tensors.clone(), bias: None, ..clean };
            let poison = 256 + rng.below(256);
            wild.x[poison] = f32::NAN;
            wild.x[poison + 256] = rng.pick(&[f32::INFINITY, f32::NEG_INFINITY]);
            wild.x[768..1024].iter_mut().for_each(|x| *x *= 1e6);
            wild.x[1024..1280].fill(0.0);
            wild.x[1280..1536].iter_mut().for_each(|x| *x *= 1e-42);
            let run = |product: &Product| product.run(suite.backend(), 0, tokens).floats;
            let (before, after) = (run(&clean), run(&wild));
            let row = |y: &[f32], row: usize| y[row * 35..(row + 1) * 35].to_vec();
            let case = format!("{format}, {precision:?}, {tokens} rows");
            for beside in (0..tokens).filter(|row| !(1..6).contains(row)) {
                let (before, after) = (row(&before, beside).into(), row(&after, beside).into());
                suite.same(&format_args!("{case}, row {beside} beside NaN"), &before, &after);
            }
            for bad in [1, 2] {
                if row(&after, bad).iter().any(|y| y.is_finite()) {
                    suite.fail(&case, format_args!("row {bad} is not finite, its outputs are {:?}", row(&after, bad)));
                }
            }
            let reference = wild.run(&gristmill_kernels::reference::Reference::backend(), 0, tokens).floats;
            let huge = &wild.x[768..1024];
            let large = nmse(product_bound(&wild.tensors, precision, huge), energy(&wild.tensors, huge));
            let kind = kind(["matmul 1e6 exact", "matmul 1e6 bf16", "matmul 1e6 int8"], &wild.tensors, precision);
            let (expected, got) = (row(&reference, 3).into(), row(&after, 3).into());
            suite.compare(kind, &format_args!("{case}, 1e6"), large, &expected, &got);
            // Zero of either sign; and denormals may be flushed.
            for quiet in [4, 5] {
                if row(&after, quiet).iter().any(|y| y.abs() > 1e-40) {
                    suite.fail(&case, format_args!("row {quiet} must be about 0: {:?}", row(&after, quiet)));
                }
            }
        }
    }
}
