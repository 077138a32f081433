//! Flash attention over the paged cache.
//!
//! A *job* is one KV head with up to `R` query rows that read it: query heads of the head's group, for adjacent tokens
//! of one sequence. Keys are stored transposed per block, so 16 tokens are 16 lanes of a score vector. Values are
//! stored token by token, so 16 lanes are 16 columns of the output. If the values are part of the keys, a job
//! transposes 16 columns of a block at a time, once for all of its rows. Each iteration covers four blocks (64 tokens):
//! scores, running maximum, exponentials, values.
//!
//! The positions of a sequence are cut into *splits* of [`SPLIT`] blocks. Results of splits are merged in order
//! (`partial.rs`), by the job itself or, if there are fewer jobs than threads, after all threads have computed splits.
//! Both give the same bits, because a split starts at the same position for every row.

mod partial;
mod split;

use super::cpu::Cpu;
use super::cuts::Cuts;
use super::host::{self, HostRows};
use super::kv::{Cells, CpuKv, F16Cells, HostPlacement, Q8Cells};
use super::level::Level;
use super::out::{Fastest, OutRows, Tile};
use gristmill_kernels::error::Result;
use gristmill_kernels::kv::{KV_BLOCK, KvFormat, KvSpec};
use gristmill_kernels::ops::{Attention, AttentionOptions, Operation, PADDING, visible};
use gristmill_kernels::simd::{Kernel, Simd};
use partial::{Partial, PartialRow};
use split::{Source, attend};
use std::ops::Range;

/// Blocks per iteration.
const STRIP: usize = 4;
const STRIP_TOKENS: usize = STRIP * KV_BLOCK;
/// The maximum number of query rows in a job.
const MAX_ROWS: usize = 16;
/// Blocks of a split, whole strips: 256 tokens. Merging takes about 2% of a split's time, and decode of one sequence needs a
/// split for each thread.
const SPLIT: usize = 16;
/// The most numbers of results of splits in memory: 64 MB. Jobs that would need more compute all of their splits.
const MAX_PARTIALS: usize = 1 << 24;

/// Arguments that all jobs of one call share.
struct Call<'a> {
    q: HostRows<'a, f32>,
    spec: KvSpec,
    placement: HostPlacement<'a>,
    table_cols: usize,
    options: AttentionOptions<'a>,
    ends: Option<&'a [u32]>,
    sinks: Option<&'a [f32]>,
}

on_cpu! { flash_attention(Attention); }

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
            ends: options.ends.map(|ends| host::slice(OP, ends)).transpose()?,
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
        let runs = call.runs(out.rows(), (MAX_ROWS / group).max(1));
        let splits: Vec<Range<usize>> = runs.iter().map(|run| call.splits(run)).collect();
        let all: usize = splits.iter().map(Range::len).sum();
        let share = share_of_group(group, all * call.spec.heads, self.pool.threads());
        let jobs = Jobs { call, keys, values, runs, share, parts: call.options.heads / share };
        let are_few = jobs.runs.len() * jobs.parts < self.pool.threads() && all > jobs.runs.len();
        let partials = all.saturating_mul(jobs.parts).saturating_mul(jobs.partials());
        match are_few && partials <= MAX_PARTIALS {
            true => self.run_splits(&jobs, &splits, out),
            false => self.run_whole(&jobs, out),
        }
    }

    /// Runs each job with all of its splits.
    fn run_whole<C: Cells>(&self, jobs: &Jobs<C>, out: &OutRows<f32>) {
        let tokens = Cuts::new(jobs.runs.iter().map(|run| (run.len(), run.len())));
        let heads = Cuts::even(out.cols(), jobs.share * jobs.call.spec.value_width);
        // One head after another: its keys and values stay in the caches for all rows, where those of all heads would not.
        self.pool.each_tile(out, &tokens, &heads, Fastest::Rows, &|run, part, mut out| {
            let run = &jobs.runs[run];
            if jobs.call.is_padding(run) {
                (0..run.len()).for_each(|row| out.columns(row, heads.get(part).1).fill(0.0));
                return;
            }
            jobs.run(&self.level, run, part, Target::Rows(&mut out));
        });
    }

    /// Runs each split of each job, then merges the splits of each row.
    fn run_splits<C: Cells>(&self, jobs: &Jobs<C>, splits: &[Range<usize>], out: &OutRows<f32>) {
        let &Jobs { call, ref runs, share, parts, .. } = jobs;
        let row = PartialRow::len(call.spec.value_width);
        let of_job = jobs.partials();
        // The run and the split of each item, `parts` of them for each.
        let items: Vec<(usize, usize)> =
            splits.iter().enumerate().flat_map(|(run, splits)| splits.clone().map(move |split| (run, split))).collect();
        let mut partials = vec![0.0; items.len() * parts * of_job];
        self.pool.each_chunk(&mut partials, of_job, &|item, rows| {
            let (run, split) = items[item / parts];
            jobs.run(&self.level, &runs[run], item % parts, Target::Partials { split, rows });
        });
        let tokens = Cuts::new(runs.iter().map(|run| (run.len(), run.len())));
        let heads = Cuts::even(out.cols(), call.spec.value_width);
        self.pool.each_tile(out, &tokens, &heads, Fastest::Columns, &|run, head, mut out| {
            let first = splits[..run].iter().map(Range::len).sum::<usize>();
            for token in 0..runs[run].len() {
                let result = out.columns(token, heads.get(head).1);
                let at = |split: usize| {
                    ((first + split) * parts + head / share) * of_job + (token * share + head % share) * row
                };
                let of_splits = (0..splits[run].len()).map(|split| PartialRow(&partials[at(split)..][..row]));
                partial::merge_rows(call.sink(head), of_splits, result);
            }
        });
    }
}

/// The jobs of a call: each of `runs` with each of `parts` of the query heads.
struct Jobs<'a, 'c, C> {
    call: &'a Call<'c>,
    keys: C,
    values: C,
    /// Adjacent tokens of one sequence, or padding.
    runs: Vec<Range<usize>>,
    /// Query heads of a part.
    share: usize,
    parts: usize,
}

impl<C: Cells> Jobs<'_, '_, C> {
    /// Numbers of the results of one split of a job.
    fn partials(&self) -> usize {
        let rows = self.runs.iter().map(|run| run.len() * self.share).max().unwrap_or(0);
        rows.saturating_mul(PartialRow::len(self.call.spec.value_width))
    }

    fn run(&self, level: &Level, run: &Range<usize>, part: usize, mut target: Target) {
        let &Self { call, keys, values, share, .. } = self;
        let head = part * share * call.spec.heads / call.options.heads;
        let rows: Vec<JobRow> = (0..run.len() * share)
            .map(|index| JobRow {
                token: run.start + index / share,
                index,
                row: index / share,
                query_head: part * share + index % share,
            })
            .collect();
        for rows in rows.chunks(MAX_ROWS) {
            level.run(AttentionTask { call, keys, values, head, rows, target: &mut target });
        }
    }
}

/// What a job writes.
enum Target<'a, 't> {
    /// The results of all splits.
    Rows(&'a mut Tile<'t, f32>),
    /// A [`PartialRow`] of one split for each row.
    Partials { split: usize, rows: &'a mut [f32] },
}

/// Query heads per job, of a `group` that shares a KV head. A divisor of the group, at most [`MAX_ROWS`]. It shrinks to 4
/// while there are more threads than `splits` of all KV heads with it: fewer rows would take as long.
fn share_of_group(group: usize, splits: usize, threads: usize) -> usize {
    let divisors = (1..=group.min(MAX_ROWS)).rev().filter(|share| group.is_multiple_of(*share));
    let mut shares = divisors.filter(|share| splits * (group / share) >= threads || *share <= 4);
    shares.next().unwrap_or(1)
}

/// A row of a job: one query head of one token.
#[derive(Clone, Copy)]
struct JobRow {
    token: usize,
    /// The row's place in the job.
    index: usize,
    /// The token's row in the output's tile.
    row: usize,
    query_head: usize,
}

impl Call<'_> {
    /// Runs of adjacent tokens of one sequence, cut so that the rows of a job share their keys.
    fn runs(&self, tokens: usize, per_job: usize) -> Vec<Range<usize>> {
        let mut runs: Vec<Range<usize>> = Vec::new();
        for token in 0..tokens {
            match runs.last_mut() {
                Some(run) if run.len() < per_job && self.follows(run.start, token) => run.end += 1,
                _ => runs.push(token..token + 1),
            }
        }
        runs
    }

    fn is_padding(&self, run: &Range<usize>) -> bool {
        self.placement.slots[run.start] == PADDING
    }

    /// The splits that a run's tokens see; none for padding.
    fn splits(&self, run: &Range<usize>) -> Range<usize> {
        if self.is_padding(run) {
            return 0..0;
        }
        let [first, last] = [run.start, run.end - 1].map(|token| self.visible(token));
        first.0 / (SPLIT * KV_BLOCK)..last.1 / (SPLIT * KV_BLOCK) + 1
    }

    /// The first and last position that a token sees.
    fn visible(&self, token: usize) -> (usize, usize) {
        let end = self.ends.map(|ends| ends[token]);
        visible(self.placement.positions[token], end, self.options.window, self.options.first)
    }

    fn sink(&self, query_head: usize) -> Option<f32> {
        self.sinks.map(|sinks| sinks[query_head])
    }

    /// Whether `token` follows a run, directly or at the same position, and sees as far: patches of a picture are all at its last
    /// position.
    fn follows(&self, first: usize, token: usize) -> bool {
        let positions = self.placement.positions;
        self.placement.slots[token] == self.placement.slots[first]
            && positions[token].wrapping_sub(positions[token - 1]) <= 1
            && self.ends.is_none_or(|_| self.visible(token).1 >= self.visible(token - 1).1)
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

struct AttentionTask<'a, 'c, 'o, 't, C> {
    call: &'a Call<'c>,
    keys: C,
    values: C,
    head: usize,
    /// Tokens ascend in one sequence, without gaps.
    rows: &'a [JobRow],
    target: &'a mut Target<'o, 't>,
}

impl<C: Cells> Kernel for AttentionTask<'_, '_, '_, '_, C> {
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

impl<C: Cells> AttentionTask<'_, '_, '_, '_, C> {
    /// `R` rows, of which `self.rows.len()` are in use; the others compute on zeros and are not stored.
    #[inline(always)]
    fn run_rows<S: Simd, const R: usize>(&mut self, s: S) {
        let Self { call, keys, values, head, rows, .. } = *self;
        let KvSpec { key_width, value_width, .. } = call.spec;
        let source = &Source { call, keys, values, head, slot: call.placement.slots[rows[0].token] };
        let columns = value_width.div_ceil(16);

        // Queries transposed and scaled: R adjacent values per element of the key.
        let mut q = vec![[0f32; R]; key_width];
        for (r, &JobRow { token, query_head, .. }) in rows.iter().enumerate() {
            let row = &call.q.row(token)[query_head * key_width..][..key_width];
            let scale = call.scale(token);
            q.iter_mut().zip(row).for_each(|(q, x)| q[r] = x * scale);
        }
        let span: [(usize, usize); R] = std::array::from_fn(|r| call.visible(rows[r.min(rows.len() - 1)].token));
        match self.target {
            Target::Partials { split, rows: to } => {
                let width = PartialRow::len(value_width);
                let partial = attend(s, source, &q, &span, *split);
                for (r, row) in rows.iter().enumerate() {
                    partial.store(r, &mut to[row.index * width..][..width]);
                }
            }
            Target::Rows(_) => {
                let sinks = std::array::from_fn(|r| rows.get(r).and_then(|row| call.sink(row.query_head)));
                let mut all = Partial::new(sinks, columns);
                for split in span[0].0 / (SPLIT * KV_BLOCK)..=span[R - 1].1 / (SPLIT * KV_BLOCK) {
                    all.merge(&attend(s, source, &q, &span, split));
                }
                let Target::Rows(out) = self.target else { return };
                for (r, &JobRow { row, query_head, .. }) in rows.iter().enumerate() {
                    all.result(r, out.columns(row, query_head * value_width..(query_head + 1) * value_width));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_groups_occupy_threads() {
        let share = |group, splits, threads| share_of_group(group, splits, threads);
        // Qwen3-30B-A3B: 8 query heads for each of 4 KV heads, up to 256 tokens, then 2,048.
        assert_eq!([2, 4, 5, 8, 64].map(|threads| share(8, 4, threads)), [8, 8, 4, 4, 4]);
        assert_eq!([2, 32, 33, 64].map(|threads| share(8, 32, threads)), [8, 8, 4, 4]);
        // A single KV head for all.
        assert_eq!([1, 8, 9, 16, 33].map(|threads| share(128, 1, threads)), [16, 16, 8, 8, 4]);
        assert_eq!([share(7, 1, 1), share(7, 1, 2), share(1, 1, 8)], [7, 1, 1]);
    }
}
