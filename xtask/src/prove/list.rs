//! The mutations, at least two per operation. Each is a plausible mistake.

use std::sync::LazyLock;

use super::format_mutations::of_formats;
use super::scratch_tree::format_sources;
use crate::root;

/// A change of the source, and the parts of the op suite that must detect it.
#[derive(Clone, Copy)]
pub(super) struct Mutation {
    /// The operation.
    pub(super) op: &'static str,
    /// Parts of the op suite, by name, or [`FORMATS`].
    pub(super) parts: &'static [&'static str],
    /// File path below `crates`.
    pub(super) file: &'static str,
    /// Source that occurs exactly once in the file.
    pub(super) find: &'static str,
    /// The source that replaces it.
    pub(super) replace: &'static str,
    /// The CPU feature without which this source does not run.
    pub(super) needs: Option<Feature>,
}

impl Mutation {
    /// The folder of the format that the mutation breaks, if it breaks no other format and products must detect it.
    pub(super) fn format(&self) -> Option<&'static str> {
        let folder = self.file.strip_prefix("kernels/src/format/")?.strip_suffix("/mod.rs")?;
        (self.parts == ["matmul"]).then_some(folder)
    }
}

/// A part that is not of the op suite: the tests of the kernels that decode golden blocks of each format. They detect a wrong
/// place of a value in its block, which the op suite cannot: its reference decodes the same blocks.
pub(super) const FORMATS: &str = "formats";

/// A CPU feature that a level uses if it is present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Feature {
    /// Products of bfloat16, of level avx512.
    Avx512Bf16,
}

impl Feature {
    /// The name in `/proc/cpuinfo`.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Avx512Bf16 => "avx512_bf16",
        }
    }

    /// Whether this CPU has it.
    pub(super) fn is_here(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        let is_here = match self {
            Self::Avx512Bf16 => is_x86_feature_detected!("avx512bf16"),
        };
        #[cfg(not(target_arch = "x86_64"))]
        let is_here = false;
        is_here
    }
}

macro_rules! names {
    ([$($name:ident),* $(needs $feature:ident)?]) => { &[$(stringify!($name)),*] };
}

macro_rules! feature {
    ([$($name:ident),*]) => {
        None
    };
    ([$($name:ident),* needs $feature:ident]) => {
        Some(Feature::$feature)
    };
}

macro_rules! mutations {
    ($($op:ident in $file:literal by $parts:tt { $($find:literal => $replace:literal,)* })*) => {
        &[$($(Mutation {
            op: stringify!($op),
            parts: names!($parts),
            file: $file,
            find: $find,
            replace: $replace,
            needs: feature!($parts),
        },)*)*]
    };
}

/// All of them.
pub(super) static MUTATIONS: LazyLock<Vec<Mutation>> = LazyLock::new(|| {
    let of_formats = format_sources(&root().join("crates")).and_then(of_formats);
    let of_formats = of_formats.unwrap_or_else(|error| panic!("{error}"));
    TABLE.iter().copied().chain(of_formats).collect()
});

/// Those that are not of a single format.
const TABLE: &[Mutation] = mutations! {
    upload in "kernels/src/backend.rs" by [copies] {
        "memory[at..][..values.len()].copy_from_slice(values)" =>
            "memory[at..][..values.len() / 2].copy_from_slice(&values[..values.len() / 2])",
        "memory[at..][..values.len()]" => "memory[..values.len()]",
    }
    upload in "kernels/src/backend.rs" by [refuse_memory] {
        "at_least(\"upload\", \"length of the buffer\", to.len(), at.saturating_add(values.len()))?;" =>
            "if to.len() < at.saturating_add(values.len()) { return Ok(()) }",
    }
    download in "kernels/src/backend.rs" by [copies] {
        "out.copy_from_slice(&values[layout.row(row)]);" => "out.copy_from_slice(&values[layout.row(0)]);",
        "for (row, out) in to.chunks_exact_mut(from.cols()).enumerate() {" =>
            "for (row, out) in to.chunks_exact_mut(from.cols()).enumerate().skip(1) {",
    }
    prepare in "cpu/src/layout.rs" by [matmul] {
        "interleave_units::<2>(plane.start, blocks, out)" => "interleave_units::<1>(plane.start, blocks, out)",
        "let at = start + i * UNIT;" => "let at = start + i;",
    }
    prepare in "cpu/src/layout.rs" by [moe_matmul] {
        "rows[(expert * count + first) * row..]" => "rows[first * row..]",
    }
    embed in "cpu/src/weight.rs" by [embed] {
        "ids.row(i)[0] as usize * row_bytes" => "ids.row(i)[0] as usize / 2 * row_bytes",
        "out.iter_mut().for_each(|x| *x *= scale);" => "out.iter_mut().for_each(|x| *x += scale);",
    }
    prepare_activations in "cpu/src/quantise.rs" by [matmul] {
        "largest / 127.0 }" => "largest / 126.0 }",
        "q[16 * h..16 * h + 16]" => "q[16 * h..16 * h + 15]",
        ".fold(0, i32::max);" => ".fold(0, i32::min);",
    }
    prepare_activations in "cpu/src/quantise.rs" by [matmul, matmul_joined] {
        "round_pair(*last, 0.0)" => "round_pair(0.0, *last)",
    }
    prepare_activations in "cpu/src/quantise.rs" by [matmul_extremes] {
        "f32::NAN };" => "0.0 };",
    }
    causal_conv in "cpu/src/recurrent.rs" by [causal_conv] {
        "before[at % (K - 1) * count + at / (K - 1)] = *input;" => "before[at / (K - 1)] = *input;",
        "for i in 1..K {" => "for i in 1..K - 1 {",
        "after.zip(input(run.rows + i))" => "after.zip(input(run.rows + i - 1))",
    }
    delta_rule in "cpu/src/recurrent.rs" by [delta_rule] {
        "{ of_k } else { kept[0] * of_k }" => "{ of_k } else { of_k }",
        "if CHANNELS { kept_rows[i] }" => "if CHANNELS { kept[0] }",
        "s.store_f32(s.mul(factor, s.load_f32(k, i)), kept_keys, i);" => "s.store_f32(s.load_f32(k, i), kept_keys, i);",
        "bound / (1.0 + (decay * x).exp())" => "bound / (1.0 + (-decay * x).exp())",
        "inverse(sum::<S, true>(s, q)) / (q.len() as f32).sqrt()" => "inverse(sum::<S, true>(s, q))",
        "if let Some(before) = unit.before {" => "if let (Some(before), 0) = (unit.before, head) {",
        "unit.after.copy_from_slice(state);" => "unit.after[DELTA_TILE..].copy_from_slice(&state[DELTA_TILE..]);",
    }
    delta_rule in "kernels/src/ops/recurrent.rs" by [refuse_recurrent] {
        "require(!read, op, \"state slot\"" => "require(true, op, \"state slot\"",
        "id(op, \"row\", last, index, rows)?;" => "let _ = (last, rows);",
    }
    selective_scan in "cpu/src/scan.rs" by [selective_scan] {
        "s.mul(kept, element));" => "element);",
        "sum[i] = s.mul(s.load_f32(&self.d, 0), x);" => "sum[i] = s.splat(0.0);",
        "let group = self.heads.group_of(value);" => "let group = value - value;",
        "Some(before) => state.copy_from_slice(before)," => "Some(_) => state.fill(0.0),",
        "let x = s.load_f32(self.inputs.xbc.row(self.row + at + i)" => "let x = s.load_f32(self.inputs.xbc.row(self.row + at)",
        "steps.head = None;" => "",
        "self.head.replace(head) != Some(head)" => "self.head.replace(head).is_none()",
        "a[head * heads.state + m])" => "a[head * heads.state])",
    }
    selective_scan in "kernels/src/ops/scan.rs" by [refuse_scan] {
        "require(whole, op, \"values of a group\"" => "require(true, op, \"values of a group\"",
        "expect(OP, \"rows of dt\", dt.rows(), rows)?;" => "",
    }
    gated_norm in "cpu/src/recurrent.rs" by [gated_norm] {
        "*x = *x * scale * weight);" => "*x = *x * scale + 0.0 * weight);",
        "chunks_exact_mut(width).zip(gate.row(row)" => "chunks_exact_mut(width).zip(gate.row(row / 2)",
        "weight.chunks_exact(width).cycle()" => "weight[..width].chunks_exact(width).cycle()",
        "if order == GateOrder::AfterNorm {" => "if order == GateOrder::BeforeNorm {",
    }
    multiply in "cpu/src/recurrent.rs" by [multiply] {
        "GateKind::Sigmoid => sigmoid(s, gate)," => "GateKind::Sigmoid => gate,",
        "GateKind::Gelu => gelu(s, gate)," => "GateKind::Gelu => sigmoid(s, gate),",
        "GateKind::Normal => normal(s, gate)," => "GateKind::Normal => normal_tanh(s, gate),",
        "GateKind::NormalTanh => normal_tanh(s, gate)," => "GateKind::NormalTanh => sigmoid(s, gate),",
        "padded[1][..gate.len()].copy_from_slice(gate);" => "padded[1].fill(gate[0]);",
        "let span = x.len() / gate.len().max(1);" => "let span = (x.len() / gate.len().max(1)).min(2);",
        "*x = softplus(*x)" => "*x = softplus(-*x)",
    }
    matmul in "cpu/src/dot/int8/product.rs" by [matmul] {
        "s.splat(-x.sum)" => "s.splat(x.sum)",
        "s.splat(-x.scaled_half_sums[1])" => "s.splat(-x.scaled_half_sums[0])",
        "zero + if K::SIGNED" => "if K::SIGNED",
    }
    matmul in "cpu/src/dot/int8/class.rs" by [matmul] {
        "if F::GROUP == 16 {" => "if F::GROUP == 0 {",
        "2..4 => 2" => "2..4 => 4",
    }
    matmul in "cpu/src/dot/int8/panel.rs" by [matmul] {
        "start: PANEL * i" => "start: i",
        "&slices[..len]" => "&slices[..len / 2 * 2]",
        "out.fill([0.0; ROWS]);" => "",
    }
    matmul in "kernels/src/format/block.rs" by [matmul_extremes] {
        "(i16::MAX as i32 / (2 * 127 * Self::LARGEST)) as usize" =>
            "(i16::MAX as i32 / (127 * Self::LARGEST)) as usize",
    }
    matmul in "kernels/src/format/grid.rs" by [matmul] {
        "s.or_i32(bits, s.shl_i32(bits, 7))" => "bits",
        "s.lookup(table, s.shr_and(nibbles, 4, 15))" => "s.lookup(table, s.shr_and(nibbles, 0, 15))",
        "s.lookup(&ODD_HIGH, s.or(low, s.shr_and(sevens, 4, 7)))" => "s.lookup(&ODD_HIGH, s.shr_and(sevens, 4, 7))",
        "s.splat_i32(0x7f << (8 * l))" => "s.splat_i32(0x3f << (8 * l))",
        "s.or_i32(s.shl_i32(nibble, 1), s.splat_i32(1))" => "s.shl_i32(nibble, 1)",
    }
    matmul in "kernels/src/format/shifted.rs" by [matmul] {
        "s.add_codes(codes[j], shifts[j / 4])" => "s.add_codes(codes[j], shifts[0])",
        "7 - n as u32" => "7 - n as u32 / 2",
        "2 * (t as u32 % 4)" => "2 * (t as u32 % 2)",
        "where_bit(s, extra, 2 * g + half, shift)" => "where_bit(s, extra, g + half, shift)",
        "s.and_i32(byte, s.splat_i32(254))" => "byte",
        "[where_bit(s, s.load_u8(tile, 16 * (SCALES + g)), 0, shift); 2]" =>
            "[where_bit(s, s.load_u8(tile, 16 * (SCALES + g)), 1, shift); 2]",
    }
    matmul in "kernels/src/format/shifted.rs" by [formats] {
        "const ZERO: i32 = 32;" => "const ZERO: i32 = 31;",
        "const ZERO: i32 = 127;" => "const ZERO: i32 = 128;",
    }
    matmul in "kernels/src/format/rows.rs" by [formats] {
        "(v ^ v >> 1).to_le_bytes()" => "v.to_le_bytes()",
        "word(bytes) & !1" => "word(bytes)",
        "(word(bytes) as u8 & 1) << k" => "(word(bytes) as u8 & 1) << (7 - k)",
        "out.extend_from_slice(scale);" => "out.extend_from_slice(&blocks[..scale.len()]);",
    }
    matmul in "cpu/src/dot/float.rs" by [matmul] {
        "s.sub(w, scale.min)" => "s.add(w, scale.min)",
        "&low[both..], rows, first + both," => "&low[both..], rows, first,",
    }
    matmul in "cpu/src/dot/float.rs" by [matmul needs Avx512Bf16] {
        "panel.get_mut(pairs.len())" => "panel.get_mut(pairs.len() + 1)",
    }
    matmul in "cpu/src/matmul.rs" by [matmul, matmul_joined] {
        "row_cuts.get(block).1.map(x_row)" => "row_cuts.get(block).1.map(|row| x_row(row % TOKEN_BLOCK))",
        "bias.map(|b| &b[start..])" => "bias.map(|b| &b[0..])",
        "y.columns(t, start + columns.start..start + columns.end)" => "y.columns(t, columns)",
    }
    matmul in "cpu/src/matmul.rs" by [matmul] {
        "values.iter_mut().zip(&bias[columns(tiles, group)]).for_each(|(v, b)| *v += b)" =>
            "values.iter_mut().zip(&bias[columns(tiles, group)]).for_each(|(v, b)| *v -= b)",
        "values.iter_mut().zip(&bias[columns(tiles, group)])" =>
            "values.iter_mut().skip(1).zip(&bias[columns(tiles, group)])",
    }
    matmul in "cpu/src/matmul.rs" by [matmul_rows] {
        "|rows| rows.row(i)[0] as usize" => "|rows| rows.row(0)[0] as usize",
        "rows.as_ref().map_or(i, |rows| rows.row(i)[0] as usize)" => "{ let _ = &rows; i }",
    }
    gate_up in "cpu/src/math.rs" by [gate_up] {
        "s.mul(s.mul(gate, sigmoid(s, gate)), up)" => "s.mul(s.mul(up, sigmoid(s, up)), gate)",
        "s.splat(0.044_715)" => "s.splat(0.044_5)",
        "let up = s.max(s.splat(-limit), s.min(s.splat(limit), up));" => "let up = s.min(s.splat(limit), up);",
        "s.min(s.splat(limit), s.mul(gate, sigmoid(s, gate)))" => "s.mul(s.min(s.splat(limit), gate), sigmoid(s, gate))",
        "s.mul(silu, s.max(s.splat(-limit), s.min(s.splat(limit), up)))" => "s.mul(silu, s.min(s.splat(limit), up))",
        "s.add(up, s.splat(1.0))" => "up",
        "s.mul(relu, relu)" => "relu",
    }
    gate_up in "cpu/src/matmul.rs" by [gate_up] {
        "rows, bias.map(|[bias, _]| bias), gates" => "rows, bias.map(|[_, bias]| bias), gates",
        "self.multiply_groups(up, expert, groups.clone()," => "self.multiply_groups(up, expert, first..first + 1,",
    }
    route in "cpu/src/route.rs" by [route] {
        "first + second" => "first",
        "1.0 / (1.0 + (-*v).exp())" => "1.0 / (1.0 + v.exp())",
        "|| routing.worth == GroupWorth::Highest" => "",
        "marks.fill(!kept);" => "marks.fill(kept);",
        "take(routing.groups)" => "take(routing.top_groups)",
        "f64::from(routing.scale) / sum" => "1.0 / sum",
        "sum.max(LEAST_SUM)" => "sum",
        "if scores[i] > scores[best]" => "if scores[i] >= scores[best]",
        "*s += f64::from(b)" => "*s -= f64::from(b)",
        "filter(|(_, taken)| !**taken)" => "filter(|_| true)",
        "near * logit.abs().max(max)" => "near * max",
        "filter(|logit| is_near(logit))" => "filter(|logit| !logit.is_nan())",
        "any(|x| !x.is_finite())" => "any(|x| x.is_infinite())",
        "tokens.row(row) == [PADDING]" => "tokens.row(row) == [0]",
        "ids.fill(PADDING)" => "ids.fill(0)",
        "*weight *= scales[*id as usize]" => "*weight += scales[*id as usize]",
        "weights.iter_mut().zip(ids).for_each" => "weights.iter_mut().zip(ids).skip(1).for_each",
    }
    group_by_expert in "cpu/src/group.rs" by [group_by_expert] {
        "for token in (0..tokens).rev() {" => "for token in 0..tokens {",
        "(token * top_k + slot)" => "(token + slot)",
        "(end - first).min(tile_rows as u32)" => "end - first",
        "*count = live;" => "",
    }
    group_by_expert in "cpu/src/group.rs" by [route_and_group] {
        "id.wrapping_sub(first)" => "id",
    }
    moe_matmul in "cpu/src/moe.rs" by [moe_matmul] {
        "pair as usize / pairs_per_row" => "pair as usize % pairs_per_row",
        "b[expert * width + start..]" => "b[expert * width..]",
        "self.multiply(&tensors[tensor], matrix, groups" => "self.multiply(&tensors[tensor], 0, groups",
        "if x.rows() == out.rows() { 1 }" => "if x.rows() == out.rows() { top_k }",
    }
    moe_matmul in "cpu/src/out.rs" by [moe_matmul] {
        "out.columns(row, 0..out.cols) }.fill(0.0);" => "out.columns(row, 0..out.cols) }.fill(1.0);",
    }
    moe_gate_up in "cpu/src/moe.rs" by [moe_gate_up] {
        "b[expert * weight.rows()..]" => "b[expert..]",
        "self.multiply_gated(weights, matrix, groups" => "self.multiply_gated(weights, 0, groups",
    }
    moe_combine in "cpu/src/rows.rs" by [moe_combine] {
        "*sum += weight * x);" => "*sum = weight * x);",
        "sums.fill(0.0);" => "",
        "out.row(token * weights.len() + slot)" => "out.row(token + slot)",
    }
    rms_norm in "cpu/src/rows.rs" by [rms_norm] {
        "/ x.len() as f32 + eps).sqrt()" => "/ x.len() as f32).sqrt()",
        "iter().sum::<f32>() + tail\n}\n\n/// The rotation" => "iter().sum::<f32>()\n}\n\n/// The rotation",
        "*out = x * scale * w;" => "let _ = w; *out = x * scale;",
    }
    layer_norm in "cpu/src/rows.rs" by [layer_norm] {
        "out.iter_mut().for_each(|out| *out -= rest);" => "let _ = rest;",
        "(sum::<S, true>(s, out) / count + eps)" => "(sum::<S, true>(s, x) / count + eps)",
        "if SQUARES { v * v } else { *v }" => "if SQUARES { v * v } else { 0.0 }",
        "*out * scale * w + b;" => "*out * scale * w - b;",
    }
    rms_norm in "kernels/src/ops/compositions.rs" by [add_norm] {
        "parts.run(Scale { factor, y })" => "parts.run(Scale { factor: factor * 0.5, y })",
        "norm.out.as_view(), scale, y: y" => "norm.out.as_view(), scale: 1.0, y: y",
        "if factor == 1.0 {" => "if factor != 1.0 {",
    }
    rms_norm in "kernels/src/ops/compositions.rs" by [add_norm_act] {
        "RmsNorm { x, weight, eps, out: norm.out }" => "RmsNorm { x, weight: norm.weight, eps, out: norm.out }",
        "None => parts.run(PrepareActivations { x, act })," => "None => parts.run(PrepareActivations { x: norm.x, act }),",
    }
    multiply in "kernels/src/ops/compositions.rs" by [multiply_act] {
        "parts.run(PrepareActivations { x: out.as_view(), act })" => "parts.run(PrepareActivations { x, act })",
        "Multiply { x, gate, kind, out: out.reborrow() }" => "Multiply { x, gate: x, kind, out: out.reborrow() }",
    }
    rms_norm in "kernels/src/ops/compositions.rs" by [add_norms] {
        "x: sum.as_view(), weight, eps, out" => "x: sum.as_view(), weight: second.weight, eps, out",
        "x: sum.as_view(), weight, eps, out: second.out" => "x: sum.as_view(), weight, eps: second.eps, out: second.out",
        "scale: 1.0, factor: 1.0, y: sum" => "scale: -1.0, factor: 1.0, y: sum",
    }
    qk_norm in "kernels/src/ops/compositions.rs" by [qkv_write] {
        "normalise(qkv.reborrow(), true)?;" => "",
        "if after == after_rotation =>" => "if after != after_rotation =>",
        "qkv.reborrow().columns(v..all)?, weight, eps" => "qkv.reborrow().columns(v..v)?, weight, eps",
    }
    qk_norm in "cpu/src/rows.rs" by [qk_norm] {
        "(squares / weight.len() as f32 + eps)" => "(squares + eps)",
        "*x = *x * scale * w" => "{ let _ = w; *x *= scale }",
    }
    rope in "cpu/src/rows.rs" by [rope] {
        "*b = x * self.sines[i] + y" => "*b = x * self.sines[i] - y",
        "f64::from(f) * f64::from(position)" => "f64::from(f * position as f32)",
        "(x * f64::from(rotary.magnitude)) as f32" => "{ let _ = rotary; x as f32 }",
        "positions.row(row)[0], rotary" => "positions.row(0)[0], rotary",
    }
    rope in "cpu/src/rows.rs" by [rope] {
        "&mut head[first..]" => "head",
    }
    copy_rows in "cpu/src/rows.rs" by [copy_rows] {
        "out.copy_from_slice(x.row(row))" => "out.copy_from_slice(x.row(0))",
        "&|row, out| out.copy_from_slice(x.row(row))" => "&|row, out| out[1..].copy_from_slice(&x.row(row)[1..])",
    }
    gather_columns in "cpu/src/rows.rs" by [gather_columns] {
        "x[order.row(column)[0] as usize]" => "x[{ let _ = &order; column }]",
        "let x = x.row(row);" => "let x = { let _ = row; x.row(0) };",
    }
    add in "cpu/src/rows.rs" by [add] {
        "for_each(|(y, x)| *y += scale * x);" => "for_each(|(y, x)| *y = scale * x);",
        "for_each(|(y, x)| *y += scale * x)" => "for_each(|(y, x)| *y += x)",
        "zip(x.row(row)).for_each(|(y, x)| *y += scale * x)" => "zip(x.row(0)).for_each(|(y, x)| *y += scale * x)",
    }
    add_gated in "cpu/src/rows.rs" by [add] {
        "*y += gate * x" => "{ let _ = gate; *y += x }",
        "(-gate.row(row)[0]).exp()" => "gate.row(row)[0].exp()",
    }
    scale in "cpu/src/rows.rs" by [scale] {
        "for_each(|y| *y *= factor)" => "for_each(|y| *y /= factor)",
        "y.iter_mut().for_each(|y| *y *= factor)" => "y.iter_mut().skip(1).for_each(|y| *y *= factor)",
    }
    soft_cap in "cpu/src/rows.rs" by [soft_cap] {
        "s.load_f32(&padded, 0), inverse)" => "s.load_f32(&padded, 0), cap)",
        "s.mul(cap, tanh(s," => "s.mul(s.splat(1.0), tanh(s,",
    }
    clamp in "cpu/src/rows.rs" by [clamp] {
        "*y = y.clamp(low, high)" => "*y = y.max(low)",
        "for_each(|y| *y = y.clamp(low, high))" => "for_each(|y| *y = y.clamp(low.max(-1e3), high))",
    }
    argmax in "cpu/src/sample.rs" by [argmax] {
        "position(has) else" => "rposition(has) else",
        "(start + at) as u32" => "at as u32",
    }
    sample in "cpu/src/sample.rs" by [sample, sample_distribution] {
        "candidates.truncate(sorted + i + 1);" => "candidates.truncate(sorted + i);",
        "select_nth_unstable_by(p.top_k as usize - 1, rank);" => "sort_by_key(|c| c.token);",
        "{ *logit / p.repeat_penalty } else { *logit * p.repeat_penalty }" =>
            "{ *logit * p.repeat_penalty } else { *logit / p.repeat_penalty }",
        "count as f32 * p.frequency_penalty" => "p.frequency_penalty",
        "scratch.retain(|c| share(c) >= p.min_p.into());" => "scratch.retain(|c| share(c) > p.min_p.into());",
        "(0..logits.len()).filter(|&i| allowed(sampling.mask, i))" => "(0..logits.len()).filter(|_| true)",
        "scratch.sort_unstable_by_key(|c| c.token);" => "",
        ".then(a.token.cmp(&b.token))" => ".then(b.token.cmp(&a.token))",
    }
    kv_write in "cpu/src/kv.rs" by [attention] {
        "index * width * KV_BLOCK + at, step: KV_BLOCK" => "index * width * KV_BLOCK + (at ^ 1), step: KV_BLOCK",
        "(index * KV_BLOCK + at) * width" => "(index * KV_BLOCK + (at ^ 1)) * width",
        "&v[head * value_width..]" => "&v[0..]",
        "scale_target.first + group * scale_target.step" => "scale_target.first",
        "(group * KV_GROUP..).zip(" => "(0..).zip(",
    }
    kv_write in "cpu/src/kv.rs" by [attention] {
        ".filter(|&token| slots[token] != PADDING)" => ".filter(|&token| slots[token] != 0)",
    }
    attention in "cpu/src/kv.rs" by [attention] {
        "keys.key_scale(s, first / KV_GROUP)" => "keys.key_scale(s, 0)",
        "s.store_f32(values.value(s, width, t, column), token, 0);" => "s.store_f32(values.value(s, width, t, 0), token, 0);",
        "token.iter_mut().zip(first..width)" => "token.iter_mut().zip(0..width)",
        "group * KV_BLOCK * 2" => "0",
        "token * scale_groups(width) + 16 * column / KV_GROUP" => "token * scale_groups(width)",
        "token * scale_groups(width) + d / KV_GROUP" => "token * scale_groups(width)",
    }
    kv_copy in "cpu/src/kv.rs" by [kv_copy] {
        "copy_within(from..from + len, to as usize * len)" => "copy_within(from..from + len / 2, to as usize * len)",
        "values.copy(all, blocks);" => "let _ = values;",
        "copy(scales, all, blocks);" => "",
    }
    attention in "cpu/src/attention.rs" by [attention] {
        "let end = self.ends.map(|ends| ends[token]);" => "let end = None; let _ = self.ends;",
        "self.visible(token).1 >= self.visible(token - 1).1" => "self.visible(token).1 > 0",
        "call.sink(row.query_head)" => "call.sink(row.row)",
        "partial::merge_rows(call.sink(head)," => "partial::merge_rows(None,",
        "x * scale)" => "*x)",
        "t.factor(self.placement.positions[token])" => "t.factor(self.placement.positions[0])",
        "query_head: part * share + index % share" => "query_head: part + index % share",
        "part * share * call.spec.heads / call.options.heads" => "part",
        "self.placement.table[slot as usize * self.table_cols + block]" => "self.placement.table[block]",
    }
    attention in "cpu/src/attention/partial.rs" by [attention] {
        "x * factors[0] + y * factors[1]" => "x + y * factors[1]",
        "if sink.is_some() { 1.0 } else { 0.0 })," => "0.0),",
        "let top = if other > max { other } else { max };" => "let top = max;",
    }
    attention in "cpu/src/attention/split.rs" by [attention] {
        "inside(span[r].0)..inside(span[r].1 + 1)" => "inside(span[r].0)..inside(span[r].1)",
        "inside(span[r].0)..inside(span[r].1 + 1)\n" => "0..inside(span[r].1 + 1)\n",
        "s.splat(1.0 / cap)" => "s.splat(cap)",
        "if scale != 1.0 {" => "if scale > 1.0 {",
        "*sum = *sum * scale +" => "*sum +=",
        "ValueTile::of_keys(s, keys, key_width, c)" => "ValueTile::of_keys(s, keys, key_width, 0)",
    }
    attention in "kernels/src/ops/positions.rs" by [attention] {
        "(u64::from(position) + u64::from(self.offset))" => "u64::from(position)",
        "(steps as f64).ln_1p()" => "(steps as f64)",
    }
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prove::format_mutations::code;
    use std::collections::BTreeSet;

    fn read(file: &str) -> String {
        let path = root().join("crates").join(file);
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// The names that a macro call lists, one a line, between two lines; a name ends with `end`.
    fn listed(file: &str, from: &str, to: &str, end: char) -> BTreeSet<String> {
        let text = read(file);
        let (_, rest) = text.split_once(from).expect("the list begins");
        let (list, _) = rest.split_once(to).expect("the list ends");
        list.lines().filter_map(|line| Some(line.split_once(end)?.0.trim().to_owned())).collect()
    }

    #[test]
    fn every_mutated_source_occurs_once() {
        let count = |m: &Mutation| code(&read(m.file)).matches(m.find).count();
        let stale: Vec<String> = MUTATIONS
            .iter()
            .filter(|m| count(m) != 1 || m.find == m.replace)
            .map(|m| format!("{}: {} ×: {:?}", m.file, count(m), m.find))
            .collect();
        assert!(stale.is_empty(), "{}", stale.join("\n"));
    }

    /// The parts are those of the op suite, and the operations are the kernels, with what moves data.
    #[test]
    fn every_operation_is_mutated_at_least_twice() {
        let mut parts = listed("suite/src/ops/parts.rs", "$callback! {\n", "\n        }\n", '=');
        parts.insert(FORMATS.to_owned());
        let unknown: Vec<_> = MUTATIONS.iter().flat_map(|m| m.parts).filter(|part| !parts.contains(**part)).collect();
        assert!(unknown.is_empty(), "the suite has no parts {unknown:?}");
        let mut operations = listed("kernels/src/ops/kernels.rs", "operations! {\n    kernels {\n", "    }\n", '(');
        operations.extend(["upload", "download", "prepare"].map(str::to_owned));
        let few = |op: &&String| MUTATIONS.iter().filter(|m| m.op == **op).count() < 2;
        assert_eq!(operations.iter().filter(few).collect::<Vec<_>>(), Vec::<&String>::new());
        assert!(MUTATIONS.iter().all(|m| operations.contains(m.op)), "a mutation of no operation");
    }
}
