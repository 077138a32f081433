//! Compositions that a backend may do at once: what they give, against the reference, which does their parts one after
//! another.

use super::attention::{BOUND, FORMATS, Layout, Parameters};
use super::*;
use crate::framed::{Element, buffer};
use crate::rng::Rng;
use crate::suite::Output;
use crate::weights::{energy, tensor};
use gristmill_kernels::kv::{KvFormat, KvSpec};
use gristmill_kernels::ops::{Gating, Groups, Rope, RopeStyle, Routing};
use gristmill_kernels::tensor::Buffer;
use gristmill_kernels::weight::Role;

/// What of [`Backend::add_norm`] is compared. The first row of the residual stream, which is large, would hide the others.
#[derive(Clone, Copy)]
enum Part {
    Residual,
    Normed,
    Product(usize),
}

/// [`Backend::add_norm`]: the residual stream, the norm, and products with each of the activations.
pub fn add_norm(suite: &Suite) {
    use Precision::{Exact, Fast};
    let rng = &mut suite.rng("add_norm");
    let sorts: [&[Precision]; 5] = [&[], &[Fast], &[Exact], &[Exact, Fast], &[Fast, Fast]];
    let sizes = TOKENS.iter().flat_map(|&tokens| [17, 64, 203, 640].map(|cols| (tokens, cols)));
    for (i, (tokens, cols)) in suite.some("add_norm", sizes.chain([(3, 2048), (2, 9216)]).enumerate()) {
        let precisions = sorts[i % sorts.len()];
        let mut residual = rng.normals(tokens * cols);
        // A row whose neighbours are large must be as if alone.
        residual.iter_mut().take(cols).for_each(|x| *x *= 1e3);
        let delta = rng.chance(0.8).then(|| (rng.normals(tokens * cols), rng.pick(&[1.0, 0.22])));
        let weight = rng.normals(cols);
        let eps = rng.pick(&[1e-5, 1e-6]);
        let format = if cols.is_multiple_of(32) { Format::Q8_0 } else { Format::F32 };
        let tensors = [tensor(rng, format, 1, 5, cols)];
        let run = |b: &dyn Backend, part: Part| {
            let mut stream = Framed::of(b, &residual, tokens, cols, Frame::ODD);
            let mut normed = Framed::poisoned(b, tokens, cols, Frame { left: 4, right: 0, below: 1 });
            let delta = delta.as_ref().map(|(x, scale)| (Framed::of(b, x, tokens, cols, Frame::ODD), *scale));
            let pending = delta.as_ref().map(|(x, scale)| (x.view(), *scale));
            let mut acts: Vec<Act> =
                precisions.iter().map(|&p| b.alloc_act(p, tokens + 1, cols).expect("alloc_act")).collect();
            let mut lent: Vec<&mut Act> = acts.iter_mut().collect();
            b.add_norm(pending, stream.view_mut(), &buffer(b, &weight), eps, normed.view_mut(), &mut lent)
                .expect("add_norm");
            let which = match part {
                Part::Residual => return stream.read(b).split_off(cols.min(tokens * cols)).into(),
                Part::Normed => return normed.read(b).into(),
                Part::Product(which) => which,
            };
            let matrix = b.prepare(&tensors, Role::Matrix).expect("prepare");
            let mut y = Framed::poisoned(b, tokens, 5, Frame::ODD);
            b.matmul(&matrix, &acts[which], None, y.view_mut()).expect("matmul");
            Output::from(y.read(b))
        };
        let case = format!("{tokens} × {cols}, delta {}, activations {precisions:?}", delta.is_some());
        suite.check("add_norm: residual", &case, nmse(exact(2), 1.0), &|b| run(b, Part::Residual));
        let got = suite.check("add_norm", &case, nmse(exact(cols), 0.1), &|b| run(b, Part::Normed));
        let normed = &got.floats[..];
        for (which, &precision) in precisions.iter().enumerate() {
            let case = format!("{case}, number {which} times {}", tensors[0].name);
            let bound = product_bound(&tensors, precision, normed) + 2.0 * exact(cols);
            let kind = kind(["add_norm exact", "add_norm bf16", "add_norm int8"], &tensors, precision);
            suite.check(kind, &case, nmse(bound, energy(&tensors, normed)), &|b| run(b, Part::Product(which)));
        }
    }
}

fn words(b: &dyn Backend, buffer: &Buffer<u32>, len: usize) -> Vec<u32> {
    let mut words = vec![0; len];
    u32::download(b, buffer.view(1, len).expect("within"), &mut words);
    words
}

/// Tiles with their number in front.
fn tiles(b: &dyn Backend, groups: &Groups) -> Vec<u32> {
    let count = words(b, groups.tile_count(), 1);
    let tiles = words(b, groups.tiles(), 3 * count[0] as usize);
    [count, tiles].concat()
}

/// [`Backend::route_and_group`]: ids, counts and pairs exactly, weights closely, tiles as grouping alone gives them.
pub fn route_and_group(suite: &Suite) {
    let rng = &mut suite.rng("route_and_group");
    for round in suite.some("route_and_group", 0..60) {
        let (experts, tokens) = (rng.pick(&[1, 8, 60, 128, 256, 1024]), rng.pick(&[0, 1, 2, 7, 32, 33]));
        let top_k = rng.between(1, experts.min(9));
        let gating = [Gating::Softmax, Gating::SoftmaxOfChosen, Gating::Sigmoid][round % 3];
        let routing = Routing { gating, scale: 1.5, ..Routing::softmax(top_k, rng.chance(0.5)) };
        let logits = rng.normals(tokens * experts);
        let bias = rng.chance(0.3).then(|| rng.normals(experts));
        let run = |b: &dyn Backend| {
            let logits = Framed::of(b, &logits, tokens, experts, Frame::ODD);
            let bias = bias.as_ref().map(|bias| buffer(b, bias));
            let mut ids = Framed::poisoned(b, tokens, top_k, Frame::ODD);
            let mut weights = Framed::poisoned(b, tokens, top_k, Frame::ODD);
            let mut groups = b.alloc_groups(experts, tokens * top_k + 3).expect("alloc_groups");
            let (to, of) = (ids.view_mut(), weights.view_mut());
            b.route_and_group(logits.view(), &routing, bias.as_ref(), to, of, &mut groups).expect("route_and_group");
            let mut again = b.alloc_groups(experts, tokens * top_k).expect("alloc_groups");
            b.group_by_expert(ids.view(), experts, &mut again).expect("group_by_expert");
            suite.same(&"tiles", &tiles(b, &groups).into(), &tiles(b, &again).into());
            let sorted = [words(b, groups.counts(), experts), words(b, groups.pairs(), tokens * top_k)].concat();
            Output { floats: weights.read(b), words: [ids.read(b), sorted].concat() }
        };
        let case = format!("{tokens} tokens, {experts} experts, {routing:?}, bias {}", bias.is_some());
        suite.check("route_and_group", &case, nmse(1e-14, 0.0), &run);
    }
}

/// [`Backend::place_qkv`]: what becomes of queries, keys and values against the reference; and what attention then sees
/// against that after the parts one by one, bit by bit, because two roundings of a number may fall on two sides of the
/// cache's.
pub fn place_qkv(suite: &Suite) {
    let rng = &mut suite.rng("place_qkv");
    for round in suite.some("place_qkv", 0..30) {
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
        let run = |b: &dyn Backend, at_once: bool| {
            let (place, mut cache) = (layout.place(b, &tokens), layout.used_cache(b, seed));
            let rope = Rope { style, frequencies: buffer(b, &frequencies), magnitude: 1.1 };
            let weights = norms.as_ref().map(|both| both.each_ref().map(|weight| buffer(b, weight)));
            let mut x = Framed::of(b, &qkv, tokens.len(), all, Frame::ODD);
            if at_once {
                let norms = weights.as_ref().map(|both| (both.each_ref(), 1e-6));
                b.place_qkv(x.view_mut(), heads, norms, &rope, &mut cache, &place).expect("place_qkv");
            } else {
                for (weight, columns) in weights.iter().flatten().zip([0..k, k..v]) {
                    b.qk_norm(x.view_mut().columns(columns).expect("within"), weight, 1e-6).expect("qk_norm");
                }
                let positions = place.positions.view(tokens.len(), 1).expect("one for each token");
                let turned = x.view_mut().columns(0..v).expect("within");
                b.rope(turned, key_width, positions, &rope).expect("rope");
                let [keys, values] = [k..v, v..all].map(|columns| x.view().columns(columns).expect("within"));
                b.kv_write(&mut cache, keys, values, &place).expect("kv_write");
            }
            let parameters = Parameters { heads, window: None, sinks: None, softcap: None };
            (x.read(b), parameters.attend(b, &layout, &cache, &queries, &tokens))
        };
        let case = format!("{heads} heads, {spec:?}, {} tokens, norms of {norm_heads:?}, {pairs} pairs", tokens.len());
        suite.check("place_qkv", &case, nmse(exact(key_width) + 5e-14, 1.0), &|b| run(b, true).0.into());
        let [at_once, parts] = [true, false].map(|at_once| Output::from(run(suite.backend(), at_once).1));
        suite.same(&format_args!("{case}, what attention sees"), &parts, &at_once);
    }
}

/// [`Backend::attention_act`] and [`Backend::attend`]: results, a product with the activations, and what attention sees
/// afterwards, all of them against the parts one by one, bit by bit; results also against the reference.
pub fn attend(suite: &Suite) {
    let rng = &mut suite.rng("attend");
    for round in suite.some("attend", 0..48) {
        let widths = [(128, 128), (64, 64), (96, 128), (80, 80), (128, 64), (33, 90), (192, 128), (40, 32)];
        let (key_width, value_width) = widths[round % widths.len()];
        let format = if rng.chance(0.75) { KvFormat::F16 } else { KvFormat::Q8_0 };
        let spec = KvSpec { heads: rng.between(1, 3), key_width, value_width, format };
        let heads = spec.heads * rng.pick(&[1, 2, 4, 8, 11]);
        let lengths = (0..rng.between(1, 5)).map(|_| rng.pick(&[1, 2, 16, 17, 60, 129, 150, 300])).collect();
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
        let run = |b: &dyn Backend, at_once: bool| {
            let (place, mut cache) = (layout.place(b, &tokens), layout.used_cache(b, seed));
            layout.write(b, &mut cache, &before, &mut Rng::new(seed ^ 1), 0.0);
            let rope = Rope { style, frequencies: buffer(b, &frequencies), magnitude: 1.1 };
            let norms = norms.as_ref().map(|both| both.each_ref().map(|weight| buffer(b, weight)));
            let norms = norms.as_ref().map(|both| (both.each_ref(), 1e-6));
            let sinks = parameters.sinks.as_ref().map(|sinks| buffer(b, sinks));
            let attention = parameters.attention(key_width, sinks.as_ref());
            let mut x = Framed::of(b, &qkv, rows, all, frame);
            let mut out = Framed::poisoned(b, rows, out_width, frame);
            let mut act = b.alloc_act(precision, rows + 1, out_width).expect("alloc_act");
            let matrix = b.prepare(&weights, Role::Matrix).expect("prepare");
            if at_once {
                let (qkv, to) = (x.view_mut(), out.view_mut());
                b.attend(qkv, norms, &rope, &mut cache, &place, &attention, to, &mut act).expect("attend");
            } else {
                b.place_qkv(x.view_mut(), heads, norms, &rope, &mut cache, &place).expect("place_qkv");
                let q = x.view().columns(0..q_width).expect("within");
                b.attention(q, &cache, &place, &attention, out.view_mut()).expect("attention");
                b.prepare_activations(out.view(), &mut act).expect("prepare_activations");
            }
            let mut y = Framed::poisoned(b, rows, 5, Frame::ODD);
            b.matmul(&matrix, &act, None, y.view_mut()).expect("matmul");
            let seen = parameters.attend(b, &layout, &cache, &queries, &tokens);
            // The same from queries that have been placed, if it is not the same operation.
            let mut again = Framed::poisoned(b, rows, 5, Frame::ODD);
            let q = Framed::of(b, &queries, rows, q_width, frame);
            let mut to = Framed::poisoned(b, rows, out_width, frame);
            if at_once {
                b.attention_act(q.view(), &cache, &place, &attention, to.view_mut(), &mut act).expect("attention_act");
            } else {
                b.attention(q.view(), &cache, &place, &attention, to.view_mut()).expect("attention");
                b.prepare_activations(to.view(), &mut act).expect("prepare_activations");
            }
            b.matmul(&matrix, &act, None, again.view_mut()).expect("matmul");
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
        // That moves a logit by up to 2⁻¹⁰ or 2⁻⁷ · q · k · scale, and results by a quarter of that where two keys share
        // them. What is exact is below.
        let rounding = if format == KvFormat::F16 { 1e-6 } else { 1e-4 };
        suite.check("attend", &case, nmse(BOUND + rounding, 0.01), &|b| run(b, true).0.into());
        let [at_once, parts] = [true, false].map(|at_once| run(suite.backend(), at_once));
        suite.same(&format_args!("{case}, results"), &parts.0.into(), &at_once.0.into());
        suite.same(&format_args!("{case}, products and cache"), &parts.1.into(), &at_once.1.into());
    }
}
