//! The thread that owns the runner: schedule → forward → sample → emit, as long as there is work.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;

use gristmill_kernels::ops::PADDING;

use super::EngineError;
use super::fair::Shares;
use super::job::Job;
use super::schedule::{Pending, is_being_computed, share};
use crate::{Batch, Limits, Outputs, Result, Runner, SequenceId};

/// The engine's thread.
#[derive(Debug)]
pub(super) struct Worker {
    runner: Runner,
    batch_tokens: usize,
    batch: Batch,
    /// As many as the runner has sequences.
    slots: Vec<Option<Running>>,
    waiting: Vec<Job>,
    shares: Shares,
    stop: Arc<AtomicBool>,
}

/// A job that has a sequence.
#[derive(Debug)]
struct Running {
    sequence: SequenceId,
    /// The text: prompt, then generated tokens.
    tokens: Vec<u32>,
    /// Tokens that are in the state: all but the last in decode.
    computed: usize,
    job: Job,
}

impl Worker {
    pub(super) fn new(runner: Runner, limits: Limits, stop: Arc<AtomicBool>) -> Worker {
        let slots = (0..limits.sequences).map(|_| None).collect();
        let (batch, waiting, shares) = (Batch::new(), Vec::new(), Shares::default());
        Worker { runner, batch_tokens: limits.batch_tokens, batch, slots, waiting, shares, stop }
    }

    /// Serves jobs until the engine is dropped.
    pub(super) fn run(mut self, inbox: &Receiver<Job>) {
        while !self.stop.load(Ordering::Relaxed) {
            if self.is_idle() {
                self.shares.clear();
                match inbox.recv() {
                    Ok(job) => self.arrive(job),
                    Err(_) => return,
                }
            }
            inbox.try_iter().for_each(|job| self.arrive(job));
            self.step();
        }
    }

    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.slots.iter().all(Option::is_none)
    }

    fn arrive(&mut self, job: Job) {
        let running = self.slots.iter().flatten().map(|running| &running.job);
        let tenants: HashSet<u64> = running.chain(&self.waiting).map(|job| job.tenant).collect();
        if !tenants.contains(&job.tenant) {
            self.shares.arrive(job.tenant, tenants.into_iter());
        }
        self.waiting.push(job);
    }

    /// One forward pass over the next tokens of all requests.
    fn step(&mut self) {
        self.remove_cancelled();
        self.admit();
        let chunks = share(&self.pending(), self.batch_tokens);
        match self.forward_and_sample(&chunks) {
            Ok(drawn) => drawn.into_iter().for_each(|(slot, token)| match token {
                Ok(token) => self.emit(slot, token),
                Err(error) => self.fail([slot], error),
            }),
            Err(error) => self.fail(chunks.iter().map(|chunk| chunk.slot), error),
        }
    }

    fn remove_cancelled(&mut self) {
        self.waiting.retain(|job| !job.is_cancelled());
        for slot in 0..self.slots.len() {
            if self.slots[slot].as_ref().is_some_and(|running| running.job.is_cancelled()) {
                self.end(slot);
            }
        }
    }

    /// Gives waiting jobs the sequences that are free.
    fn admit(&mut self) {
        while let Some(slot) = self.slots.iter().position(Option::is_none)
            && let Some(next) = self.next_job()
        {
            let mut job = self.waiting.remove(next);
            // The last token of the prompt is always computed again: its logits are needed.
            let reusable = job.prompt.len().saturating_sub(1);
            match self.runner.open_sequence_with(job.tenant, &job.prompt[..reusable]) {
                Ok((sequence, reused)) => {
                    tracing::debug!(slot, tokens = job.prompt.len(), reused, "request begins");
                    self.shares.give(job.tenant, job.prompt.len() - reused);
                    job.begin(reused);
                    let tokens = std::mem::take(&mut job.prompt);
                    self.slots[slot] = Some(Running { sequence, tokens, computed: reused, job });
                }
                Err(error) => job.fail(error.into()),
            }
        }
    }

    /// The waiting job that begins next: of the tenant that was given the fewest tokens, the first that came. A job whose
    /// prompt begins with what a running one is just computing waits for that.
    fn next_job(&self) -> Option<usize> {
        let waits = |job: &Job| {
            let of_tenant = self.slots.iter().flatten().filter(|running| running.job.tenant == job.tenant);
            of_tenant.into_iter().any(|other| is_being_computed(&job.prompt, &other.tokens, other.computed))
        };
        let mut order: Vec<usize> = (0..self.waiting.len()).collect();
        // A stable sort: first come, first served.
        order.sort_by_key(|&at| self.shares.given(self.waiting[at].tenant));
        order.into_iter().find(|&at| !waits(&self.waiting[at]))
    }

    /// The tokens of each slot that are not in its state.
    fn pending(&self) -> Vec<Pending> {
        let of_slot = |(slot, running): (usize, &Option<Running>)| {
            running.as_ref().map(|running| Pending { slot, positions: running.computed..running.tokens.len() })
        };
        self.slots.iter().enumerate().filter_map(of_slot).collect()
    }

    /// Runs the chunks. Gives a token, or why there is none, for each slot whose text is then in the state.
    fn forward_and_sample(&mut self, chunks: &[Pending]) -> Result<Vec<(usize, Result<u32>)>> {
        self.batch.clear();
        self.observe(chunks);
        let mut completed = Vec::new();
        let mut sampling = Vec::new();
        for Pending { slot, positions } in chunks {
            let Some(Running { sequence, tokens, job, .. }) = &self.slots[*slot] else { continue };
            let complete = positions.end == tokens.len();
            let outputs = if complete { Outputs::Last } else { Outputs::None };
            self.batch.push(*sequence, &tokens[positions.clone()], outputs);
            if complete {
                completed.push(*slot);
                sampling.push(job.sampling(tokens.len()));
            }
        }
        if self.batch.is_empty() {
            return Ok(Vec::new());
        }
        tracing::trace!(tokens = self.batch.len(), outputs = completed.len(), "step");
        let mut logits = self.runner.forward(&self.batch)?;
        let drawn = if completed.is_empty() { Vec::new() } else { logits.draw(&sampling)? };
        for Pending { slot, positions } in chunks {
            if let Some(running) = &mut self.slots[*slot] {
                running.computed = positions.end;
                self.runner.keep_prefix(running.sequence, &running.tokens)?;
            }
        }
        let token = |(row, token)| if token == PADDING { Err(self.runner.not_finite(row)) } else { Ok(token) };
        let drawn = drawn.into_iter().enumerate().map(token);
        Ok(completed.into_iter().zip(drawn).collect())
    }

    /// Gives the text so far to each job whose next token is drawn in this step.
    fn observe(&mut self, chunks: &[Pending]) {
        let tokenizer = self.runner.model().tokenizer().ok();
        for Pending { slot, positions } in chunks {
            let Some(Running { tokens, job, .. }) = &mut self.slots[*slot] else { continue };
            if positions.end == tokens.len() {
                job.observe(tokens, tokenizer);
            }
        }
    }

    /// Hands a drawn token to its job.
    fn emit(&mut self, slot: usize, token: u32) {
        let Some(Running { tokens, job, .. }) = &mut self.slots[slot] else { return };
        // The drawn token can be run if the state has room for it.
        let room = self.runner.context().saturating_sub(tokens.len());
        tokens.push(token);
        self.shares.give(job.tenant, 1);
        let tokenizer = self.runner.model().tokenizer().ok();
        if !job.accept(token, tokenizer, room) {
            tracing::debug!(usage = ?job.usage(), "request ends");
            self.end(slot);
        }
    }

    /// Ends the jobs of slots whose pass failed, and discards their state.
    fn fail(&mut self, slots: impl IntoIterator<Item = usize>, error: crate::Error) {
        tracing::error!(%error, "step failed");
        let error = Arc::new(error);
        for slot in slots {
            let Some(Running { sequence, job, .. }) = &self.slots[slot] else { continue };
            job.fail(EngineError::Step(error.clone()));
            let sequence = *sequence;
            let closed = self.runner.forget_prefix(sequence).and_then(|()| self.runner.close_sequence(sequence));
            if let Err(error) = closed {
                tracing::error!(%error, "closing a sequence failed");
            }
            self.slots[slot] = None;
        }
    }

    /// Frees a slot. What its sequence computed stays in the prefix cache.
    fn end(&mut self, slot: usize) {
        if let Some(Running { sequence, tokens, .. }) = self.slots[slot].take()
            && let Err(error) = self.runner.retire_sequence(sequence, &tokens)
        {
            tracing::error!(%error, "closing a sequence failed");
        }
    }
}
