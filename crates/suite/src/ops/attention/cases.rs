//! Cases of attention.

use super::super::common::*;
use super::layout::Layout;
use super::parameters::{FORMATS, Parameters, bound, some_temperature, some_window};
use crate::rng::Rng;
use crate::suite::Output;
use gristmill_kernels::kv::{KvCache, KvFormat, KvSpec};
use gristmill_kernels::reference::Reference;
use gristmill_kernels::tensor::DeviceId;
use std::fmt;
use std::ops::Range;

/// Cases of a part of the suite.
struct Cases {
    part: &'static str,
    /// Widths of keys and values.
    shapes: &'static [(usize, usize)],
    rounds: usize,
    /// How long the sequences of a round are.
    lengths: fn(usize) -> Lengths,
}

/// How long the sequences of a case are, which decides how many queries it has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lengths {
    /// Up to 300 positions.
    Short,
    /// The same; more keys in each row than a GPU's tile of queries sees at once, several times over.
    Full,
    /// One sequence of more splits than one warp of a GPU adds up, with the queries of its end.
    Longest,
    /// One long sequence.
    Long,
    /// So many queries that no block of threads has one alone.
    Many,
}

const SHORT: Cases = Cases {
    part: "attention",
    shapes: &[
        (48, 48),
        (64, 64),
        (80, 80),
        (128, 128),
        (64, 48),
        (96, 128),
        (1, 1),
        (17, 5),
        (40, 72),
        (33, 90),
        (192, 128),
        (256, 256),
        (512, 512),
        (300, 20),
        (576, 512),
        (40, 32),
    ],
    rounds: 4 * 16,
    lengths: |round| if round % 6 == 3 { Lengths::Full } else { Lengths::Short },
};

const LONG: Cases = Cases {
    part: "attention_long",
    shapes: &[(128, 128), (64, 64), (256, 256), (192, 128), (512, 512), (320, 256)],
    rounds: 2 * 6 + 2,
    lengths: |round| match round {
        0..6 => Lengths::Longest,
        6..12 => Lengths::Long,
        _ => Lengths::Many,
    },
};

/// [`KvWrite`] and [`Attention`]: several sequences in one batch, written in pieces.
pub fn attention(suite: &Suite) {
    check(suite, &SHORT);
}

/// The same for long sequences, of which a GPU shares the keys out to several blocks of threads.
pub fn attention_long(suite: &Suite) {
    check(suite, &LONG);
}

fn check(suite: &Suite, cases: &Cases) {
    let rng = &mut suite.rng(cases.part);
    for round in suite.some(cases.part, 0..cases.rounds) {
        let case = Case::draw(rng, cases, round);
        let got = suite.check(case.parameters.kind(), &case, case.tolerance(), &|b| case.run(b));
        case.check_padding(suite, &got);
        case.check_alone(suite, &got);
    }
}

/// Up to `most` of these lengths, of which at most one is above 100: time grows with the square of a length, and a
/// second long sequence takes no path that the first does not.
pub(in super::super) fn short_and_one_long(rng: &mut Rng, most: usize, some: &[usize]) -> Vec<usize> {
    let mut lengths: Vec<usize> = (0..rng.between(1, most)).map(|_| rng.pick(some)).collect();
    let short: Vec<usize> = some.iter().copied().filter(|&length| length <= 100).collect();
    lengths.iter_mut().filter(|length| **length > 100).skip(1).for_each(|length| *length = rng.pick(&short));
    lengths
}

/// Queries of some tokens of sequences that are in a cache.
struct Case {
    layout: Layout,
    parameters: Parameters,
    /// The tokens, with padding among them.
    tokens: Vec<(u32, u32)>,
    /// Their queries.
    q: Vec<f32>,
    /// Makes caches that have all tokens of the sequences.
    filled_cache: Box<dyn Fn(&Backend) -> KvCache>,
}

impl Case {
    fn draw(rng: &mut Rng, cases: &Cases, round: usize) -> Self {
        let (key_width, value_width) = cases.shapes[round % cases.shapes.len()];
        // Some shapes are those of latent attention, in which many query heads share one key.
        let values_in_keys = value_width <= key_width
            && ([(576, 512), (40, 32), (320, 256)].contains(&(key_width, value_width)) || rng.chance(0.2));
        let sort = (cases.lengths)(round);
        let ratio = [1, 3, 4, 7, 8, 16][round % 6];
        let ratio = if values_in_keys && sort == Lengths::Short && rng.chance(0.3) { 20 } else { ratio };
        let kv_heads = match sort {
            _ if ratio > 16 => 1,
            Lengths::Short | Lengths::Full => rng.between(1, 3),
            Lengths::Longest | Lengths::Long => 1,
            Lengths::Many => 2,
        };
        let spec = KvSpec { heads: kv_heads, key_width, value_width, format: rng.pick(&FORMATS), values_in_keys };
        let lengths = sort.draw(rng, ratio);
        let layout = Layout::new(rng, spec, lengths);
        let heads = kv_heads * ratio;
        let parameters = Parameters {
            heads,
            temperature: rng.chance(0.3).then(|| some_temperature(rng)),
            window: (sort == Lengths::Short && rng.chance(0.5)).then(|| some_window(rng)),
            first: rng.pick(&[0, 0, 1, 17]),
            ahead: rng.chance(0.3).then(|| rng.pick(&[2, 5, 20, 200])),
            sinks: rng.chance(0.3).then(|| rng.normals(heads)),
            softcap: rng.chance(0.3).then_some(5.0),
            precision: rng.pick(&PRECISIONS),
        };
        let mut tokens = sort.some_tokens(rng, &layout, round);
        for _ in 0..rng.below(3) {
            tokens.insert(rng.below(tokens.len() + 1), (u32::MAX, 123_456));
        }
        let q = rng.normals(tokens.len() * heads * key_width);
        Self { filled_cache: Box::new(layout.filled(rng.bits())), layout, parameters, tokens, q }
    }

    /// Elements of a token's queries and of its results.
    fn widths(&self) -> [usize; 2] {
        let KvSpec { key_width, value_width, .. } = self.layout.spec;
        [key_width, value_width].map(|width| self.parameters.heads * width)
    }

    fn tolerance(&self) -> Tolerance {
        nmse(self.parameters.bound(self.layout.spec.key_width), 0.01)
    }

    fn run(&self, b: &Backend) -> Output {
        self.run_some(b, &(self.filled_cache)(b), 0..self.tokens.len())
    }

    /// Runs some of the tokens without the others.
    fn run_some(&self, b: &Backend, cache: &KvCache, tokens: Range<usize>) -> Output {
        let q = rows(&self.q, &tokens, self.widths()[0]);
        self.parameters.attend(b, &self.layout, cache, q, &self.tokens[tokens]).into()
    }

    /// Fails unless the results of padding are zero.
    fn check_padding(&self, suite: &Suite, got: &Output) {
        for (i, row) in got.floats.chunks(self.widths()[1]).enumerate() {
            if self.tokens[i].0 == u32::MAX && row.iter().any(|&x| x != 0.0) {
                suite.fail(self, format_args!("the output of padding token {i} is not zero"));
            }
        }
    }

    /// A token without the others, and its sequence without the others. On a GPU that is not deterministic the results
    /// of a token may depend on how many tokens of its own sequence the batch has.
    fn check_alone(&self, suite: &Suite, got: &Output) {
        let b = suite.backend();
        let i = self.tokens.len() / 2;
        let cache = (self.filled_cache)(b);
        let of_whole = |tokens: &Range<usize>| Output::from(rows(&got.floats, tokens, self.widths()[1]).to_vec());
        let token = i..i + 1;
        let case = format!("{self}, token {i} alone");
        let alone = self.run_some(b, &cache, token.clone());
        if b.device() == DeviceId::Cpu || b.deterministic() {
            suite.same(&case, &of_whole(&token), &alone);
        } else {
            let reference = Reference::backend();
            let expected = self.run_some(&reference, &(self.filled_cache)(&reference), token);
            suite.compare("attention, a token alone", &case, self.tolerance(), &expected, &alone);
        }
        let is_of_sequence = |token: &(u32, u32)| token.0 == self.tokens[i].0;
        let first = self.tokens.iter().position(is_of_sequence).unwrap_or(0);
        let last = self.tokens.iter().rposition(is_of_sequence).unwrap_or(0);
        let sequence = first..last + 1;
        let alone = self.run_some(b, &cache, sequence.clone());
        suite.same(&format_args!("{self}, the sequence of token {i} alone"), &of_whole(&sequence), &alone);
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Self { layout: Layout { spec, lengths, .. }, parameters, tokens, .. } = self;
        let Parameters { heads, temperature, window, first, ahead, sinks, softcap, precision } = parameters;
        write!(
            f,
            "{spec:?}, {heads} heads, lengths {lengths:?}, {temperature:?}, window {window:?} from {first}, ahead {ahead:?}, sinks {}, \
             softcap {softcap:?}, {precision:?}, {} queries",
            sinks.is_some(),
            tokens.len()
        )
    }
}

/// Some rows of a matrix.
fn rows<'a>(x: &'a [f32], rows: &Range<usize>, cols: usize) -> &'a [f32] {
    &x[rows.start * cols..rows.end * cols]
}

/// At most `most` of the tokens, in any order.
fn in_any_order(rng: &mut Rng, tokens: &[(u32, u32)], most: usize) -> Vec<(u32, u32)> {
    rng.shuffled(tokens.len()).into_iter().take(most).map(|i| tokens[i as usize]).collect()
}

impl Lengths {
    /// Lengths of sequences, where `ratio` query heads share a head of keys.
    fn draw(self, rng: &mut Rng, ratio: usize) -> Vec<usize> {
        // Where heads share nothing, a GPU's tile of queries is long, and short sequences are several in one.
        let some: &[usize] = if ratio == 1 { &[1, 16, 17, 20, 33, 300] } else { &[1, 15, 16, 17, 33, 70, 150, 300] };
        match self {
            Self::Short => short_and_one_long(rng, 4, some),
            Self::Full => {
                let mut lengths = short_and_one_long(rng, 4, some);
                lengths[0] = 300;
                lengths
            }
            Self::Longest => vec![1300, rng.pick(&[1, 17])],
            Self::Long => vec![rng.pick(&[450, 1300]), rng.pick(&[1, 17])],
            Self::Many => vec![300, 300],
        }
    }

    /// The tokens that have queries: all (prefill), the last ones of each sequence (decode), all at the last position (a
    /// tower), or some in any order. All of long sequences would take too long.
    fn some_tokens(self, rng: &mut Rng, layout: &Layout, round: usize) -> Vec<(u32, u32)> {
        let mut tokens = layout.tokens();
        let lengths = &layout.lengths;
        match (self, round % 3) {
            (Self::Short | Self::Full, 0) => {}
            (Self::Short | Self::Full, 1) | (Self::Longest, _) => {
                tokens.retain(|&(slot, p)| p as usize + 2 > lengths[slot as usize]);
            }
            (Self::Short | Self::Full, _) if rng.chance(0.3) => {
                // All see their whole sequence, as patches see their picture.
                tokens.iter_mut().for_each(|(slot, position)| *position = lengths[*slot as usize] as u32 - 1);
            }
            (Self::Short | Self::Full, _) => {
                let most = rng.pick(&[20, 20, 200]);
                return in_any_order(rng, &tokens, most);
            }
            (Self::Many, _) => return in_any_order(rng, &tokens, 200),
            // Some that follow one another, far from the start.
            (Self::Long, _) if rng.chance(0.5) => {
                let end = lengths[0] - rng.below(20);
                tokens.retain(|&(slot, p)| slot == 0 && (end - 40..end).contains(&(p as usize)));
            }
            (Self::Long, _) => return in_any_order(rng, &tokens, 20),
        }
        tokens
    }
}

/// [`KvCopy`]: a copied sequence attends as the original does, whatever becomes of that.
pub fn copy(suite: &Suite) {
    let rng = &mut suite.rng("kv_copy");
    for (key_width, value_width, format, values_in_keys) in [
        (64, 64, KvFormat::F16, false),
        (48, 80, KvFormat::F16, false),
        (48, 80, KvFormat::Q8_0, false),
        (40, 33, KvFormat::Q8_0, true),
    ] {
        let spec = KvSpec { heads: 2, key_width, value_width, format, values_in_keys };
        let layout = Layout::new(rng, spec, vec![37, 37]);
        let precision = Precision::Exact;
        let (temperature, window, ahead, sinks, softcap) = (None, None, None, None, None);
        let parameters = Parameters { heads: 4, temperature, window, first: 0, ahead, sinks, softcap, precision };
        let seed = rng.bits();
        let q = rng.normals(4 * key_width);
        let (first, second) = layout.table.split_at(layout.table_cols);
        let blocks: Vec<(u32, u32)> = first.iter().copied().zip(second.iter().copied()).take(3).collect();
        let used = layout.used_cache(seed);
        let mut rng = Rng::new(seed ^ 2);
        let [written, over] = [(); 2].map(|()| layout.written(&layout.tokens()[..37], &mut rng, 0.0));
        let run = |b: &Backend| {
            let mut cache = used(b);
            layout.write(b, &mut cache, &written);
            let attend = |cache: &KvCache, slot| parameters.attend(b, &layout, cache, &q, &[(slot, 36)]);
            let original = attend(&cache, 0);
            b.run(KvCopy { cache: &mut cache, blocks: &blocks }).expect("kv_copy");
            // Overwrite the original: the copy must be a copy.
            layout.write(b, &mut cache, &over);
            let copied = attend(&cache, 1);
            assert_eq!(original, copied, "the copy differs from the original");
            assert_ne!(original, attend(&cache, 0), "the original was not overwritten");
            Output::from(copied)
        };
        suite.check("kv_copy", &format_args!("{spec:?}"), nmse(bound(key_width), 0.01), &run);
    }
}
