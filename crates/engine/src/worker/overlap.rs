//! Overlapped steps: the next step is submitted before the host has the tokens of the current one. The device
//! reads them from the buffer that it sampled them into, so it computes while the host makes text of tokens.
//!
//! A step is overlapped only if the host decides nothing between the two: the next token of each running sequence is
//! sampled without regard to the current one. When a sequence finishes meanwhile, its row of the step in flight is
//! discarded. Requests that wait start in an overlapped step too, unless another must be preempted for them.
//!
//! # Overlapped steps
//!
//! On an asynchronous device (`Backend::is_asynchronous`: CUDA), the engine submits a step before the tokens of
//! the previous step arrive (`engine/src/worker/overlap.rs`). The device reads those tokens from its own sampling
//! (`Batch::push_sampled`). The step also has parts of prompts, of running requests and of those that start. The host
//! decodes the text of one step while the next step runs. When a sequence finishes, its row of the in-flight step is
//! discarded, and its state is truncated to what it was before that step.
//!
//! - *A step overlaps only if nothing in it depends on the host. No request is preempted. No sequence has a
//!   grammar, a penalty, draft tokens, banned sequences or log-probabilities, and none is near its reasoning limit.*
//! - *Overlap changes neither texts nor the entries of the prefix cache.*

use super::submit::Submitted;
use super::{Pending, Running, Worker};
use crate::model::Result;
use crate::schedule::share;

impl Worker {
    /// Submits the step after the current one, if nothing in it depends on the host.
    ///
    /// # Errors
    /// The device has failed.
    pub(super) fn submit_overlapped(&mut self, current: &mut Submitted) -> Result<Option<Submitted>> {
        let Some(chunks) = self.overlapped_chunks(current) else { return Ok(None) };
        current.is_followed = true;
        match self.submit(chunks, Some(current)) {
            Ok(step) => {
                self.counters.count_overlapped();
                Ok(Some(step))
            }
            Err(error) if error.is_of_device() => Err(error),
            Err(error) => {
                // The step is submitted again when the host has all tokens; it then fails for the requests at fault.
                tracing::debug!(%error, "the next step is not overlapped");
                Ok(None)
            }
        }
    }

    /// The tokens of the step after the current one; `None` if the host has to decide something first.
    fn overlapped_chunks(&mut self, current: &Submitted) -> Option<Vec<Pending>> {
        let is_asynchronous = self.runner.model().backend().is_asynchronous();
        // The host does not wait for a step without outputs.
        if !is_asynchronous || current.sampled.is_none() || self.counters.counts_experts() {
            return None;
        }
        let is_possible = self.all_can_overlap() && !self.will_draft() && self.admit_without_preemption();
        if !is_possible || !self.all_can_overlap() {
            return None;
        }
        let pending = self.pending();
        let chunks = share(&pending, self.tokens_of_step(&pending), self.output_rows);
        let is_ready = self.have_blocks(&chunks) && chunks.iter().all(|chunk| self.has_images(chunk));
        (is_ready && !chunks.is_empty()).then_some(chunks)
    }

    /// Whether no token of a running sequence depends on the host after the token before it.
    fn all_can_overlap(&self) -> bool {
        self.slots.iter().flatten().all(|Running { draft, needs_sync, job, .. }| {
            let completion = job.completion();
            !needs_sync && draft.is_empty() && completion.is_some_and(|one| one.can_overlap(&job.progress))
        })
    }

    /// Discards a slot's row of the step in flight. Returns the tokens that the sequence had before it, if there was one.
    pub(super) fn discard_in_flight(&mut self, slot: usize) -> Option<usize> {
        let step = self.in_flight.as_mut()?;
        let at = step.chunks.iter().position(|chunk| chunk.slot == slot)?;
        step.rows.iter_mut().filter(|row| row.slot == slot).for_each(|row| row.is_discarded = true);
        Some(step.chunks.remove(at).positions.start)
    }
}
