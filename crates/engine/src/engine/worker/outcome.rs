//! What comes of a step that was given to the device.

use std::time::Instant;

use gristmill_kernels::ops::PADDING;

use super::pass::{Given, Row};
use super::{Pending, Running, Sampled, Task, Worker, prompt_tokens};
use crate::engine::Logprob;
use crate::{Error, Result, RoutingTrace};

/// The output of a step for a slot whose tokens are then in the state.
#[derive(Debug)]
pub(super) enum Output {
    /// The next token.
    Token(Sampled),
    /// The hidden states that it is to become a vector of; the job has them.
    Vector,
}

impl Worker {
    /// Waits for a step. Gives an output, or why there is none, for each slot whose text is then in the state.
    pub(super) fn take(&mut self, given: Given) -> Result<Vec<(usize, Result<Output>)>> {
        let Given { chunks, rows, drawn, logits, hidden, begun, followed } = given;
        if chunks.is_empty() {
            return Ok(Vec::new());
        }
        let (waits, waited) = (Instant::now(), drawn.is_some() || !hidden.is_empty());
        let sampled = drawn.map_or(Ok(Vec::new()), |drawn| drawn.wait())?;
        let now = Instant::now();
        self.times.draw = now - waits;
        let (begun, tokens) = self.unwaited.take().unwrap_or((begun, 0));
        let tokens = tokens + prompt_tokens(&chunks);
        match waited {
            true => self.prefill_budget.learn(tokens, now - begun),
            false => self.unwaited = Some((begun, tokens)),
        }
        // The device goes from one to the other.
        self.ahead.iter_mut().for_each(|ahead| ahead.begun = now);
        let traced = rows.iter().any(|row| self.is_traced(row));
        // When the device has done all. No step follows one whose routing is wanted, unless it is wanted only since then.
        let counts_experts = self.counters.counts_experts() && !followed;
        let routing = if traced || counts_experts { self.runner.routing()? } else { RoutingTrace::default() };
        let counts = if counts_experts { routing.counts() } else { Vec::new() };
        let tokens = chunks.iter().map(|chunk| chunk.positions.len()).sum();
        self.counters.step(chunks.len(), tokens, &counts);
        let mut outcome = self.embed(&chunks, &hidden);
        for chunk in &chunks {
            let of_slot = rows.iter().zip(&sampled).filter(|(row, _)| row.slot == chunk.slot && row.next.is_none());
            self.advance(chunk, of_slot.map(|(_, &token)| token))?;
            self.slots[chunk.slot].iter_mut().for_each(|running| running.job.progress.count_step(chunks.len()));
        }
        let vocab = self.runner.model().spec().vocab;
        for (number, (row, token)) in rows.into_iter().zip(sampled).enumerate() {
            let (wants, takes_part) = (self.wants(&row), chunks.iter().any(|chunk| chunk.slot == row.slot));
            let Some(Running { job, accepted, careful, .. }) = &mut self.slots[row.slot] else { continue };
            let Task::Complete(completion) = &mut job.task else { continue };
            if row.drafted > *accepted || !takes_part {
                continue;
            }
            let logprob = |token| wants.map(|top| Logprob::new(&logits[number * vocab..][..vocab], token, top));
            match row.next {
                _ if token == PADDING => {
                    let error = self.not_finite(&row, number, followed)?;
                    outcome.extend(error.map(|error| (row.slot, Err(error))));
                }
                Some(next) => logprob(next).into_iter().for_each(|logprob| completion.read(logprob)),
                None => {
                    let routing = match self.batch.output_token(number) {
                        Some(at) if completion.traces => routing.of_token(at),
                        _ => Vec::new(),
                    };
                    *careful = false;
                    let sampled = Sampled { token, logprob: logprob(token), routing };
                    outcome.push((row.slot, Ok(Output::Token(sampled))));
                }
            }
        }
        Ok(outcome)
    }

    /// Why a row has no token. If the device has had another step meanwhile, nothing yet: the text leaves the step ahead, and
    /// its last token is computed again in a step that nothing follows.
    fn not_finite(&mut self, row: &Row, number: usize, followed: bool) -> Result<Option<Error>> {
        if !followed {
            return Ok(Some(self.runner.not_finite(number)));
        }
        self.leave_ahead(row.slot);
        let Some(running) = &mut self.slots[row.slot] else { return Ok(None) };
        // Blocks that it has left in the prefix cache may not be finite either.
        self.runner.forget_prefix(running.sequence)?;
        let before = self.runner.checkpoint(running.sequence, running.tokens.len().saturating_sub(1))?;
        self.runner.truncate(running.sequence, before)?;
        (running.computed, running.careful) = (before, true);
        Ok(None)
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

    /// Whether a row's job wants the routing of its token.
    fn is_traced(&self, row: &Row) -> bool {
        let completion = self.slots[row.slot].as_ref().and_then(|running| running.job.completion());
        row.next.is_none() && completion.is_some_and(|completion| completion.traces)
    }
}
