//! The thread that owns the runner: schedule → forward → sample → emit, as long as there is work.
//!
//! `step` is the loop's body: schedule, submit, receive, emit. `admission` starts waiting jobs, `sharing` chooses jobs
//! that are preempted for other tenants, `preemption` finds the tokens of a step and preempts jobs if the KV cache is
//! full, `drafts` generates draft tokens. `submit` submits a
//! step, `images` computes images of prompts in parts, `overlap` submits the next step before the host has the tokens of the current one, `receive` waits for a step and
//! advances its sequences, and `failure` ends the jobs of a step or a device that failed.

mod admission;
mod drafts;
mod failure;
mod images;
mod overlap;
mod preemption;
mod receive;
mod sharing;
mod submit;

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::time::Instant;

use crate::draft::Drafter;
use crate::draft::planner::{Measured, Planner};
use crate::fair::Shares;
use crate::job::{Job, Order, Sampled, Task};
use crate::model::Result;
use crate::pictures::Numbers;
use crate::prefill_budget::PrefillBudget;
use crate::schedule::Pending;
use crate::stats::{Counters, Times};
use crate::{Batch, Limits, Runner, SequenceId};
pub(super) use failure::Failure;
use receive::{Output, Outputs};
use submit::Submitted;

/// The engine's thread.
#[derive(Debug)]
pub(super) struct Worker {
    runner: Runner,
    drafter: Drafter,
    planner: Planner,
    /// Draft tokens that were planned for the step that is scheduled.
    planned: usize,
    /// The most tokens of one step.
    batch_tokens: usize,
    output_rows: usize,
    batch: Batch,
    prefill_budget: PrefillBudget,
    /// Steps without outputs, for which the host has not waited: when the first of them started, and their prompt
    /// tokens.
    unsynced: Option<(Instant, usize)>,
    /// A slot for each sequence of the runner.
    slots: Vec<Option<Running>>,
    /// The step that was submitted before the host had the tokens of the step before it.
    in_flight: Option<Submitted>,
    /// Jobs that have started.
    started: u64,
    /// How often a job has freed its blocks.
    freed: u64,
    waiting: Vec<Job>,
    /// The pictures of jobs.
    picture_numbers: Numbers,
    shares: Shares,
    stop: Arc<AtomicBool>,
    /// Jobs that only wait are refused.
    draining: Arc<AtomicBool>,
    failure: Failure,
    counters: Arc<Counters>,
    /// The times of the step that runs.
    times: Times,
}

/// A job that has a sequence.
#[derive(Debug)]
struct Running {
    sequence: SequenceId,
    /// The text: prompt, then generated tokens.
    tokens: Vec<u32>,
    /// Tokens that the job had when it got the sequence: the prompt, and what was generated before a preemption.
    prompt: usize,
    /// Tokens that are in the state: all but the last in decode.
    computed: usize,
    /// Draft tokens after the text, for one step; and how many of the last step were accepted.
    draft: Vec<u32>,
    accepted: usize,
    /// The host waits for its next token before it submits another step, because the last one was not finite.
    needs_sync: bool,
    /// The number of jobs that started earlier. Of a tenant's jobs, the lowest is the last to be preempted.
    priority: u64,
    /// After a preemption, the tokens of `prompt` that had to be computed again.
    recomputed: usize,
    job: Job,
}

impl Running {
    /// Tokens of the text, and of the draft after it.
    fn at(&self, positions: Range<usize>) -> Vec<u32> {
        self.tokens.iter().chain(&self.draft).take(positions.end).skip(positions.start).copied().collect()
    }

    /// The text, with keys in the place of pictures.
    fn keys(&self) -> Cow<'_, [u32]> {
        self.job.numbered.keys(&self.tokens)
    }

    /// Whether the text that the job started with is in the state.
    fn decodes(&self) -> bool {
        self.computed >= self.prompt
    }

    /// Draft tokens after which a token is sampled.
    fn drafted(&self, chunk: &Pending) -> &[u32] {
        &self.draft[..chunk.positions.end.saturating_sub(self.tokens.len())]
    }
}

impl Worker {
    pub(super) fn new(
        runner: Runner,
        (drafter, planner): (Drafter, Planner),
        limits: Limits,
        (stop, draining): (Arc<AtomicBool>, Arc<AtomicBool>),
        failure: Failure,
        counters: Arc<Counters>,
    ) -> Worker {
        let slots = (0..limits.sequences).map(|_| None).collect();
        let (batch, waiting, shares) = (Batch::new(), Vec::new(), Shares::default());
        let (batch_tokens, output_rows) = (limits.batch_tokens, limits.rows());
        let prefill_budget = PrefillBudget::default();
        Worker {
            runner,
            drafter,
            planner,
            planned: 0,
            batch_tokens,
            output_rows,
            batch,
            prefill_budget,
            unsynced: None,
            slots,
            in_flight: None,
            started: 0,
            freed: 0,
            waiting,
            picture_numbers: Numbers::default(),
            shares,
            stop,
            draining,
            failure,
            counters,
            times: Times::default(),
        }
    }

    /// Serves jobs until the engine is dropped or the device fails.
    pub(super) fn run(mut self, inbox: &Receiver<Order>) {
        while !self.stop.load(Ordering::Relaxed) {
            if self.is_idle() {
                self.shares.clear();
                match inbox.recv() {
                    Ok(order) => self.handle(order),
                    Err(_) => return,
                }
            }
            inbox.try_iter().for_each(|order| self.handle(order));
            if self.is_idle() {
                self.report();
                continue;
            }
            if let Err(error) = self.step() {
                return self.shut_down_after_device_error(error, inbox);
            }
        }
    }

    fn handle(&mut self, order: Order) {
        match order {
            Order::Run(job) => self.arrive(*job),
            Order::EvictPrefixes(tenant) => self.runner.evict_tenant(tenant),
            Order::Listen(listener) => self.runner.listen(listener),
        }
    }

    fn is_idle(&self) -> bool {
        self.in_flight.is_none() && self.waiting.is_empty() && self.slots.iter().all(Option::is_none)
    }

    /// One forward pass over the next tokens of all requests.
    ///
    /// # Errors
    /// The device has failed. Any other failure ends only the requests of the step.
    fn step(&mut self) -> Result<()> {
        let started_at = Instant::now();
        self.times = Times::default();
        self.remove_cancelled();
        self.reject_waiting();
        let current = match self.in_flight.take() {
            Some(step) => Some(step),
            None => self.schedule_and_submit()?,
        };
        if let Some(mut current) = current {
            self.in_flight = self.submit_overlapped(&mut current)?;
            let slots: Vec<usize> = current.chunks.iter().map(|chunk| chunk.slot).collect();
            let drafted = self.drafted(&current);
            match self.receive(current) {
                Err(error) if error.is_of_device() => return Err(error),
                Err(error) => self.fail(slots, error),
                Ok(outputs) => {
                    let (sequences, accepted) = (slots.len(), outputs.len().saturating_sub(slots.len()));
                    self.emit_all(outputs)?;
                    self.measure_drafts(drafted, sequences, accepted, started_at.elapsed());
                }
            }
        }
        self.counters.took(Times { steps: started_at.elapsed(), ..self.times });
        self.report();
        Ok(())
    }

    /// Starts waiting jobs, shares the tokens of the step among all, and submits it. `None` if it failed, which has
    /// ended the requests of the step.
    fn schedule_and_submit(&mut self) -> Result<Option<Submitted>> {
        self.admit();
        self.make_drafts();
        let chunks = self.chunks();
        let chunks = self.with_images(chunks)?;
        self.report();
        let slots: Vec<usize> = chunks.iter().map(|chunk| chunk.slot).collect();
        match self.submit(chunks, None) {
            Ok(step) => Ok(Some(step)),
            Err(error) if error.is_of_device() => Err(error),
            Err(error) => {
                self.fail(slots, error);
                Ok(None)
            }
        }
    }

    /// Hands each output of a step to its job.
    fn emit_all(&mut self, outputs: Outputs) -> Result<()> {
        for (slot, output) in outputs {
            match output {
                Ok(Output::Token(sampled)) => self.emit(slot, sampled),
                Ok(Output::Vector) => self.emit_vector(slot),
                Err(error) if error.is_of_device() => return Err(error),
                Err(error) => self.fail([slot], error),
            }
        }
        Ok(())
    }

    /// Reports the requests that wait and run.
    fn report(&self) {
        let running = self.slots.iter().flatten().count();
        self.counters.now(self.waiting.len(), running, self.runner.kv_usage());
    }

    /// Tokens of the next step: fewer than a batch has if sequences in decode would wait long for it.
    fn tokens_of_step(&self, pending: &[Pending]) -> usize {
        let decoding = pending.iter().filter(|one| one.decodes).map(|one| one.positions.len()).sum::<usize>();
        match decoding {
            0 => self.batch_tokens,
            _ => {
                let oldest = pending.iter().filter(|one| !one.decodes).min_by_key(|one| one.priority);
                let least = oldest.map_or(0, Pending::least);
                let prompts = self.prefill_budget.prompt_tokens().max(least);
                self.batch_tokens.min(decoding.saturating_add(prompts))
            }
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

    /// The tokens of each slot that are not in its state, up to its next checkpoint. If the state has all tokens, a step
    /// samples the next one, which follows unless it ends the text.
    fn pending(&self) -> Vec<Pending> {
        let has_whole_images = self.runner.model().spec().has_whole_images();
        let of_slot = |(slot, running): (usize, &Option<Running>)| {
            let Running { sequence, tokens, prompt, draft, priority, job, .. } = running.as_ref()?;
            let computed = self.runner.sequence_len(*sequence).ok()?;
            if computed == tokens.len() && !self.has_next(job, computed) {
                return None;
            }
            let decodes = computed >= *prompt;
            let of_prompt = job.completion().is_some_and(|one| one.prompt_logprobs.is_some()) && !decodes;
            let all = (tokens.len() + draft.len()).max(computed + 1);
            let end = self.runner.next_checkpoint(*sequence).ok().flatten().map_or(all, |next| next.min(all));
            let (positions, all_rows) = (computed..end, of_prompt || !draft.is_empty());
            let images = job.numbered.spans().iter().map(|span| span.start..span.start + span.tokens);
            let whole = if has_whole_images && !decodes { images.collect() } else { Vec::new() };
            Some(Pending { slot, positions, all_rows, decodes, priority: *priority, whole })
        };
        self.slots.iter().enumerate().filter_map(of_slot).collect()
    }

    /// Whether the token that a step samples after this number of tokens can be run: it is not the last one of the request
    /// or the last that fits into the context.
    fn has_next(&self, job: &Job, tokens: usize) -> bool {
        tokens < self.runner.context() && job.completion().is_some_and(|one| one.left(&job.progress) > 1)
    }

    /// Hands a sampled token to its job.
    fn emit(&mut self, slot: usize, sampled: Sampled) {
        let Some(Running { tokens, job, .. }) = &mut self.slots[slot] else { return };
        let Task::Complete(completion) = &mut job.task else { return };
        // The sampled token can be run if the state has room for it.
        let room = self.runner.context().saturating_sub(tokens.len());
        tokens.push(sampled.token);
        self.shares.give_token(job.tenant);
        let tokenizer = self.runner.model().tokenizer().ok();
        if !completion.accept(&mut job.progress, sampled, tokenizer, room) {
            tracing::debug!(usage = ?job.progress.usage, "request finished");
            self.end(slot);
        }
    }

    /// Hands the pooled vector to the request.
    fn emit_vector(&mut self, slot: usize) {
        let Some(Running { job: Job { task: Task::Embed(embedding), progress, .. }, .. }) = &mut self.slots[slot]
        else {
            return;
        };
        embedding.finish(progress);
        tracing::debug!(usage = ?progress.usage, "text is embedded");
        self.end(slot);
    }

    fn end(&mut self, slot: usize) {
        drop(self.free(slot));
    }

    /// Frees a slot, and returns its job with the tokens so far. What its sequence computed stays in the prefix cache.
    fn free(&mut self, slot: usize) -> Option<Job> {
        let Running { sequence, tokens, priority, mut job, .. } = self.slots[slot].take()?;
        // What the step in flight computes is in no state otherwise.
        if let Some(before) = self.discard_in_flight(slot)
            && let Err(error) = self.runner.truncate(sequence, before)
        {
            tracing::error!(%error, "truncating a sequence failed");
        }
        if let Err(error) = self.runner.retire_sequence(sequence, &job.numbered.keys(&tokens)) {
            tracing::error!(%error, "closing a sequence failed");
        }
        self.freed += 1;
        (job.text, job.priority) = (tokens, Some(priority));
        Some(job)
    }
}

/// Tokens of chunks that are parts of prompts.
fn prompt_tokens(chunks: &[Pending]) -> usize {
    chunks.iter().filter(|chunk| !chunk.decodes).map(|chunk| chunk.positions.len()).sum()
}
