//! Flash attention over the paged cache.
//!
//! A *job* is one KV head and up to `R` query rows that share it: the heads of the group, of neighbouring tokens of
//! one sequence. Keys are stored transposed per block, so 16 tokens are 16 lanes of a score vector; values are stored
//! token by token, so 16 lanes are 16 columns of the output. Four blocks (64 tokens) at a time: scores, running
//! maximum, exponentials, values.

use super::Cpu;
use super::kv::Cells;
use super::level::with_level;
use super::math::{exp, tanh};
use super::out::OutRows;
use crate::check::{PADDING, visible};
use crate::kv::{KV_BLOCK, KV_GROUP, KvSpec};
use crate::ops::Attention;
use crate::simd::{Kernel, Simd};
use crate::tensor::Shape;
use std::ops::Range;

/// Blocks that are scored before their exponentials are taken.
const STRIP: usize = 4;
/// Tokens of a strip.
const STRIP_TOKENS: usize = STRIP * KV_BLOCK;
/// The most query rows of a job.
const MAX_ROWS: usize = 8;

/// All that the jobs of one call share.
pub(crate) struct Call<'a> {
    pub(crate) q: (&'a [f32], Shape),
    pub(crate) spec: KvSpec,
    pub(crate) slots: &'a [u32],
    pub(crate) positions: &'a [u32],
    pub(crate) table: &'a [u32],
    pub(crate) table_cols: usize,
    pub(crate) parameters: &'a Attention<'a>,
    pub(crate) sinks: Option<&'a [f32]>,
}

impl Cpu {
    /// One output row for each of `tokens` tokens.
    pub(crate) fn attend<C: Cells>(&self, call: &Call, keys: C, values: C, tokens: usize, out: OutRows<f32>) {
        let group = call.parameters.heads / call.spec.heads;
        // Runs of tokens of one sequence, cut so that a job's rows share their keys.
        let per_job = (MAX_ROWS / group).max(1);
        let mut runs: Vec<(usize, usize)> = Vec::new();
        for token in 0..tokens {
            match runs.last_mut() {
                Some((first, len)) if *len < per_job && call.follows(*first, *len, token) => *len += 1,
                _ => runs.push((token, 1)),
            }
        }
        // Long rows first would be fairer; the pool's dynamic chunks even it out.
        self.pool.run(runs.len() * call.spec.heads, &|i| {
            let (first, len) = runs[i / call.spec.heads];
            let head = i % call.spec.heads;
            if call.slots[first] == PADDING {
                for token in first..first + len {
                    let width = group * call.spec.value_width;
                    // SAFETY: this job owns the columns of its heads of its tokens.
                    unsafe { out.part(token, head * width..(head + 1) * width) }.fill(0.0);
                }
                return;
            }
            let rows: Vec<(usize, usize)> =
                (first..first + len).flat_map(|t| (0..group).map(move |g| (t, head * group + g))).collect();
            for rows in rows.chunks(MAX_ROWS) {
                with_level!(self.level, s => s.run(Job { call, keys, values, head, rows, out }));
            }
        });
    }
}

impl Call<'_> {
    /// Whether `token` comes right after a run in the batch and in the sequence.
    fn follows(&self, first: usize, len: usize, token: usize) -> bool {
        self.slots[token] == self.slots[first]
            && self.positions[token] == self.positions[first].wrapping_add(len as u32)
    }

    /// Which (block, head) of the cache holds a block of a sequence, for one head.
    #[inline(always)]
    fn block(&self, slot: u32, block: usize, head: usize) -> usize {
        let id = self.table[slot as usize * self.table_cols + block] as usize;
        id * self.spec.heads + head
    }
}

struct Job<'a, 'b, C> {
    call: &'a Call<'b>,
    keys: C,
    values: C,
    head: usize,
    /// (token, query head) of each row, tokens ascending and neighbours in one sequence.
    rows: &'a [(usize, usize)],
    out: OutRows<'a, f32>,
}

impl<C: Cells> Kernel for Job<'_, '_, C> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        match self.rows.len() {
            1 => self.attend::<S, 1>(s),
            2..=4 => self.attend::<S, 4>(s),
            _ if S::TOKENS >= 8 => self.attend::<S, 8>(s),
            _ => {
                let (low, high) = self.rows.split_at(4);
                for rows in [low, high] {
                    Job { rows, ..self }.attend::<S, 4>(s);
                }
            }
        }
    }
}

impl<C: Cells> Job<'_, '_, C> {
    /// `R` rows, of which `self.rows.len()` are live; the others compute on zeros and are dropped.
    #[inline(always)]
    fn attend<S: Simd, const R: usize>(&self, s: S) {
        let Self { call, keys, values, head, rows, out } = *self;
        let KvSpec { key_width, value_width, .. } = call.spec;
        let p = call.parameters;

        // Queries transposed and scaled: R neighbours for each element of the key.
        let mut q = vec![[0f32; R]; key_width];
        for (r, &(token, query_head)) in rows.iter().enumerate() {
            let row = &call.q.0[call.q.1.row(token)][query_head * key_width..][..key_width];
            q.iter_mut().zip(row).for_each(|(q, x)| q[r] = x * p.scale);
        }
        let span: [(usize, usize); R] = std::array::from_fn(|r| {
            let token = rows[r.min(rows.len() - 1)].0;
            visible(call.positions[token], p.window)
        });
        // A sink is a logit without a value: it starts the maximum and the sum.
        let mut max = [f32::NEG_INFINITY; R];
        let mut sum = [0f32; R];
        if let Some(sinks) = call.sinks {
            for (r, &(_, query_head)) in rows.iter().enumerate() {
                (max[r], sum[r]) = (sinks[query_head], 1.0);
            }
        }
        let columns = value_width.div_ceil(16);
        let mut acc = vec![[[0f32; 16]; R]; columns];
        let mut scores = [[0f32; STRIP_TOKENS]; R];

        let slot = call.slots[rows[0].0];
        // Rows ascend, so the first sees the earliest position and the last the latest.
        let (first, last) = (span[0].0 / KV_BLOCK, span[R - 1].1 / KV_BLOCK);
        for strip in (first..=last).step_by(STRIP) {
            let blocks = STRIP.min(last + 1 - strip);
            for b in 0..blocks {
                let keys = keys.part(call.block(slot, strip + b, head), key_width);
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
                    if let Some(cap) = p.softcap {
                        dots[r] = s.mul(s.splat(cap), tanh(s, s.mul(dots[r], s.splat(1.0 / cap))));
                    }
                    s.store_f32(dots[r], &mut scores[r], b * KV_BLOCK);
                }
            }
            let tokens = blocks * KV_BLOCK;
            // What each row sees of this strip.
            let seen: [Range<usize>; R] = std::array::from_fn(|r| {
                let inside = |position: usize| position.saturating_sub(strip * KV_BLOCK).min(tokens);
                inside(span[r].0)..inside(span[r].1 + 1)
            });
            for r in 0..R {
                let row = &mut scores[r][..tokens];
                row[..seen[r].start].fill(f32::NEG_INFINITY);
                row[seen[r].end..].fill(f32::NEG_INFINITY);
                let scale = soften(s, row, &mut max[r], &mut sum[r]);
                if scale != 1.0 {
                    for lanes in &mut acc {
                        lanes[r].iter_mut().for_each(|x| *x *= scale);
                    }
                }
            }
            for b in 0..blocks {
                let values = values.part(call.block(slot, strip + b, head), value_width);
                let scores: [&[f32; KV_BLOCK]; R] = std::array::from_fn(|r| &scores[r].as_chunks().0[b]);
                let all = b * KV_BLOCK..(b + 1) * KV_BLOCK;
                let whole = seen.iter().all(|seen| seen.start <= all.start && all.end <= seen.end);
                for (c, acc) in acc.iter_mut().enumerate() {
                    let full = 16 * (c + 1) <= value_width;
                    if whole && full {
                        add_values(s, values, value_width, c, 0..KV_BLOCK, &scores, acc);
                        continue;
                    }
                    // What a row does not see is not read: another sequence may have left infinities there, and
                    // 0 · ∞ is not 0.
                    for r in 0..R {
                        let start = seen[r].start.clamp(all.start, all.end) - all.start;
                        let end = seen[r].end.clamp(all.start, all.end) - all.start;
                        let (scores, acc) = (scores[r], &mut acc[r]);
                        if full {
                            add_values(s, values, value_width, c, start..end, &[scores], std::array::from_mut(acc));
                        } else {
                            add_last_values(values, value_width, c, start..end, scores, acc);
                        }
                    }
                }
            }
        }
        for (r, &(token, query_head)) in rows.iter().enumerate() {
            // SAFETY: this job owns the columns of its heads of its tokens.
            let out = unsafe { out.part(token, query_head * value_width..(query_head + 1) * value_width) };
            for (out, lanes) in out.chunks_mut(16).zip(&acc) {
                out.iter_mut().zip(&lanes[r]).for_each(|(o, x)| *o = x / sum[r]);
            }
        }
    }
}

/// Replaces scores (a multiple of 16) by their exponentials relative to the new maximum; updates maximum and sum;
/// returns what earlier results must be multiplied with.
#[inline(always)]
fn soften<S: Simd>(s: S, scores: &mut [f32], max: &mut f32, sum: &mut f32) -> f32 {
    let mut lanes = s.load_f32(scores, 0);
    for at in (16..scores.len()).step_by(16) {
        lanes = s.max(lanes, s.load_f32(scores, at));
    }
    // NaN is not larger than anything: it reaches the sum below.
    let new = s.to_array(lanes).iter().fold(*max, |m, &x| if x > m { x } else { m });
    if new == f32::NEG_INFINITY {
        // Nothing visible yet (or NaN alone, which stays).
        scores.iter_mut().for_each(|x| *x = if x.is_nan() { f32::NAN } else { 0.0 });
        *sum += scores.iter().sum::<f32>();
        return 1.0;
    }
    let mut total = s.splat(0.0);
    for at in (0..scores.len()).step_by(16) {
        let x = s.load_f32(scores, at);
        // Masked scores are −∞: their exponential must be 0, not the smallest number that `exp` gives.
        let e = exp(s, s.sub(x, s.splat(new)));
        let e = s.sub(e, s.splat(f32::MIN_POSITIVE));
        s.store_f32(s.max(s.splat(0.0), e), scores, at);
        total = s.add(total, s.load_f32(scores, at));
    }
    let scale = if *max == f32::NEG_INFINITY { 0.0 } else { (*max - new).exp() };
    *sum = *sum * scale + s.to_array(total).iter().sum::<f32>();
    *max = new;
    scale
}

/// acc[r] += Σ over some tokens of a block of score · value, for 16 columns.
#[inline(always)]
fn add_values<C: Cells, S: Simd, const R: usize>(
    s: S,
    values: C,
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

/// The same for one row and the last columns of a width that is not a multiple of 16.
fn add_last_values<C: Cells>(
    values: C,
    width: usize,
    column: usize,
    tokens: Range<usize>,
    scores: &[f32; KV_BLOCK],
    acc: &mut [f32; 16],
) {
    for t in tokens {
        for (a, d) in acc.iter_mut().zip(16 * column..width) {
            *a += scores[t] * values.element(width, t, d);
        }
    }
}
