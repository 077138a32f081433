//! A norm, and products of its output.

use super::super::common::*;
use crate::guarded::buffer;
use crate::rng::Rng;
use crate::suite::Output;
use crate::weights::{decoded, energy, tensor};
use gristmill_kernels::weight::Role;

/// Which output of a norm and what follows is compared.
#[derive(Clone, Copy)]
enum Compared {
    Normed,
    /// The product of a matrix with these activations.
    Product(usize),
    /// The composition's own product.
    Fused,
}

/// Rows of which the first is large: its neighbours must be as if alone.
fn uneven(rng: &mut Rng, rows: usize, cols: usize) -> Vec<f32> {
    let mut x = rng.normals(rows * cols);
    x.iter_mut().take(cols).for_each(|x| *x *= 1e3);
    x
}

/// [`AddNorm`], against what its contract says too.
pub fn add_norm(suite: &Suite) {
    let rng = &mut suite.rng("add_norm");
    let sizes = TOKENS.iter().flat_map(|&tokens| [1, 17, 64, 203, 640].map(|cols| (tokens, cols)));
    for (tokens, cols) in suite.some("add_norm", sizes.chain([(3, 2048), (2, 9216)])) {
        let x = uneven(rng, tokens, cols);
        let y = uneven(rng, tokens, cols);
        let weight = rng.normals(cols);
        let eps = rng.pick(&[1e-1, 1e-6]);
        let scale = rng.pick(&[1.0, 0.22, -3.0]);
        let factor = rng.pick(&[1.0, 0.25]);
        let guard = rng.pick(&[Guard::ODD, Guard { left: 4, right: 0, below: 1 }]);
        let run = |b: &Backend| {
            let x = Guarded::of(b, &x, tokens, cols, Guard::ODD);
            let mut y = Guarded::of(b, &y, tokens, cols, guard);
            let mut normed = Guarded::poisoned(b, tokens, cols, Guard::ODD);
            let norm = RmsNorm { x: x.view(), weight: &buffer(b, &weight), eps, out: normed.view_mut() };
            b.run(AddNorm { norm, scale, factor, y: y.view_mut() }).expect("add_norm");
            Output::from(y.read(b))
        };
        let case = format!("{tokens} × {cols}, × {scale}, × {factor}, epsilon {eps}");
        // The norm is rounded, and so are its product, the sum and the sum's product.
        let tolerance = nmse(2.0 * exact(cols), f64::from(factor).powi(2));
        let got = suite.check("add_norm", &case, tolerance, &run);
        let rows = x.chunks(cols).zip(y.chunks(cols)).flat_map(|(x, y)| {
            let squares: f64 = x.iter().map(|&x| f64::from(x).powi(2)).sum();
            let norm = f64::from(scale) / (squares / cols as f64 + f64::from(eps)).sqrt();
            let terms = x.iter().zip(&weight).map(move |(&x, &weight)| f64::from(x) * norm * f64::from(weight));
            terms.zip(y).map(|(term, &y)| (f64::from(factor) * (f64::from(y) + term)) as f32)
        });
        suite.compare("add_norm", &case, tolerance, &rows.collect::<Vec<_>>().into(), &got);
    }
}

/// A matrix that multiplies activations of this number of columns.
fn reader(rng: &mut Rng, cols: usize) -> [TensorView; 1] {
    let format = if cols.is_multiple_of(32) { Format::Q8_0 } else { Format::F32 };
    [tensor(rng, format, 1, 5, cols)]
}

/// The product of a matrix with activations of this number of tokens that `fill` fills. `named`: they are told of that
/// reader.
fn product(
    b: &Backend,
    matrix: &[TensorView],
    (precision, named, tokens): (Precision, bool, usize),
    fill: impl FnOnce(&mut Act),
) -> Output {
    let cols = matrix[0].cols;
    let matrix = b.prepare(matrix, Role::Matrix).expect("prepare");
    let mut act = b.alloc_act(precision, tokens + 1, cols).expect("alloc_act");
    if named {
        b.name_readers(&mut act, &[ActReader::dense(&matrix, tokens)]);
    }
    fill(&mut act);
    let mut y = Guarded::poisoned(b, tokens, 5, Guard::ODD);
    b.run(Matmul::new(&matrix, &act, y.view_mut())).expect("matmul");
    y.read(b).into()
}

/// The product of a matrix with rows, in f64.
fn expected(matrix: &[TensorView], rows: &[f32]) -> Output {
    let weights = decoded(&matrix[0]);
    let cols = matrix[0].cols;
    let dot =
        |row: &[f32], w: &[f32]| row.iter().zip(w).map(|(&x, &w)| f64::from(x) * f64::from(w)).sum::<f64>() as f32;
    rows.chunks(cols).flat_map(|row| weights.chunks(cols).map(move |w| dot(row, w))).collect::<Vec<_>>().into()
}

/// [`AddNormAct`]: the sum is that of [`AddNorm`], and a product of it or of its norm.
pub fn add_norm_act(suite: &Suite) {
    let rng = &mut suite.rng("add_norm_act");
    let sizes = TOKENS.iter().flat_map(|&tokens| [17, 64, 203, 640].map(|cols| (tokens, cols)));
    for (i, (tokens, cols)) in suite.some("add_norm_act", sizes.chain([(3, 2048), (2, 9216)]).enumerate()) {
        let precision = [Precision::Fast, Precision::Exact][i % 2];
        let named = rng.chance(0.5);
        // A product of sums as they are: no row may have all of its energy.
        let x = uneven(rng, tokens, cols);
        let y = rng.normals(tokens * cols);
        let [weight, of_sum] = [(); 2].map(|()| rng.normals(cols));
        let next = rng.pick(&[None, Some(1e-2), Some(1e-6)]);
        let (scale, factor) = (rng.pick(&[1.0, 0.22]), rng.pick(&[1.0, 0.25]));
        let matrix = reader(rng, cols);
        // The sum, and the product of the activations.
        let both = |b: &Backend| {
            let (x, mut y) =
                (Guarded::of(b, &x, tokens, cols, Guard::ODD), Guarded::of(b, &y, tokens, cols, Guard::ODD));
            let mut out = Guarded::poisoned(b, tokens, cols, Guard::ODD);
            let (weight, of_sum) = (buffer(b, &weight), buffer(b, &of_sum));
            let product = product(b, &matrix, (precision, named, tokens), |act| {
                let norm = RmsNorm { x: x.view(), weight: &weight, eps: 1e-6, out: out.view_mut() };
                let sum = AddNorm { norm, scale, factor, y: y.view_mut() };
                let next = next.map(|eps| (&of_sum, eps));
                b.run(AddNormAct { sum, next, act }).expect("add_norm_act");
            });
            (Output::from(y.read(b)), product)
        };
        let case = format!("{tokens} × {cols}, norm {next:?}, {precision:?}, readers named: {named}");
        let tolerance = nmse(2.0 * exact(cols), f64::from(factor).powi(2));
        let got = suite.check("add_norm_act: sum", &case, tolerance, &|b| both(b).0);
        let mut read = got.floats.clone();
        if let Some(eps) = next {
            for row in read.chunks_mut(cols.max(1)) {
                let squares: f64 = row.iter().map(|&x| f64::from(x).powi(2)).sum();
                let by = 1.0 / (squares / cols as f64 + f64::from(eps)).sqrt();
                row.iter_mut().zip(&of_sum).for_each(|(x, w)| *x = (f64::from(*x) * by * f64::from(*w)) as f32);
            }
        }
        let bound = product_bound(&matrix, precision, &read) + 4.0 * exact(cols);
        let kind = kind(["add_norm_act exact", "add_norm_act bf16", "add_norm_act int8"], &matrix, precision);
        let tolerance = nmse(bound, energy(&matrix, &read));
        let got = suite.check(kind, &case, tolerance, &|b| both(b).1);
        suite.compare(kind, &case, tolerance, &expected(&matrix, &read), &got);
    }
}

/// [`MultiplyAct`]: a product of the activations.
pub fn multiply_act(suite: &Suite) {
    let rng = &mut suite.rng("multiply_act");
    use GateKind::{Gelu, Linear, Normal, NormalTanh, Sigmoid, Silu, Softplus};
    let kinds = [Linear, Sigmoid, Gelu, Softplus, Normal, NormalTanh, Silu];
    for (i, &tokens) in suite.some("multiply_act", TOKENS.iter().cycle().take(4 * TOKENS.len()).enumerate()) {
        for (cols, span) in [(17, 1), (64, 1), (203, 203), (320, 5), (320, 1), (640, 640)] {
            let kind_of_gate = rng.pick(&kinds);
            let named = rng.chance(0.5);
            let precision = [Precision::Fast, Precision::Exact][i % 2];
            let gates = cols / span;
            let (x, gate) = (rng.normals(tokens * cols), rng.normals(tokens * gates));
            let matrix = reader(rng, cols);
            let run = |b: &Backend| {
                let guard = Guard { left: 4, right: 0, below: 1 };
                let (x, gate) =
                    (Guarded::of(b, &x, tokens, cols, guard), Guarded::of(b, &gate, tokens, gates, Guard::ODD));
                product(b, &matrix, (precision, named, tokens), |act| {
                    let mut out = Guarded::poisoned(b, tokens, cols, Guard::ODD);
                    let (x, gate) = (x.view(), gate.view());
                    let multiply = Multiply { x, gate, kind: kind_of_gate, out: out.view_mut() };
                    b.run(MultiplyAct { multiply, act }).expect("multiply_act");
                })
            };
            let normal_tanh =
                |x: f64| 0.5 * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3))).tanh());
            let of_gate = |x: f64| match kind_of_gate {
                Linear => x,
                Sigmoid => 1.0 / (1.0 + (-x).exp()),
                Gelu => x * normal_tanh(x),
                Softplus => x.exp().ln_1p(),
                Normal => normal(x),
                NormalTanh => normal_tanh(x),
                Silu => x / (1.0 + (-x).exp()),
            };
            let read: Vec<f32> = x
                .iter()
                .enumerate()
                .map(|(at, &x)| (f64::from(x) * of_gate(f64::from(gate[at / cols * gates + at % cols / span]))) as f32)
                .collect();
            let case = format!("{tokens} × {cols}, {gates} gates, {kind_of_gate:?}, {precision:?}, named: {named}");
            let bound = product_bound(&matrix, precision, &read) + 4.0 * exact(cols) + ROUTE;
            let kind = kind(["multiply_act exact", "multiply_act bf16", "multiply_act int8"], &matrix, precision);
            // A gate of a whole row makes it large or small.
            let tolerance = nmse_of_rows(bound, energy(&matrix, &read), &read, cols);
            let got = suite.check(kind, &case, tolerance, &run);
            suite.compare(kind, &case, tolerance, &expected(&matrix, &read), &got);
        }
    }
}

/// [`AddNorms`], against what its contract says too.
pub fn add_norms(suite: &Suite) {
    let rng = &mut suite.rng("add_norms");
    let sizes = TOKENS.iter().flat_map(|&tokens| [1, 17, 64, 203, 640].map(|cols| (tokens, cols)));
    for (tokens, cols) in suite.some("add_norms", sizes.chain([(3, 2048), (2, 9216)])) {
        let [first, second, y] = [(); 3].map(|()| uneven(rng, tokens, cols));
        let weights = [(); 3].map(|()| rng.normals(cols));
        let eps = [(); 3].map(|()| rng.pick(&[1e-1, 1e-3, 1e-6]));
        let scale = rng.pick(&[1.0, 0.22, -3.0]);
        let factor = rng.pick(&[1.0, 0.25]);
        let [even, guard] = [(); 2].map(|()| rng.pick(&[Guard::ODD, Guard { left: 4, right: 0, below: 1 }]));
        let run = |b: &Backend| {
            let (first, second) =
                (Guarded::of(b, &first, tokens, cols, even), Guarded::of(b, &second, tokens, cols, even));
            let mut y = Guarded::of(b, &y, tokens, cols, guard);
            let [mut sum, mut normed] = [(); 2].map(|()| Guarded::poisoned(b, tokens, cols, Guard::ODD));
            let [of_first, of_second, weight] = [0, 1, 2].map(|i| buffer(b, &weights[i]));
            let norms = [
                RmsNorm { x: first.view(), weight: &of_first, eps: eps[0], out: sum.view_mut() },
                RmsNorm { x: second.view(), weight: &of_second, eps: eps[1], out: normed.view_mut() },
            ];
            b.run(AddNorms { norms, weight: &weight, eps: eps[2], scale, factor, y: y.view_mut() }).expect("add_norms");
            Output::from(y.read(b))
        };
        let case = format!("{tokens} × {cols}, × {scale}, × {factor}, epsilons {eps:?}");
        let wide = |x: &[f32]| -> Vec<f64> { x.iter().map(|&x| f64::from(x)).collect() };
        let norm = |x: &[f64], which: usize| -> Vec<f64> {
            let squares: f64 = x.iter().map(|&x| x.powi(2)).sum();
            let by = 1.0 / (squares / cols as f64 + f64::from(eps[which])).sqrt();
            x.iter().zip(&weights[which]).map(|(&x, &weight)| x * by * f64::from(weight)).collect()
        };
        let (scale, factor) = (f64::from(scale), f64::from(factor));
        // The results, and the squares of what the errors of the first two norms become in them.
        let (mut rows, mut errors) = (Vec::new(), Vec::new());
        for ((x, z), y) in first.chunks(cols).zip(second.chunks(cols)).zip(y.chunks(cols)) {
            let [x, z] = [norm(&wide(x), 0), norm(&wide(z), 1)];
            let sum: Vec<f64> = x.iter().zip(&z).map(|(x, z)| x + z).collect();
            let terms = norm(&sum, 2);
            rows.extend(terms.iter().zip(y).map(|(term, &y)| (factor * (f64::from(y) + scale * term)) as f32));
            let of_norm = errors_of_norm(&x, &z, eps[2].into());
            errors.extend(of_norm.zip(&weights[2]).map(|(error, &w)| error * (factor * scale * f64::from(w)).powi(2)));
        }
        // The norm of the sum, the product, the sum and the sum's product are rounded too.
        let magnified = relative_to(&errors, &rows, factor.powi(2));
        let tolerance = nmse((2.0 + magnified) * exact(cols), factor.powi(2));
        let got = suite.check("add_norms", &case, tolerance, &run);
        suite.compare("add_norms", &case, tolerance, &rows.into(), &got);
    }
}

/// Squares of the errors of a norm of a + b before its weight, if each element of a and b has an error as large as
/// itself. With r² the sum's mean square and ε, element j of the norm changes with element k of the sum s by δⱼₖ / r −
/// sⱼ sₖ / (n r³): where a and b cancel, the norm magnifies their errors. Only single columns cancel as a whole.
fn errors_of_norm(a: &[f64], b: &[f64], eps: f64) -> impl Iterator<Item = f64> {
    let n = a.len() as f64;
    let squares: Vec<[f64; 2]> = a.iter().zip(b).map(|(a, b)| [(a + b).powi(2), a.powi(2) + b.powi(2)]).collect();
    let r2 = squares.iter().map(|[sum, _]| sum).sum::<f64>() / n + eps;
    let shared = squares.iter().map(|[sum, error]| sum * error).sum::<f64>() / (n * n * r2.powi(3));
    squares.into_iter().map(move |[sum, error]| error / r2 * (1.0 - 2.0 * sum / (n * r2)) + sum * shared)
}

/// Squares of errors as a bound of outputs that has allowances for few unlucky ones ([`NORMAL`]): if a few have most of
/// the sum, they are those.
fn relative_to(errors: &[f64], outputs: &[f32], energy: f64) -> f64 {
    let count = outputs.len().max(1) as f64;
    let power = outputs.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>().max(energy * count);
    let largest = errors.iter().copied().fold(0.0, f64::max);
    (errors.iter().sum::<f64>() + NORMAL * largest) / power / (1.0 + NORMAL / count)
}

/// [`NormAct`]: the norm, and products with each of the activations.
pub fn norm_act(suite: &Suite) {
    use Precision::{Exact, Fast};
    let rng = &mut suite.rng("norm_act");
    let sorts: [&[Precision]; 5] = [&[], &[Fast], &[Exact], &[Exact, Fast], &[Fast, Fast]];
    let sizes = TOKENS.iter().flat_map(|&tokens| [17, 64, 203, 640].map(|cols| (tokens, cols)));
    for (i, (tokens, cols)) in suite.some("norm_act", sizes.chain([(3, 2048), (2, 9216)]).enumerate()) {
        let precisions = sorts[i % sorts.len()];
        let x = uneven(rng, tokens, cols);
        let weight = rng.normals(cols);
        let eps = rng.pick(&[1e-5, 1e-6]);
        let format = if cols.is_multiple_of(32) { Format::Q8_0 } else { Format::F32 };
        let tensors = [tensor(rng, format, 1, 5, cols)];
        let named = rng.chance(0.5);
        let run = |b: &Backend, part: Compared| {
            let x = Guarded::of(b, &x, tokens, cols, Guard::ODD);
            let matrix = b.prepare(&tensors, Role::Matrix).expect("prepare");
            let mut normed = Guarded::poisoned(b, tokens, cols, Guard { left: 4, right: 0, below: 1 });
            let mut acts: Vec<Act> =
                precisions.iter().map(|&p| b.alloc_act(p, tokens + 1, cols).expect("alloc_act")).collect();
            // With all readers named, the norm itself is undefined.
            if named && matches!(part, Compared::Product(_)) {
                acts.iter_mut().for_each(|act| b.name_readers(act, &[ActReader::dense(&matrix, tokens)]));
            }
            let mut filled = acts.iter_mut();
            let norm = RmsNorm { x: x.view(), weight: &buffer(b, &weight), eps, out: normed.view_mut() };
            b.run(NormAct { norm, acts: [filled.next(), filled.next()] }).expect("norm_act");
            let Compared::Product(which) = part else { return normed.read(b).into() };
            let mut y = Guarded::poisoned(b, tokens, 5, Guard::ODD);
            b.run(Matmul::new(&matrix, &acts[which], y.view_mut())).expect("matmul");
            Output::from(y.read(b))
        };
        let case = format!("{tokens} × {cols}, activations {precisions:?}, readers named: {named}");
        let got = suite.check("norm_act", &case, nmse(exact(cols), 0.1), &|b| run(b, Compared::Normed));
        let normed = &got.floats[..];
        for (which, &precision) in precisions.iter().enumerate() {
            let case = format!("{case}, number {which} times {}", tensors[0].name);
            let bound = product_bound(&tensors, precision, normed) + 2.0 * exact(cols);
            let kind = kind(["norm_act exact", "norm_act bf16", "norm_act int8"], &tensors, precision);
            suite.check(kind, &case, nmse(bound, energy(&tensors, normed)), &|b| run(b, Compared::Product(which)));
        }
    }
}

/// [`NormMatmul`]: its product, the norm, and products with each of the activations, which others may read.
pub fn norm_matmul(suite: &Suite) {
    use Precision::{Exact, Fast};
    let rng = &mut suite.rng("norm_matmul");
    let sorts: [&[Precision]; 4] = [&[Fast], &[Exact, Fast], &[Exact], &[Fast, Exact]];
    for round in suite.some("norm_matmul", 0..40) {
        let precisions = sorts[round % sorts.len()];
        let tokens = rng.pick(&[0, 1, 1, 1, 2, 8, 9, 33]);
        let first = rng.pick(suite.formats());
        let other = |rng: &mut Rng| if rng.chance(0.5) { first } else { rng.pick(suite.formats()) };
        let formats: Vec<Format> = (0..rng.between(1, 2)).map(|i| if i == 0 { first } else { other(rng) }).collect();
        let cols = if formats.iter().any(|format| format.block_len() > 1) { 256 * rng.between(1, 3) } else { 203 };
        let mut part = |&format: &Format| {
            // Large weights for few tokens, which some kernels take by themselves.
            let rows = rng.pick(if tokens <= 2 { &[1, 15, 40, 1100] } else { &[1, 15, 40, 130] });
            tensor(rng, format, 1, rows, cols)
        };
        let tensors: Vec<_> = formats.iter().map(&mut part).collect();
        let rows: usize = tensors.iter().map(|tensor| tensor.rows).sum();
        let x = uneven(rng, tokens, cols);
        let weight = rng.normals(cols);
        let bias = rng.chance(0.5).then(|| rng.normals(rows));
        let named = rng.chance(0.5);
        let run = |b: &Backend, part: Compared| {
            let x = Guarded::of(b, &x, tokens, cols, Guard::ODD);
            let mut normed = Guarded::poisoned(b, tokens, cols, Guard::ODD);
            let mut acts: Vec<Act> =
                precisions.iter().map(|&p| b.alloc_act(p, tokens + 1, cols).expect("alloc_act")).collect();
            let matrix = b.prepare(&tensors, Role::Matrix).expect("prepare");
            if named && !matches!(part, Compared::Normed) {
                acts.iter_mut().for_each(|act| b.name_readers(act, &[ActReader::dense(&matrix, tokens)]));
            }
            let (act, others) = acts.split_first_mut().expect("one at least");
            let bias = bias.as_ref().map(|bias| buffer(b, bias));
            let mut y = Guarded::poisoned(b, tokens, rows, Guard::ODD);
            let norm = RmsNorm { x: x.view(), weight: &buffer(b, &weight), eps: 1e-5, out: normed.view_mut() };
            let bias = bias.as_ref();
            let weight = &matrix;
            b.run(NormMatmul { norm, act, other: others.first_mut(), weight, bias, y: y.view_mut() })
                .expect("norm_matmul");
            match part {
                Compared::Normed => normed.read(b).into(),
                Compared::Fused => y.read(b).into(),
                Compared::Product(which) => {
                    let mut y = Guarded::poisoned(b, tokens, rows, Guard::ODD);
                    b.run(Matmul { bias, ..Matmul::new(&matrix, &acts[which], y.view_mut()) }).expect("matmul");
                    y.read(b).into()
                }
            }
        };
        let name = &tensors[0].name;
        let parts = tensors.len();
        let case = format!("{tokens} tokens, {name}, {parts} parts, {precisions:?}, readers named: {named}");
        let got = suite.check("norm_matmul: norm", &case, nmse(exact(cols), 0.1), &|b| run(b, Compared::Normed));
        let normed = &got.floats[..];
        let fused = [(precisions[0], Compared::Fused)].into_iter();
        let products = precisions.iter().enumerate().map(|(which, &precision)| (precision, Compared::Product(which)));
        for (precision, part) in fused.chain(products) {
            let bound = product_bound(&tensors, precision, normed) + 2.0 * exact(cols);
            let kind = kind(["norm_matmul exact", "norm_matmul bf16", "norm_matmul int8"], &tensors, precision);
            suite.check(kind, &case, nmse(bound, energy(&tensors, normed)), &|b| run(b, part));
        }
    }
}

/// The integral of the standard normal density up to x, by Simpson's rule from −9 on.
fn normal(x: f64) -> f64 {
    let steps = 2000;
    let end = x.clamp(-9.0, 9.0);
    let width = (end + 9.0) / f64::from(steps);
    let density = |at: i32| {
        let weight = if at == 0 || at == steps { 1.0 } else { f64::from(2 + 2 * (at % 2)) };
        weight * (-0.5 * (width * f64::from(at) - 9.0).powi(2)).exp()
    };
    (0..=steps).map(density).sum::<f64>() * width / 3.0 / (2.0 * std::f64::consts::PI).sqrt()
}
