//! Choosing tokens.

use super::common::*;
use super::refuse::{Kind, expect, ones, refused};
use crate::rng::Rng;
use crate::suite::Output;

/// Greedy sampling that changes nothing.
pub(super) fn plain() -> Sampling<'static> {
    Sampling { mask: None, bias: &[], counts: &[], options: SamplingOptions::NONE, position: 0 }
}

/// Rows that a model may give, and rows that none should.
fn logits(rng: &mut Rng, vocabulary: usize) -> Vec<f32> {
    let sort = rng.below(8);
    let one = |rng: &mut Rng| match sort {
        0 => rng.normal().round() as f32,
        1 if rng.chance(0.1) => rng.pick(&[f32::NAN, f32::INFINITY, f32::NEG_INFINITY]),
        2 => rng.pick(&[f32::NAN, f32::NEG_INFINITY]),
        3 => f32::NEG_INFINITY,
        4 => f32::NAN,
        5 => (rng.normal() * 1e6) as f32,
        _ => (rng.normal() * 3.0) as f32,
    };
    (0..vocabulary).map(|_| one(rng)).collect()
}

const VOCABULARIES: &[usize] = &[1, 2, 31, 32, 33, 300, 5000];

/// [`Argmax`].
pub fn argmax(suite: &Suite) {
    let rng = &mut suite.rng("argmax");
    for &tokens in suite.some("argmax", TOKENS) {
        for &vocabulary in VOCABULARIES {
            let x: Vec<f32> = (0..tokens).flat_map(|_| logits(rng, vocabulary)).collect();
            let run = |b: &Backend| {
                let x = Guarded::of(b, &x, tokens, vocabulary, Guard::ODD);
                let mut out = Guarded::poisoned(b, tokens, 1, Guard::ODD);
                b.run(Argmax { x: x.view(), out: out.view_mut() }).expect("argmax");
                Output::from(out.read(b))
            };
            let case = format!("{tokens} × {vocabulary}");
            let likeliest = suite.check("argmax", &case, Tolerance::Exact, &run);
            // Greedy sampling of such parameters draws the same.
            let options = SamplingOptions { repeat_penalty: 1.5, ..SamplingOptions::greedy() };
            let parameters = vec![Sampling { options, position: rng.below(9) as u64, ..plain() }; tokens];
            assert!(parameters.iter().all(Sampling::is_argmax));
            let drawn = draw(suite.backend(), &x, vocabulary, &parameters).words;
            suite.same(&format_args!("{case}, drawn"), &likeliest.words.into(), &drawn.into());
        }
    }
}

/// Lists that a [`Sampling`] borrows.
struct Lists {
    mask: Option<Vec<u32>>,
    bias: Vec<(u32, f32)>,
    counts: Vec<(u32, u32)>,
}

impl Lists {
    fn new(rng: &mut Rng, vocabulary: usize) -> Self {
        let mask = rng.chance(0.4).then(|| {
            let density = rng.pick(&[0.0, 0.1, 0.5]);
            let mut mask: Vec<u32> = (0..vocabulary.div_ceil(32))
                .map(|_| (0..32).fold(0, |word, bit| word | u32::from(rng.chance(density)) << bit))
                .collect();
            let allowed = rng.below(vocabulary);
            mask[allowed / 32] |= 1 << (allowed % 32);
            mask
        });
        let some = |rng: &mut Rng| {
            let few = rng.below(vocabulary.min(9) + 1);
            rng.shuffled(vocabulary).into_iter().take(few).collect::<Vec<u32>>()
        };
        let value = |rng: &mut Rng| rng.pick(&[-1.0, 2.5, f32::NEG_INFINITY, 100.0]);
        let bias = some(rng).into_iter().map(|token| (token, value(rng))).collect();
        let counts = some(rng).into_iter().map(|token| (token, rng.below(4) as u32)).collect();
        Self { mask, bias, counts }
    }

    fn sampling(&self, rng: &mut Rng) -> Sampling<'_> {
        Sampling {
            mask: self.mask.as_deref(),
            bias: &self.bias,
            counts: &self.counts,
            options: SamplingOptions {
                repeat_penalty: rng.pick(&[1.0, 1.1, 0.5]),
                presence_penalty: rng.pick(&[0.0, 0.7]),
                frequency_penalty: rng.pick(&[0.0, -0.3, 0.4]),
                temperature: rng.pick(&[0.0, 1e-30, 0.3, 1.0, 30.0]),
                top_k: rng.pick(&[0, 1, 5, 40, 100_000]),
                top_p: rng.pick(&[1.0, 0.95, 0.5, f32::MIN_POSITIVE]),
                min_p: rng.pick(&[0.0, 0.05, 1.0]),
                seed: Some(rng.bits()),
            },
            position: rng.below(1 << 40) as u64,
        }
    }
}

fn draw(b: &Backend, logits: &[f32], vocabulary: usize, parameters: &[Sampling]) -> Output {
    let rows = parameters.len();
    let mut logits = Guarded::of(b, logits, rows, vocabulary, Guard::ODD);
    let mut out = Guarded::poisoned(b, rows, 1, Guard::ODD);
    b.run(Sample { logits: logits.view_mut(), parameters, out: out.view_mut() }).expect("sample");
    Output { floats: logits.read(b), words: out.read(b) }
}

/// [`Sample`]: the token and the penalised logits, exactly.
pub fn sample(suite: &Suite) {
    let rng = &mut suite.rng("sample");
    for round in suite.some("sample", 0..300) {
        let vocabulary = if round == 0 { 151_936 } else { rng.pick(VOCABULARIES) };
        let rows = rng.below(5);
        let values: Vec<f32> = (0..rows).flat_map(|_| logits(rng, vocabulary)).collect();
        let lists: Vec<Lists> = (0..rows).map(|_| Lists::new(rng, vocabulary)).collect();
        let parameters: Vec<Sampling> = lists.iter().map(|lists| lists.sampling(rng)).collect();
        let brief = |p: &Sampling| Sampling { mask: None, bias: &[], counts: &[], ..*p };
        let case = format!("{rows} × {vocabulary}, {:?}", parameters.iter().map(brief).collect::<Vec<_>>());
        let got = suite.check("sample", &case, Tolerance::Exact, &|b| draw(b, &values, vocabulary, &parameters));
        for (row, p) in parameters.iter().enumerate() {
            let token = got.words[row] as usize;
            let finite = values[row * vocabulary..(row + 1) * vocabulary].iter().all(|x| x.is_finite());
            if finite != (token != PADDING as usize) {
                suite.fail(&case, format_args!("row {row} is finite ({finite}), its token is {token}"));
            }
            if finite && p.mask.is_some_and(|m| m[token / 32] >> (token % 32) & 1 == 0) {
                suite.fail(&case, format_args!("row {row}: the mask forbids {token}"));
            }
            // The same draw alone: the row of the batch does not matter.
            let alone = draw(suite.backend(), &values[row * vocabulary..(row + 1) * vocabulary], vocabulary, &[*p]);
            suite.same(&format_args!("{case}, row {row} alone"), &vec![token as u32].into(), &alone.words.into());
        }
    }
}

/// Draws follow the softmax, and what the filters drop never comes.
pub fn distribution(suite: &Suite) {
    // Shares of 1/2, 1/4, 1/8, 1/16, 1/16, not in order of size; and of two that are the most likely.
    let [shares, equal] = [[2.0, 8.0, 1.0, 1.0, 4.0], [4.0, 8.0, 1.0, 8.0, 1.0]];
    let b = suite.backend();
    let draws = 4_000;
    let all = SamplingOptions { temperature: 1.0, seed: Some(5), ..SamplingOptions::NONE };
    let cases = [
        ("all", shares, all, [true; 5]),
        ("top-k", shares, SamplingOptions { top_k: 4, ..all }, [true, true, true, false, true]),
        ("top-p", shares, SamplingOptions { top_p: 0.8, ..all }, [true, true, false, false, true]),
        ("min-p", shares, SamplingOptions { min_p: 0.3, ..all }, [false, true, false, false, true]),
        ("min-p of 1", equal, SamplingOptions { min_p: 1.0, ..all }, [false, true, false, true, false]),
    ];
    for (name, shares, options, kept) in suite.some("sample_distribution", cases) {
        let logits = shares.map(|share: f64| share.ln() as f32);
        let parameters: Vec<Sampling> = (0..draws).map(|position| Sampling { options, position, ..plain() }).collect();
        let tokens = draw(b, &logits.repeat(draws as usize), 5, &parameters).words;
        let mass: f64 = shares.iter().zip(kept).filter(|(_, kept)| *kept).map(|(share, _)| share).sum();
        for (token, (share, kept)) in shares.iter().zip(kept).enumerate() {
            let count = tokens.iter().filter(|&&t| t as usize == token).count() as f64;
            let p = if kept { share / mass } else { 0.0 };
            // Five standard deviations; the draws are fixed, so this passes always or never.
            let slack = 5.0 * (draws as f64 * p * (1.0 - p)).sqrt();
            if (count - p * draws as f64).abs() > slack {
                suite.fail(&name, format_args!("token {token} came {count} times of {draws}, expected {p:.3}"));
            }
        }
    }
}

/// Bad arguments of [`Argmax`] and [`Sample`].
pub fn refuse(suite: &Suite) {
    let b = suite.backend();
    let x = ones(b, 3, 4);
    refused(suite, "argmax: rows", Kind::Shape, (2, 1), |b, out| b.run(Argmax { x: x.view(), out: out.view_mut() }));
    refused(suite, "argmax: columns", Kind::Shape, (3, 2), |b, out| b.run(Argmax { x: x.view(), out: out.view_mut() }));
    let empty = ones(b, 3, 0);
    refused(suite, "argmax: of nothing", Kind::Range, (3, 1), |b, out| {
        b.run(Argmax { x: empty.view(), out: out.view_mut() })
    });
    refuse_parameters(suite);
}

/// Parameters of [`Sample`], and the shapes of what it reads and writes.
fn refuse_parameters(suite: &Suite) {
    let b = suite.backend();
    let options = SamplingOptions { temperature: 1.0, ..SamplingOptions::NONE };
    let plain = Sampling { options, ..plain() };
    let check = |case: &str, kind, bad: Sampling| {
        refused(suite, case, kind, (2, 1), |b, out: &mut Guarded<u32>| {
            let mut logits = Guarded::<f32>::poisoned(b, 2, 40, Guard::ODD);
            // The first row is in order: it must not be drawn either.
            let result = b.run(Sample { logits: logits.view_mut(), parameters: &[plain, bad], out: out.view_mut() });
            logits.assert_untouched(b, case);
            result
        });
    };
    // Whole numbers saturate, so all that can be written is in range.
    for setting in SETTINGS.iter().filter(|setting| !setting.whole) {
        for value in [f64::NAN, f64::INFINITY, setting.most * 1.5, setting.least - setting.most] {
            let mut options = options;
            (setting.set)(&mut options, value);
            check(&format!("sample: {} {value}", setting.name), Kind::Range, Sampling { options, ..plain });
        }
    }
    check("sample: biased token", Kind::Id, Sampling { bias: &[(40, 1.0)], ..plain });
    check("sample: NaN bias", Kind::Range, Sampling { bias: &[(1, f32::NAN)], ..plain });
    check("sample: counted token", Kind::Id, Sampling { counts: &[(u32::MAX, 1)], ..plain });
    check("sample: short mask", Kind::Shape, Sampling { mask: Some(&[1]), ..plain });
    check("sample: long mask", Kind::Shape, Sampling { mask: Some(&[1, 0, 0]), ..plain });
    // Bits past the vocabulary allow nothing.
    check("sample: empty mask", Kind::Range, Sampling { mask: Some(&[0, 0xffff_ff00]), ..plain });
    refused(suite, "sample: rows", Kind::Shape, (3, 1), |b, out: &mut Guarded<u32>| {
        b.run(Sample {
            logits: Guarded::poisoned(b, 2, 40, Guard::ODD).view_mut(),
            parameters: &[plain; 2],
            out: out.view_mut(),
        })
    });
    refused(suite, "sample: parameters", Kind::Shape, (2, 1), |b, out: &mut Guarded<u32>| {
        b.run(Sample {
            logits: Guarded::poisoned(b, 2, 40, Guard::ODD).view_mut(),
            parameters: &[plain; 3],
            out: out.view_mut(),
        })
    });
    let none = b.run(Sample {
        logits: Guarded::poisoned(b, 1, 0, Guard::ODD).view_mut(),
        parameters: &[plain],
        out: Guarded::<u32>::poisoned(b, 1, 1, Guard::ODD).view_mut(),
    });
    expect(suite, "sample: no vocabulary", Kind::Range, none);
}
