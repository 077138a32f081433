//! Receives a step: its sampled tokens and hidden states, and what follows from them for each sequence.

use std::time::Instant;

use gristmill_kernels::ops::PADDING;

use super::submit::{Row, Submitted};
use super::{Pending, Running, Sampled, Task, Worker, prompt_tokens};
use crate::Logprob;
use crate::model::Result;
use crate::{Error, RoutingTrace};

/// The output of a step for a slot.
#[derive(Debug)]
pub(super) enum Output {
    /// The next token.
    Token(Sampled),
    /// All hidden states of the text are pooled.
    Vector,
}

/// The outputs of a step: for a slot its output, or why there is none.
pub(super) type Outputs = Vec<(usize, Result<Output>)>;

impl Worker {
    /// Waits for a step. Its chunks are then in the state of their sequences.
    pub(super) fn receive(&mut self, mut step: Submitted) -> Result<Outputs> {
        if step.chunks.is_empty() {
            return Ok(Vec::new());
        }
        let mut tokens = self.wait(&mut step)?;
        self.replay(&step, &mut tokens);
        let routing = self.count(&step)?;
        let mut outputs = self.pool(&step);
        for (chunk, rows) in step.rows_by_chunk() {
            self.advance(chunk, rows.filter(|&row| step.rows[row].next.is_none()).map(|row| tokens[row]))?;
            self.slots[chunk.slot].iter_mut().for_each(|running| running.job.progress.count_step(step.chunks.len()));
        }
        for (number, (row, &token)) in step.rows.iter().zip(&tokens).enumerate() {
            if let Some(output) = self.take_token(&step, number, row, token, &routing)? {
                outputs.push((row.slot, output));
            }
        }
        Ok(outputs)
    }

    /// Waits for the sampled token of each row, and measures the step. A step without outputs is not waited for: its
    /// time counts as part of the next step.
    fn wait(&mut self, step: &mut Submitted) -> Result<Vec<u32>> {
        let (waits_since, has_outputs) = (Instant::now(), step.sampled.is_some() || !step.hidden.is_empty());
        let tokens = step.sampled.take().map_or(Ok(Vec::new()), |sampled| sampled.wait())?;
        let now = Instant::now();
        self.times.draw = now - waits_since;
        let (started_at, before) = self.unsynced.take().unwrap_or((step.started_at, 0));
        let prompt_tokens = before + prompt_tokens(&step.chunks);
        match has_outputs {
            true => self.prefill_budget.learn(prompt_tokens, now - started_at),
            false => self.unsynced = Some((started_at, prompt_tokens)),
        }
        // The device starts the step in flight when it has finished this one.
        self.in_flight.iter_mut().for_each(|next| next.started_at = now);
        Ok(tokens)
    }

    /// In a replay of acceptance, changes the tokens of rows with draft tokens.
    fn replay(&mut self, step: &Submitted, tokens: &mut [u32]) {
        for (chunk, mut rows) in step.rows_by_chunk() {
            let first = rows.find(|&row| step.rows[row].next.is_none());
            let (Some(first), Some(running)) = (first, &self.slots[chunk.slot]) else { continue };
            self.drafter.replay(running.drafted(chunk), &mut tokens[first..]);
        }
    }

    /// Counts the step, and reads the choices of the routers if they are counted or traced. The device has finished the
    /// step: a step whose choices are read is not followed by another.
    fn count(&mut self, step: &Submitted) -> Result<RoutingTrace> {
        let is_traced = step.rows.iter().any(|row| self.is_traced(row));
        let counts_experts = self.counters.counts_experts() && !step.is_followed;
        let routing = if is_traced || counts_experts { self.runner.routing()? } else { RoutingTrace::default() };
        let counts = if counts_experts { routing.counts() } else { Vec::new() };
        let tokens = step.chunks.iter().map(|chunk| chunk.positions.len()).sum();
        self.counters.step(step.chunks.len(), tokens, &counts);
        Ok(routing)
    }

    /// Hands hidden states to the requests that pool them.
    fn pool(&mut self, step: &Submitted) -> Outputs {
        let width = self.runner.model().spec().hidden;
        let (mut rows, mut outputs) = (0, Vec::new());
        for Pending { slot, positions, .. } in &step.chunks {
            let Some(Running { tokens, job, .. }) = &mut self.slots[*slot] else { continue };
            let Task::Embed(embedding) = &mut job.task else { continue };
            let count = embedding.outputs(positions, tokens.len()).of(positions.len()).len();
            let own = &step.hidden[rows * width..][..count * width];
            match own.iter().position(|x| !x.is_finite()) {
                Some(at) => outputs.push((*slot, Err(self.runner.not_finite_hidden(rows + at / width)))),
                None => {
                    embedding.take(own, width);
                    if positions.end == tokens.len() {
                        outputs.push((*slot, Ok(Output::Vector)));
                    }
                }
            }
            rows += count;
        }
        outputs
    }

    /// Counts a chunk as computed. Draft tokens that were sampled as well are accepted; the others are removed from the
    /// state.
    fn advance(&mut self, chunk: &Pending, sampled: impl Iterator<Item = u32>) -> Result<()> {
        let Some(running) = &mut self.slots[chunk.slot] else { return Ok(()) };
        let drafted = running.drafted(chunk);
        let accepted = drafted.iter().zip(sampled).take_while(|(draft, sampled)| *draft == sampled).count();
        let (drafted, length) = (drafted.len(), running.tokens.len());
        running.accepted = accepted;
        if drafted > 0 {
            if let Task::Complete(completion) = &mut running.job.task {
                completion.count_draft(&mut running.job.progress, &mut self.planner, drafted, accepted);
            }
            let state = self.runner.checkpoint(running.sequence, length + accepted)?;
            self.runner.truncate(running.sequence, state)?;
        }
        // Tokens after the nearest checkpoint are computed again.
        running.computed = self.runner.sequence_len(running.sequence)?;
        self.runner.keep_prefix(running.sequence, &running.keys())
    }

    /// The output of row `number`: its token, if the next one of the sequence was sampled. A row of a prompt gives its
    /// job a log-probability. A row after a rejected draft token is ignored.
    fn take_token(
        &mut self,
        step: &Submitted,
        number: usize,
        row: &Row,
        token: u32,
        routing: &RoutingTrace,
    ) -> Result<Option<Result<Output>>> {
        if row.is_discarded {
            return Ok(None);
        }
        let (vocab, wanted) = (self.runner.model().spec().vocab, self.wants(row));
        let Some(Running { job, accepted, needs_sync, .. }) = &mut self.slots[row.slot] else { return Ok(None) };
        let Task::Complete(completion) = &mut job.task else { return Ok(None) };
        if row.drafted > *accepted {
            return Ok(None);
        }
        if token == PADDING {
            return Ok(self.not_finite(row, number, step.is_followed)?.map(Err));
        }
        let logprob = |token| wanted.map(|top| Logprob::new(&step.logits[number * vocab..][..vocab], token, top));
        if let Some(next) = row.next {
            logprob(next).into_iter().for_each(|logprob| completion.read(logprob));
            return Ok(None);
        }
        let routing = match self.batch.output_token(number) {
            Some(at) if completion.traces => routing.of_token(at),
            _ => Vec::new(),
        };
        *needs_sync = false;
        Ok(Some(Ok(Output::Token(Sampled { token, logprob: logprob(token), routing }))))
    }

    /// Why a row has no token. If the device has computed another step since, there is no reason yet: the sequence's
    /// row of that step is discarded, and its last token is computed again in a step that no other follows.
    fn not_finite(&mut self, row: &Row, number: usize, is_followed: bool) -> Result<Option<Error>> {
        if !is_followed {
            return Ok(Some(self.runner.not_finite(number)));
        }
        self.discard_in_flight(row.slot);
        let Some(running) = &mut self.slots[row.slot] else { return Ok(None) };
        // Blocks that the prefix cache has of the sequence may not be finite either.
        self.runner.evict_prefix(running.sequence)?;
        let before = self.runner.checkpoint(running.sequence, running.tokens.len().saturating_sub(1))?;
        self.runner.truncate(running.sequence, before)?;
        (running.computed, running.needs_sync) = (before, true);
        Ok(None)
    }

    /// Whether the routing of a row's token is returned.
    fn is_traced(&self, row: &Row) -> bool {
        let completion = self.slots[row.slot].as_ref().and_then(|running| running.job.completion());
        !row.is_discarded && row.next.is_none() && completion.is_some_and(|completion| completion.traces)
    }
}
