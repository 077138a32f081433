//! Compositions that a backend may do at once: what they give, against the reference, which does their parts one after
//! another.

use super::attention::{self, FORMATS, Layout, Parameters};
use super::gated::{self, is_smooth};
use super::*;
use crate::framed::buffer;
use crate::rng::Rng;
use crate::suite::Output;
use crate::weights::{energy, tensor};
use gristmill_kernels::groups::Groups;
use gristmill_kernels::kv::{KvFormat, KvSpec};
use gristmill_kernels::tensor::{Buffer, ViewMut};
use gristmill_kernels::weight::Role;

/// What of a norm and what follows it is compared.
#[derive(Clone, Copy)]
enum Part {
    Normed,
    /// The product of a matrix with these activations.
    Product(usize),
    /// The product that was made at once.
    Answer,
}

/// Rows of which the first is large: its neighbours must be as if alone.
fn uneven(rng: &mut Rng, rows: usize, cols: usize) -> Vec<f32> {
    let mut x = rng.normals(rows * cols);
    x.iter_mut().take(cols).for_each(|x| *x *= 1e3);
    x
}

/// [`NormAct`]: the norm, and products with each of the activations.
pub fn norm_act(suite: &Suite) {
    use Precision::{Exact, Fast};
    let rng = &mut suite.rng("norm_act");
    let sorts: [&[Precision]; 5] = [&[], &[Fast], &[Exact], &[Exact, Fast], &[Fast, Fast]];
    let sizes = TOKENS.iter().flat_map(|&tokens| [17, 64, 203, 640].map(|cols| (tokens, cols)));
    for (i, (tokens, cols)) in suite.some("norm_act", sizes.chain([(3, 2048), (2, 9216)]).enumerate()) {
        let precisions = sorts[i % sorts.len()];
        let (x, weight) = (uneven(rng, tokens, cols), rng.normals(cols));
        let eps = rng.pick(&[1e-5, 1e-6]);
        let format = if cols.is_multiple_of(32) { Format::Q8_0 } else { Format::F32 };
        let tensors = [tensor(rng, format, 1, 5, cols)];
        let run = |b: &Backend, part: Part| {
            let x = Framed::of(b, &x, tokens, cols, Frame::ODD);
            let mut normed = Framed::poisoned(b, tokens, cols, Frame { left: 4, right: 0, below: 1 });
            let mut acts: Vec<Act> =
                precisions.iter().map(|&p| b.alloc_act(p, tokens + 1, cols).expect("alloc_act")).collect();
            let mut filled = acts.iter_mut();
            let norm = RmsNorm { x: x.view(), weight: &buffer(b, &weight), eps, out: normed.view_mut() };
            b.run(NormAct { norm, acts: [filled.next(), filled.next()] }).expect("norm_act");
            let Part::Product(which) = part else { return normed.read(b).into() };
            let matrix = b.prepare(&tensors, Role::Matrix).expect("prepare");
            let mut y = Framed::poisoned(b, tokens, 5, Frame::ODD);
            b.run(Matmul::new(&matrix, &acts[which], y.view_mut())).expect("matmul");
            Output::from(y.read(b))
        };
        let case = format!("{tokens} × {cols}, activations {precisions:?}");
        let got = suite.check("norm_act", &case, nmse(exact(cols), 0.1), &|b| run(b, Part::Normed));
        let normed = &got.floats[..];
        for (which, &precision) in precisions.iter().enumerate() {
            let case = format!("{case}, number {which} times {}", tensors[0].name);
            let bound = product_bound(&tensors, precision, normed) + 2.0 * exact(cols);
            let kind = kind(["norm_act exact", "norm_act bf16", "norm_act int8"], &tensors, precision);
            suite.check(kind, &case, nmse(bound, energy(&tensors, normed)), &|b| run(b, Part::Product(which)));
        }
    }
}

/// [`NormMatmul`]: its answer, the norm, and products with each of the activations, which others may read.
pub fn norm_matmul(suite: &Suite) {
    use Precision::{Exact, Fast};
    let rng = &mut suite.rng("norm_matmul");
    let sorts: [&[Precision]; 4] = [&[Fast], &[Exact, Fast], &[Exact], &[Fast, Exact]];
    for round in suite.some("norm_matmul", 0..40) {
        let (precisions, tokens) = (sorts[round % sorts.len()], rng.pick(&[0, 1, 1, 1, 2, 8, 9, 33]));
        let first = rng.pick(Format::ALL);
        let other = |rng: &mut Rng| if rng.chance(0.5) { first } else { rng.pick(Format::ALL) };
        let formats: Vec<Format> = (0..rng.between(1, 2)).map(|i| if i == 0 { first } else { other(rng) }).collect();
        let cols = if formats.iter().any(|format| !format.is_float()) { 256 * rng.between(1, 3) } else { 203 };
        let mut part = |&format: &Format| {
            // Large weights for few tokens, which some kernels take by themselves.
            let rows = rng.pick(if tokens <= 2 { &[1, 15, 40, 1100] } else { &[1, 15, 40, 130] });
            tensor(rng, format, 1, rows, cols)
        };
        let tensors: Vec<_> = formats.iter().map(&mut part).collect();
        let rows: usize = tensors.iter().map(|tensor| tensor.rows).sum();
        let (x, weight) = (uneven(rng, tokens, cols), rng.normals(cols));
        let bias = rng.chance(0.5).then(|| rng.normals(rows));
        let run = |b: &Backend, part: Part| {
            let x = Framed::of(b, &x, tokens, cols, Frame::ODD);
            let mut normed = Framed::poisoned(b, tokens, cols, Frame::ODD);
            let mut acts: Vec<Act> =
                precisions.iter().map(|&p| b.alloc_act(p, tokens + 1, cols).expect("alloc_act")).collect();
            let (act, others) = acts.split_first_mut().expect("one at least");
            let matrix = b.prepare(&tensors, Role::Matrix).expect("prepare");
            let bias = bias.as_ref().map(|bias| buffer(b, bias));
            let mut y = Framed::poisoned(b, tokens, rows, Frame::ODD);
            let norm = RmsNorm { x: x.view(), weight: &buffer(b, &weight), eps: 1e-5, out: normed.view_mut() };
            let (bias, weight) = (bias.as_ref(), &matrix);
            b.run(NormMatmul { norm, act, other: others.first_mut(), weight, bias, y: y.view_mut() })
                .expect("norm_matmul");
            match part {
                Part::Normed => normed.read(b).into(),
                Part::Answer => y.read(b).into(),
                Part::Product(which) => {
                    let mut y = Framed::poisoned(b, tokens, rows, Frame::ODD);
                    b.run(Matmul { bias, ..Matmul::new(&matrix, &acts[which], y.view_mut()) }).expect("matmul");
                    y.read(b).into()
                }
            }
        };
        let name = &tensors[0].name;
        let case = format!("{tokens} tokens, {name}, {} parts, activations {precisions:?}", tensors.len());
        let got = suite.check("norm_matmul: norm", &case, nmse(exact(cols), 0.1), &|b| run(b, Part::Normed));
        let normed = &got.floats[..];
        let answers = [(precisions[0], Part::Answer)].into_iter();
        let products = precisions.iter().enumerate().map(|(which, &precision)| (precision, Part::Product(which)));
        for (precision, part) in answers.chain(products) {
            let bound = product_bound(&tensors, precision, normed) + 2.0 * exact(cols);
            let kind = kind(["norm_matmul exact", "norm_matmul bf16", "norm_matmul int8"], &tensors, precision);
            suite.check(kind, &case, nmse(bound, energy(&tensors, normed)), &|b| run(b, part));
        }
    }
}

/// An output as an epilogue leaves it, for a test.
#[derive(Clone, Debug)]
struct Target {
    epilogue: Epilogue,
    /// What is there before, if the epilogue adds.
    before: Vec<f32>,
}

impl Target {
    fn new(rng: &mut Rng, len: usize) -> Self {
        let scale = rng.pick(&[1.0, 0.22]);
        let epilogue = if rng.chance(0.6) { Epilogue::Add { scale } } else { Epilogue::Store };
        Self { epilogue, before: rng.normals(len) }
    }

    /// Calls `work` with an output, and gives what is there afterwards.
    fn after(&self, b: &Backend, rows: usize, cols: usize, work: &dyn Fn(ViewMut<f32>)) -> Output {
        let mut y = match self.epilogue {
            Epilogue::Add { .. } => Framed::of(b, &self.before, rows, cols, Frame::ODD),
            Epilogue::Store => Framed::poisoned(b, rows, cols, Frame::ODD),
        };
        work(y.view_mut());
        y.read(b).into()
    }
}

/// [`Matmul`] with every epilogue, of all rows of X and of some.
pub fn epilogues(suite: &Suite) {
    let rng = &mut suite.rng("epilogues");
    for (i, &tokens) in suite.some("epilogues", TOKENS.iter().chain(TOKENS).enumerate()) {
        let precision = PRECISIONS[i % 2];
        let tensors: Vec<_> = (0..rng.between(1, 2))
            .map(|_| {
                let (format, rows) = (rng.pick(Format::ALL), rng.pick(&[1, 17, 130]));
                tensor(rng, format, 1, rows, 256)
            })
            .collect();
        let rows: usize = tensors.iter().map(|tensor| tensor.rows).sum();
        let (x, target) = (rng.normals(tokens * 256), Target::new(rng, tokens * rows));
        let bias = rng.chance(0.5).then(|| rng.normals(rows));
        let chosen =
            (tokens > 0 && rng.chance(0.4)).then(|| (0..tokens).map(|_| rng.below(tokens) as u32).collect::<Vec<_>>());
        let run = |b: &Backend| {
            let weight = b.prepare(&tensors, Role::Matrix).expect("prepare");
            let bias = bias.as_ref().map(|bias| buffer(b, bias));
            let chosen = chosen.as_ref().map(|chosen| Framed::of(b, chosen, tokens, 1, Frame::ODD));
            target.after(b, tokens, rows, &|y| {
                let act = activations(b, precision, &x, tokens, 256);
                let (bias, epilogue) = (bias.as_ref(), target.epilogue);
                let rows = chosen.as_ref().map(Framed::view);
                b.run(Matmul { rows, bias, epilogue, ..Matmul::new(&weight, &act, y) }).expect("matmul");
            })
        };
        let case = format!("{} · {tokens}, {precision:?}, {:?}, rows {chosen:?}", tensors[0].name, target.epilogue);
        let kind = kind(["epilogues exact", "epilogues bf16", "epilogues int8"], &tensors, precision);
        suite.check(kind, &case, nmse(product_bound(&tensors, precision, &x), energy(&tensors, &x)), &run);
    }
}

fn words(b: &Backend, buffer: &Buffer<u32>, len: usize) -> Vec<u32> {
    let mut words = vec![0; len];
    b.download(buffer.view(1, len).expect("within"), &mut words).expect("download");
    words
}

/// Tiles with their number in front.
fn tiles(b: &Backend, groups: &Groups) -> Vec<u32> {
    let count = words(b, groups.tile_count(), 1);
    let tiles = words(b, groups.tiles(), 3 * count[0] as usize);
    [count, tiles].concat()
}

/// [`RouteAndGroup`]: ids, counts and pairs exactly, weights closely, tiles as grouping alone gives them.
pub fn route_and_group(suite: &Suite) {
    let rng = &mut suite.rng("route_and_group");
    for round in suite.some("route_and_group", 0..60) {
        let (experts, tokens) = (rng.pick(&[1, 8, 60, 128, 256, 1024]), rng.pick(&[0, 1, 2, 7, 32, 33]));
        let top_k = rng.between(1, experts.min(9));
        let gating = [Gating::Softmax, Gating::SoftmaxOfChosen, Gating::Sigmoid][round % 3];
        let routing = Routing { gating, scale: 1.5, ..Routing::softmax(top_k, rng.chance(0.5)) };
        let logits = rng.normals(tokens * experts);
        let bias = rng.chance(0.3).then(|| rng.normals(experts));
        let run = |b: &Backend| {
            let logits = Framed::of(b, &logits, tokens, experts, Frame::ODD);
            let bias = bias.as_ref().map(|bias| buffer(b, bias));
            let mut ids = Framed::poisoned(b, tokens, top_k, Frame::ODD);
            let mut weights = Framed::poisoned(b, tokens, top_k, Frame::ODD);
            let mut groups = b.alloc_groups(experts, tokens * top_k + 3).expect("alloc_groups");
            let route = Route {
                logits: logits.view(),
                routing: &routing,
                selection_bias: bias.as_ref(),
                ids: ids.view_mut(),
                weights: weights.view_mut(),
            };
            b.run(RouteAndGroup { route, groups: &mut groups }).expect("route_and_group");
            let mut again = b.alloc_groups(experts, tokens * top_k).expect("alloc_groups");
            b.run(GroupByExpert { ids: ids.view(), groups: &mut again }).expect("group_by_expert");
            suite.same(&"tiles", &tiles(b, &groups).into(), &tiles(b, &again).into());
            let sorted = [words(b, groups.counts(), experts), words(b, groups.pairs(), tokens * top_k)].concat();
            Output { floats: weights.read(b), words: [ids.read(b), sorted].concat() }
        };
        let case = format!("{tokens} tokens, {experts} experts, {routing:?}, bias {}", bias.is_some());
        suite.check("route_and_group", &case, nmse(ROUTE, 0.0), &run);
    }
}

/// [`Experts`]: ids exactly, weights closely, and the answer.
pub fn experts(suite: &Suite) {
    let rng = &mut suite.rng("experts");
    for round in suite.some("experts", 0..40) {
        let (count, tokens) = (rng.pick(&[1, 8, 60, 128, 200, 300]), rng.pick(&[0, 1, 1, 2, 4, 5, 33]));
        // More than a block of the kernel that joins them has warps, now and then.
        let most = if rng.chance(0.4) { count.min(11) } else { rng.between(1, count.min(8)) };
        let (precision, top_k) = (PRECISIONS[round % 2], most);
        let gating = [Gating::Softmax, Gating::SoftmaxOfChosen, Gating::Sigmoid][rng.below(3)];
        let routing = Routing { gating, scale: 1.5, ..Routing::softmax(top_k, rng.chance(0.5)) };
        // Of many experts, small ones: encoding them is what the test's time goes to.
        let small: Vec<Format> = Format::ALL.iter().copied().filter(|format| format.block_len() <= 32).collect();
        let (formats, hidden) = if count > 8 { (&small[..], 64) } else { (Format::ALL, 256) };
        let gate = rng.pick(formats);
        let up = if rng.chance(0.2) { rng.pick(formats) } else { gate };
        let down = rng.pick(formats);
        let inner = if down.is_float() { rng.between(1, 40) } else { down.block_len() };
        let outputs = if count > 8 { rng.between(1, 9) } else { rng.between(1, 70) };
        let gates = [tensor(rng, gate, count, inner, hidden), tensor(rng, up, count, inner, hidden)];
        let downs = [tensor(rng, down, count, outputs, inner)];
        let (mut x, logits) = (rng.normals(tokens * hidden), rng.normals(tokens * count));
        let selection_bias = rng.chance(0.2).then(|| rng.normals(count));
        let biases = rng.chance(0.5).then(|| {
            let all = [count * inner, count * inner, count * outputs];
            all.map(|len| rng.normals(len))
        });
        let target = Target::new(rng, tokens * outputs);
        let activation = rng.pick(&[Activation::SwiGlu, Activation::ClampedSwiGlu { alpha: 1.702, limit: 1.25 }]);
        if is_smooth(activation) {
            sometimes_huge(rng, &mut x);
        }
        let run = |b: &Backend| {
            let gate_up = &b.prepare(&gates, Role::GateUp).expect("prepare");
            let down = &b.prepare(&downs, Role::Matrix).expect("prepare");
            let logits = Framed::of(b, &logits, tokens, count, Frame::ODD);
            let bias = selection_bias.as_ref().map(|bias| buffer(b, bias));
            let buffers = biases.as_ref().map(|all| all.each_ref().map(|values| buffer(b, values)));
            let experts = ExpertWeights {
                gate_up,
                down,
                activation,
                gate_up_bias: buffers.as_ref().map(|[gate, up, _]| [gate, up]),
                down_bias: buffers.as_ref().map(|[_, _, down]| down),
            };
            let pairs = tokens * top_k;
            let chosen = std::cell::RefCell::new(Output::default());
            let output = target.after(b, tokens, outputs, &|y| {
                let mut ids = Framed::poisoned(b, tokens, top_k, Frame::ODD);
                let mut weights = Framed::poisoned(b, tokens, top_k, Frame::ODD);
                let mut groups = b.alloc_groups(count, pairs + 3).expect("alloc_groups");
                let mut h = Framed::poisoned(b, pairs, inner, Frame::ODD);
                let mut inner_act = b.alloc_act(precision, pairs + 1, inner).expect("alloc_act");
                let mut out = Framed::poisoned(b, pairs, outputs, Frame::ODD);
                let act = activations(b, precision, &x, tokens, hidden);
                let call = Experts {
                    route: Route {
                        logits: logits.view(),
                        routing: &routing,
                        selection_bias: bias.as_ref(),
                        ids: ids.view_mut(),
                        weights: weights.view_mut(),
                    },
                    weights: experts,
                    x: &act,
                    scratch: ExpertScratch {
                        groups: &mut groups,
                        h: h.view_mut(),
                        act: &mut inner_act,
                        out: out.view_mut(),
                    },
                    epilogue: target.epilogue,
                    y,
                };
                b.run(call).expect("experts");
                *chosen.borrow_mut() = Output { floats: weights.read(b), words: ids.read(b) };
            });
            (chosen.into_inner(), output)
        };
        let case = format!(
            "{tokens} tokens, {count} experts, {routing:?}, {}, {}, {}, {precision:?}, {:?}, selection bias {}",
            gates[0].name,
            gates[1].name,
            downs[0].name,
            target.epilogue,
            selection_bias.is_some()
        );
        suite.check("experts: weights", &case, nmse(ROUTE, 0.0), &|b| run(b).0);
        // Errors of the gated activations (see `gated`), and of the product with them, which are far from normal: a
        // few of 32 are large.
        let rounded = product_bound(&gates, precision, &x);
        let inside = 4.0 * rounded + 1e-13;
        let normals = rng.normals(64 * inner);
        let bound = 2.0 * inside + 4.0 * product_bound(&downs, precision, &normals);
        let all = [&gates[..], &downs[..]].concat();
        let kind = kind(["experts exact", "experts bf16", "experts int8"], &all, precision);
        suite.check(kind, &case, gated::sums(bound, activation, &x, inner, outputs), &|b| run(b).1);
    }
}

/// [`QkvWrite`]: what becomes of queries, keys and values against the reference; and what attention then sees
/// against that after the parts one by one, bit by bit, because two roundings of a number may fall on two sides of the
/// cache's.
pub fn qkv_write(suite: &Suite) {
    let rng = &mut suite.rng("qkv_write");
    for round in suite.some("qkv_write", 0..30) {
        let (key_width, value_width) = rng.pick(&[(64, 64), (128, 128), (80, 48), (33, 90), (576, 64)]);
        let spec = KvSpec { heads: rng.between(1, 3), key_width, value_width, format: FORMATS[round % 2] };
        let heads = spec.heads * rng.pick(&[1, 2, 4]);
        let lengths: Vec<usize> = (0..rng.between(1, 3)).map(|_| rng.pick(&[1, 16, 33])).collect();
        let layout = Layout::new(rng, spec, lengths);
        let mut tokens = layout.tokens();
        tokens.insert(rng.below(tokens.len()), (u32::MAX, 3));
        // None, of heads, or of all heads together.
        let norm_heads = [None, Some((1, 1)), Some((heads, spec.heads))][round % 3];
        let norms = norm_heads.map(|(q, k)| [rng.normals(q * key_width), rng.normals(k * key_width)]);
        let pairs = rng.pick(&[key_width / 2, key_width / 4, 0]);
        let frequencies: Vec<f32> = (0..pairs).map(|_| rng.uniform(0.0, 1.0) as f32).collect();
        let style = rng.pick(&[RopeStyle::Halves, RopeStyle::Interleaved]);
        let (k, v) = (heads * key_width, (heads + spec.heads) * key_width);
        let all = v + spec.heads * value_width;
        let qkv = rng.normals(tokens.len() * all);
        let queries = rng.normals(tokens.len() * k);
        let seed = rng.bits();
        let run = |b: &Backend, at_once: bool| {
            let (placement, mut cache) = (layout.placement(b, &tokens), layout.used_cache(b, seed));
            let rotary = Rotary { style, frequencies: buffer(b, &frequencies), magnitude: 1.1 };
            let weights = norms.as_ref().map(|both| both.each_ref().map(|weight| buffer(b, weight)));
            let mut x = Framed::of(b, &qkv, tokens.len(), all, Frame::ODD);
            if at_once {
                let norms = weights.as_ref().map(|both| QkNorms { weights: both.each_ref(), eps: 1e-6 });
                let (qkv, cache, placement, rotary) = (x.view_mut(), &mut cache, &placement, &rotary);
                b.run(QkvWrite { qkv, heads, norms, rotary, cache, placement }).expect("qkv_write");
            } else {
                for (weight, columns) in weights.iter().flatten().zip([0..k, k..v]) {
                    b.run(QkNorm { x: x.view_mut().columns(columns).expect("within"), weight, eps: 1e-6 })
                        .expect("qk_norm");
                }
                let positions = placement.positions.view(tokens.len(), 1).expect("one for each token");
                let turned = x.view_mut().columns(0..v).expect("within");
                b.run(Rope { x: turned, head_width: key_width, positions, rotary: &rotary }).expect("rope");
                let [keys, values] = [k..v, v..all].map(|columns| x.view().columns(columns).expect("within"));
                b.run(KvWrite { cache: &mut cache, k: keys, v: values, placement: &placement }).expect("kv_write");
            }
            let parameters = Parameters { heads, window: None, sinks: None, softcap: None };
            (x.read(b), parameters.attend(b, &layout, &cache, &queries, &tokens))
        };
        let case = format!("{heads} heads, {spec:?}, {} tokens, norms of {norm_heads:?}, {pairs} pairs", tokens.len());
        suite.check("qkv_write", &case, nmse(exact(key_width) + 5e-14, 1.0), &|b| run(b, true).0.into());
        let [at_once, parts] = [true, false].map(|at_once| Output::from(run(suite.backend(), at_once).1));
        suite.same(&format_args!("{case}, what attention sees"), &parts, &at_once);
    }
}

/// [`AttentionAct`] and [`Attend`]: results, a product with the activations, and what attention sees
/// afterwards, all of them against the parts one by one, bit by bit; results also against the reference.
pub fn attend(suite: &Suite) {
    let rng = &mut suite.rng("attend");
    for round in suite.some("attend", 0..48) {
        let widths = [(128, 128), (64, 64), (96, 128), (80, 80), (128, 64), (33, 90), (192, 128), (40, 32)];
        let (key_width, value_width) = widths[round % widths.len()];
        let format = if rng.chance(0.75) { KvFormat::F16 } else { KvFormat::Q8_0 };
        let spec = KvSpec { heads: rng.between(1, 3), key_width, value_width, format };
        let heads = spec.heads * rng.pick(&[1, 2, 4, 8, 11]);
        let mut lengths: Vec<usize> =
            (0..rng.between(1, 5)).map(|_| rng.pick(&[1, 2, 16, 17, 60, 129, 150, 300])).collect();
        if rng.chance(0.05) {
            lengths[0] = rng.pick(&[450, 1300]);
        }
        let layout = Layout::new(rng, spec, lengths);
        // The last token of each sequence, or some of the last; and padding.
        let (mut tokens, mut before) = (Vec::new(), layout.tokens());
        let most = if round / 2 % 3 == 2 { 20 } else { 1 };
        for slot in rng.shuffled(layout.lengths.len()).into_iter().map(|slot| slot as usize) {
            let (length, some) = (layout.lengths[slot], rng.between(1, most));
            let first = length.saturating_sub(some);
            before.retain(|&(of, p)| of != slot as u32 || (p as usize) < first);
            tokens.extend((first..length).map(|p| (slot as u32, p as u32)));
        }
        for _ in 0..rng.below(3) {
            tokens.insert(rng.below(tokens.len() + 1), (u32::MAX, 123_456));
        }
        let norm_heads = rng.pick(&[None, Some((1, 1)), Some((1, 1)), Some((heads, spec.heads))]);
        let norms = norm_heads.map(|(q, k)| [rng.normals(q * key_width), rng.normals(k * key_width)]);
        let pairs = rng.pick(&[key_width / 2, key_width / 2, key_width / 4, 0]);
        let frequencies: Vec<f32> = (0..pairs).map(|_| rng.uniform(0.0, 1.0) as f32).collect();
        let style = rng.pick(&[RopeStyle::Halves, RopeStyle::Interleaved]);
        let parameters = Parameters {
            heads,
            window: rng.chance(0.3).then(|| rng.pick(&[1, 15, 17, 40])),
            sinks: rng.chance(0.3).then(|| rng.normals(heads)),
            softcap: rng.chance(0.2).then_some(5.0),
        };
        let precision = rng.pick(&PRECISIONS);
        let frame = rng.pick(&[Frame::ODD, Frame { left: 4, right: 0, below: 1 }]);
        let (rows, q_width, out_width) = (tokens.len(), heads * key_width, heads * value_width);
        let all = q_width + spec.heads * (key_width + value_width);
        let qkv = rng.normals(rows * all);
        let queries = rng.normals(rows * q_width);
        let weights =
            [tensor(rng, if out_width.is_multiple_of(32) { Format::Q8_0 } else { Format::F32 }, 1, 5, out_width)];
        let seed = rng.bits();
        let run = |b: &Backend, at_once: bool| {
            let (placement, mut cache) = (layout.placement(b, &tokens), layout.used_cache(b, seed));
            layout.write(b, &mut cache, &before, &mut Rng::new(seed ^ 1), 0.0);
            let rotary = Rotary { style, frequencies: buffer(b, &frequencies), magnitude: 1.1 };
            let norms = norms.as_ref().map(|both| both.each_ref().map(|weight| buffer(b, weight)));
            let norms = norms.as_ref().map(|both| QkNorms { weights: both.each_ref(), eps: 1e-6 });
            let sinks = parameters.sinks.as_ref().map(|sinks| buffer(b, sinks));
            let options = parameters.attention(key_width, sinks.as_ref());
            let mut x = Framed::of(b, &qkv, rows, all, frame);
            let mut out = Framed::poisoned(b, rows, out_width, frame);
            let mut act = b.alloc_act(precision, rows + 1, out_width).expect("alloc_act");
            let matrix = b.prepare(&weights, Role::Matrix).expect("prepare");
            if at_once {
                let (qkv, out, act, cache) = (x.view_mut(), out.view_mut(), &mut act, &mut cache);
                let (placement, rotary) = (&placement, &rotary);
                b.run(Attend { qkv, norms, rotary, cache, placement, options, out, act }).expect("attend");
            } else {
                let (qkv, cache_mut, placement, rotary) = (x.view_mut(), &mut cache, &placement, &rotary);
                b.run(QkvWrite { qkv, heads, norms, rotary, cache: cache_mut, placement }).expect("qkv_write");
                let q = x.view().columns(0..q_width).expect("within");
                b.run(Attention { q, cache: &cache, placement, options, out: out.view_mut() }).expect("attention");
                b.run(PrepareActivations { x: out.view(), act: &mut act }).expect("prepare_activations");
            }
            let mut y = Framed::poisoned(b, rows, 5, Frame::ODD);
            b.run(Matmul::new(&matrix, &act, y.view_mut())).expect("matmul");
            let seen = parameters.attend(b, &layout, &cache, &queries, &tokens);
            // The same from queries that have been placed, if it is not the same operation.
            let mut again = Framed::poisoned(b, rows, 5, Frame::ODD);
            let q = Framed::of(b, &queries, rows, q_width, frame);
            let mut to = Framed::poisoned(b, rows, out_width, frame);
            if at_once {
                let attention =
                    Attention { q: q.view(), cache: &cache, placement: &placement, options, out: to.view_mut() };
                b.run(AttentionAct { attention, act: &mut act }).expect("attention_act");
            } else {
                b.run(Attention { q: q.view(), cache: &cache, placement: &placement, options, out: to.view_mut() })
                    .expect("attention");
                b.run(PrepareActivations { x: to.view(), act: &mut act }).expect("prepare_activations");
            }
            b.run(Matmul::new(&matrix, &act, again.view_mut())).expect("matmul");
            (out.read(b), [y.read(b), seen, to.read(b), again.read(b)].concat())
        };
        let case = format!(
            "{heads} heads, {spec:?}, lengths {:?}, {rows} tokens, norms of {norm_heads:?}, {pairs} pairs, {style:?}, \
             window {:?}, sinks {}, softcap {:?}, {precision:?}, {frame:?}",
            layout.lengths,
            parameters.window,
            parameters.sinks.is_some(),
            parameters.softcap,
        );
        // An element of a new key may be rounded to the other side than the reference's, by 2⁻¹⁰ of it or one of 127 steps.
        // That moves a logit by up to 2⁻¹⁰ or 2⁻⁷ · q · k · scale, of which 36 · 1.5 / √33 is as much as normals times
        // weights give, and results by a quarter of that where two keys share them: squared, 5e-6 or 3e-4. What is exact is
        // below.
        let rounding = if format == KvFormat::F16 { 5e-6 } else { 3e-4 };
        suite.check("attend", &case, nmse(attention::bound(key_width) + rounding, 0.01), &|b| run(b, true).0.into());
        let [at_once, parts] = [true, false].map(|at_once| run(suite.backend(), at_once));
        suite.same(&format_args!("{case}, results"), &parts.0.into(), &at_once.0.into());
        suite.same(&format_args!("{case}, products and cache"), &parts.1.into(), &at_once.1.into());
    }
}
