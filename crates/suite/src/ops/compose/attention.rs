//! Attention with what precedes and follows it.

use super::super::attention::{
    FORMATS, Layout, Parameters, Written, short_and_one_long, some_temperature, some_window,
};
use super::super::common::*;
use crate::guarded::buffer;
use crate::rng::Rng;
use crate::suite::Output;
use crate::weights::tensor;
use gristmill_kernels::kv::{KvCache, KvFormat, KvSpec, Placement};
use gristmill_kernels::tensor::Buffer;
use gristmill_kernels::weight::Role;
use std::fmt;
use std::ops::Range;

const EPS: f32 = 1e-6;

/// How the queries, keys and values of a row are normalised and rotated.
struct Preparation {
    heads: usize,
    spec: KvSpec,
    /// Heads of queries and of keys that have weights of their own: one for all, or each.
    norm_heads: Option<(usize, usize)>,
    /// Weights for queries and for keys.
    norms: Option<[Vec<f32>; 2]>,
    /// Weights for values; only where queries and keys have some.
    value_norm: Option<Vec<f32>>,
    after_rotation: bool,
    style: RopeStyle,
    /// One for each pair of elements that is rotated.
    frequencies: Vec<f32>,
}

/// What a drawn [`Preparation`] may be, apart from the shape.
struct Choices<'a> {
    norm_heads: Option<(usize, usize)>,
    /// Heads of values with weights of their own.
    value_heads: Option<usize>,
    after_rotation: f64,
    pairs: &'a [usize],
}

impl Preparation {
    fn draw(rng: &mut Rng, heads: usize, spec: KvSpec, choices: Choices) -> Self {
        let KvSpec { key_width, value_width, .. } = spec;
        let Choices { norm_heads, value_heads, after_rotation, pairs } = choices;
        Self {
            heads,
            spec,
            norm_heads,
            norms: norm_heads.map(|(q, k)| [rng.normals(q * key_width), rng.normals(k * key_width)]),
            value_norm: value_heads.filter(|_| norm_heads.is_some()).map(|heads| rng.normals(heads * value_width)),
            after_rotation: rng.chance(after_rotation),
            style: rng.pick(&[RopeStyle::Halves, RopeStyle::Interleaved]),
            frequencies: (0..rng.pick(pairs)).map(|_| rng.uniform(0.0, 1.0) as f32).collect(),
        }
    }

    /// Columns of queries, of keys and of values in a row.
    fn columns(&self) -> [Range<usize>; 3] {
        let keys = self.heads * self.spec.key_width;
        let values = keys + self.spec.heads * self.spec.key_width;
        [0..keys, keys..values, values..values + self.spec.heads * self.spec.value_width]
    }

    fn width(&self) -> usize {
        self.columns()[2].end
    }

    fn on(&self, b: &Backend) -> Prepared<'_> {
        Prepared {
            of: self,
            rotary: Rotary { style: self.style, frequencies: buffer(b, &self.frequencies), magnitude: 1.1 },
            norms: self.norms.as_ref().map(|both| both.each_ref().map(|weight| buffer(b, weight))),
            values: self.value_norm.as_ref().map(|weight| buffer(b, weight)),
        }
    }
}

impl fmt::Display for Preparation {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Self { heads, spec, norm_heads, after_rotation, style, .. } = self;
        let values = self.value_norm.as_ref().map(|weight| weight.len() / spec.value_width);
        write!(
            f,
            "{heads} heads, {spec:?}, norms of {norm_heads:?}, after the rotation {after_rotation}, of values {values:?}, \
             {} pairs, {style:?}",
            self.frequencies.len()
        )
    }
}

/// A [`Preparation`] with its weights on a device.
struct Prepared<'a> {
    of: &'a Preparation,
    rotary: Rotary,
    norms: Option<[Buffer<f32>; 2]>,
    values: Option<Buffer<f32>>,
}

impl Prepared<'_> {
    fn norms(&self) -> Option<QkNorms<'_>> {
        self.norms.as_ref().map(|both| QkNorms {
            weights: both.each_ref(),
            values: self.values.as_ref(),
            eps: EPS,
            after_rotation: self.of.after_rotation,
        })
    }

    /// [`QkvWrite`].
    fn write(&self, b: &Backend, x: &mut Guarded<f32>, cache: &mut KvCache, placement: &Placement) {
        let qkv = x.view_mut();
        let heads = self.of.heads;
        let norms = self.norms();
        let rotary = &self.rotary;
        b.run(QkvWrite { qkv, heads, norms, rotary, cache, placement }).expect("qkv_write");
    }

    /// The parts of [`QkvWrite`], one by one.
    fn write_by_parts(
        &self,
        b: &Backend,
        rows: usize,
        x: &mut Guarded<f32>,
        cache: &mut KvCache,
        placement: &Placement,
    ) {
        let [q, k, v] = self.of.columns();
        let normalise = |x: &mut Guarded<f32>, weight: &Buffer<f32>, columns: Range<usize>| {
            let x = x.view_mut().columns(columns).expect("within");
            b.run(QkNorm { x, weight, eps: EPS }).expect("qk_norm");
        };
        let both = |x: &mut Guarded<f32>| {
            for (weight, columns) in self.norms.iter().flatten().zip([q.clone(), k.clone()]) {
                normalise(x, weight, columns);
            }
        };
        if !self.of.after_rotation {
            both(x);
        }
        let positions = placement.positions.view(rows, 1).expect("one for each token");
        let turned = x.view_mut().columns(0..k.end).expect("within");
        let head_width = self.of.spec.key_width;
        b.run(Rope { x: turned, head_width, first: 0, positions, rotary: &self.rotary }).expect("rope");
        if self.of.after_rotation {
            both(x);
        }
        if let Some(weight) = &self.values {
            normalise(x, weight, v.clone());
        }
        let [k, v] = [k, v].map(|columns| x.view().columns(columns).expect("within"));
        b.run(KvWrite { cache, k, v: Some(v), placement }).expect("kv_write");
    }
}

/// [`QkvWrite`]: what becomes of queries, keys and values against the reference; and what attention then sees
/// against that after the parts one by one, bit by bit, because two roundings of a number may fall on two sides of the
/// cache's.
pub fn qkv_write(suite: &Suite) {
    let rng = &mut suite.rng("qkv_write");
    for round in suite.some("qkv_write", 0..30) {
        let (key_width, value_width) = rng.pick(&[(64, 64), (128, 128), (80, 48), (33, 90), (576, 64)]);
        let spec = KvSpec {
            heads: rng.between(1, 3),
            key_width,
            value_width,
            format: FORMATS[round % 2],
            values_in_keys: false,
        };
        let heads = spec.heads * rng.pick(&[1, 2, 4]);
        let lengths: Vec<usize> = (0..rng.between(1, 3)).map(|_| rng.pick(&[1, 16, 33])).collect();
        let layout = Layout::new(rng, spec, lengths);
        let mut tokens = layout.tokens();
        tokens.insert(rng.below(tokens.len()), (u32::MAX, 3));
        let choices = Choices {
            // None, of heads, or of all heads together.
            norm_heads: [None, Some((1, 1)), Some((heads, spec.heads))][round % 3],
            value_heads: rng.pick(&[None, Some(1), Some(spec.heads)]),
            after_rotation: 0.4,
            pairs: &[key_width / 2, key_width / 4, 0],
        };
        let preparation = Preparation::draw(rng, heads, spec, choices);
        let guard = rng.pick(&[Guard::ODD, Guard { left: 4, right: 0, below: 1 }]);
        let qkv = rng.normals(tokens.len() * preparation.width());
        let queries = rng.normals(tokens.len() * heads * key_width);
        let used = layout.used_cache(rng.bits());
        let run = |b: &Backend, at_once: bool| {
            let placement = layout.placement(b, &tokens);
            let mut cache = used(b);
            let prepared = preparation.on(b);
            let mut x = Guarded::of(b, &qkv, tokens.len(), preparation.width(), guard);
            if at_once {
                prepared.write(b, &mut x, &mut cache, &placement);
            } else {
                prepared.write_by_parts(b, tokens.len(), &mut x, &mut cache, &placement);
            }
            let precision = Precision::Exact;
            let parameters = Parameters {
                heads,
                temperature: None,
                window: None,
                first: 0,
                ahead: None,
                sinks: None,
                softcap: None,
                precision,
            };
            (x.read(b), parameters.attend(b, &layout, &cache, &queries, &tokens))
        };
        let case = format!("{preparation}, {} tokens, {guard:?}", tokens.len());
        suite.check("qkv_write", &case, nmse(exact(key_width.max(value_width)) + 5e-14, 1.0), &|b| {
            run(b, true).0.into()
        });
        let [at_once, parts] = [true, false].map(|at_once| Output::from(run(suite.backend(), at_once).1));
        suite.same(&format_args!("{case}, what attention sees"), &parts, &at_once);
    }
}

/// A case of [`attend`].
struct AttendCase {
    layout: Layout,
    preparation: Preparation,
    parameters: Parameters,
    /// The last token of each sequence, or some of the last; and padding.
    tokens: Vec<(u32, u32)>,
    /// The keys and values of the tokens before them.
    before: Written,
    /// Makes caches whose blocks have all been used before.
    used_cache: Box<dyn Fn(&Backend) -> KvCache>,
    qkv: Vec<f32>,
    /// Queries that need no preparation.
    queries: Vec<f32>,
    /// A matrix that reads the results.
    weights: [TensorView; 1],
    guard: Guard,
    /// The matrix is named as the only reader of the results.
    named: bool,
}

/// The results of [`AttendCase::run`].
struct Attended {
    out: Vec<f32>,
    /// Of queries that need no preparation.
    of_queries: Vec<f32>,
    /// Products with both, and what attention sees in the cache.
    products_and_cache: Vec<f32>,
}

/// Elements of a product with the results.
const PRODUCTS: usize = 5;

impl AttendCase {
    fn draw(rng: &mut Rng, round: usize) -> Self {
        let widths = [(128, 128), (64, 64), (96, 128), (80, 80), (128, 64), (33, 90), (192, 128), (40, 32)];
        let (key_width, value_width) = widths[round % widths.len()];
        let format = if rng.chance(0.75) { KvFormat::F16 } else { KvFormat::Q8_0 };
        let spec = KvSpec { heads: rng.between(1, 3), key_width, value_width, format, values_in_keys: false };
        let heads = spec.heads * rng.pick(&[1, 2, 4, 8, 11]);
        let mut lengths = short_and_one_long(rng, 5, &[1, 2, 16, 17, 60, 129, 150, 300]);
        if rng.chance(0.05) {
            lengths[0] = rng.pick(&[450, 1300]);
        }
        let layout = Layout::new(rng, spec, lengths);
        let most = if round / 2 % 3 == 2 { 20 } else { 1 };
        // Long runs at fast precision whose readers are named have kernels of their own.
        let often = if most > 1 { 0.8 } else { 0.5 };
        let named = rng.chance(often);
        let precision = PRECISIONS[usize::from(rng.chance(often))];
        let [tokens, before] = last_tokens(rng, &layout, most);
        let choices = Choices {
            norm_heads: rng.pick(&[None, Some((1, 1)), Some((1, 1)), Some((heads, spec.heads))]),
            value_heads: rng.chance(0.2).then_some(1),
            after_rotation: 0.3,
            pairs: &[key_width / 2, key_width / 2, key_width / 4, 0],
        };
        let preparation = Preparation::draw(rng, heads, spec, choices);
        let parameters = Parameters {
            heads,
            temperature: rng.chance(0.3).then(|| some_temperature(rng)),
            window: rng.chance(0.3).then(|| some_window(rng)),
            first: rng.pick(&[0, 0, 0, 1]),
            ahead: rng.chance(0.2).then(|| rng.pick(&[2, 5, 20])),
            sinks: rng.chance(0.3).then(|| rng.normals(heads)),
            softcap: rng.chance(0.2).then_some(5.0),
            precision,
        };
        let out_width = heads * value_width;
        let of_matrix = if out_width.is_multiple_of(32) { Format::Q8_0 } else { Format::F32 };
        Self {
            guard: rng.pick(&[Guard::ODD, Guard { left: 4, right: 0, below: 1 }]),
            qkv: rng.normals(tokens.len() * preparation.width()),
            queries: rng.normals(tokens.len() * heads * key_width),
            weights: [tensor(rng, of_matrix, 1, PRODUCTS, out_width)],
            before: layout.written(&before, rng, 0.0),
            used_cache: Box::new(layout.used_cache(rng.bits())),
            layout,
            preparation,
            parameters,
            tokens,
            named,
        }
    }

    /// Runs both operations, or with `at_once` false their parts one by one.
    fn run(&self, b: &Backend, at_once: bool, named: bool) -> Attended {
        let Self { layout, preparation, parameters, tokens, guard, .. } = self;
        let rows = tokens.len();
        let guard = *guard;
        let heads = preparation.heads;
        let KvSpec { key_width, value_width, .. } = preparation.spec;
        let (q_width, out_width) = (heads * key_width, heads * value_width);
        let placement = layout.placement(b, tokens);
        let mut cache = (self.used_cache)(b);
        layout.write(b, &mut cache, &self.before);
        let prepared = preparation.on(b);
        let sinks = parameters.sinks.as_ref().map(|sinks| buffer(b, sinks));
        let ends = parameters.ends(layout, tokens).map(|ends| buffer(b, &ends));
        let options = parameters.attention(key_width, ends.as_ref(), sinks.as_ref());
        let mut x = Guarded::of(b, &self.qkv, rows, preparation.width(), guard);
        let mut out = Guarded::poisoned(b, rows, out_width, guard);
        let mut act = b.alloc_act(parameters.precision, rows + 1, out_width).expect("alloc_act");
        let matrix = b.prepare(&self.weights, Role::Matrix).expect("prepare");
        let name = |act: &mut Act| {
            if named {
                b.name_readers(act, &[ActReader::dense(&matrix, rows)]);
            }
        };
        let multiply = |act: &Act| {
            let mut y = Guarded::poisoned(b, rows, PRODUCTS, Guard::ODD);
            b.run(Matmul::new(&matrix, act, y.view_mut())).expect("matmul");
            y.read(b)
        };
        let norms = prepared.norms();
        let rotary = &prepared.rotary;
        if at_once {
            name(&mut act);
            let qkv = x.view_mut();
            let out = out.view_mut();
            let act = &mut act;
            let cache = &mut cache;
            let placement = &placement;
            b.run(Attend { qkv, norms, rotary, cache, placement, options, out, act }).expect("attend");
        } else {
            prepared.write(b, &mut x, &mut cache, &placement);
            let q = x.view().columns(0..q_width).expect("within");
            b.run(Attention { q, cache: &cache, placement: &placement, options, out: out.view_mut() })
                .expect("attention");
            b.run(PrepareActivations { x: out.view(), act: &mut act }).expect("prepare_activations");
        }
        let products = multiply(&act);
        let seen = parameters.attend(b, layout, &cache, &self.queries, tokens);
        let q = Guarded::of(b, &self.queries, rows, q_width, guard);
        let mut of_queries = Guarded::poisoned(b, rows, out_width, guard);
        let attention =
            Attention { q: q.view(), cache: &cache, placement: &placement, options, out: of_queries.view_mut() };
        if at_once {
            name(&mut act);
            b.run(AttentionAct { attention, act: &mut act, by_head: false }).expect("attention_act");
        } else {
            b.run(attention).expect("attention");
            b.run(PrepareActivations { x: of_queries.view(), act: &mut act }).expect("prepare_activations");
        }
        let products_and_cache = [products, seen, multiply(&act)].concat();
        Attended { out: out.read(b), of_queries: of_queries.read(b), products_and_cache }
    }

    /// The error that is allowed next to the parameters' own.
    ///
    /// An element of a new key may be rounded to the other side than the reference's, by 2⁻¹⁰ of it or one of 127 steps.
    /// That moves a logit by up to 2⁻¹⁰ or 2⁻⁷ · q · k · scale, of which 36 · 1.5 / √33 is as much as normals times
    /// weights give, and results by a quarter of that where two keys share them: squared, 5e-6 or 3e-4.
    fn bound(&self) -> f64 {
        let KvSpec { key_width, format, .. } = self.preparation.spec;
        self.parameters.bound(key_width) + if format == KvFormat::F16 { 5e-6 } else { 3e-4 }
    }
}

impl fmt::Display for AttendCase {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Self { layout, preparation, parameters, tokens, guard, named, .. } = self;
        let Parameters { temperature, window, first, ahead, softcap, precision, .. } = parameters;
        write!(
            f,
            "{preparation}, lengths {:?}, {} tokens, {temperature:?}, window {window:?} from {first}, ahead {ahead:?}, sinks {}, \
             softcap {softcap:?}, {precision:?}, {guard:?}, readers named: {named}",
            layout.lengths,
            tokens.len(),
            parameters.sinks.is_some(),
        )
    }
}

/// Up to `most` of the last tokens of each sequence, with padding among them; and the tokens before those.
fn last_tokens(rng: &mut Rng, layout: &Layout, most: usize) -> [Vec<(u32, u32)>; 2] {
    let mut tokens = Vec::new();
    let mut before = layout.tokens();
    for slot in rng.shuffled(layout.lengths.len()).into_iter().map(|slot| slot as usize) {
        let length = layout.lengths[slot];
        let some = if rng.chance(0.5) { most } else { rng.between(1, most) };
        let first = length.saturating_sub(some);
        before.retain(|&(of, p)| of != slot as u32 || (p as usize) < first);
        tokens.extend((first..length).map(|p| (slot as u32, p as u32)));
    }
    for _ in 0..rng.below(3) {
        tokens.insert(rng.below(tokens.len() + 1), (u32::MAX, 123_456));
    }
    [tokens, before]
}

/// [`AttentionAct`] and [`Attend`]: results, a product with the activations, and what attention sees
/// afterwards, all of them against the parts one by one, bit by bit; results also against the reference.
pub fn attend(suite: &Suite) {
    let rng = &mut suite.rng("attend");
    for round in suite.some("attend", 0..48) {
        let case = AttendCase::draw(rng, round);
        let name = case.to_string();
        suite.check("attend", &name, nmse(case.bound(), 0.01), &|b| case.run(b, true, false).out.into());
        let at_once = case.run(suite.backend(), true, case.named);
        let parts = case.run(suite.backend(), false, false);
        // With all readers named, results themselves are undefined.
        if !case.named {
            suite.same(&format_args!("{name}, results"), &parts.out.into(), &at_once.out.into());
            let [parts, at_once] = [parts.of_queries, at_once.of_queries].map(Output::from);
            suite.same(&format_args!("{name}, results of prepared queries"), &parts, &at_once);
        }
        let [parts, at_once] = [parts.products_and_cache, at_once.products_and_cache].map(Output::from);
        suite.same(&format_args!("{name}, products and cache"), &parts, &at_once);
    }
}
