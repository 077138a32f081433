//! Which waiting job starts.

use std::collections::HashSet;
use std::sync::atomic::Ordering;

use super::{Job, Running, Worker};
use crate::Runner;
use crate::engine::EngineError;
use crate::engine::schedule::{common, is_being_computed};

impl Worker {
    /// Starts waiting jobs, as long as there are free sequences, and blocks for the next job.
    pub(super) fn admit(&mut self) {
        while let Some(slot) = self.slots.iter().position(Option::is_none)
            && let Some(next) = self.next_job()
            && self.waiting[next].refused != Some(self.freed)
        {
            let job = &self.waiting[next];
            let (sequence, reused) = match self.runner.open_sequence_with(job.cache_key, job.reusable()) {
                Ok(opened) => opened,
                Err(error) => {
                    self.waiting.remove(next).fail(error.into());
                    continue;
                }
            };
            if !self.can_start(sequence, job) {
                self.refuse(next, sequence);
                return;
            }
            let mut job = self.waiting.remove(next);
            tracing::debug!(slot, tokens = job.text.len(), reused, "request starts");
            let priority = *job.priority.get_or_insert(self.started);
            if priority == self.started {
                self.started += 1;
                self.shares.give(job.tenant, job.text.len() - reused);
                // A checkpoint of a state of fixed size can be shorter than the common prefix.
                let differs = !self.runner.has_fixed_size();
                self.planner.start_request();
                job.progress.usage.drafting = job.completion().and_then(|one| one.drafting(self.drafter.drafting()));
                let next = job.begin(reused, differs, self.runner.model().tokenizer().ok());
                self.waiting.extend(next);
            }
            let tokens = std::mem::take(&mut job.text);
            let (prompt, draft, accepted, needs_sync) = (tokens.len(), Vec::new(), 0, false);
            let computed = reused;
            let running = Running { sequence, tokens, prompt, computed, draft, accepted, needs_sync, priority, job };
            self.waiting.iter().for_each(|job| plan_checkpoint(&mut self.runner, job, &running));
            self.slots[slot] = Some(running);
        }
    }

    /// Whether a waiting job may start: a slot is free, and blocks have been freed since there were too few for the
    /// job.
    pub(super) fn may_admit(&self) -> bool {
        let refused = |next: usize| self.waiting[next].refused == Some(self.freed);
        self.slots.iter().any(Option::is_none) && self.next_job().is_some_and(|next| !refused(next))
    }

    /// While the engine drains, rejects jobs that only wait, unless a sequence and blocks are free: then the next job
    /// starts at once.
    pub(super) fn turn_away(&mut self) {
        if !self.draining.load(Ordering::Relaxed) {
            return;
        }
        let is_full = self.slots.iter().all(Option::is_some);
        if !is_full && self.next_job().is_none_or(|next| self.waiting[next].refused != Some(self.freed)) {
            return;
        }
        for mut job in self.waiting.extract_if(.., |job| job.only_waits()) {
            job.fail(EngineError::Draining);
        }
    }

    /// Adds a job to those that wait.
    pub(super) fn arrive(&mut self, job: Job) {
        let running = self.slots.iter().flatten().map(|running| &running.job);
        let tenants: HashSet<u64> = running.chain(&self.waiting).map(|job| job.tenant).collect();
        if !tenants.contains(&job.tenant) {
            self.shares.arrive(job.tenant, tenants.into_iter());
        }
        self.slots.iter().flatten().for_each(|running| plan_checkpoint(&mut self.runner, &job, running));
        self.waiting.push(job);
    }

    /// The waiting job that starts next: of the tenant with the fewest tokens so far, the preempted job with the
    /// highest priority, else the first that came. A job waits while a running job computes a prefix of its text.
    fn next_job(&self) -> Option<usize> {
        let waits = |job: &Job| {
            let alike = self.slots.iter().flatten().filter(|running| running.job.cache_key == job.cache_key);
            alike.into_iter().any(|other| {
                let common = common(job.reusable(), &other.tokens);
                let leaves = self.runner.leaves(other.sequence, common).unwrap_or(0);
                is_being_computed(leaves, other.computed)
            })
        };
        let mut order: Vec<usize> = (0..self.waiting.len()).collect();
        // A stable sort: first come, first served.
        order.sort_by_key(|&at| {
            let job = &self.waiting[at];
            (self.shares.tokens(job.tenant), job.priority.unwrap_or(u64::MAX))
        });
        order.into_iter().find(|&at| !waits(&self.waiting[at]))
    }
}

/// Makes a running prompt leave a checkpoint at the end of the prefix that it has in common with a waiting one.
fn plan_checkpoint(runner: &mut Runner, waiting: &Job, running: &Running) {
    if runner.has_fixed_size() && !running.decodes() && waiting.cache_key == running.job.cache_key {
        let common = common(waiting.reusable(), &running.tokens);
        // The forward pass reports errors.
        let _ = runner.plan_checkpoint(running.sequence, common);
    }
}
