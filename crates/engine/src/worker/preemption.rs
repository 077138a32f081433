//! Preemption: the KV cache has too few blocks for all requests.
//!
//! A waiting request starts when there are blocks for its tokens, and for some more of each running request. If a step
//! needs more blocks than there are, the request that started last is preempted, if possible one of the tenant with the
//! most blocks (`sharing`): its blocks go to the prefix cache, and it waits with the tokens generated so far. When it
//! starts again, it computes the tokens that are no longer in the prefix cache, and samples the next token as it would
//! have done.
//!
//! Every request finishes. A request keeps the priority of its first start. While a tenant has several sequences, its
//! oldest is not preempted; if no tenant has several, the oldest of all is not. Each step computes at least one of its
//! tokens, and a single request has all blocks. While a request waits for blocks, no other of its tenant, or of tenants
//! after it, starts. `sharing` bounds the preemptions for other tenants.
//!
//! # Sequences can need more blocks than there are
//!
//! See `Limits::kv_tokens`, `engine/src/worker/preemption.rs`. A request starts if there are blocks for its prompt, and
//! for 32 more tokens of each running request. If a step needs more blocks, the engine preempts the newest request of
//! the tenant with the most blocks, among tenants with several sequences, else the newest of all. The blocks of that
//! request go to the prefix cache. The request waits before other requests of its tenant, and later recomputes the
//! evicted blocks.
//!
//! - *Invariant: every request finishes; because a request keeps the priority of its first start, a tenant's oldest
//!   request is not preempted while the tenant has several sequences, and the oldest of all is preempted only for a
//!   tenant without a sequence and after its slice (next section). With one tenant, the oldest request is never
//!   preempted. Checked by `the_worst_load_ends` and the tests `tenants` of the engine.*
//! - *On a CPU, a preempted request has the same text to the byte. The reasons: sampling depends on the position of the
//!   token, and logits do not depend on how a sequence is split into batches.*

use gristmill_kernels::kv::KV_BLOCK;

use super::{Job, Worker};
use crate::SequenceId;
use crate::schedule::{Pending, share};

/// When a request starts, there must be blocks for this number of further tokens of each running request. In a
/// simulation (60,000 tokens of cache, prompts of 50 to 1,000 tokens, completions of 1 to 800), 0, 16, 32 and 64
/// preempt a request 0.77, 0.05, 0.007 and 0.002 times in the mean, and 72.8, 72.0, 70.7 and 68.1 requests run at a
/// time.
pub(super) const RESERVE: usize = 2 * KV_BLOCK;

impl Worker {
    /// Whether there are blocks for the tokens of a job that starts, and for those that running jobs generate soon.
    pub(super) fn can_start(&self, starts: SequenceId, job: &Job) -> bool {
        let mut running = self.slots.iter().flatten().peekable();
        // A single request has all blocks.
        if running.peek().is_none() {
            return true;
        }
        let context = self.runner.context();
        let soon = |sequence, job: &Job, length| (sequence, job.soon(length, RESERVE).min(context));
        let running = running.map(|one| soon(one.sequence, &one.job, one.tokens.len()));
        let lengths: Vec<_> = running.chain([soon(starts, job, job.text.len())]).collect();
        // The forward pass reports errors.
        self.runner.fits(&lengths).unwrap_or(true)
    }

    /// Keeps a job waiting until blocks are freed, and closes the sequence that was opened for it.
    pub(super) fn refuse(&mut self, waiting: usize, sequence: SequenceId) {
        if let Err(error) = self.runner.close_sequence(sequence) {
            tracing::error!(%error, "closing a sequence failed");
        }
        self.waiting[waiting].refused = Some(self.freed);
    }

    /// The tokens that the next step computes, after the preemptions that it needs.
    pub(super) fn chunks(&mut self) -> Vec<Pending> {
        loop {
            let pending = self.pending();
            let chunks = share(&pending, self.tokens_of_step(&pending), self.output_rows);
            if self.have_blocks(&chunks) {
                return chunks;
            }
            if !self.discard_drafts() {
                let Some(slot) = self.newest() else { return chunks };
                self.preempt(slot);
            }
        }
    }

    /// Whether there are blocks for the tokens of a step.
    pub(super) fn have_blocks(&self, chunks: &[Pending]) -> bool {
        let length = |chunk: &Pending| Some((self.slots[chunk.slot].as_ref()?.sequence, chunk.positions.end));
        let lengths: Vec<_> = chunks.iter().filter_map(length).collect();
        self.runner.fits(&lengths).unwrap_or(true)
    }

    /// Discards all draft tokens, which costs nothing. Returns whether there were any.
    fn discard_drafts(&mut self) -> bool {
        let drafts = self.slots.iter_mut().flatten().map(|running| std::mem::take(&mut running.draft));
        drafts.filter(|draft| !draft.is_empty()).count() > 0
    }

    /// Preempts the request of a slot.
    pub(super) fn preempt(&mut self, slot: usize) {
        let Some(mut job) = self.free(slot) else { return };
        tracing::debug!(slot, tokens = job.text.len(), "request is preempted");
        job.preempt();
        self.waiting.push(job);
    }
}
