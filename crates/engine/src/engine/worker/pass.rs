//! A step is given to the device: the batch, its forward pass, and the draw.

use std::time::Instant;

use gristmill_kernels::ops::Sampling;

use super::{Running, Task, Worker};
use crate::engine::schedule::Pending;
use crate::{Drawn, Outputs, Result};

/// A step that is on the device.
#[derive(Debug)]
pub(super) struct Given {
    pub(super) chunks: Vec<Pending>,
    /// The rows of logits.
    pub(super) rows: Vec<Row>,
    /// Their tokens; `None` without rows.
    pub(super) drawn: Option<Drawn>,
    /// The logits of the first rows, as far as log-probabilities of one are wanted.
    pub(super) logits: Vec<f32>,
    /// The hidden states that are wanted.
    pub(super) hidden: Vec<f32>,
    /// When the device began with it, as far as the host knows.
    pub(super) begun: Instant,
    /// Whether the runner was given another step since.
    pub(super) followed: bool,
}

impl Given {
    /// A step that begins now, and has no outputs yet.
    pub(super) fn new(chunks: Vec<Pending>, rows: Vec<Row>) -> Self {
        let (drawn, logits, hidden, begun, followed) = (None, Vec::new(), Vec::new(), Instant::now(), false);
        Self { chunks, rows, drawn, logits, hidden, begun, followed }
    }
}

/// A row of logits of one step.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) slot: usize,
    /// The token that follows in the prompt; `None` if it is to be sampled.
    pub(super) next: Option<u32>,
    /// Guesses that the row depends on.
    pub(super) drafted: usize,
}

impl Worker {
    /// Gives the chunks to the device.
    pub(super) fn give(&mut self, chunks: Vec<Pending>) -> Result<Given> {
        self.batch.clear();
        self.observe(&chunks);
        let mut rows = Vec::new();
        let mut sampling = Vec::new();
        for Pending { slot, positions, all_rows, .. } in &chunks {
            let Some(running) = &self.slots[*slot] else { continue };
            let Running { sequence, tokens, job, .. } = running;
            let outputs = match &job.task {
                Task::Embed(embedding) => embedding.outputs(positions, tokens.len()),
                Task::Complete(_) if *all_rows => Outputs::All,
                Task::Complete(_) if positions.end >= tokens.len() => Outputs::Last,
                Task::Complete(_) => Outputs::None,
            };
            self.batch.push(*sequence, &running.at(positions.clone()), outputs);
            let Task::Complete(completion) = &job.task else { continue };
            for next in outputs.of(positions.len()).map(|row| positions.start + row + 1) {
                let next_prompt_token = tokens.get(next).copied();
                rows.push(Row { slot: *slot, next: next_prompt_token, drafted: next.saturating_sub(tokens.len()) });
                sampling.push(completion.sampling(next, next_prompt_token.is_some()));
            }
        }
        let mut given = Given::new(chunks, rows);
        if self.batch.is_empty() {
            return Ok(given);
        }
        if sampling.iter().all(Sampling::is_argmax) {
            self.batch.take_likeliest();
        }
        tracing::trace!(tokens = self.batch.len(), outputs = given.rows.len(), "step");
        let wanted = given.rows.iter().rposition(|row| self.wants(row).is_some()).map_or(0, |last| last + 1);
        let mut logits = self.runner.forward(&self.batch)?;
        // Before drawing, which leaves them penalised.
        (given.logits, given.hidden) = (logits.first(wanted)?, logits.all_hidden()?);
        given.drawn = if given.rows.is_empty() { None } else { Some(logits.begin_sample(&sampling)?) };
        self.times.forward = given.begun.elapsed();
        Ok(given)
    }

    /// The number of likeliest tokens that a row's job wants to know, if it wants its log-probability.
    pub(super) fn wants(&self, row: &Row) -> Option<usize> {
        let completion = self.slots[row.slot].as_ref()?.job.completion()?;
        if row.next.is_some() { completion.prompt_logprobs } else { completion.logprobs }
    }

    /// Gives the text so far to each job whose next token is sampled in this step. A job that its grammar refuses ends.
    fn observe(&mut self, chunks: &[Pending]) {
        let tokenizer = self.runner.model().tokenizer().ok();
        let mut refused = Vec::new();
        for Pending { slot, positions, .. } in chunks {
            let Some(Running { tokens, job, .. }) = &mut self.slots[*slot] else { continue };
            let Task::Complete(completion) = &mut job.task else { continue };
            if positions.end >= tokens.len()
                && let Err(error) = completion.observe(&job.progress, tokens, tokenizer)
            {
                job.fail(error);
                refused.push(*slot);
            }
        }
        refused.into_iter().for_each(|slot| self.end(slot));
    }
}
