//! Attention of some rows to one split, strip by strip.

use super::partial::Partial;
use super::{Call, SPLIT, STRIP, STRIP_TOKENS};
use crate::kv::{Cells, ValueTile, Values};
use crate::math::{exp, tanh};
use gristmill_kernels::kv::{KV_BLOCK, KV_GROUP, KvSpec};
use gristmill_kernels::simd::Simd;
use std::ops::Range;

/// Keys and values of one KV head of a sequence.
pub(super) struct Source<'a, C> {
    pub(super) call: &'a Call<'a>,
    pub(super) keys: C,
    pub(super) values: C,
    pub(super) head: usize,
    pub(super) slot: u32,
}

/// Attention of `R` rows to one split. `span` has the first and the last position that each row sees; rows ascend.
#[inline(always)]
pub(super) fn attend<C: Cells, S: Simd, const R: usize>(
    s: S,
    source: &Source<C>,
    q: &[[f32; R]],
    span: &[(usize, usize); R],
    split: usize,
) -> Partial<R> {
    let &Source { call, keys, values, head, slot } = source;
    let KvSpec { key_width, value_width, .. } = call.spec;
    let mut partial = Partial::new([None; R], value_width.div_ceil(16));
    let mut scores = [[0f32; STRIP_TOKENS]; R];
    // Rows ascend, so the first row sees the earliest position and the last row the latest.
    let first = (span[0].0 / KV_BLOCK).max(split * SPLIT);
    let last = (span[R - 1].1 / KV_BLOCK).min((split + 1) * SPLIT - 1);
    // Strips start at the same positions for any set of rows, so results are rounded alike.
    for strip in (first / STRIP * STRIP..=last).step_by(STRIP) {
        let blocks = STRIP.min(last + 1 - strip);
        // Blocks that no row sees may have been freed.
        let unseen = first.saturating_sub(strip);
        for b in unseen..blocks {
            let keys = keys.head_block(call.block(slot, strip + b, head), key_width);
            score_block(s, keys, q, call.options.softcap, b, &mut scores);
        }
        let tokens = blocks * KV_BLOCK;
        // The tokens of this strip that each row sees.
        let seen: [Range<usize>; R] = std::array::from_fn(|r| {
            let inside = |position: usize| position.saturating_sub(strip * KV_BLOCK).min(tokens);
            inside(span[r].0)..inside(span[r].1 + 1)
        });
        let Partial { max, sum, values: acc } = &mut partial;
        for r in 0..R {
            let row = &mut scores[r][..tokens];
            row[..seen[r].start].fill(f32::NEG_INFINITY);
            row[seen[r].end..].fill(f32::NEG_INFINITY);
            let scale = online_softmax(s, row, &mut max[r], &mut sum[r]);
            if scale != 1.0 {
                for lanes in &mut *acc {
                    lanes[r].iter_mut().for_each(|x| *x *= scale);
                }
            }
        }
        let all_seen = seen.iter().all(|seen| *seen == (0..STRIP_TOKENS));
        if all_seen && !call.spec.values_in_keys {
            let block = |b: usize| values.head_block(call.block(slot, strip + b, head), value_width);
            let blocks: [C; STRIP] = std::array::from_fn(block);
            let (whole, last) = acc.split_at_mut(value_width / 16);
            for (c, acc) in whole.iter_mut().enumerate() {
                add_strip(s, blocks, value_width, c, &scores, acc);
            }
            if let Some(acc) = last.first_mut() {
                let tiles = blocks.map(|values| ValueTile::of_last(s, values, value_width));
                add_strip(s, tiles.each_ref(), value_width, value_width / 16, &scores, acc);
            }
            continue;
        }
        for b in unseen..blocks {
            let block = call.block(slot, strip + b, head);
            let scores: [&[f32; KV_BLOCK]; R] = std::array::from_fn(|r| &scores[r].as_chunks().0[b]);
            let all = b * KV_BLOCK..(b + 1) * KV_BLOCK;
            if call.spec.values_in_keys {
                let keys = keys.head_block(block, key_width);
                for (c, acc) in acc.iter_mut().enumerate() {
                    let tile = ValueTile::of_keys(s, keys, key_width, c);
                    add_column(s, &tile, value_width, c, &all, &seen, &scores, acc);
                }
            } else {
                let values = values.head_block(block, value_width);
                let whole_columns = value_width / 16;
                for (c, acc) in acc.iter_mut().enumerate().take(whole_columns) {
                    add_column(s, values, value_width, c, &all, &seen, &scores, acc);
                }
                if let Some(acc) = acc.get_mut(whole_columns) {
                    let tile = ValueTile::of_last(s, values, value_width);
                    add_column(s, &tile, value_width, whole_columns, &all, &seen, &scores, acc);
                }
            }
        }
    }
    partial
}

/// Scores of block `b` of a strip: q · k of its 16 tokens, capped.
#[inline(always)]
fn score_block<C: Cells, S: Simd, const R: usize>(
    s: S,
    keys: C,
    q: &[[f32; R]],
    softcap: Option<f32>,
    b: usize,
    scores: &mut [[f32; STRIP_TOKENS]; R],
) {
    let mut dots = [s.splat(0.0); R];
    for (group, q) in q.chunks(KV_GROUP).enumerate() {
        let scale = keys.key_scale(s, group);
        for (d, q) in q.iter().enumerate() {
            let k = keys.key(s, group * KV_GROUP + d, scale);
            for r in 0..R {
                dots[r] = s.mul_add(k, s.splat(q[r]), dots[r]);
            }
        }
    }
    for r in 0..R {
        if let Some(cap) = softcap {
            dots[r] = s.mul(s.splat(cap), tanh(s, s.mul(dots[r], s.splat(1.0 / cap))));
        }
        s.store_f32(dots[r], &mut scores[r], b * KV_BLOCK);
    }
}

/// All of 16 numbers in one, pairwise: a chain would wait for the latency of each.
macro_rules! reduce {
    ($lanes:expr, $a:ident, $b:ident => $joined:expr) => {{
        let mut lanes: [f32; 16] = $lanes;
        reduce!(@ lanes, 8, $a, $b => $joined);
        reduce!(@ lanes, 4, $a, $b => $joined);
        reduce!(@ lanes, 2, $a, $b => $joined);
        reduce!(@ lanes, 1, $a, $b => $joined);
        lanes[0]
    }};
    (@ $lanes:ident, $half:literal, $a:ident, $b:ident => $joined:expr) => {
        for i in 0..$half {
            let ($a, $b) = ($lanes[i], $lanes[i + $half]);
            $lanes[i] = $joined;
        }
    };
}

/// Replaces scores (a multiple of 16) by their exponentials relative to the new maximum and updates maximum and sum.
/// Returns the factor of earlier results.
#[inline(always)]
fn online_softmax<S: Simd>(s: S, scores: &mut [f32], max: &mut f32, sum: &mut f32) -> f32 {
    let mut lanes = s.load_f32(scores, 0);
    for at in (16..scores.len()).step_by(16) {
        lanes = s.max(lanes, s.load_f32(scores, at));
    }
    // A NaN reaches the sum below, whatever is the largest score.
    let largest = reduce!(s.to_array(lanes), m, x => if x > m { x } else { m });
    let new = if largest > *max { largest } else { *max };
    if new == f32::NEG_INFINITY {
        // No visible token yet (or only NaN, which stays).
        scores.iter_mut().for_each(|x| *x = if x.is_nan() { f32::NAN } else { 0.0 });
        *sum += scores.iter().sum::<f32>();
        return 1.0;
    }
    let mut total = s.splat(0.0);
    for at in (0..scores.len()).step_by(16) {
        let x = s.load_f32(scores, at);
        // Masked scores are −∞: their exponential must be 0, not the smallest normal number that `exp` can return.
        let e = exp(s, s.sub(x, s.splat(new)));
        let e = s.sub(e, s.splat(f32::MIN_POSITIVE));
        s.store_f32(s.max(s.splat(0.0), e), scores, at);
        total = s.add(total, s.load_f32(scores, at));
    }
    let scale = match *max {
        f32::NEG_INFINITY => 0.0,
        // What `exp` returns for 0, without a call.
        max if max == new => 1.0,
        max => (max - new).exp(),
    };
    *sum = *sum * scale + reduce!(s.to_array(total), a, b => a + b);
    *max = new;
    scale
}

/// acc[r] += Σ score · value, for 16 columns, over all tokens of a strip. It adds in the order of [`add_values`].
#[inline(always)]
fn add_strip<V: Values, S: Simd, const R: usize>(
    s: S,
    blocks: [V; STRIP],
    width: usize,
    column: usize,
    scores: &[[f32; STRIP_TOKENS]; R],
    acc: &mut [[f32; 16]; R],
) {
    let mut sums = [s.splat(0.0); R];
    for r in 0..R {
        sums[r] = s.load_f32(&acc[r], 0);
    }
    for (b, values) in blocks.into_iter().enumerate() {
        for t in 0..KV_BLOCK {
            let v = values.value(s, width, t, column);
            for r in 0..R {
                sums[r] = s.mul_add(v, s.splat(scores[r][b * KV_BLOCK + t]), sums[r]);
            }
        }
    }
    for r in 0..R {
        s.store_f32(sums[r], &mut acc[r], 0);
    }
}

/// acc[r] += Σ score · value, for 16 columns, over the tokens of a block that a row sees. `all` are the block's tokens
/// within the strip.
#[inline(always)]
fn add_column<V: Values, S: Simd, const R: usize>(
    s: S,
    values: V,
    width: usize,
    column: usize,
    all: &Range<usize>,
    seen: &[Range<usize>; R],
    scores: &[&[f32; KV_BLOCK]; R],
    acc: &mut [[f32; 16]; R],
) {
    if seen.iter().all(|seen| seen.start <= all.start && all.end <= seen.end) {
        add_values(s, values, width, column, 0..KV_BLOCK, scores, acc);
    } else {
        add_seen_values(s, values, width, column, all, seen, scores, acc);
    }
}

/// acc[r] += Σ over some tokens of a block of score · value, for 16 columns.
#[inline(always)]
fn add_values<V: Values, S: Simd, const R: usize>(
    s: S,
    values: V,
    width: usize,
    column: usize,
    tokens: Range<usize>,
    scores: &[&[f32; KV_BLOCK]; R],
    acc: &mut [[f32; 16]; R],
) {
    let mut sums = [s.splat(0.0); R];
    for r in 0..R {
        sums[r] = s.load_f32(&acc[r], 0);
    }
    for t in tokens {
        let v = values.value(s, width, t, column);
        for r in 0..R {
            sums[r] = s.mul_add(v, s.splat(scores[r][t]), sums[r]);
        }
    }
    for r in 0..R {
        s.store_f32(sums[r], &mut acc[r], 0);
    }
}

/// Like [`add_values`], but each row reads only the tokens that it sees. Other slots may contain infinities of another
/// sequence, and 0 · ∞ is NaN. `all` are the block's tokens within the strip.
#[inline(always)]
fn add_seen_values<V: Values, S: Simd, const R: usize>(
    s: S,
    values: V,
    width: usize,
    column: usize,
    all: &Range<usize>,
    seen: &[Range<usize>; R],
    scores: &[&[f32; KV_BLOCK]; R],
    acc: &mut [[f32; 16]; R],
) {
    for r in 0..R {
        let start = seen[r].start.clamp(all.start, all.end) - all.start;
        let end = seen[r].end.clamp(all.start, all.end) - all.start;
        add_values(s, values, width, column, start..end, &[scores[r]], std::array::from_mut(&mut acc[r]));
    }
}
