//! Truncating sequences to a length within their last batch, in models with states of fixed size: draft tokens that were
//! rejected leave nothing.
//!
//! A pass of few tokens keeps the inputs of its recurrent operations ([`Limits::rollback_tokens`](crate::Limits)). The
//! state at a length within the batch is then computed from the state before the batch and these inputs, without
//! weights: a *replay* of the recurrent operations. Truncation only reserves the slot for it; the state is *due* until
//! the replay, which computes the states of all such sequences at once, but those of forks one after another.
//! Invariant: a due slot has one sequence and no entry of the prefix cache; because [`Fixed::slot_at`] does not return
//! it, and a sequence is forked after the replay.
//!
//! # Rejected draft tokens leave nothing in a state of fixed size
//!
//! See `state/rollback.rs`, `program/replay.rs`. A pass of up to `Limits::rollback_tokens` tokens keeps the inputs of
//! its recurrent operations, each in a buffer of its own. The state after some of the tokens of a sequence is then a
//! *replay*: the same operations run again, from the slot before the batch and over these rows, and read no weights but
//! the taps of convolutions. Truncation reserves the slot; the next pass, draft or fork first replays all sequences
//! that were truncated, in one pass (forks of a sequence, which have the same rows, in further ones). The alternative,
//! a state written for each row, needs no replay, but takes more memory and bandwidth: in Qwen3.6-35B-A3B 65 MB for
//! each row and sequence instead of 1.5 MB. *A replay computes the same bits as the batch, because recurrent operations
//! compute row by row. A state that is not computed yet has one sequence, and is not in the prefix cache.*

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

    /// The runs that compute due states, with their sequences. The rows of a pass's runs do not overlap, so of a sequence and
    /// its forks, which have the same rows, one has its run now.
    fn due_runs(&self) -> (Vec<[u32; RUN_WORDS]>, Replayed) {
        let mut due: Vec<_> =
            self.checkpoints.iter().enumerate().filter(|(_, checkpoints)| checkpoints.is_due).collect();
        due.sort_unstable_by_key(|(_, checkpoints)| checkpoints.first_row);
        let mut runs = Vec::new();
        let mut sequences = Vec::new();
        let mut end = 0;
        for (sequence, checkpoints) in due {
            // A batch has far fewer than 2^32 tokens.
            let rows = u32::try_from(checkpoints.now.len - checkpoints.before.len).unwrap_or(0);
            let first = checkpoints.first_row.unwrap_or(0);
            if first >= end {
                runs.push(checkpoints.run(first, rows));
                sequences.push(sequence);
                end = first + rows;
            }
        }
        (runs, Replayed { sequences })
    }
}

/// The sequences whose states a replay computes.
#[must_use]
#[derive(Debug)]
pub(crate) struct Replayed {
    sequences: Vec<usize>,
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

    /// Uploads the runs that compute due states of a pass of `padded` tokens. There can be more due states
    /// ([`Self::needs_replay`]).
    pub(crate) fn place_replay(&mut self, backend: &Backend, padded: usize) -> Result<Replayed> {
        let Some(fixed) = &mut self.fixed else { return Ok(Replayed { sequences: Vec::new() }) };
        let (runs, replayed) = fixed.due_runs();
        fixed.upload_runs(backend, &runs, padded)?;
        Ok(replayed)
    }

    /// The states of a replay are computed.
    pub(crate) fn finish_replay(&mut self, replayed: Replayed) {
        let Some(fixed) = &mut self.fixed else { return };
        replayed.sequences.into_iter().for_each(|sequence| fixed.checkpoints[sequence].is_due = false);
    }
}
