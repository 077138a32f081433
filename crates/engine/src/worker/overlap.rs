//! Overlapped steps: the next decode step is submitted before the host has the tokens of the current one. The device
//! reads them from the buffer that it sampled them into, so it computes while the host makes text of tokens.
//!
//! A step is overlapped only if the host decides nothing between the two: each running sequence is in decode, and its next
//! token is sampled without regard to the current one. When a sequence finishes meanwhile, its row of the step in flight is
//! discarded. A waiting request is admitted after the step in flight, in a step that the host waits for.
//!
//! # Overlapped steps
//!
//! On an asynchronous device (`Backend::is_asynchronous`: CUDA), the engine submits a decode step before the tokens of
//! the previous step arrive (`engine/src/worker/overlap.rs`). The device reads those tokens from its own sampling
//! (`Batch::push_sampled`). The host decodes the text of one step while the next step runs. When a sequence finishes,
//! its row of the in-flight step is discarded, and its KV state is truncated by one token.
//!
//! - *A step overlaps only if nothing in it depends on the host. No waiting request can start. No sequence has a
//!   grammar, a penalty, draft tokens, banned sequences or log-probabilities, and none is near its reasoning limit.*
//! - *Overlap changes neither texts nor the entries of the prefix cache.*

use gristmill_kernels::ops::Sampling;

use super::submit::{Row, Submitted};
use super::{Pending, Running, Worker};
use crate::model::Result;
use crate::{Outputs, SequenceId};

/// A sequence of an overlapped step.
struct Next {
    slot: usize,
    sequence: SequenceId,
    /// Tokens that the host has. The next one is sampled from `row` of the current step.
    len: usize,
    row: usize,
    priority: u64,
}

impl Worker {
    /// Submits the step after the current one, if nothing in it depends on the host.
    ///
    /// # Errors
    /// The device has failed.
    pub(super) fn submit_overlapped(&mut self, current: &mut Submitted) -> Result<Option<Submitted>> {
        let Some(sequences) = self.overlapped_sequences(current) else { return Ok(None) };
        current.is_followed = true;
        match self.submit_sequences(&sequences) {
            Ok(step) => Ok(Some(step)),
            Err(error) if error.is_of_device() => Err(error),
            Err(error) => {
                // The step is submitted again when the host has all tokens; it then fails for the requests at fault.
                tracing::debug!(%error, "the next step is not overlapped");
                Ok(None)
            }
        }
    }

    /// The sequences of the step after the current one; `None` if the host has to decide something first.
    fn overlapped_sequences(&self, current: &Submitted) -> Option<Vec<Next>> {
        let is_asynchronous = self.runner.model().backend().is_asynchronous();
        if !is_asynchronous || self.counters.counts_experts() || self.next_admission().is_some() || self.will_draft() {
            return None;
        }
        let context = self.runner.context();
        let mut sequences = Vec::new();
        for (slot, running) in self.slots.iter().enumerate() {
            let Some(Running { sequence, tokens, needs_sync, priority, job, .. }) = running else { continue };
            let completion = job.completion()?;
            let row = current.rows.iter().position(|row| row.slot == slot && row.next.is_none() && row.drafted == 0)?;
            let drafts = current.chunks.iter().any(|chunk| chunk.slot == slot && chunk.positions.end > tokens.len());
            if *needs_sync || drafts || !completion.can_overlap(&job.progress) {
                return None;
            }
            // Else the token of the current step is the last one, or the last that fits into the context.
            if completion.left(&job.progress) > 1 && tokens.len() < context {
                sequences.push(Next { slot, sequence: *sequence, len: tokens.len(), row, priority: *priority });
            }
        }
        let lengths: Vec<_> = sequences.iter().map(|next| (next.sequence, next.len + 1)).collect();
        (!sequences.is_empty() && self.runner.fits(&lengths).unwrap_or(false)).then_some(sequences)
    }

    fn submit_sequences(&mut self, sequences: &[Next]) -> Result<Submitted> {
        self.batch.clear();
        let mut sampling = Vec::with_capacity(sequences.len());
        for &Next { slot, sequence, len, row, .. } in sequences {
            self.batch.push_sampled(sequence, row, Outputs::Last);
            let completion = self.slots[slot].as_ref().and_then(|running| running.job.completion());
            sampling.extend(completion.map(|completion| completion.sampling(len + 1, false)));
        }
        if sampling.iter().all(Sampling::is_argmax) {
            self.batch.take_argmax();
        }
        let chunk = |next: &Next| {
            let (slot, positions, priority) = (next.slot, next.len..next.len + 1, next.priority);
            Pending { slot, positions, all_rows: false, decodes: true, priority, whole: Vec::new() }
        };
        let row = |next: &Next| Row { slot: next.slot, next: None, drafted: 0 };
        let mut step = Submitted::new(sequences.iter().map(chunk).collect(), sequences.iter().map(row).collect());
        step.sampled = Some(self.runner.forward(&self.batch)?.start_sample(&sampling)?);
        self.times.forward += step.started_at.elapsed();
        self.counters.count_overlapped();
        Ok(step)
    }

    /// Discards a slot's row of the step in flight. Returns whether there was one.
    pub(super) fn discard_in_flight(&mut self, slot: usize) -> bool {
        let Some(step) = &mut self.in_flight else { return false };
        let parts = step.chunks.len();
        step.chunks.retain(|chunk| chunk.slot != slot);
        step.chunks.len() < parts
    }
}
