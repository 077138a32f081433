//! The selective scan.

use super::common::*;
use super::recurrent::{Left, Words, check_runs, random_runs, rows_in_runs, runs_on};
use super::refuse::{Kind, ones, refused, runs_of, vector};
use crate::guarded::buffer;
use crate::rng::Rng;
use std::collections::BTreeSet;

/// Heads around those of published models: several groups, numbers of heads that are no power of two, heads that share a
/// tile of values, and channels of Mamba-1.
const HEADS: [(usize, usize, usize, usize); 8] = [
    (2, 32, 1, 16),
    (6, 16, 3, 16),
    (8, 4, 1, 32),
    (6, 64, 3, 64),
    (3, 64, 1, 128),
    (4, 32, 2, 128),
    (2, 128, 2, 256),
    (96, 1, 1, 16),
];

/// The arguments of a scan, without its runs.
#[derive(Clone)]
struct Inputs {
    xbc: Vec<f32>,
    dt: Vec<f32>,
    a: Vec<f32>,
    d: Vec<f32>,
    dt_bias: Vec<f32>,
    state: Vec<f32>,
}

impl Inputs {
    fn random(rng: &mut Rng, tokens: usize, slots: usize, heads: ScanHeads, by_element: bool) -> Self {
        let mut xbc = rng.normals(tokens * heads.columns());
        let mut dt = rng.normals(tokens * heads.heads);
        // Some tokens are kept whole, some replace all of the state, and some add nothing.
        dt.iter_mut().filter(|_| rng.chance(0.05)).for_each(|dt| *dt *= 60.0);
        xbc.chunks_mut(heads.columns()).filter(|_| rng.chance(0.1)).for_each(|row| row.fill(0.0));
        let decays = heads.heads * if by_element { heads.state } else { 1 };
        Self {
            xbc,
            dt,
            a: (0..decays).map(|_| -rng.uniform(0.01, 16.0) as f32).collect(),
            d: rng.normals(heads.heads),
            dt_bias: (0..heads.heads).map(|_| rng.uniform(-8.0, 1.0) as f32).collect(),
            state: rng.normals(slots * heads.elements()),
        }
    }

    /// The mean square of outputs, if the products of B, C and states do not cancel. Values of a head share B and C, so that
    /// all outputs of a token can be near zero by cancellation.
    fn energy(&self, heads: ScanHeads, runs: &[Words]) -> f64 {
        let values = heads.values();
        let n = heads.state;
        let columns = heads.columns();
        let decays = self.a.len() / heads.heads;
        let mut sum = 0.0;
        for &[first, rows, read, _] in runs.iter().filter(|[_, rows, ..]| *rows > 0) {
            for value in 0..values {
                let head = value / heads.width;
                let group = heads.group_of(value);
                let at = |m| f64::from(self.state[read as usize * heads.elements() + heads.state_at(value, m)]);
                let mut s: Vec<f64> = (0..n).map(|m| if read == PADDING { 0.0 } else { at(m) }).collect();
                for t in first as usize..(first + rows) as usize {
                    let row = &self.xbc[t * columns..][..columns];
                    let x = f64::from(row[value]);
                    let delta = f64::from(self.dt[t * heads.heads + head] + self.dt_bias[head]).exp().ln_1p();
                    for (m, s) in s.iter_mut().enumerate() {
                        let [b, c] = [0, heads.groups].map(|of| f64::from(row[values + (of + group) * n + m]));
                        *s = (delta * f64::from(self.a[head * decays + m % decays])).exp() * *s + delta * x * b;
                        sum += (c * *s).powi(2);
                    }
                    sum += (f64::from(self.d[head]) * x).powi(2);
                }
            }
        }
        sum / (self.dt.len() / heads.heads * values).max(1) as f64
    }

    fn run(&self, b: &Backend, heads: ScanHeads, slots: usize, calls: &[&[Words]], left: Left) -> Output {
        let tokens = self.dt.len() / heads.heads;
        let xbc = Guarded::of(b, &self.xbc, tokens, heads.columns(), Guard::ODD);
        let dt = Guarded::of(b, &self.dt, tokens, heads.heads, Guard::ODD);
        let mut state = Guarded::of(b, &self.state, slots, heads.elements(), Guard::ODD);
        let mut out = Guarded::poisoned(b, tokens, heads.values(), Guard { left: 1, right: 3, below: 1 });
        for runs in calls {
            b.run(SelectiveScan {
                xbc: xbc.view(),
                dt: dt.view(),
                a: &buffer(b, &self.a),
                d: &buffer(b, &self.d),
                dt_bias: &buffer(b, &self.dt_bias),
                heads,
                state: state.view_mut(),
                runs: &runs_on(b, runs),
                out: out.view_mut(),
            })
            .expect("selective_scan");
        }
        match left {
            Left::Outputs => rows_in_runs(out.read(b), heads.values(), &calls.concat()).into(),
            Left::State => state.read(b).into(),
        }
    }
}

/// [`SelectiveScan`].
pub fn selective_scan(suite: &Suite) {
    let rng = &mut suite.rng("selective_scan");
    for &tokens in suite.some("rows", TOKENS) {
        for (heads, width, groups, state) in suite.some("heads", HEADS) {
            let heads = ScanHeads { heads, width, groups, state };
            let by_element = state == SCAN_STATES[0] && (width == 1 || rng.chance(0.3));
            let (runs, slots) = random_runs(rng, tokens);
            let inputs = Inputs::random(rng, tokens, slots, heads, by_element);
            let case = format!("{tokens} tokens, {heads:?}, by element {by_element}, runs {runs:?}");
            // Each token rounds the state anew, and what earlier tokens rounded stays in it.
            let bound = (tokens + 1) as f64 * (exact(state) + ROUTE);
            let tolerances = [nmse(bound, inputs.energy(heads, &runs)), nmse(bound, 0.1)];
            check_runs(
                suite,
                ["selective_scan", "selective_scan state"],
                &case,
                tolerances,
                (&runs, slots),
                &|b, calls, left| inputs.run(b, heads, slots, calls, left),
            );
            damaged(suite, rng, &case, heads, (&runs, slots), &inputs);
        }
    }
}

/// Numbers that are not finite: they reach the outputs that depend on them, and change no others.
fn damaged(
    suite: &Suite,
    rng: &mut Rng,
    case: &dyn Display,
    heads: ScanHeads,
    (runs, slots): (&[Words], usize),
    inputs: &Inputs,
) {
    let Some(&[first, rows, ..]) = runs.iter().find(|[_, rows, ..]| *rows > 0) else { return };
    let (values, columns) = (heads.values(), heads.columns());
    let row = first as usize + rng.below(rows as usize);
    let last = (first + rows) as usize;
    let outputs = |inputs: &Inputs| inputs.run(suite.backend(), heads, slots, &[runs], Left::Outputs).floats;
    let before = outputs(inputs);
    let head_of = |value: usize| value / heads.width;
    let [value, head, group, element] =
        [rng.below(values), rng.below(heads.heads), rng.below(heads.groups), rng.below(heads.state)];
    let b = values + group * heads.state + element;
    let c = values + (heads.groups + group) * heads.state + element;
    let all = |kept: &dyn Fn(usize) -> bool| (0..values).filter(|&value| kept(value)).collect::<BTreeSet<_>>();
    let of_group = all(&|value| heads.group_of(value) == group);
    let xbc = |at: usize, number: f32| {
        let mut inputs = inputs.clone();
        inputs.xbc[row * columns + at] = number;
        inputs
    };
    let mut of_dt = inputs.clone();
    of_dt.dt[row * heads.heads + head] = f32::NAN;
    // The name, the inputs, the values that are reached, and whether the state keeps the number.
    let cases = [
        ("dt NaN", of_dt, all(&|value| head_of(value) == head), true),
        ("x NaN", xbc(value, f32::NAN), BTreeSet::from([value]), true),
        ("B NaN", xbc(b, f32::NAN), of_group.clone(), true),
        ("C NaN", xbc(c, f32::NAN), of_group, false),
    ];
    for (name, inputs, reached, stays) in cases {
        for (i, (before, after)) in before.iter().zip(outputs(&inputs)).enumerate() {
            let token = i / values;
            let value = i % values;
            let follows = token == row || stays && (row..last).contains(&token);
            let expected =
                if follows && reached.contains(&value) { after.is_nan() } else { after.to_bits() == before.to_bits() };
            if !expected {
                suite.fail(case, format_args!("token {token}, value {value} with {name} in token {row}: {after}"));
            }
        }
    }
    // An infinite x: infinite or no number, as far as Δ lets it through.
    let infinite = outputs(&xbc(value, f32::INFINITY));
    let at = row * values + value;
    if infinite[at].is_finite() {
        suite.fail(case, format_args!("token {row}, value {value} with x infinite: {}", infinite[at]));
    }
}

/// Bad arguments of selective scans.
pub fn refuse(suite: &Suite) {
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
