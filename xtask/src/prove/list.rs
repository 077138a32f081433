//! The mutations: at least two of each operation. Each is a mistake that someone could make.

/// One change of the source, and the parts of the op suite that must notice it.
pub(super) struct Mutation {
    /// The operation.
    pub(super) op: &'static str,
    /// Parts of the op suite.
    pub(super) parts: &'static [&'static str],
    /// File below `crates`.
    pub(super) file: &'static str,
    /// Text that is there exactly once.
    pub(super) find: &'static str,
    /// What stands there instead.
    pub(super) replace: &'static str,
}

macro_rules! names {
    ([$($name:ident),*]) => { &[$(stringify!($name)),*] };
}

macro_rules! mutations {
    ($($op:ident in $file:literal by $parts:tt { $($find:literal => $replace:literal,)* })*) => {
        &[$($(Mutation {
            op: stringify!($op),
            parts: names!($parts),
            file: $file,
            find: $find,
            replace: $replace,
        },)*)*]
    };
}

/// All of them.
pub(super) const MUTATIONS: &[Mutation] = mutations! {
    upload in "host.rs" by [copies] {
        "memory[..values.len()].copy_from_slice(values)" => "memory[..values.len() / 2].copy_from_slice(&values[..values.len() / 2])",
    }
    upload in "host.rs" by [refuse_memory] {
        "check::upload(DEVICE, values, to)?;" => "if !values.is_empty() && to.len() < values.len() { return Ok(()) }",
    }
    download in "host.rs" by [copies] {
        "out.copy_from_slice(&values[shape.row(row)]);" => "out.copy_from_slice(&values[shape.row(0)]);",
        "for (row, out) in to.chunks_exact_mut(from.cols()).enumerate() {" => "for (row, out) in to.chunks_exact_mut(from.cols()).enumerate().skip(1) {",
    }
    prepare in "cpu/layout.rs" by [matmul] {
        "interleave_units::<2>(plane.start, blocks, out)" => "interleave_units::<1>(plane.start, blocks, out)",
        "let at = start + i * UNIT;" => "let at = start + i;",
    }
    prepare in "cpu/prepare.rs" by [moe_matmul] {
        "from[(expert * rows + first) * row_bytes..]" => "from[first * row_bytes..]",
    }
    embed in "cpu/mod.rs" by [embed] {
        "&bytes[id * row_bytes..]" => "&bytes[id / 2 * row_bytes..]",
        "out.iter_mut().for_each(|x| *x *= scale);" => "out.iter_mut().for_each(|x| *x += scale);",
    }
    prepare_activations in "cpu/quantise.rs" by [matmul] {
        "largest / 127.0 }" => "largest / 126.0 }",
        "q[16 * h..16 * h + 16]" => "q[16 * h..16 * h + 15]",
        "m, &v| if v > m { v } else { m });\n    let finite" => "m, &v| if v < m { v } else { m });\n    let finite",
    }
    prepare_activations in "cpu/quantise.rs" by [matmul, matmul_joined] {
        "round_pair(*last, 0.0)" => "round_pair(0.0, *last)",
    }
    prepare_activations in "cpu/quantise.rs" by [matmul_extremes] {
        "f32::NAN };" => "0.0 };",
    }
    matmul in "cpu/dot.rs" by [matmul] {
        "s.splat(-x.sum)" => "s.splat(x.sum)",
        "s.splat(-x.scaled_half_sums[half])" => "s.splat(-x.scaled_half_sums[0])",
        "let bias = F::ZERO + if" => "let bias = if",
        "w = s.sub(w, scale.min);" => "w = s.add(w, scale.min);",
        "if cols % 2 == 1 {" => "if cols % 2 == 2 {",
        "if !last.is_empty() {" => "if last.len() == 1 {",
    }
    matmul in "cpu/matmul.rs" by [matmul, matmul_joined] {
        "(first..count).map(row)" => "(0..count).map(row)",
        "bias.map(|b| &b[start..])" => "bias.map(|b| &b[0..])",
        "y.part(first + t, start + columns.start" => "y.part(first + t, columns.start",
    }
    matmul_rows in "cpu/mod.rs" by [matmul_rows] {
        "ids[shape.row(i)][0] as usize;\n        self.dense(" => "ids[shape.row(0)][0] as usize;\n        self.dense(",
        "ids[shape.row(i)][0] as usize;\n        self.dense(parts, &operand, rows.rows()" => "i;\n        let _ = (ids, shape);\n        self.dense(parts, &operand, rows.rows()",
    }
    gate_up in "cpu/math.rs" by [gate_up] {
        "s.mul(s.mul(gate, sigmoid(s, gate)), up)" => "s.mul(s.mul(up, sigmoid(s, up)), gate)",
        "s.splat(0.044_715)" => "s.splat(0.044_5)",
        "s.max(s.splat(-limit), s.min(s.splat(limit), up))" => "s.min(s.splat(limit), up)",
        "s.add(up, s.splat(1.0))" => "up",
    }
    gate_up in "cpu/matmul.rs" by [gate_up] {
        "[(&mut *gates, gate_bias), (&mut *ups, up_bias)]" => "[(&mut *gates, up_bias), (&mut *ups, gate_bias)]",
    }
    route in "route.rs" by [route] {
        "first + second" => "first",
        "sum.max(LEAST_SUM)" => "sum",
        "scores[best]).is_lt()" => "scores[best]).is_le()",
        "*s += f64::from(b)" => "*s -= f64::from(b)",
        "filter(|(_, taken)| !**taken)" => "filter(|_| true)",
        "near * logit.abs().max(max)" => "near * max",
        "filter(|logit| is_near(logit))" => "filter(|logit| !logit.is_nan())",
        "unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))" => "unwrap_or(Ordering::Equal)",
    }
    group_by_expert in "group.rs" by [group_by_expert] {
        "for row in (0..rows).rev() {" => "for row in 0..rows {",
        "(row * ids.len() + slot)" => "(row + slot)",
        "(end - first).min(to.tile_rows as u32)" => "end - first",
        "*count = live;" => "",
    }
    moe_matmul in "cpu/moe.rs" by [moe_matmul] {
        "pair as usize / call.pairs_per_row" => "pair as usize % call.pairs_per_row",
        "b[tile.expert * width + start..]" => "b[tile.expert * width..]",
        "self.multiply(part, tile.expert, groups" => "self.multiply(part, 0, groups",
        "unsafe { out.row(pair) }.fill(0.0);" => "unsafe { out.row(pair) }.fill(1.0);",
    }
    moe_matmul in "cpu/mod.rs" by [moe_matmul] {
        "if x.rows() == out.rows() { 1 }" => "if x.rows() == out.rows() { top_k }",
    }
    moe_gate_up in "cpu/moe.rs" by [moe_gate_up] {
        "b[tile.expert * weights[0].rows..]" => "b[tile.expert..]",
        "self.multiply_gated(weights, tile.expert, groups" => "self.multiply_gated(weights, 0, groups",
    }
    moe_combine in "cpu/mod.rs" by [moe_combine] {
        "*y += weight * x);" => "*y = weight * x);",
        "y.fill(0.0);\n            for (slot" => "for (slot",
        "at.row(token * weights.len() + slot)" => "at.row(token + slot)",
    }
    rms_norm in "cpu/norm.rs" by [rms_norm] {
        "/ x.len() as f32 + eps).sqrt()" => "/ x.len() as f32).sqrt()",
        "iter().sum::<f32>() + tail\n}\n\n/// The rotation" => "iter().sum::<f32>()\n}\n\n/// The rotation",
        "*out = x * scale * w;" => "let _ = w; *out = x * scale;",
    }
    layer_norm in "cpu/norm.rs" by [layer_norm] {
        "out.iter_mut().for_each(|out| *out -= rest);" => "let _ = rest;",
        "(sum_of_squares(s, out) / count + eps)" => "(sum_of_squares(s, x) / count + eps)",
        "iter().sum::<f32>() + tail\n}\n\n/// Two" => "iter().sum::<f32>()\n}\n\n/// Two",
        "*out * scale * w + b;" => "*out * scale * w - b;",
    }
    qk_norm in "cpu/norm.rs" by [qk_norm] {
        "(scale / weight.len() as f32 + eps)" => "(scale + eps)",
        "*x = *x * scale * w" => "{ let _ = w; *x *= scale }",
    }
    rope in "cpu/norm.rs" by [rope] {
        "*b = x * self.sines[i] + y" => "*b = x * self.sines[i] - y",
        "f64::from(f) * f64::from(position)" => "f64::from(f * position as f32)",
        "(x * f64::from(magnitude)) as f32" => "{ let _ = magnitude; x as f32 }",
        "positions[at.row(row)][0], rope" => "positions[at.row(0)][0], rope",
    }
    add in "cpu/mod.rs" by [add] {
        "for_each(|(y, x)| *y += scale * x);" => "for_each(|(y, x)| *y = scale * x);",
        "for_each(|(y, x)| *y += scale * x)" => "for_each(|(y, x)| *y += x)",
        "zip(&values[shape.row(row)]).for_each(|(y, x)| *y += scale * x)" => "zip(&values[shape.row(0)]).for_each(|(y, x)| *y += scale * x)",
    }
    add_gated in "cpu/mod.rs" by [add] {
        "*y += gate * x" => "{ let _ = gate; *y += x }",
        "(-gates[gates_at.row(row)][0]).exp()" => "gates[gates_at.row(row)][0].exp()",
    }
    scale in "cpu/mod.rs" by [scale] {
        "y.iter_mut().for_each(|y| *y *= scale);" => "y.iter_mut().for_each(|y| *y /= scale);",
        "y.iter_mut().for_each(|y| *y *= scale)" => "y.iter_mut().skip(1).for_each(|y| *y *= scale)",
    }
    add_bias in "cpu/mod.rs" by [add] {
        "y.iter_mut().zip(bias).for_each(|(y, b)| *y += b);" => "y.iter_mut().zip(bias).for_each(|(y, b)| *y -= b);",
        "let y = unsafe { y.row(row) };\n            y.iter_mut().zip(bias)" => "let y = unsafe { y.row(row) };\n            y.iter_mut().skip(1).zip(bias)",
    }
    argmax in "sample.rs" by [argmax] {
        "if value > best.1 ||" => "if value >= best.1 ||",
        "best.1.is_nan() && !value.is_nan()" => "false",
    }
    sample in "sample.rs" by [sample] {
        "candidates.truncate(sorted + i + 1);" => "candidates.truncate(sorted + i);",
        "select_nth_unstable_by(p.top_k as usize - 1, rank);" => "sort_by_key(|c| c.token);",
        "{ *logit / p.repeat_penalty } else { *logit * p.repeat_penalty }" => "{ *logit * p.repeat_penalty } else { *logit / p.repeat_penalty }",
        "count as f32 * p.frequency_penalty" => "p.frequency_penalty",
        "scratch.retain(|c| share(c) >= p.min_p.into());" => "scratch.retain(|c| share(c) > p.min_p.into());",
        "(0..logits.len()).filter(|&i| allowed(p.mask, i))" => "(0..logits.len()).filter(|_| true)",
        "scratch.sort_unstable_by_key(|c| c.token);" => "",
        ".then(a.token.cmp(&b.token))" => ".then(b.token.cmp(&a.token))",
    }
    kv_write in "cpu/kv.rs" by [attention] {
        "index * width * KV_BLOCK + at, step: KV_BLOCK" => "index * width * KV_BLOCK + (at ^ 1), step: KV_BLOCK",
        "(index * KV_BLOCK + at) * width" => "(index * KV_BLOCK + (at ^ 1)) * width",
        "&v[head * value_width..]" => "&v[0..]",
        "scale_target.first + group * scale_target.step" => "scale_target.first",
        "(group * KV_GROUP..).zip(" => "(0..).zip(",
    }
    kv_write in "cpu/mod.rs" by [attention] {
        ".filter(|&row| slots[row] != check::PADDING)" => ".filter(|&row| slots[row] != 0)",
    }
    attention in "cpu/kv.rs" by [attention] {
        "group * KV_BLOCK * 2" => "0",
        "token * groups(width) + 16 * column / KV_GROUP" => "token * groups(width)",
        "token * groups(width) + d / KV_GROUP" => "token * groups(width)",
    }
    kv_copy in "host.rs" by [kv_copy] {
        "copy_within(from..from + len, to as usize * len)" => "copy_within(from..from + len / 2, to as usize * len)",
        "[&mut cache.keys, &mut cache.values]" => "[&mut cache.keys]",
        "copy(scales, cache.blocks, blocks);" => "",
    }
    attention in "cpu/attention.rs" by [attention] {
        "(sinks[query_head], 1.0)" => "(sinks[query_head], 0.0)",
        "(sinks[query_head], 1.0);" => "(sinks[head], 1.0);",
        "inside(span[r].0)..inside(span[r].1 + 1)" => "inside(span[r].0)..inside(span[r].1)",
        "inside(span[r].0)..inside(span[r].1 + 1)\n" => "0..inside(span[r].1 + 1)\n",
        "x * p.scale" => "*x",
        "s.splat(1.0 / cap)" => "s.splat(cap)",
        "if scale != 1.0 {" => "if scale > 1.0 {",
        "*sum = *sum * scale +" => "*sum +=",
        "(t, head * group + g)" => "(t, head + g)",
        "let id = self.table[slot as usize * self.table_cols + block]" => "let id = self.table[block]",
    }
};
