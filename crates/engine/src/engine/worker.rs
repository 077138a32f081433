//! The thread that owns the runner: schedule → forward → sample → emit, as long as there is work.

mod failure;
mod preemption;

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::time::Instant;

use gristmill_kernels::ops::PADDING;

use super::Logprob;
use super::draft::look_up;
use super::draft_model::{DraftModel, Wish};
use super::fair::Shares;
use super::job::{Drawn, Job};
use super::pace::Pace;
use super::schedule::{Pending, is_being_computed};
use crate::{Batch, Limits, Outputs, Result, Runner, SequenceId};
pub(super) use failure::Failure;

/// The engine's thread.
#[derive(Debug)]
pub(super) struct Worker {
    runner: Runner,
    /// What guesses; without it, guesses are looked up in the text.
    draft: Option<DraftModel>,
    /// Of one step.
    batch_tokens: usize,
    output_rows: usize,
    batch: Batch,
    pace: Pace,
    /// As many as the runner has sequences.
    slots: Vec<Option<Running>>,
    /// Jobs that have begun.
    begun: u64,
    /// How often a job has given its blocks back.
    freed: u64,
    waiting: Vec<Job>,
    shares: Shares,
    stop: Arc<AtomicBool>,
    failure: Failure,
}

/// A job that has a sequence.
#[derive(Debug)]
struct Running {
    sequence: SequenceId,
    /// The text: prompt, then generated tokens.
    tokens: Vec<u32>,
    /// Tokens that the text had when the job got the sequence: the prompt, and what was generated before a preemption.
    given: usize,
    /// Tokens that are in the state: all but the last in decode.
    computed: usize,
    /// Guesses of the tokens that follow the text, for one step; and how many were right in the last.
    guess: Vec<u32>,
    right: usize,
    /// The number of jobs that began before.
    began: u64,
    job: Job,
}

impl Running {
    /// Tokens of the text, and of the guesses behind it.
    fn at(&self, positions: Range<usize>) -> Vec<u32> {
        self.tokens.iter().chain(&self.guess).take(positions.end).skip(positions.start).copied().collect()
    }

    /// Whether the text that the job began with is in the state.
    fn decodes(&self) -> bool {
        self.computed >= self.given
    }

    /// Guesses of which the next token is drawn.
    fn guessed(&self, chunk: &Pending) -> &[u32] {
        &self.guess[..chunk.positions.end.saturating_sub(self.tokens.len())]
    }
}

/// A row of logits of one step.
#[derive(Debug)]
struct Row {
    slot: usize,
    /// The token that follows in the prompt; `None` if it is to be drawn.
    next: Option<u32>,
    /// Guesses that the row depends on.
    guesses: usize,
}

impl Worker {
    pub(super) fn new(
        runner: Runner,
        draft: Option<DraftModel>,
        limits: Limits,
        stop: Arc<AtomicBool>,
        failure: Failure,
    ) -> Worker {
        let slots = (0..limits.sequences).map(|_| None).collect();
        let (batch, waiting, shares) = (Batch::new(), Vec::new(), Shares::default());
        let (batch_tokens, output_rows) = (limits.batch_tokens, limits.rows());
        let pace = Pace::default();
        Worker {
            runner,
            draft,
            batch_tokens,
            output_rows,
            batch,
            pace,
            slots,
            begun: 0,
            freed: 0,
            waiting,
            shares,
            stop,
            failure,
        }
    }

    /// Serves jobs until the engine is dropped or the device fails.
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
            if let Err(error) = self.step() {
                return self.break_down(error, inbox);
            }
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
    ///
    /// # Errors
    /// The device has failed. Any other failure ends only the requests that took part in it.
    fn step(&mut self) -> Result<()> {
        self.remove_cancelled();
        self.admit();
        self.guess();
        let chunks = self.chunks();
        let begin = Instant::now();
        let outcome = self.forward_and_sample(&chunks);
        self.pace.learn(prompt_tokens(&chunks), begin.elapsed());
        match outcome {
            Err(error) if error.is_of_device() => return Err(error),
            Err(error) => self.fail(chunks.iter().map(|chunk| chunk.slot), error),
            Ok(drawn) => {
                for (slot, drawn) in drawn {
                    match drawn {
                        Ok(drawn) => self.emit(slot, drawn),
                        Err(error) if error.is_of_device() => return Err(error),
                        Err(error) => self.fail([slot], error),
                    }
                }
            }
        }
        Ok(())
    }

    /// Tokens of the next step: fewer than a batch has if texts that are being generated would wait long for it.
    fn tokens_of_step(&self, pending: &[Pending]) -> usize {
        let decoding = pending.iter().filter(|one| one.decodes).map(|one| one.positions.len()).sum::<usize>();
        match decoding {
            0 => self.batch_tokens,
            _ => self.batch_tokens.min(decoding.saturating_add(self.pace.prompt_tokens())),
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

    /// Gives waiting jobs the sequences that are free, as long as there are blocks for the next.
    fn admit(&mut self) {
        while let Some(slot) = self.slots.iter().position(Option::is_none)
            && let Some(next) = self.next_job()
            && self.waiting[next].refused != Some(self.freed)
        {
            let job = &self.waiting[next];
            let (sequence, reused) = match self.runner.open_sequence_with(job.tenant, job.reusable()) {
                Ok(opened) => opened,
                Err(error) => {
                    self.waiting.remove(next).fail(error.into());
                    continue;
                }
            };
            if !self.can_begin(sequence, job) {
                self.refuse(next, sequence);
                return;
            }
            let mut job = self.waiting.remove(next);
            tracing::debug!(slot, tokens = job.text.len(), reused, "request begins");
            let began = *job.began.get_or_insert(self.begun);
            if began == self.begun {
                self.begun += 1;
                self.shares.give(job.tenant, job.text.len() - reused);
                job.begin(reused, self.runner.model().tokenizer().ok());
            }
            let tokens = std::mem::take(&mut job.text);
            let (given, guess, right) = (tokens.len(), Vec::new(), 0);
            self.slots[slot] = Some(Running { sequence, tokens, given, computed: reused, guess, right, began, job });
        }
    }

    /// The waiting job that begins next: of the tenant that was given the fewest tokens, the one that began first before it
    /// was preempted, else the first that came. A job whose text begins with what a running one is just computing waits for
    /// that.
    fn next_job(&self) -> Option<usize> {
        let waits = |job: &Job| {
            let of_tenant = self.slots.iter().flatten().filter(|running| running.job.tenant == job.tenant);
            of_tenant.into_iter().any(|other| is_being_computed(job.reusable(), &other.tokens, other.computed))
        };
        let mut order: Vec<usize> = (0..self.waiting.len()).collect();
        // A stable sort: first come, first served.
        order.sort_by_key(|&at| {
            let job = &self.waiting[at];
            (self.shares.given(job.tenant), job.began.unwrap_or(u64::MAX))
        });
        order.into_iter().find(|&at| !waits(&self.waiting[at]))
    }

    /// Guesses what follows the texts in decode.
    fn guess(&mut self) {
        let context = self.runner.context();
        let decoding = self.slots.iter().enumerate().filter_map(|(slot, running)| Some((slot, running.as_ref()?)));
        let wishes: Vec<Wish<'_>> = decoding
            .filter(|(_, running)| running.decodes())
            .map(|(slot, Running { tokens: text, job, .. })| Wish {
                slot,
                text,
                count: job.guesses(context.saturating_sub(text.len())),
                job,
            })
            .collect();
        let guesses = match &mut self.draft {
            // Without guesses the text is the same.
            Some(draft) => draft.guess(&wishes).unwrap_or_else(|error| {
                tracing::error!(%error, "guessing failed");
                vec![Vec::new(); wishes.len()]
            }),
            None => wishes.iter().map(|wish| look_up(wish.text, wish.count)).collect(),
        };
        let of_slots: Vec<(usize, Vec<u32>)> = wishes.iter().map(|wish| wish.slot).zip(guesses).collect();
        self.slots.iter_mut().flatten().for_each(|running| running.guess.clear());
        for (slot, guess) in of_slots {
            self.slots[slot].iter_mut().for_each(|running| running.guess.clone_from(&guess));
        }
    }

    /// The tokens of each slot that are not in its state.
    fn pending(&self) -> Vec<Pending> {
        let of_slot = |(slot, running): (usize, &Option<Running>)| {
            let running = running.as_ref()?;
            let Running { tokens, computed, guess, began, job, .. } = running;
            let of_prompt = job.prompt_logprobs.is_some() && !running.decodes();
            let (positions, all_rows) = (*computed..tokens.len() + guess.len(), of_prompt || !guess.is_empty());
            Some(Pending { slot, positions, all_rows, decodes: running.decodes(), began: *began })
        };
        self.slots.iter().enumerate().filter_map(of_slot).collect()
    }

    /// Runs the chunks. Gives a token, or why there is none, for each slot whose text is then in the state.
    fn forward_and_sample(&mut self, chunks: &[Pending]) -> Result<Vec<(usize, Result<Drawn>)>> {
        self.batch.clear();
        self.observe(chunks);
        let mut rows = Vec::new();
        let mut sampling = Vec::new();
        for Pending { slot, positions, all_rows, .. } in chunks {
            let Some(running) = &self.slots[*slot] else { continue };
            let Running { sequence, tokens, job, .. } = running;
            let complete = positions.end >= tokens.len();
            let (outputs, first) = match (all_rows, complete) {
                (true, _) => (Outputs::All, positions.start),
                (false, true) => (Outputs::Last, positions.end - 1),
                (false, false) => (Outputs::None, positions.end),
            };
            self.batch.push(*sequence, &running.at(positions.clone()), outputs);
            for next in first + 1..positions.end + 1 {
                let given = tokens.get(next).copied();
                rows.push(Row { slot: *slot, next: given, guesses: next.saturating_sub(tokens.len()) });
                sampling.push(job.sampling(next, given.is_some()));
            }
        }
        if self.batch.is_empty() {
            return Ok(Vec::new());
        }
        tracing::trace!(tokens = self.batch.len(), outputs = rows.len(), "step");
        let wanted = rows.iter().rposition(|row| self.wants(row).is_some()).map_or(0, |last| last + 1);
        let mut logits = self.runner.forward(&self.batch)?;
        // Before drawing, which leaves them penalised.
        let (logprobs, vocab) = (logits.first(wanted)?, logits.vocab());
        let drawn = if rows.is_empty() { Vec::new() } else { logits.draw(&sampling)? };
        for chunk in chunks {
            let of_slot = rows.iter().zip(&drawn).filter(|(row, _)| row.slot == chunk.slot && row.next.is_none());
            self.advance(chunk, of_slot.map(|(_, &token)| token))?;
            self.slots[chunk.slot].iter_mut().for_each(|running| running.job.count_step(chunks.len()));
        }
        let mut outcome = Vec::new();
        for (number, (row, token)) in rows.into_iter().zip(drawn).enumerate() {
            let wants = self.wants(&row);
            let Some(Running { job, right, .. }) = &mut self.slots[row.slot] else { continue };
            if row.guesses > *right {
                continue;
            }
            let logprob = |token| wants.map(|top| Logprob::new(&logprobs[number * vocab..][..vocab], token, top));
            match row.next {
                _ if token == PADDING => outcome.push((row.slot, Err(self.runner.not_finite(number)))),
                Some(next) => logprob(next).into_iter().for_each(|logprob| job.read(logprob)),
                None => outcome.push((row.slot, Ok(Drawn { token, logprob: logprob(token) }))),
            }
        }
        Ok(outcome)
    }

    /// Counts a chunk as computed; of guesses those that were drawn as well, the others leave the state.
    fn advance(&mut self, chunk: &Pending, drawn: impl Iterator<Item = u32>) -> Result<()> {
        let Some(running) = &mut self.slots[chunk.slot] else { return Ok(()) };
        let guessed = running.guessed(chunk);
        let right = guessed.iter().zip(drawn).take_while(|(guess, drawn)| *guess == drawn).count();
        let (guessed, length) = (guessed.len(), running.tokens.len());
        running.right = right;
        if guessed > 0 {
            running.job.learn(guessed, right);
            self.runner.truncate(running.sequence, length + right)?;
        }
        running.computed = chunk.positions.end.min(length + right);
        self.runner.keep_prefix(running.sequence, &running.tokens)
    }

    /// The number of likeliest tokens that a row's job wants to know, if it wants its log-probability.
    fn wants(&self, row: &Row) -> Option<usize> {
        let job = &self.slots[row.slot].as_ref()?.job;
        if row.next.is_some() { job.prompt_logprobs } else { job.logprobs }
    }

    /// Gives the text so far to each job whose next token is drawn in this step. A job that its grammar refuses ends.
    fn observe(&mut self, chunks: &[Pending]) {
        let tokenizer = self.runner.model().tokenizer().ok();
        let mut refused = Vec::new();
        for Pending { slot, positions, .. } in chunks {
            let Some(Running { tokens, job, .. }) = &mut self.slots[*slot] else { continue };
            if positions.end >= tokens.len()
                && let Err(error) = job.observe(tokens, tokenizer)
            {
                job.fail(error);
                refused.push(*slot);
            }
        }
        refused.into_iter().for_each(|slot| self.end(slot));
    }

    /// Hands a drawn token to its job.
    fn emit(&mut self, slot: usize, drawn: Drawn) {
        let Some(Running { tokens, job, .. }) = &mut self.slots[slot] else { return };
        // The drawn token can be run if the state has room for it.
        let room = self.runner.context().saturating_sub(tokens.len());
        tokens.push(drawn.token);
        self.shares.give(job.tenant, 1);
        let tokenizer = self.runner.model().tokenizer().ok();
        if !job.accept(drawn, tokenizer, room) {
            tracing::debug!(usage = ?job.usage(), "request ends");
            self.end(slot);
        }
    }

    fn end(&mut self, slot: usize) {
        drop(self.free(slot));
    }

    /// Frees a slot, and returns its job with the text so far. What its sequence computed stays in the prefix cache.
    fn free(&mut self, slot: usize) -> Option<Job> {
        let Running { sequence, tokens, began, mut job, .. } = self.slots[slot].take()?;
        if let Err(error) = self.runner.retire_sequence(sequence, &tokens) {
            tracing::error!(%error, "closing a sequence failed");
        }
        self.freed += 1;
        (job.text, job.began) = (tokens, Some(began));
        Some(job)
    }
}

/// Tokens of chunks that are parts of prompts.
fn prompt_tokens(chunks: &[Pending]) -> usize {
    chunks.iter().filter(|chunk| !chunk.decodes).map(|chunk| chunk.positions.len()).sum()
}
