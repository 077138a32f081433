//! Attention with what precedes and follows it.

use super::super::attention::{FORMATS, Layout, Parameters, short_and_one_long, some_temperature, some_window};
use super::*;
use gristmill_kernels::kv::{KvFormat, KvSpec};

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
        let after_rotation = rng.chance(0.4);
        let value_heads = rng.pick(&[None, Some(1), Some(spec.heads)]).filter(|_| norms.is_some());
        let value_norm = value_heads.map(|heads| rng.normals(heads * value_width));
        let pairs = rng.pick(&[key_width / 2, key_width / 4, 0]);
        let frequencies: Vec<f32> = (0..pairs).map(|_| rng.uniform(0.0, 1.0) as f32).collect();
        let style = rng.pick(&[RopeStyle::Halves, RopeStyle::Interleaved]);
        let (k, v) = (heads * key_width, (heads + spec.heads) * key_width);
        let all = v + spec.heads * value_width;
        let frame = rng.pick(&[Frame::ODD, Frame { left: 4, right: 0, below: 1 }]);
        let qkv = rng.normals(tokens.len() * all);
        let queries = rng.normals(tokens.len() * k);
        let used = layout.used_cache(rng.bits());
        let run = |b: &Backend, at_once: bool| {
            let (placement, mut cache) = (layout.placement(b, &tokens), used(b));
            let rotary = Rotary { style, frequencies: buffer(b, &frequencies), magnitude: 1.1 };
            let weights = norms.as_ref().map(|both| both.each_ref().map(|weight| buffer(b, weight)));
            let values = value_norm.as_ref().map(|weight| buffer(b, weight));
            let mut x = Framed::of(b, &qkv, tokens.len(), all, frame);
            if at_once {
                let norms = weights.as_ref().map(|both| QkNorms {
                    weights: both.each_ref(),
                    values: values.as_ref(),
                    eps: 1e-6,
                    after_rotation,
                });
                let (qkv, cache, placement, rotary) = (x.view_mut(), &mut cache, &placement, &rotary);
                b.run(QkvWrite { qkv, heads, norms, rotary, cache, placement }).expect("qkv_write");
            } else {
                let normalise = |x: &mut Framed<f32>| {
                    for (weight, columns) in weights.iter().flatten().zip([0..k, k..v]) {
                        b.run(QkNorm { x: x.view_mut().columns(columns).expect("within"), weight, eps: 1e-6 })
                            .expect("qk_norm");
                    }
                };
                if !after_rotation {
                    normalise(&mut x);
                }
                let positions = placement.positions.view(tokens.len(), 1).expect("one for each token");
                let turned = x.view_mut().columns(0..v).expect("within");
                b.run(Rope { x: turned, head_width: key_width, positions, rotary: &rotary }).expect("rope");
                if after_rotation {
                    normalise(&mut x);
                }
                if let Some(weight) = &values {
                    let x = x.view_mut().columns(v..all).expect("within");
                    b.run(QkNorm { x, weight, eps: 1e-6 }).expect("qk_norm");
                }
                let [keys, values] = [k..v, v..all].map(|columns| x.view().columns(columns).expect("within"));
                b.run(KvWrite { cache: &mut cache, k: keys, v: values, placement: &placement }).expect("kv_write");
            }
            let precision = Precision::Exact;
            let parameters =
                Parameters { heads, temperature: None, window: None, sinks: None, softcap: None, precision };
            (x.read(b), parameters.attend(b, &layout, &cache, &queries, &tokens))
        };
        let case = format!(
            "{heads} heads, {spec:?}, {} tokens, norms of {norm_heads:?}, after the rotation {after_rotation}, of \
             values {value_heads:?}, {pairs} pairs, {frame:?}",
            tokens.len()
        );
        suite.check("qkv_write", &case, nmse(exact(key_width.max(value_width)) + 5e-14, 1.0), &|b| {
            run(b, true).0.into()
        });
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
        let mut lengths = short_and_one_long(rng, 5, &[1, 2, 16, 17, 60, 129, 150, 300]);
        if rng.chance(0.05) {
            lengths[0] = rng.pick(&[450, 1300]);
        }
        let layout = Layout::new(rng, spec, lengths);
        // The last token of each sequence, or some of the last; and padding.
        let (mut tokens, mut before) = (Vec::new(), layout.tokens());
        let most = if round / 2 % 3 == 2 { 20 } else { 1 };
        // Long runs at fast precision whose readers are named have kernels of their own.
        let often = if most > 1 { 0.8 } else { 0.5 };
        let (named, precision) = (rng.chance(often), PRECISIONS[usize::from(rng.chance(often))]);
        for slot in rng.shuffled(layout.lengths.len()).into_iter().map(|slot| slot as usize) {
            let (length, some) = (layout.lengths[slot], if rng.chance(0.5) { most } else { rng.between(1, most) });
            let first = length.saturating_sub(some);
            before.retain(|&(of, p)| of != slot as u32 || (p as usize) < first);
            tokens.extend((first..length).map(|p| (slot as u32, p as u32)));
        }
        for _ in 0..rng.below(3) {
            tokens.insert(rng.below(tokens.len() + 1), (u32::MAX, 123_456));
        }
        let norm_heads = rng.pick(&[None, Some((1, 1)), Some((1, 1)), Some((heads, spec.heads))]);
        let norms = norm_heads.map(|(q, k)| [rng.normals(q * key_width), rng.normals(k * key_width)]);
        let value_norm = rng.chance(0.2).then(|| rng.normals(value_width));
        let after_rotation = rng.chance(0.3);
        let pairs = rng.pick(&[key_width / 2, key_width / 2, key_width / 4, 0]);
        let frequencies: Vec<f32> = (0..pairs).map(|_| rng.uniform(0.0, 1.0) as f32).collect();
        let style = rng.pick(&[RopeStyle::Halves, RopeStyle::Interleaved]);
        let parameters = Parameters {
            heads,
            temperature: rng.chance(0.3).then(|| some_temperature(rng)),
            window: rng.chance(0.3).then(|| some_window(rng)),
            sinks: rng.chance(0.3).then(|| rng.normals(heads)),
            softcap: rng.chance(0.2).then_some(5.0),
            precision,
        };
        let frame = rng.pick(&[Frame::ODD, Frame { left: 4, right: 0, below: 1 }]);
        let (rows, q_width, out_width) = (tokens.len(), heads * key_width, heads * value_width);
        let all = q_width + spec.heads * (key_width + value_width);
        let qkv = rng.normals(rows * all);
        let queries = rng.normals(rows * q_width);
        let weights =
            [tensor(rng, if out_width.is_multiple_of(32) { Format::Q8_0 } else { Format::F32 }, 1, 5, out_width)];
        let seed = rng.bits();
        let (used, before) = (layout.used_cache(seed), layout.written(&before, &mut Rng::new(seed ^ 1), 0.0));
        let run = |b: &Backend, at_once: bool, named: bool| {
            let (placement, mut cache) = (layout.placement(b, &tokens), used(b));
            layout.write(b, &mut cache, &before);
            let rotary = Rotary { style, frequencies: buffer(b, &frequencies), magnitude: 1.1 };
            let norms = norms.as_ref().map(|both| both.each_ref().map(|weight| buffer(b, weight)));
            let values = value_norm.as_ref().map(|weight| buffer(b, weight));
            let norms = norms.as_ref().map(|both| QkNorms {
                weights: both.each_ref(),
                values: values.as_ref(),
                eps: 1e-6,
                after_rotation,
            });
            let sinks = parameters.sinks.as_ref().map(|sinks| buffer(b, sinks));
            let options = parameters.attention(key_width, sinks.as_ref());
            let mut x = Framed::of(b, &qkv, rows, all, frame);
            let mut out = Framed::poisoned(b, rows, out_width, frame);
            let mut act = b.alloc_act(precision, rows + 1, out_width).expect("alloc_act");
            let matrix = b.prepare(&weights, Role::Matrix).expect("prepare");
            let name = |act: &mut Act| {
                if named {
                    b.name_readers(act, &[Reader::dense(&matrix, rows)]);
                }
            };
            if at_once {
                name(&mut act);
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
                name(&mut act);
                let attention =
                    Attention { q: q.view(), cache: &cache, placement: &placement, options, out: to.view_mut() };
                b.run(AttentionAct { attention, act: &mut act }).expect("attention_act");
            } else {
                b.run(Attention { q: q.view(), cache: &cache, placement: &placement, options, out: to.view_mut() })
                    .expect("attention");
                b.run(PrepareActivations { x: to.view(), act: &mut act }).expect("prepare_activations");
            }
            b.run(Matmul::new(&matrix, &act, again.view_mut())).expect("matmul");
            (out.read(b), to.read(b), [y.read(b), seen, again.read(b)].concat())
        };
        let case = format!(
            "{heads} heads, {spec:?}, lengths {:?}, {rows} tokens, norms of {norm_heads:?}, of values {}, {pairs} \
             pairs, {style:?}, {:?}, window {:?}, sinks {}, softcap {:?}, {precision:?}, {frame:?}, readers named: \
             {named}",
            layout.lengths,
            value_norm.is_some(),
            parameters.temperature,
            parameters.window,
            parameters.sinks.is_some(),
            parameters.softcap,
        );
        // An element of a new key may be rounded to the other side than the reference's, by 2⁻¹⁰ of it or one of 127
        // steps. That moves a logit by up to 2⁻¹⁰ or 2⁻⁷ · q · k · scale, of which 36 · 1.5 / √33 is as much as normals
        // times weights give, and results by a quarter of that where two keys share them: squared, 5e-6 or 3e-4. What
        // is exact is below.
        let rounding = if format == KvFormat::F16 { 5e-6 } else { 3e-4 };
        suite.check("attend", &case, nmse(parameters.bound(key_width) + rounding, 0.01), &|b| {
            run(b, true, false).0.into()
        });
        let (at_once, parts) = (run(suite.backend(), true, named), run(suite.backend(), false, false));
        // With all readers named, results themselves are undefined.
        if !named {
            suite.same(&format_args!("{case}, results"), &parts.0.into(), &at_once.0.into());
            suite.same(&format_args!("{case}, results of placed queries"), &parts.1.into(), &at_once.1.into());
        }
        suite.same(&format_args!("{case}, products and cache"), &parts.2.into(), &at_once.2.into());
    }
}
