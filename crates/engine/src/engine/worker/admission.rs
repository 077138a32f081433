//! Which waiting job begins.

use std::collections::HashSet;
use std::sync::atomic::Ordering;

use super::{Job, Running, Worker};
use crate::Runner;
use crate::engine::EngineError;
use crate::engine::schedule::{common, is_being_computed};

impl Worker {
    /// Gives waiting jobs the sequences that are free, as long as there are blocks for the next.
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
                // A state of fixed size may be that of fewer tokens than are the same.
                let differs = !self.runner.has_fixed_size();
                let next = job.begin(reused, differs, self.runner.model().tokenizer().ok());
                self.waiting.extend(next);
            }
            let tokens = std::mem::take(&mut job.text);
            let (prompt, draft, accepted, careful) = (tokens.len(), Vec::new(), 0, false);
            let running = Running { sequence, tokens, prompt, computed: reused, draft, accepted, careful, began, job };
            self.waiting.iter().for_each(|job| plan_checkpoint(&mut self.runner, job, &running));
            self.slots[slot] = Some(running);
        }
    }

    /// Whether a waiting job may begin: there is a place, and blocks have become free since there were too few for it.
    pub(super) fn may_admit(&self) -> bool {
        let refused = |next: usize| self.waiting[next].refused == Some(self.freed);
        self.slots.iter().any(Option::is_none) && self.next_job().is_some_and(|next| !refused(next))
    }

    /// While the engine drains, refuses jobs that only wait, unless a sequence and blocks are free: then the next begins
    /// at once.
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

    /// Takes a job in, which waits.
    pub(super) fn arrive(&mut self, job: Job) {
        let running = self.slots.iter().flatten().map(|running| &running.job);
        let tenants: HashSet<u64> = running.chain(&self.waiting).map(|job| job.tenant).collect();
        if !tenants.contains(&job.tenant) {
            self.shares.arrive(job.tenant, tenants.into_iter());
        }
        self.slots.iter().flatten().for_each(|running| plan_checkpoint(&mut self.runner, &job, running));
        self.waiting.push(job);
    }

    /// The waiting job that begins next: of the tenant with the fewest tokens so far, the one that began first
    /// before it was preempted, else the first that came. A job whose text begins with what a running one is just
    /// computing waits for that.
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
            (self.shares.tokens(job.tenant), job.began.unwrap_or(u64::MAX))
        });
        order.into_iter().find(|&at| !waits(&self.waiting[at]))
    }
}

/// Lets a running prompt leave its state where a waiting one of the same beginning begins to differ.
fn plan_checkpoint(runner: &mut Runner, waiting: &Job, running: &Running) {
    if runner.has_fixed_size() && !running.decodes() && waiting.cache_key == running.job.cache_key {
        let common = common(waiting.reusable(), &running.tokens);
        // The forward pass reports errors.
        let _ = runner.plan_checkpoint(running.sequence, common);
    }
}
