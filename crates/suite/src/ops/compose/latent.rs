//! Latent attention with what precedes and follows it.

use super::super::attention::{FORMATS, Layout, Parameters, short_and_one_long};
use super::super::common::*;
use crate::guarded::buffer;
use crate::rng::Rng;
use crate::suite::Output;
use crate::weights::tensor;
use gristmill_kernels::kv::{KvCache, KvFormat, KvSpec, Placement};
use gristmill_kernels::weight::Role;
use gristmill_kernels::weight::Weight;
use std::fmt;

const EPS: f32 = 1e-6;

/// A case of [`latent_write`].
struct Case {
    layout: Layout,
    format: KvFormat,
    heads: usize,
    /// Columns of a latent row that are normalised, of queries and latent rows that are rotated, and of queries that are not.
    latent: usize,
    rotated: usize,
    plain: usize,
    /// Weights of the norm.
    norm: Vec<f32>,
    style: RopeStyle,
    /// One for each pair of columns that is rotated; `None` if nothing is.
    frequencies: Option<Vec<f32>>,
    tokens: Vec<(u32, u32)>,
    rows: Vec<f32>,
    queries: Vec<f32>,
    /// Matrices that read the plain columns of queries, and attention's results of a head.
    weights: [[TensorView; 1]; 2],
    guard: Guard,
    /// The matrices are named as the only readers.
    is_named: bool,
    used_cache: Box<dyn Fn(&Backend) -> KvCache>,
    precision: Precision,
}

/// Elements of a product.
const PRODUCTS: usize = 5;

/// The results of [`Case::run`].
struct Found {
    /// Rotated columns of queries, and products with the others.
    queries: Vec<f32>,
    /// What attention sees in the cache, and products with it.
    attended: Vec<f32>,
}

impl Case {
    fn draw(rng: &mut Rng, round: usize) -> Self {
        let shapes =
            [(512, 64, 128), (256, 64, 64), (64, 16, 32), (512, 64, 192), (40, 12, 33), (600, 8, 64), (33, 7, 20)];
        let (latent, rotated, plain) = shapes[round % shapes.len()];
        let key_width = latent + rotated;
        let format = FORMATS[round / 2 % 2];
        let spec = KvSpec { heads: 1, key_width, value_width: latent, format, values_in_keys: true };
        let lengths = short_and_one_long(rng, 4, &[1, 2, 16, 17, 60, 129]);
        let layout = Layout::new(rng, spec, lengths);
        let mut tokens = layout.tokens();
        tokens.insert(rng.below(tokens.len()), (u32::MAX, 3));
        let heads = rng.pick(&[1, 3, 4, 16, 20]);
        let count = tokens.len();
        let pairs = rng.pick(&[Some(rotated / 2), Some(rotated / 2), Some(rotated / 4), None]);
        let matrix = |rng: &mut Rng, inputs: usize| {
            let format = if inputs.is_multiple_of(32) { Format::Q8_0 } else { Format::F32 };
            [tensor(rng, format, 1, PRODUCTS, inputs)]
        };
        Self {
            format,
            heads,
            latent,
            rotated,
            plain,
            norm: rng.normals(latent),
            style: rng.pick(&[RopeStyle::Halves, RopeStyle::Interleaved]),
            frequencies: pairs.map(|pairs| (0..pairs).map(|_| rng.uniform(0.0, 1.0) as f32).collect()),
            rows: rng.normals(count * key_width),
            queries: rng.normals(count * heads * (plain + rotated)),
            weights: [matrix(rng, plain), matrix(rng, latent)],
            guard: rng.pick(&[Guard::ODD, Guard { left: 4, right: 0, below: 1 }]),
            is_named: rng.chance(0.5),
            used_cache: Box::new(layout.used_cache(rng.bits())),
            precision: PRECISIONS[usize::from(rng.chance(0.5))],
            layout,
            tokens,
        }
    }

    /// Runs both operations, or with `at_once` false their parts one by one.
    fn run(&self, b: &Backend, at_once: bool, is_named: bool) -> Found {
        let Self { heads, latent, rotated, plain, .. } = *self;
        let tokens = self.tokens.len();
        let key_width = latent + rotated;
        let of_heads = self.tokens.len() * heads;
        let placement = self.layout.placement(b, &self.tokens);
        let mut cache = (self.used_cache)(b);
        let norm = buffer(b, &self.norm);
        let rotary = self.frequencies.as_ref().map(|frequencies| Rotary {
            style: self.style,
            frequencies: buffer(b, frequencies),
            magnitude: 1.1,
        });
        let mut rows = Guarded::of(b, &self.rows, tokens, key_width, self.guard);
        // Queries are in adjacent rows.
        let mut queries = buffer(b, &self.queries);
        let mut of_rotated = Guarded::poisoned(b, of_heads, rotated, self.guard);
        let [of_plain, of_attention] = self.weights.each_ref().map(|it| b.prepare(it, Role::Matrix).expect("prepare"));
        let mut act = b.alloc_act(Precision::Fast, of_heads + 1, plain).expect("alloc_act");
        let readers = [ActReader::dense(&of_plain, of_heads)];
        if is_named {
            b.name_readers(&mut act, &readers);
        }
        let queries = queries.view_mut(tokens, heads * (plain + rotated)).expect("all of them");
        let rows = rows.view_mut();
        let to = of_rotated.view_mut();
        let cache = &mut cache;
        let call = LatentWrite {
            rows,
            queries,
            heads,
            norm: &norm,
            eps: EPS,
            rotary: rotary.as_ref(),
            cache,
            placement: &placement,
            plain: &mut act,
            rotated: to,
        };
        if at_once {
            b.run(call).expect("latent_write")
        } else {
            by_parts(b, call)
        }
        let products = multiply(b, &of_plain, &act, of_heads);
        let attended = self.attend(b, cache, &placement, &of_attention, at_once, is_named);
        Found { queries: [of_rotated.read(b), products].concat(), attended }
    }

    /// [`AttentionAct`] by head: results, and products with the activations.
    fn attend(
        &self,
        b: &Backend,
        cache: &KvCache,
        placement: &Placement,
        weight: &Weight,
        at_once: bool,
        is_named: bool,
    ) -> Vec<f32> {
        let Self { heads, latent, rotated, precision, .. } = *self;
        let tokens = self.tokens.len();
        let of_heads = self.tokens.len() * heads;
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
        // Queries that need no preparation.
        let q: Vec<f32> = self.queries.iter().copied().cycle().take(of_heads * (latent + rotated)).collect();
        let q = buffer(b, &q);
        let mut out = buffer(b, &vec![f32::NAN; of_heads * latent]);
        let q = q.view(tokens, heads * (latent + rotated)).expect("all of them");
        let options = parameters.attention(latent + rotated, None, None);
        let mut act = b.alloc_act(Precision::Fast, of_heads + 1, latent).expect("alloc_act");
        let readers = [ActReader::dense(weight, of_heads)];
        if is_named {
            b.name_readers(&mut act, &readers);
        }
        let view = out.view_mut(tokens, heads * latent).expect("all of them");
        let attention = Attention { q, cache, placement, options, out: view };
        if at_once {
            b.run(AttentionAct { attention, act: &mut act, by_head: true }).expect("attention_act");
        } else {
            b.run(attention).expect("attention");
            let x = out.view(of_heads, latent).expect("all of them");
            b.run(PrepareActivations { x, act: &mut act }).expect("prepare_activations");
        }
        let mut found = multiply(b, weight, &act, of_heads);
        if !is_named {
            let mut values = vec![0.0; of_heads * latent];
            b.download(out.view(1, values.len()).expect("all of them"), &mut values).expect("download");
            found.extend(values);
        }
        found
    }
}

/// The parts of [`LatentWrite`], one by one.
fn by_parts(b: &Backend, call: LatentWrite) {
    let LatentWrite { mut rows, mut queries, heads, norm, eps, rotary, cache, placement, plain, rotated } = call;
    let (tokens, row, latent) = (rows.rows(), rows.cols(), norm.len());
    let width = queries.cols() / heads;
    let turned = row - latent;
    b.run(QkNorm { x: rows.reborrow().columns(0..latent).expect("within"), weight: norm, eps }).expect("qk_norm");
    if let Some(rotary) = rotary {
        let positions = placement.positions.view(tokens, 1).expect("one for each token");
        let x = rows.reborrow().columns(latent..row).expect("within");
        b.run(Rope { x, head_width: turned, first: 0, positions, rotary }).expect("rope");
        let x = queries.reborrow();
        let first = width - turned;
        b.run(Rope { x, head_width: width, first, positions, rotary }).expect("rope");
    }
    b.run(KvWrite { cache, k: rows.as_view(), v: None, placement }).expect("kv_write");
    let queries = queries.as_view().split(heads).expect("adjacent rows");
    let [first, last] = [0..width - turned, width - turned..width].map(|it| queries.columns(it).expect("within"));
    b.run(PrepareActivations { x: first, act: plain }).expect("prepare_activations");
    b.run(CopyRows { x: last, out: rotated }).expect("copy_rows");
}

fn multiply(b: &Backend, weight: &Weight, act: &Act, rows: usize) -> Vec<f32> {
    let mut y = Guarded::poisoned(b, rows, PRODUCTS, Guard::ODD);
    b.run(Matmul::new(weight, act, y.view_mut())).expect("matmul");
    y.read(b)
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Self {
            layout, heads, latent, rotated, plain, style, frequencies, guard, is_named, precision, format, ..
        } = self;
        let pairs = frequencies.as_ref().map(Vec::len);
        write!(
            f,
            "{heads} heads, latent {latent}, rotated {rotated}, plain {plain}, {pairs:?} pairs, {style:?}, {:?}, lengths {:?}, \
             {precision:?}, {guard:?}, readers named: {is_named}",
            format, layout.lengths,
        )
    }
}

/// [`LatentWrite`] and [`AttentionAct`] by head against their parts one by one, bit by bit; queries also against the
/// reference.
pub fn latent_write(suite: &Suite) {
    let rng = &mut suite.rng("latent_write");
    for round in suite.some("latent_write", 0..14) {
        let case = Case::draw(rng, round);
        let name = case.to_string();
        let [at_once, parts] =
            [true, false].map(|at_once| case.run(suite.backend(), at_once, at_once && case.is_named));
        suite.same(&format_args!("{name}, queries"), &parts.queries.clone().into(), &at_once.queries.clone().into());
        // With all readers named, attention's results themselves are undefined.
        let common = parts.attended.len().min(at_once.attended.len());
        let [parts, at_once] = [parts, at_once].map(|found| Output::from(found.attended[..common].to_vec()));
        suite.same(&format_args!("{name}, what attention sees"), &parts, &at_once);
        suite.check("latent_write", &name, nmse(exact(case.latent) + 5e-14, 1.0), &|b| {
            let Found { queries, .. } = case.run(b, true, false);
            queries[..case.tokens.len() * case.heads * case.rotated].to_vec().into()
        });
    }
}
