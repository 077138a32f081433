//! One forward pass, and what comes of it.

use std::time::Instant;

use gristmill_kernels::ops::{PADDING, Sampling};

use super::{Running, Sampled, Task, Worker};
use crate::engine::Logprob;
use crate::engine::schedule::Pending;
use crate::{Outputs, Result, RoutingTrace};

/// The output of a pass for a slot whose tokens are then in the state.
#[derive(Debug)]
pub(super) enum Output {
    /// The next token.
    Token(Sampled),
    /// The hidden states that it is to become a vector of; the job has them.
    Vector,
}

/// A row of logits of one step.
#[derive(Debug)]
struct Row {
    slot: usize,
    /// The token that follows in the prompt; `None` if it is to be sampled.
    next: Option<u32>,
    /// Guesses that the row depends on.
    drafted: usize,
}

impl Worker {
    /// Runs the chunks. Gives an output, or why there is none, for each slot whose text is then in the state.
    pub(super) fn pass(&mut self, chunks: &[Pending]) -> Result<Vec<(usize, Result<Output>)>> {
        self.batch.clear();
        self.observe(chunks);
        let mut rows = Vec::new();
        let mut sampling = Vec::new();
        for Pending { slot, positions, all_rows, .. } in chunks {
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
        if self.batch.is_empty() {
            return Ok(Vec::new());
        }
        if sampling.iter().all(Sampling::is_argmax) {
            self.batch.take_likeliest();
        }
        tracing::trace!(tokens = self.batch.len(), outputs = rows.len(), "step");
        let wanted = rows.iter().rposition(|row| self.wants(row).is_some()).map_or(0, |last| last + 1);
        let begin = Instant::now();
        let mut logits = self.runner.forward(&self.batch)?;
        self.times.forward = begin.elapsed();
        // Before drawing, which leaves them penalised.
        let (logprobs, vocab, hidden) = (logits.first(wanted)?, logits.vocab(), logits.all_hidden()?);
        let sampled = if rows.is_empty() { Vec::new() } else { logits.draw(&sampling)? };
        self.times.draw = begin.elapsed() - self.times.forward;
        let traced = rows.iter().any(|row| self.is_traced(row));
        // After drawing, when the device has done all.
        let routing = match traced || self.counters.counts_experts() {
            true => self.runner.routing()?,
            false => RoutingTrace::default(),
        };
        let counts = if self.counters.counts_experts() { routing.counts() } else { Vec::new() };
        self.counters.step(chunks.len(), self.batch.len(), &counts);
        let mut outcome = self.embed(chunks, &hidden);
        for chunk in chunks {
            let of_slot = rows.iter().zip(&sampled).filter(|(row, _)| row.slot == chunk.slot && row.next.is_none());
            self.advance(chunk, of_slot.map(|(_, &token)| token))?;
            self.slots[chunk.slot].iter_mut().for_each(|running| running.job.progress.count_step(chunks.len()));
        }
        for (number, (row, token)) in rows.into_iter().zip(sampled).enumerate() {
            let wants = self.wants(&row);
            let Some(Running { job, accepted, .. }) = &mut self.slots[row.slot] else { continue };
            let Task::Complete(completion) = &mut job.task else { continue };
            if row.drafted > *accepted {
                continue;
            }
            let logprob = |token| wants.map(|top| Logprob::new(&logprobs[number * vocab..][..vocab], token, top));
            match row.next {
                _ if token == PADDING => outcome.push((row.slot, Err(self.runner.not_finite(number)))),
                Some(next) => logprob(next).into_iter().for_each(|logprob| completion.read(logprob)),
                None => {
                    let routing = match self.batch.output_rows.get(number) {
                        Some(&at) if completion.traces => routing.of_token(at as usize),
                        _ => Vec::new(),
                    };
                    let sampled = Sampled { token, logprob: logprob(token), routing };
                    outcome.push((row.slot, Ok(Output::Token(sampled))));
                }
            }
        }
        Ok(outcome)
    }

    /// Gives hidden states to the texts that become vectors.
    fn embed(&mut self, chunks: &[Pending], hidden: &[f32]) -> Vec<(usize, Result<Output>)> {
        let width = self.runner.model().spec().hidden;
        let (mut rows, mut outcome) = (0, Vec::new());
        for Pending { slot, positions, .. } in chunks {
            let Some(Running { tokens, job, .. }) = &mut self.slots[*slot] else { continue };
            let Task::Embed(embedding) = &mut job.task else { continue };
            let count = embedding.outputs(positions, tokens.len()).of(positions.len()).len();
            let own = &hidden[rows * width..][..count * width];
            match own.iter().position(|x| !x.is_finite()) {
                Some(at) => outcome.push((*slot, Err(self.runner.not_finite_hidden(rows + at / width)))),
                None => {
                    embedding.take(own, width);
                    if positions.end == tokens.len() {
                        outcome.push((*slot, Ok(Output::Vector)));
                    }
                }
            }
            rows += count;
        }
        outcome
    }

    /// Counts a chunk as computed; of drafted those that were sampled as well, the others leave the state.
    fn advance(&mut self, chunk: &Pending, sampled: impl Iterator<Item = u32>) -> Result<()> {
        let Some(running) = &mut self.slots[chunk.slot] else { return Ok(()) };
        let drafted = running.drafted(chunk);
        let accepted = drafted.iter().zip(sampled).take_while(|(draft, sampled)| *draft == sampled).count();
        let (drafted, length) = (drafted.len(), running.tokens.len());
        running.accepted = accepted;
        if drafted > 0 {
            if let Task::Complete(completion) = &mut running.job.task {
                completion.learn(&mut running.job.progress, drafted, accepted);
            }
            let state = self.runner.checkpoint(running.sequence, length + accepted)?;
            self.runner.truncate(running.sequence, state)?;
        }
        // Tokens behind the nearest checkpoint are computed again.
        running.computed = self.runner.sequence_len(running.sequence)?;
        self.runner.keep_prefix(running.sequence, &running.tokens)
    }

    /// The number of likeliest tokens that a row's job wants to know, if it wants its log-probability.
    fn wants(&self, row: &Row) -> Option<usize> {
        let completion = self.slots[row.slot].as_ref()?.job.completion()?;
        if row.next.is_some() { completion.prompt_logprobs } else { completion.logprobs }
    }

    /// Whether a row's job wants the routing of its token.
    fn is_traced(&self, row: &Row) -> bool {
        let completion = self.slots[row.slot].as_ref().and_then(|running| running.job.completion());
        row.next.is_none() && completion.is_some_and(|completion| completion.traces)
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
