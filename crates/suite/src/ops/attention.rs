//! The paged cache and attention over it.

use super::*;
use crate::framed::buffer;
use crate::rng::Rng;
use crate::suite::Output;
use gristmill_kernels::kv::{BatchRuns, KV_BLOCK, KvCache, KvFormat, KvSpec, Placement};
use gristmill_kernels::reference::Reference;
use gristmill_kernels::tensor::{Buffer, DeviceId};
use std::ops::Range;

/// Keys and values are rounded to f16, or to 8 bits, by both sides, so the error is that of f32 sums over widths and
/// positions.
///
/// The exponential magnifies the error of a logit. One of 6 is among many of [`Parameters::attention`]'s scale, and has
/// nearly all the weight of its row, and that row much of all rows' power: so the error is this one's, however many
/// there are. Its sum of `key_width` products grows to 6, each step rounded to 2⁻²³ of what it is by then, which has a
/// variance of `key_width` · 36 · 2⁻⁴⁶ / 24 in all; half of that shows in the row. Errors of 4.5 deviations are
/// allowed, 20 times that.
pub(super) fn bound(key_width: usize) -> f64 {
    4e-12 + 15.0 * key_width as f64 * 2.0_f64.powi(-46)
}

/// More where queries and exponentials may be rounded to f16, which has 11 significant bits: a number from 2ⁿ to 2ⁿ⁺¹
/// then has an error with a variance of up to 2²ⁿ⁻²⁰ / 12. The terms of a logit are normals times normals times
/// [`Parameters::attention`]'s scale, so their squares add up to 2.25, and to 36 / `key_width` more for a logit of 6;
/// half of the variance shows in the row. The exponentials' errors show whole. Twenty times all that is allowed, as
/// above.
fn fast_bound(key_width: usize) -> f64 {
    let logit = 2.25 + 36.0 / key_width as f64;
    bound(key_width) + 20.0 * (logit / 2.0 + 1.0) * 2.0_f64.powi(-20) / 12.0
}

pub(super) const FORMATS: [KvFormat; 2] = [KvFormat::F16, KvFormat::Q8_0];

/// Sequences in a cache.
pub(super) struct Layout {
    spec: KvSpec,
    blocks: usize,
    table_cols: usize,
    table: Vec<u32>,
    pub(super) lengths: Vec<usize>,
}

impl Layout {
    /// Sequences of these lengths on blocks in random order; table entries that nothing reaches are no block at all.
    pub(super) fn new(rng: &mut Rng, spec: KvSpec, lengths: Vec<usize>) -> Self {
        let needed: usize = lengths.iter().map(|n| n.div_ceil(KV_BLOCK)).sum();
        let table_cols = lengths.iter().map(|n| n.div_ceil(KV_BLOCK)).max().unwrap_or(0) + 1;
        let blocks = needed + 3;
        let mut free = rng.shuffled(blocks).into_iter();
        let mut table = vec![u32::MAX; lengths.len() * table_cols];
        for (row, length) in table.chunks_exact_mut(table_cols).zip(&lengths) {
            row.iter_mut().zip(free.by_ref().take(length.div_ceil(KV_BLOCK))).for_each(|(to, block)| *to = block);
        }
        Self { spec, blocks, table_cols, table, lengths }
    }

    pub(super) fn placement(&self, b: &Backend, tokens: &[(u32, u32)]) -> Placement {
        // Longer than needed, as a bucket's buffers are.
        let with_more = |values: &[u32]| buffer(b, &[values, &[77; 3]].concat());
        let (slots, positions): (Vec<_>, Vec<_>) = tokens.iter().copied().unzip();
        Placement {
            slots: with_more(&slots),
            positions: with_more(&positions),
            table: buffer(b, &self.table),
            table_rows: self.lengths.len(),
            table_cols: self.table_cols,
            context_columns: tokens
                .iter()
                .filter(|t| t.0 != u32::MAX)
                .map(|t| t.1 as usize / KV_BLOCK + 1)
                .max()
                .unwrap_or(0),
            runs: BatchRuns::of(&slots, &positions),
        }
    }

    /// Keys and values for every block, a tenth of them infinities and NaN.
    fn used(&self, seed: u64) -> (Layout, Written) {
        let all = Layout {
            table: (0..self.blocks as u32).collect(),
            lengths: vec![self.blocks * KV_BLOCK],
            table_cols: self.blocks,
            ..*self
        };
        let tokens: Vec<(u32, u32)> = (0..all.lengths[0]).map(|p| (0, p as u32)).collect();
        let written = all.written(&tokens, &mut Rng::new(seed), 0.1);
        (all, written)
    }

    /// A way to make caches of which every block has been used before, and left with infinities and NaN.
    pub(super) fn used_cache(&self, seed: u64) -> impl Fn(&Backend) -> KvCache + use<> {
        let (spec, blocks, (all, written)) = (self.spec, self.blocks, self.used(seed));
        move |b| {
            let mut cache = b.alloc_kv(spec, blocks).expect("alloc_kv");
            all.write(b, &mut cache, &written);
            cache
        }
    }

    /// Random keys and values of these (slot, position); this share of them is not finite.
    pub(super) fn written(&self, tokens: &[(u32, u32)], rng: &mut Rng, wild: f64) -> Written {
        let KvSpec { heads, key_width, value_width, .. } = self.spec;
        let mut random = |width: usize| {
            let mut values = rng.normals(tokens.len() * heads * width);
            for value in values.iter_mut().filter(|_| wild > 0.0) {
                if rng.chance(wild) {
                    *value = rng.pick(&[f32::NAN, f32::INFINITY, f32::NEG_INFINITY]);
                }
            }
            values
        };
        let (keys, values) = (random(key_width), random(value_width));
        Written { tokens: tokens.to_vec(), keys, values }
    }

    /// Writes keys and values.
    pub(super) fn write(&self, b: &Backend, cache: &mut KvCache, written: &Written) {
        let Written { tokens, keys, values } = written;
        let KvSpec { heads, key_width, value_width, .. } = self.spec;
        let keys = Framed::of(b, keys, tokens.len(), heads * key_width, Frame::ODD);
        let values = Framed::of(b, values, tokens.len(), heads * value_width, Frame::ODD);
        b.run(KvWrite { cache, k: keys.view(), v: values.view(), placement: &self.placement(b, tokens) })
            .expect("kv_write");
    }

    /// A way to make caches of which every block has been used before, and all tokens are written, in pieces.
    fn filled(&self, seed: u64) -> impl Fn(&Backend) -> KvCache {
        let mut rng = Rng::new(seed ^ 1);
        let mut tokens = self.tokens();
        tokens.insert(tokens.len() / 2, (u32::MAX, 9));
        let pieces = tokens.chunks(rng.between(1, 60));
        let pieces: Vec<Written> = pieces.map(|piece| self.written(piece, &mut rng, 0.0)).collect();
        let used = self.used_cache(seed);
        move |b| {
            let mut cache = used(b);
            pieces.iter().for_each(|piece| self.write(b, &mut cache, piece));
            cache
        }
    }

    /// All tokens of all sequences, sequence after sequence.
    pub(super) fn tokens(&self) -> Vec<(u32, u32)> {
        let of = |(slot, &n): (usize, &usize)| (0..n).map(move |p| (slot as u32, p as u32)).collect::<Vec<_>>();
        self.lengths.iter().enumerate().flat_map(of).collect()
    }
}

/// Keys and values that are written at once. All backends of a case write the same.
pub(super) struct Written {
    tokens: Vec<(u32, u32)>,
    keys: Vec<f32>,
    values: Vec<f32>,
}

/// Sequences are shorter.
const MOST_POSITIONS: u32 = 1500;

/// A temperature that changes often in a sequence, or never.
pub(super) fn some_temperature(rng: &mut Rng) -> Temperature {
    Temperature { scale: 0.5, length: rng.pick(&[1, 7, 16, 100, u32::MAX]), offset: rng.pick(&[0, 1, 20]) }
}

/// A window or chunks that sequences are longer than.
pub(super) fn some_window(rng: &mut Rng) -> Window {
    let positions = rng.pick(&[1, 2, 15, 16, 17, 40]);
    if rng.chance(0.5) { Window::Chunk(positions) } else { Window::Last(positions) }
}

pub(super) struct Parameters {
    pub(super) heads: usize,
    pub(super) temperature: Option<Temperature>,
    pub(super) window: Option<Window>,
    pub(super) sinks: Option<Vec<f32>>,
    pub(super) softcap: Option<f32>,
    pub(super) precision: Precision,
}

impl Parameters {
    /// The bound of attention with these parameters.
    pub(super) fn bound(&self, key_width: usize) -> f64 {
        if self.precision == Precision::Fast { fast_bound(key_width) } else { bound(key_width) }
    }

    /// The name under which errors are reported.
    fn kind(&self) -> &'static str {
        if self.precision == Precision::Fast { "attention, fast" } else { "attention" }
    }

    /// The operation's options; `sinks` are these parameters' on a device.
    pub(super) fn attention<'a>(&self, key_width: usize, sinks: Option<&'a Buffer<f32>>) -> AttentionOptions<'a> {
        let Self { heads, temperature, window, softcap, precision, .. } = *self;
        // The bounds are those of logits of this scale; a temperature brings them to it, at most.
        let largest = temperature.map_or(1.0, |temperature| temperature.factor(MOST_POSITIONS));
        let scale = 1.5 / (key_width as f32).sqrt() / largest as f32;
        AttentionOptions { heads, scale, temperature, window, sinks, softcap, precision }
    }

    pub(super) fn attend(
        &self,
        b: &Backend,
        layout: &Layout,
        cache: &KvCache,
        q: &[f32],
        tokens: &[(u32, u32)],
    ) -> Vec<f32> {
        let KvSpec { key_width, value_width, .. } = layout.spec;
        let sinks = self.sinks.as_ref().map(|sinks| buffer(b, sinks));
        let parameters = self.attention(key_width, sinks.as_ref());
        let q = Framed::of(b, q, tokens.len(), self.heads * key_width, Frame::ODD);
        let mut out = Framed::poisoned(b, tokens.len(), self.heads * value_width, Frame::ODD);
        let placement = layout.placement(b, tokens);
        b.run(Attention { q: q.view(), cache, placement: &placement, options: parameters, out: out.view_mut() })
            .expect("attention");
        out.read(b)
    }
}

/// Widths of keys and values in [`attention`], and in [`attention_long`].
const SHORT: [(usize, usize); 14] = [
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
];
const LONG: [(usize, usize); 5] = [(128, 128), (64, 64), (256, 256), (192, 128), (512, 512)];

/// [`KvWrite`] and [`Attention`]: several sequences in one batch, written in pieces.
pub fn attention(suite: &Suite) {
    rounds(suite, "attention", &SHORT, 4 * SHORT.len(), false);
}

/// The same for long sequences, of which a GPU shares the keys out to several blocks of threads.
pub fn attention_long(suite: &Suite) {
    rounds(suite, "attention_long", &LONG, 2 * LONG.len() + 2, true);
}

/// Up to so many of these lengths, of which one at most is above 100: time grows with the square of a length, and a
/// second long sequence takes no path that the first does not.
pub(super) fn short_and_one_long(rng: &mut Rng, most: usize, some: &[usize]) -> Vec<usize> {
    let mut lengths: Vec<usize> = (0..rng.between(1, most)).map(|_| rng.pick(some)).collect();
    let short: Vec<usize> = some.iter().copied().filter(|&length| length <= 100).collect();
    lengths.iter_mut().filter(|length| **length > 100).skip(1).for_each(|length| *length = rng.pick(&short));
    lengths
}

fn rounds(suite: &Suite, part: &'static str, shapes: &[(usize, usize)], rounds: usize, long: bool) {
    let rng = &mut suite.rng(part);
    for round in suite.some(part, 0..rounds) {
        let (key_width, value_width) = shapes[round % shapes.len()];
        let ratio = [1, 3, 4, 7, 8, 16][round % 6];
        // At the end of the long ones so many tokens that no block of threads has one alone.
        let many = long && round >= 2 * shapes.len();
        // Now and then more keys in a row than a GPU's tile of queries sees at once, several times over.
        let full = !long && round % 6 == 3;
        let (kv_heads, mut lengths): (usize, Vec<usize>) = if many {
            (2, vec![300, 300])
        } else if long {
            // Each shape once with more splits than one warp of a GPU adds up.
            let most = if round < shapes.len() { 1300 } else { rng.pick(&[450, 1300]) };
            (1, vec![most, rng.pick(&[1, 17])])
        } else {
            // Where heads share nothing, a GPU's tile of queries is long, and short sequences are several in one.
            let some: &[usize] =
                if ratio == 1 { &[1, 16, 17, 20, 33, 300] } else { &[1, 15, 16, 17, 33, 70, 150, 300] };
            (rng.between(1, 3), short_and_one_long(rng, 4, some))
        };
        if full {
            lengths[0] = 300;
        }
        let spec = KvSpec { heads: kv_heads, key_width, value_width, format: rng.pick(&FORMATS) };
        let layout = Layout::new(rng, spec, lengths);
        let heads = kv_heads * ratio;
        let parameters = Parameters {
            heads,
            temperature: rng.chance(0.3).then(|| some_temperature(rng)),
            window: (!long && !full && rng.chance(0.5)).then(|| some_window(rng)),
            sinks: rng.chance(0.3).then(|| rng.normals(heads)),
            softcap: rng.chance(0.3).then_some(5.0),
            precision: rng.pick(&PRECISIONS),
        };
        // Queries: everything (prefill), the last tokens only (decode), or some in any order; padding in between.
        // Everything of long sequences would take too long.
        let mut queries = layout.tokens();
        let neighbours = long && !many && round >= shapes.len() && rng.chance(0.5);
        match if long { 1 + usize::from(round >= shapes.len()) } else { round % 3 } {
            0 => {}
            // Some that follow one another, far from the beginning.
            _ if neighbours => {
                let end = layout.lengths[0] - rng.below(20);
                queries.retain(|&(slot, p)| slot == 0 && (end - 40..end).contains(&(p as usize)));
            }
            1 => queries.retain(|&(slot, p)| p as usize + 2 > layout.lengths[slot as usize]),
            _ => {
                let most = if many {
                    200
                } else if long {
                    20
                } else {
                    rng.pick(&[20, 20, 200])
                };
                let order = rng.shuffled(queries.len());
                queries = order.iter().take(most).map(|&i| queries[i as usize]).collect();
            }
        }
        for _ in 0..rng.below(3) {
            let at = rng.below(queries.len() + 1);
            queries.insert(at, (u32::MAX, 123_456));
        }
        let q = rng.normals(queries.len() * heads * key_width);
        let seed = rng.bits();
        let fill = layout.filled(seed);
        let case = format!(
            "{spec:?}, {heads} heads, lengths {:?}, {:?}, window {:?}, sinks {}, softcap {:?}, {:?}, {} queries",
            layout.lengths,
            parameters.temperature,
            parameters.window,
            parameters.sinks.is_some(),
            parameters.softcap,
            parameters.precision,
            queries.len()
        );
        let run = |b: &Backend| Output::from(parameters.attend(b, &layout, &fill(b), &q, &queries));
        let (kind, bound) = (parameters.kind(), parameters.bound(key_width));
        let got = suite.check(kind, &case, nmse(bound, 0.01), &run);
        for (i, query) in queries.iter().enumerate() {
            let (row, width) = (i * heads * value_width, heads * value_width);
            let row = &got.floats[row..row + width];
            if query.0 == u32::MAX && row.iter().any(|&x| x != 0.0) {
                suite.fail(&case, format_args!("the output of padding token {i} is not zero"));
            }
        }
        // A token alone. On a GPU that is not deterministic what it gets may depend on how many tokens of its own sequence
        // stand beside it.
        let i = queries.len() / 2;
        let cache = fill(suite.backend());
        let (q_width, out_width) = (heads * key_width, heads * value_width);
        let alone = |range: Range<usize>| {
            let q = &q[range.start * q_width..range.end * q_width];
            let alone = parameters.attend(suite.backend(), &layout, &cache, q, &queries[range.clone()]);
            (Output::from(got.floats[range.start * out_width..range.end * out_width].to_vec()), Output::from(alone))
        };
        let (of_whole, token) = alone(i..i + 1);
        if suite.backend().device() == DeviceId::Cpu || suite.backend().deterministic() {
            suite.same(&format_args!("{case}, token {i} alone"), &of_whole, &token);
        } else {
            let (q, reference) = (&q[i * q_width..(i + 1) * q_width], Reference::backend());
            let expected = parameters.attend(&reference, &layout, &fill(&reference), q, &queries[i..i + 1]).into();
            suite.compare(
                "attention, a token alone",
                &format_args!("{case}, token {i} alone"),
                nmse(bound, 0.01),
                &expected,
                &token,
            );
        }
        let of_sequence = |query: &(u32, u32)| query.0 == queries[i].0;
        let first = queries.iter().position(of_sequence).unwrap_or(0);
        let last = queries.iter().rposition(of_sequence).unwrap_or(0);
        let (of_whole, sequence) = alone(first..last + 1);
        suite.same(&format_args!("{case}, the sequence of token {i} alone"), &of_whole, &sequence);
    }
}

/// [`KvCopy`]: a copied sequence attends as the original does, whatever becomes of that.
pub fn copy(suite: &Suite) {
    let rng = &mut suite.rng("kv_copy");
    for (key_width, value_width, format) in [(64, 64, KvFormat::F16), (48, 80, KvFormat::F16), (48, 80, KvFormat::Q8_0)]
    {
        let spec = KvSpec { heads: 2, key_width, value_width, format };
        let layout = Layout::new(rng, spec, vec![37, 37]);
        let precision = Precision::Exact;
        let parameters =
            Parameters { heads: 4, temperature: None, window: None, sinks: None, softcap: None, precision };
        let (seed, q) = (rng.bits(), rng.normals(4 * key_width));
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
