//! The thread that owns the runner: schedule → forward → sample → emit, as long as there is work.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;

use gristmill_kernels::ops::PADDING;

use super::EngineError;
use super::job::Job;
use super::schedule::{Idle, Pending, choose, share};
use crate::{Batch, Limits, Outputs, Result, Runner, SequenceId};

/// The engine's thread.
#[derive(Debug)]
pub(super) struct Worker {
    runner: Runner,
    batch_tokens: usize,
    batch: Batch,
    slots: Vec<Slot>,
    waiting: VecDeque<Job>,
    steps: u64,
    stop: Arc<AtomicBool>,
}

/// A sequence of the runner. Between two jobs it keeps the state of the last one's text.
#[derive(Debug)]
struct Slot {
    sequence: SequenceId,
    /// The text: prompt, then generated tokens.
    tokens: Vec<u32>,
    /// Tokens that are in the state: all but the last in decode, all without a job.
    computed: usize,
    job: Option<Job>,
    last_used: u64,
}

impl Worker {
    pub(super) fn new(mut runner: Runner, limits: Limits, stop: Arc<AtomicBool>) -> Result<Worker> {
        let mut slot = |_| -> Result<Slot> {
            let sequence = runner.open_sequence()?;
            Ok(Slot { sequence, tokens: Vec::new(), computed: 0, job: None, last_used: 0 })
        };
        let slots = (0..limits.sequences).map(&mut slot).collect::<Result<_>>()?;
        let (batch, waiting) = (Batch::new(), VecDeque::new());
        Ok(Worker { runner, batch_tokens: limits.batch_tokens, batch, slots, waiting, steps: 0, stop })
    }

    /// Serves jobs until the engine is dropped.
    pub(super) fn run(mut self, inbox: &Receiver<Job>) {
        while !self.stop.load(Ordering::Relaxed) {
            if self.is_idle() {
                match inbox.recv() {
                    Ok(job) => self.waiting.push_back(job),
                    Err(_) => return,
                }
            }
            self.waiting.extend(inbox.try_iter());
            self.step();
        }
    }

    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.slots.iter().all(|slot| slot.job.is_none())
    }

    /// One forward pass over the next tokens of all requests.
    fn step(&mut self) {
        self.steps += 1;
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
        for slot in &mut self.slots {
            if slot.job.as_ref().is_some_and(Job::is_cancelled) {
                slot.free(self.steps);
            }
        }
    }

    /// Gives waiting jobs, first come first served, the slots that are free.
    fn admit(&mut self) {
        while let Some(job) = self.waiting.front() {
            let idle: Vec<Idle> =
                self.slots.iter().enumerate().filter_map(|(i, slot)| slot.idle(i, &self.runner)).collect();
            let Some((index, reused)) = choose(&idle, &job.prompt) else { return };
            let Some(mut job) = self.waiting.pop_front() else { return };
            let slot = &mut self.slots[index];
            if let Err(error) = self.runner.truncate(slot.sequence, reused) {
                job.fail(error.into());
                continue;
            }
            tracing::debug!(slot = index, tokens = job.prompt.len(), reused, "request begins");
            job.begin(reused);
            slot.tokens = std::mem::take(&mut job.prompt);
            slot.computed = reused;
            slot.job = Some(job);
        }
    }

    /// The tokens of each slot that are not in its state.
    fn pending(&self) -> Vec<Pending> {
        let of_slot = |(slot, s): (usize, &Slot)| Pending { slot, positions: s.computed..s.tokens.len() };
        self.slots.iter().enumerate().filter(|(_, slot)| slot.job.is_some()).map(of_slot).collect()
    }

    /// Runs the chunks. Gives a token, or why there is none, for each slot whose text is then in the state.
    fn forward_and_sample(&mut self, chunks: &[Pending]) -> Result<Vec<(usize, Result<u32>)>> {
        self.batch.clear();
        self.observe(chunks);
        let mut completed = Vec::new();
        let mut sampling = Vec::new();
        for Pending { slot, positions } in chunks {
            let Slot { sequence, tokens, job, .. } = &self.slots[*slot];
            let complete = positions.end == tokens.len();
            let outputs = if complete { Outputs::Last } else { Outputs::None };
            self.batch.push(*sequence, &tokens[positions.clone()], outputs);
            if complete && let Some(job) = job {
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
        for chunk in chunks {
            self.slots[chunk.slot].computed = chunk.positions.end;
        }
        let token = |(row, token)| if token == PADDING { Err(self.runner.not_finite(row)) } else { Ok(token) };
        let drawn = drawn.into_iter().enumerate().map(token);
        Ok(completed.into_iter().zip(drawn).collect())
    }

    /// Gives the text so far to each job whose next token is drawn in this step.
    fn observe(&mut self, chunks: &[Pending]) {
        let tokenizer = self.runner.model().tokenizer().ok();
        for Pending { slot, positions } in chunks {
            let Slot { tokens, job, .. } = &mut self.slots[*slot];
            if let Some(job) = job.as_mut().filter(|_| positions.end == tokens.len()) {
                job.observe(tokens, tokenizer);
            }
        }
    }

    /// Hands a drawn token to its job.
    fn emit(&mut self, slot: usize, token: u32) {
        let slot = &mut self.slots[slot];
        let Some(job) = &mut slot.job else { return };
        // The drawn token can be run if the state has room for it.
        let room = self.runner.context().saturating_sub(slot.tokens.len());
        slot.tokens.push(token);
        let tokenizer = self.runner.model().tokenizer().ok();
        if !job.accept(token, tokenizer, room) {
            tracing::debug!(usage = ?job.usage(), "request ends");
            slot.free(self.steps);
        }
    }

    /// Ends the jobs of slots whose pass failed, and discards their state.
    fn fail(&mut self, slots: impl IntoIterator<Item = usize>, error: crate::Error) {
        tracing::error!(%error, "step failed");
        let error = Arc::new(error);
        for slot in slots {
            let slot = &mut self.slots[slot];
            if let Some(job) = slot.job.take() {
                job.fail(EngineError::Step(error.clone()));
            }
            slot.tokens.clear();
            slot.computed = 0;
        }
    }
}

impl Slot {
    fn idle(&self, index: usize, runner: &Runner) -> Option<Idle<'_>> {
        // The worker never closes its sequences.
        let shortest = runner.shortest(self.sequence).unwrap_or(usize::MAX);
        self.job.is_none().then_some(Idle { slot: index, tokens: &self.tokens, shortest, last_used: self.last_used })
    }

    /// Drops the job and keeps the state.
    fn free(&mut self, step: u64) {
        self.job = None;
        self.tokens.truncate(self.computed);
        self.last_used = step;
    }
}
