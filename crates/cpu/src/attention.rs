//! Flash attention over the paged cache.
//!
//! A *job* is one KV head with up to `R` query rows that read it: query heads of the head's group, for adjacent tokens
//! of one sequence. Keys are stored transposed per block, so 16 tokens are 16 lanes of a score vector. Values are
//! stored token by token, so 16 lanes are 16 columns of the output. If the values are part of the keys, a job
//! transposes 16 columns of a block at a time, once for all of its rows. Each iteration covers four blocks (64 tokens):
//! scores, running maximum, exponentials, values.

use super::Cpu;
use super::cuts::Cuts;
use super::host::{self, HostRows};
use super::kv::{Cells, CpuKv, F16Cells, HostPlacement, Q8Cells, ValueTile, Values};
use super::math::{exp, tanh};
use super::out::{Fastest, OutRows, Tile};
use gristmill_kernels::error::Result;
use gristmill_kernels::kv::{KV_BLOCK, KV_GROUP, KvFormat, KvSpec};
use gristmill_kernels::ops::{Attention, AttentionOptions, Operation, PADDING, visible};
use gristmill_kernels::simd::{Kernel, Simd};
use std::ops::Range;

/// Blocks per iteration.
const STRIP: usize = 4;
const STRIP_TOKENS: usize = STRIP * KV_BLOCK;
/// The maximum number of query rows in a job.
const MAX_ROWS: usize = 16;

/// Arguments that all jobs of one call share.
struct Call<'a> {
    q: HostRows<'a, f32>,
    spec: KvSpec,
    placement: HostPlacement<'a>,
    table_cols: usize,
    options: AttentionOptions<'a>,
    sinks: Option<&'a [f32]>,
}

impl Cpu {
    /// Flash attention: one output row per token.
    pub(super) fn flash_attention(&self, attention: Attention) -> Result<()> {
        const OP: &str = Attention::NAME;
        let Attention { q, cache, placement, options, mut out } = attention;
        let CpuKv { keys, values } = cache.storage(OP)?;
        let call = Call {
            q: host::rows(OP, q)?,
            spec: cache.spec(),
            placement: HostPlacement::new(OP, placement)?,
            table_cols: placement.table_cols,
            options,
            sinks: options.sinks.map(|sinks| host::slice(OP, sinks)).transpose()?,
        };
        let out = host::rows_mut(OP, &mut out)?;
        match call.spec.format {
            KvFormat::F16 => self.run_jobs(&call, F16Cells::of(OP, keys)?, F16Cells::of(OP, values)?, &out),
            KvFormat::Q8_0 => self.run_jobs(&call, Q8Cells::of(OP, keys)?, Q8Cells::of(OP, values)?, &out),
        }
        Ok(())
    }

    /// Runs the jobs on all threads.
    fn run_jobs<C: Cells>(&self, call: &Call, keys: C, values: C, out: &OutRows<f32>) {
        let group = call.options.heads / call.spec.heads;
        // Runs of tokens of one sequence, cut so that the rows of a job share their keys.
        let per_job = (MAX_ROWS / group).max(1);
        let mut runs: Vec<(usize, usize)> = Vec::new();
        for token in 0..out.rows() {
            match runs.last_mut() {
                Some((first, len)) if *len < per_job && call.follows(*first, *len, token) => *len += 1,
                _ => runs.push((token, 1)),
            }
        }
        let tokens = Cuts::new(runs.iter().map(|&(_, len)| (len, len)));
        let share = match call.spec.heads {
            1 => share_of_group(group, runs.len(), self.pool.threads()),
            _ => group,
        };
        let heads = Cuts::even(out.cols(), share * call.spec.value_width);
        self.pool.each_tile(out, &tokens, &heads, Fastest::Columns, &|run, part, mut out| {
            let (first, len) = runs[run];
            if call.placement.slots[first] == PADDING {
                (0..len).for_each(|row| out.columns(row, heads.get(part).1).fill(0.0));
                return;
            }
            let head = part * share / group;
            let rows: Vec<JobRow> = (0..len)
                .flat_map(|row| {
                    (0..share).map(move |g| JobRow { token: first + row, row, query_head: part * share + g })
                })
                .collect();
            for rows in rows.chunks(MAX_ROWS) {
                self.level.run(AttentionTask { call, keys, values, head, rows, out: &mut out });
            }
        });
    }
}

/// Query heads per job, if a `group` of query heads shares the only KV head. A divisor of the group, at most
/// [`MAX_ROWS`]. It shrinks while there are more threads than jobs.
fn share_of_group(group: usize, runs: usize, threads: usize) -> usize {
    let divisors = (1..=group.min(MAX_ROWS)).rev().filter(|share| group.is_multiple_of(*share));
    let mut shares = divisors.filter(|share| runs * (group / share) >= threads || *share <= 4);
    shares.next().unwrap_or(1)
}

/// A row of a job: one query head of one token.
#[derive(Clone, Copy)]
struct JobRow {
    token: usize,
    /// The token's row in the output's tile.
    row: usize,
    query_head: usize,
}

impl Call<'_> {
    /// Whether `token` directly follows a run, in the batch and in the sequence.
    fn follows(&self, first: usize, len: usize, token: usize) -> bool {
        self.placement.slots[token] == self.placement.slots[first]
            && self.placement.positions[token] == self.placement.positions[first].wrapping_add(len as u32)
    }

    /// The scale of a token's queries.
    fn scale(&self, token: usize) -> f32 {
        let AttentionOptions { scale, temperature, .. } = self.options;
        temperature.map_or(scale, |t| (f64::from(scale) * t.factor(self.placement.positions[token])) as f32)
    }

    /// The index of (block, head) in the cache, for a block of a sequence and one head.
    #[inline(always)]
    fn block(&self, slot: u32, block: usize, head: usize) -> usize {
        let id = self.placement.table[slot as usize * self.table_cols + block] as usize;
        id * self.spec.heads + head
    }
}

struct AttentionTask<'a, 'c, 't, C> {
    call: &'a Call<'c>,
    keys: C,
    values: C,
    head: usize,
    /// Tokens ascend and are adjacent in one sequence.
    rows: &'a [JobRow],
    out: &'a mut Tile<'t, f32>,
}

impl<C: Cells> Kernel for AttentionTask<'_, '_, '_, C> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        // The level has enough registers for this number of rows.
        let most = if S::TOKENS >= 8 { MAX_ROWS } else { 4 };
        for rows in self.rows.chunks(most) {
            self.rows = rows;
            match rows.len() {
                1 => self.run_rows::<S, 1>(s),
                2..=4 => self.run_rows::<S, 4>(s),
                5..=8 => self.run_rows::<S, 8>(s),
                _ => self.run_rows::<S, MAX_ROWS>(s),
            }
        }
    }
}

impl<C: Cells> AttentionTask<'_, '_, '_, C> {
    /// `R` rows, of which `self.rows.len()` are in use; the others compute on zeros and are not stored.
    #[inline(always)]
    fn run_rows<S: Simd, const R: usize>(&mut self, s: S) {
        let Self { call, keys, values, head, rows, .. } = *self;
        let KvSpec { key_width, value_width, .. } = call.spec;
        let p = call.options;

        // Queries transposed and scaled: R adjacent values per element of the key.
        let mut q = vec![[0f32; R]; key_width];
        for (r, &JobRow { token, query_head, .. }) in rows.iter().enumerate() {
            let row = &call.q.row(token)[query_head * key_width..][..key_width];
            let scale = call.scale(token);
            q.iter_mut().zip(row).for_each(|(q, x)| q[r] = x * scale);
        }
        let span: [(usize, usize); R] = std::array::from_fn(|r| {
            let token = rows[r.min(rows.len() - 1)].token;
            visible(call.placement.positions[token], p.window, p.first)
        });
        // A sink is a logit without a value: the initial maximum and sum.
        let mut max = [f32::NEG_INFINITY; R];
        let mut sum = [0f32; R];
        if let Some(sinks) = call.sinks {
            for (r, row) in rows.iter().enumerate() {
                (max[r], sum[r]) = (sinks[row.query_head], 1.0);
            }
        }
        let columns = value_width.div_ceil(16);
        let mut acc = vec![[[0f32; 16]; R]; columns];
        let mut scores = [[0f32; STRIP_TOKENS]; R];

        let slot = call.placement.slots[rows[0].token];
        // Rows ascend, so the first row sees the earliest position and the last row the latest.
        let (first, last) = (span[0].0 / KV_BLOCK, span[R - 1].1 / KV_BLOCK);
        // Strips start at the same positions for any set of rows, so results are rounded alike.
        for strip in (first / STRIP * STRIP..=last).step_by(STRIP) {
            let blocks = STRIP.min(last + 1 - strip);
            // Blocks that no row sees may have been freed.
            let unseen = first.saturating_sub(strip);
            for b in unseen..blocks {
                let keys = keys.head_block(call.block(slot, strip + b, head), key_width);
                score_block(s, keys, &q, p.softcap, b, &mut scores);
            }
            let tokens = blocks * KV_BLOCK;
            // The tokens of this strip that each row sees.
            let seen: [Range<usize>; R] = std::array::from_fn(|r| {
                let inside = |position: usize| position.saturating_sub(strip * KV_BLOCK).min(tokens);
                inside(span[r].0)..inside(span[r].1 + 1)
            });
            for r in 0..R {
                let row = &mut scores[r][..tokens];
                row[..seen[r].start].fill(f32::NEG_INFINITY);
                row[seen[r].end..].fill(f32::NEG_INFINITY);
                let scale = online_softmax(s, row, &mut max[r], &mut sum[r]);
                if scale != 1.0 {
                    for lanes in &mut acc {
                        lanes[r].iter_mut().for_each(|x| *x *= scale);
                    }
                }
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
                    for (c, acc) in acc.iter_mut().enumerate() {
                        add_column(s, values, value_width, c, &all, &seen, &scores, acc);
                    }
                }
            }
        }
        for (r, &JobRow { row, query_head, .. }) in rows.iter().enumerate() {
            let out = self.out.columns(row, query_head * value_width..(query_head + 1) * value_width);
            for (out, lanes) in out.chunks_mut(16).zip(&acc) {
                out.iter_mut().zip(&lanes[r]).for_each(|(o, x)| *o = x / sum[r]);
            }
        }
    }
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

/// Replaces scores (a multiple of 16) by their exponentials relative to the new maximum and updates maximum and sum.
/// Returns the factor of earlier results.
#[inline(always)]
fn online_softmax<S: Simd>(s: S, scores: &mut [f32], max: &mut f32, sum: &mut f32) -> f32 {
    let mut lanes = s.load_f32(scores, 0);
    for at in (16..scores.len()).step_by(16) {
        lanes = s.max(lanes, s.load_f32(scores, at));
    }
    // A NaN fails the comparison and reaches the sum below.
    let new = s.to_array(lanes).iter().fold(*max, |m, &x| if x > m { x } else { m });
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
    let scale = if *max == f32::NEG_INFINITY { 0.0 } else { (*max - new).exp() };
    *sum = *sum * scale + s.to_array(total).iter().sum::<f32>();
    *max = new;
    scale
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
    let whole = seen.iter().all(|seen| seen.start <= all.start && all.end <= seen.end);
    if whole && 16 * (column + 1) <= width {
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
        let (scores, acc) = (scores[r], &mut acc[r]);
        if 16 * (column + 1) <= width {
            add_values(s, values, width, column, start..end, &[scores], std::array::from_mut(acc));
        } else {
            add_last_values(values, width, column, start..end, scores, acc);
        }
    }
}

/// acc += Σ score · value for one row, for the last columns of a width that is not a multiple of 16.
fn add_last_values<V: Values>(
    values: V,
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
