//! Which waiting job starts, and what makes it start.

use std::sync::atomic::Ordering;

use super::sharing::Lack;
use super::{Job, Running, Worker};
use crate::EngineError;
use crate::Runner;
use crate::fair::Standing;
use crate::schedule::{common, is_being_computed};

/// What makes a waiting job run.
#[derive(Debug)]
pub(super) enum Admission {
    /// It gets a free slot.
    Start { slot: usize, waiting: usize },
    /// The job in this slot is preempted.
    Preempt { slot: usize },
}

impl Worker {
    /// Starts waiting jobs, as long as there are free sequences, and blocks for the next job, or other tenants have more
    /// than their share of them.
    pub(super) fn admit(&mut self) {
        while !self.admit_without_preemption()
            && let Some(Admission::Preempt { slot }) = self.next_admission()
        {
            self.preempt(slot);
        }
    }

    /// Starts waiting jobs, as long as none must be preempted. Returns whether none must.
    pub(super) fn admit_without_preemption(&mut self) -> bool {
        while let Some(admission) = self.next_admission() {
            let Admission::Start { slot, waiting: next } = admission else { return false };
            let job = &self.waiting[next];
            let (sequence, reused) = match self.runner.open_sequence_with(job.cache_key, &job.reusable()) {
                Ok(opened) => opened,
                Err(error) => {
                    self.waiting.remove(next).fail(error.into());
                    continue;
                }
            };
            if !self.can_start(sequence, job) {
                self.refuse(next, sequence);
                continue;
            }
            let mut job = self.waiting.remove(next);
            tracing::debug!(slot, tokens = job.text.len(), reused, "request starts");
            let computes = job.text.len() - reused;
            let is_first = job.priority.is_none();
            let priority = *job.priority.get_or_insert(self.started);
            if is_first {
                self.started += 1;
                self.shares.give_prompt(job.tenant, computes);
                // A checkpoint of a state of fixed size can be shorter than the common prefix.
                let differs = !self.runner.has_fixed_size();
                self.planner.start_request();
                job.progress.usage.drafting = job.completion().and_then(|one| one.drafting(self.drafter.drafting()));
                let next = job.begin(reused, differs, self.runner.model().tokenizer().ok());
                self.waiting.extend(next);
            }
            let tokens = std::mem::take(&mut job.text);
            let (prompt, draft, accepted, needs_sync) = (tokens.len(), Vec::new(), 0, false);
            let (computed, recomputed) = (reused, if is_first { 0 } else { computes });
            let running =
                Running { sequence, tokens, prompt, computed, draft, accepted, needs_sync, priority, recomputed, job };
            self.waiting.iter().for_each(|job| plan_checkpoint(&mut self.runner, job, &running));
            self.slots[slot] = Some(running);
        }
        true
    }

    /// What makes the next waiting job run. `None` if none can, until a job ends or other tenants have run for longer.
    fn next_admission(&self) -> Option<Admission> {
        if self.waiting.is_empty() {
            return None;
        }
        let standing = self.standing();
        let free = self.slots.iter().position(Option::is_none);
        // Most often only one tenant has requests.
        if free.is_none() && !self.waiting.iter().any(|job| standing.is_below(job.tenant)) {
            return None;
        }
        let next = self.next_job(&standing)?;
        let lacks = match free {
            Some(slot) if !self.is_refused(next) => return Some(Admission::Start { slot, waiting: next }),
            Some(_) => Lack::Blocks,
            None => Lack::Sequence,
        };
        self.to_preempt(&self.waiting[next], lacks, &standing).map(|slot| Admission::Preempt { slot })
    }

    /// Whether no blocks have been freed since there were too few for a waiting job.
    fn is_refused(&self, waiting: usize) -> bool {
        self.waiting[waiting].refused == Some(self.freed)
    }

    /// While the engine drains, rejects jobs that only wait, unless a sequence and blocks are free: then the next job
    /// starts at once.
    pub(super) fn reject_waiting(&mut self) {
        if !self.draining.load(Ordering::Relaxed) {
            return;
        }
        let is_full = self.slots.iter().all(Option::is_some);
        if !is_full && self.next_job(&self.standing()).is_none_or(|next| !self.is_refused(next)) {
            return;
        }
        for mut job in self.waiting.extract_if(.., |job| job.only_waits()) {
            job.fail(EngineError::Draining);
        }
    }

    /// Adds a job to those that wait.
    pub(super) fn arrive(&mut self, mut job: Job) {
        job.numbered = self.picture_numbers.of(&job.pictures);
        let tenants =
            || self.slots.iter().flatten().map(|running| &running.job).chain(&self.waiting).map(|job| job.tenant);
        if !tenants().any(|tenant| tenant == job.tenant) {
            self.shares.arrive(job.tenant, tenants());
        }
        self.slots.iter().flatten().for_each(|running| plan_checkpoint(&mut self.runner, &job, running));
        self.waiting.push(job);
    }

    /// The waiting job that starts next. Tenants with fewer sequences than their share are first, the one with the fewest
    /// sequences before others, then the one with the fewest tokens so far; of its jobs the preempted one with the highest
    /// priority, else the first that came. A job waits while a running job computes a prefix of its text.
    fn next_job(&self, standing: &Standing) -> Option<usize> {
        let rank = |tenant: u64| {
            let sequences = if standing.is_below(tenant) { standing.running(tenant) } else { usize::MAX };
            (sequences, self.shares.tokens(tenant))
        };
        // Most often neighbours are of one tenant.
        let mut ranks: Vec<((usize, u64), u64, usize)> = Vec::with_capacity(self.waiting.len());
        for (at, job) in self.waiting.iter().enumerate() {
            let same = ranks.last().filter(|_| self.waiting[at - 1].tenant == job.tenant).map(|&(rank, ..)| rank);
            ranks.push((same.unwrap_or_else(|| rank(job.tenant)), job.priority.unwrap_or(u64::MAX), at));
        }
        // First come, first served.
        ranks.sort_unstable();
        ranks.into_iter().map(|(.., at)| at).find(|&at| !self.waits_for_prefix(&self.waiting[at]))
    }

    /// Whether a running job computes a prefix of a job's text.
    fn waits_for_prefix(&self, job: &Job) -> bool {
        let reusable = job.reusable();
        self.slots.iter().flatten().filter(|running| running.job.cache_key == job.cache_key).any(|other| {
            // Most jobs decode, and have computed whatever both have in common.
            let most = reusable.len().min(other.tokens.len());
            is_being_computed(most, other.computed) && {
                let common = common(&reusable, &other.keys());
                is_being_computed(self.runner.leaves(other.sequence, common).unwrap_or(0), other.computed)
            }
        })
    }
}

/// Makes a running prompt leave a checkpoint at the end of the prefix that it has in common with a waiting one.
fn plan_checkpoint(runner: &mut Runner, waiting: &Job, running: &Running) {
    if runner.has_fixed_size() && !running.decodes() && waiting.cache_key == running.job.cache_key {
        let common = common(&waiting.reusable(), &running.keys());
        // The forward pass reports errors.
        let _ = runner.plan_checkpoint(running.sequence, common);
    }
}
