//! Truncating sequences to a length within their last batch, in models with states of fixed size: draft tokens that were
//! rejected leave nothing.
//!
//! A pass of few tokens keeps the inputs of its recurrent operations ([`Limits::rollback_tokens`](crate::Limits)). The
//! state at a length within the batch is then computed from the state before the batch and these inputs, without
//! weights: a *replay* of the recurrent operations. Truncation only reserves the slot for it; the state is *due* until
//! the replay, which computes the states of all such sequences at once. Invariant: a due slot has one sequence and no
//! entry of the prefix cache; because [`Fixed::slot_at`] does not return it, and a sequence is forked after the replay.

use gristmill_kernels::Backend;
use gristmill_kernels::ops::RUN_WORDS;

use super::fixed::{Checkpoint, Fixed};
use super::{SequenceId, State};
use crate::error::Result;

impl Fixed {
    /// Shortens a sequence to a length after the one before its last batch, whose inputs are kept.
    pub(super) fn roll_back(&mut self, sequence: usize, len: usize, evicted: &mut Vec<u64>) -> Result<()> {
        self.drop_checkpoint(self.checkpoints[sequence].now);
        let checkpoints = &mut self.checkpoints[sequence];
        checkpoints.now = Checkpoint { len, slot: None };
        // The sequence has one slot less than it may have.
        checkpoints.now.slot = Some(self.slots.take(evicted)?);
        checkpoints.is_due = true;
        Ok(())
    }

    /// The runs that compute the due states.
    fn due_runs(&self) -> Vec<[u32; RUN_WORDS]> {
        let due = self.checkpoints.iter().filter(|checkpoints| checkpoints.is_due);
        // A batch has far fewer than 2^32 tokens.
        let rows = |len: usize| u32::try_from(len).unwrap_or(0);
        let run = |it: &super::fixed::Checkpoints| Some(it.run(it.first_row?, rows(it.now.len - it.before.len)));
        let mut runs: Vec<_> = due.filter_map(run).collect();
        runs.sort_unstable();
        runs
    }
}

impl State {
    /// Whether a state is due.
    pub(crate) fn needs_replay(&self) -> bool {
        self.fixed.as_ref().is_some_and(|fixed| fixed.checkpoints.iter().any(|checkpoints| checkpoints.is_due))
    }

    /// Whether the state of a sequence is due.
    pub(crate) fn is_due(&self, id: SequenceId) -> Result<bool> {
        let slot = self.slot(id)?;
        Ok(self.fixed.as_ref().is_some_and(|fixed| fixed.checkpoints[slot].is_due))
    }

    /// Uploads the runs that compute the due states of a pass of `padded` tokens. The replay must follow: the states count
    /// as computed.
    pub(crate) fn place_replay(&mut self, backend: &Backend, padded: usize) -> Result<()> {
        let Some(fixed) = &mut self.fixed else { return Ok(()) };
        let runs = fixed.due_runs();
        fixed.upload_runs(backend, &runs, padded)?;
        fixed.checkpoints.iter_mut().for_each(|checkpoints| checkpoints.is_due = false);
        Ok(())
    }
}
