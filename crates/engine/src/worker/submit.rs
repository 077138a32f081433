//! Submits a step: its batch, the forward pass, and the sampler.

use std::ops::Range;
use std::time::Instant;

use gristmill_kernels::ops::Sampling;

use super::{Running, Task, Worker};
use crate::model::Result;
use crate::schedule::Pending;
use crate::{Outputs, SampledTokens};

/// A step that the device computes.
#[derive(Debug)]
pub(super) struct Submitted {
    pub(super) chunks: Vec<Pending>,
    /// The rows of logits.
    pub(super) rows: Vec<Row>,
    /// The token of each row; `None` without rows.
    pub(super) sampled: Option<SampledTokens>,
    /// The logits of the first rows, up to the last row whose log-probabilities are returned.
    pub(super) logits: Vec<f32>,
    /// The hidden states that are pooled.
    pub(super) hidden: Vec<f32>,
    /// When the device started it, as far as the host can tell.
    pub(super) started_at: Instant,
    /// Whether another step was submitted after it.
    pub(super) is_followed: bool,
}

impl Submitted {
    /// A step that starts now, and has no outputs yet.
    pub(super) fn new(chunks: Vec<Pending>, rows: Vec<Row>) -> Self {
        let (sampled, logits, hidden, started_at, is_followed) = (None, Vec::new(), Vec::new(), Instant::now(), false);
        Self { chunks, rows, sampled, logits, hidden, started_at, is_followed }
    }

    /// The chunks, each with the numbers of its rows.
    pub(super) fn rows_by_chunk(&self) -> impl Iterator<Item = (&Pending, Range<usize>)> {
        let mut next = 0;
        self.chunks.iter().map(move |chunk| {
            // Rows are in the order of the chunks. Those of other slots are of chunks that were discarded.
            let rows = self.rows.get(next..).unwrap_or_default();
            let start = rows.iter().position(|row| row.slot == chunk.slot && !row.is_discarded);
            let own = |start: usize| rows[start..].iter().take_while(|row| row.slot == chunk.slot).count();
            let range = start.map_or(next..next, |start| next + start..next + start + own(start));
            next = range.end;
            (chunk, range)
        })
    }
}

/// A row of logits of one step.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) slot: usize,
    /// Whether the request has left the slot since.
    pub(super) is_discarded: bool,
    /// The token that follows in the prompt; `None` if the token is sampled.
    pub(super) next: Option<u32>,
    /// Draft tokens that the row depends on.
    pub(super) drafted: usize,
}

impl Worker {
    /// Submits the step of these chunks. A token that the host does not have yet is sampled in the `current` step.
    pub(super) fn submit(&mut self, mut chunks: Vec<Pending>, current: Option<&Submitted>) -> Result<Submitted> {
        self.batch.clear();
        self.observe(&chunks);
        chunks.retain(|chunk| self.slots[chunk.slot].is_some());
        let sampled_in = current.map(|current| self.last_rows(current)).unwrap_or_default();
        let (mut rows, mut counts) = (Vec::new(), Vec::new());
        for Pending { slot, positions, all_rows, .. } in &chunks {
            let Some(running) = &self.slots[*slot] else { continue };
            let Running { sequence, tokens, job, .. } = running;
            let outputs = match &job.task {
                Task::Embed(embedding) => embedding.outputs(positions, tokens.len()),
                Task::Complete(_) if *all_rows => Outputs::All,
                Task::Complete(_) if positions.end >= tokens.len() => Outputs::Last,
                Task::Complete(_) => Outputs::None,
            };
            match sampled_in.get(*slot).copied().flatten().filter(|_| positions.start == tokens.len()) {
                Some(row) => drop(self.batch.push_sampled(*sequence, row, outputs)),
                None => {
                    let (tokens_of_chunk, spans) = (running.at(positions.clone()), job.numbered.spans());
                    self.batch.push_with_images(*sequence, &tokens_of_chunk, positions.start, spans, outputs);
                }
            }
            let Task::Complete(completion) = &job.task else { continue };
            let undrafted = tokens.len().max(positions.start + 1);
            for next in outputs.of(positions.len()).map(|row| positions.start + row + 1) {
                let next_prompt_token = tokens.get(next).copied();
                let drafted = next.saturating_sub(undrafted);
                rows.push(Row { slot: *slot, is_discarded: false, next: next_prompt_token, drafted });
                counts.push((next, completion.counts_after(&running.draft[..drafted])));
            }
        }
        let with_counts = rows.iter().zip(&counts).filter_map(|(row, (position, counts))| {
            let completion = self.slots[row.slot].as_ref()?.job.completion()?;
            let sampling = completion.sampling(*position, row.next.is_some());
            Some(Sampling { counts: counts.as_deref().unwrap_or(sampling.counts), ..sampling })
        });
        let sampling: Vec<Sampling<'_>> = with_counts.collect();
        let mut step = Submitted::new(chunks, rows);
        if self.batch.is_empty() {
            return Ok(step);
        }
        if sampling.iter().all(Sampling::is_argmax) {
            self.batch.take_argmax();
        }
        tracing::trace!(tokens = self.batch.len(), outputs = step.rows.len(), "step");
        let wanted = step.rows.iter().rposition(|row| self.wants(row).is_some()).map_or(0, |last| last + 1);
        let mut logits = self.runner.forward(&self.batch)?;
        // Before sampling, which leaves the logits penalised.
        (step.logits, step.hidden) = (logits.first(wanted)?, logits.all_hidden()?);
        step.sampled = if step.rows.is_empty() { None } else { Some(logits.start_sample(&sampling)?) };
        self.times.forward += step.started_at.elapsed();
        Ok(step)
    }

    /// For each slot, the row of a step that its next token is sampled from.
    fn last_rows(&self, step: &Submitted) -> Vec<Option<usize>> {
        let mut of_slots = vec![None; self.slots.len()];
        for (chunk, rows) in step.rows_by_chunk() {
            of_slots[chunk.slot] = rows.last();
        }
        of_slots
    }

    /// How many of the most likely tokens are returned with the log-probability of a row's token, if it is returned.
    pub(super) fn wants(&self, row: &Row) -> Option<usize> {
        let completion = self.slots[row.slot].as_ref()?.job.completion()?;
        if row.next.is_some() { completion.prompt_logprobs } else { completion.logprobs }
    }

    /// Shows the tokens so far to each job whose next token is sampled in this step. A job that its grammar rejects ends.
    fn observe(&mut self, chunks: &[Pending]) {
        let tokenizer = self.runner.model().tokenizer().ok();
        let mut refused = Vec::new();
        for Pending { slot, positions, .. } in chunks {
            let Some(Running { tokens, job, .. }) = &mut self.slots[*slot] else { continue };
            let Task::Complete(completion) = &mut job.task else { continue };
            // The token that the device has is of no concern here: such a step is overlapped.
            if (positions.start..positions.end).contains(&tokens.len().saturating_sub(1))
                && let Err(error) = completion.observe(&job.progress, tokens, tokenizer)
            {
                job.fail(error);
                refused.push(*slot);
            }
        }
        refused.into_iter().for_each(|slot| self.end(slot));
    }
}
