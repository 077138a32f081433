//! States of a fixed size: of a sequence, whatever its length, a convolution's last inputs and the matrices of a delta
//! rule.
//!
//! A layer has a buffer of slots. A batch reads the slot that has a sequence's state before it and writes another, so
//! the state before the last batch is still there: it is the checkpoint to which the sequence can be shortened. A
//! sequence has two slots at most, and a fork shares those of its origin until each goes on.

use gristmill_kernels::Backend;
use gristmill_kernels::ops::{PADDING, RUN_WORDS, Runs};
use gristmill_kernels::tensor::Buffer;

use crate::error::{Error, Result};
use crate::limits::Limits;
use crate::model::spec::{FixedState, ModelSpec};

/// Slots of a sequence: the state after the last batch, and the one before it.
const SLOTS_OF_SEQUENCE: usize = 2;

/// The state of a sequence of so many tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Checkpoint {
    len: usize,
    /// `None` for an empty sequence.
    slot: Option<u32>,
}

/// The states of a sequence.
#[derive(Clone, Copy, Debug, Default)]
struct Checkpoints {
    /// Before the last batch.
    before: Checkpoint,
    now: Checkpoint,
}

/// The slots of all layers with a state of fixed size; each has a buffer of all slots.
#[derive(Debug)]
pub(super) struct Fixed {
    /// The sequences that have each slot, counted twice if both their checkpoints are in it.
    users: Vec<u32>,
    checkpoints: Vec<Checkpoints>,
    /// For the tokens of the current batch.
    pub(super) runs: Runs,
}

/// A layer's buffers.
#[derive(Debug)]
pub(super) struct FixedBuffers {
    pub(super) convolution: Buffer<f32>,
    pub(super) delta: Buffer<f32>,
}

impl FixedBuffers {
    /// For all slots of so many sequences.
    pub(super) fn new(backend: &Backend, state: FixedState, sequences: usize) -> Result<Self> {
        let floats = |of_slot: usize| {
            let len = of_slot.saturating_mul(sequences).saturating_mul(SLOTS_OF_SEQUENCE);
            backend.alloc::<f32>(len, "the state of sequences")
        };
        Ok(Self { convolution: floats(state.convolution)?, delta: floats(state.delta)? })
    }
}

/// Bytes of all layers' buffers.
pub(super) fn bytes(spec: &ModelSpec, sequences: usize) -> u64 {
    let states = spec.layers.iter().filter_map(|layer| layer.mixer.fixed_state(spec.hidden));
    let slots = sequences.saturating_mul(SLOTS_OF_SEQUENCE).saturating_mul(size_of::<f32>()) as u64;
    let of_layer = |state: FixedState| (state.convolution.saturating_add(state.delta) as u64).saturating_mul(slots);
    states.map(of_layer).fold(0, u64::saturating_add)
}

impl Fixed {
    /// `None` for a model without such layers.
    pub(super) fn new(backend: &Backend, spec: &ModelSpec, limits: &Limits) -> Result<Option<Self>> {
        if spec.layers.iter().all(|layer| layer.mixer.fixed_state(spec.hidden).is_none()) {
            return Ok(None);
        }
        let slots = limits.sequences.checked_mul(SLOTS_OF_SEQUENCE).filter(|&n| u32::try_from(n).is_ok());
        let Some(slots) = slots else {
            let rule = "more than can be counted; use fewer".to_owned();
            return Err(Error::Limit { what: "the number of sequences", found: limits.sequences, rule });
        };
        // Each token of a batch may be a run by itself.
        let count = limits.sequences.min(limits.batch_tokens);
        let list = backend.alloc::<u32>(count * RUN_WORDS, "runs")?;
        let checkpoints = vec![Checkpoints::default(); limits.sequences];
        Ok(Some(Self { users: vec![0; slots], checkpoints, runs: Runs { list, count } }))
    }

    /// Slots of each layer's buffers.
    pub(super) fn slots(&self) -> usize {
        self.users.len()
    }

    fn drop_checkpoint(&mut self, checkpoint: Checkpoint) {
        if let Some(slot) = checkpoint.slot {
            self.users[slot as usize] -= 1;
        }
    }

    /// Takes a slot for the state of a sequence that grows to `len` tokens.
    pub(super) fn grow(&mut self, sequence: usize, len: usize) -> Result<()> {
        let Checkpoints { before, now } = self.checkpoints[sequence];
        // Each sequence has two at most, and this one only one now.
        let free = self
            .users
            .iter()
            .enumerate()
            .position(|(slot, &users)| users == 0 || users == 1 && before.slot == Some(slot as u32));
        let slot = free.ok_or(Error::OutOfBlocks { needed: 1, free: 0 })?;
        self.drop_checkpoint(before);
        self.users[slot] += 1;
        self.checkpoints[sequence] = Checkpoints { before: now, now: Checkpoint { len, slot: Some(slot as u32) } };
        Ok(())
    }

    /// The greatest length up to `len` to which a sequence can be shortened.
    pub(super) fn checkpoint(&self, sequence: usize, len: usize) -> usize {
        let Checkpoints { before, now } = self.checkpoints[sequence];
        [now.len, before.len].into_iter().find(|&checkpoint| checkpoint <= len).unwrap_or(0)
    }

    /// Shortens a sequence to a length of [`Self::checkpoint`].
    pub(super) fn truncate(&mut self, sequence: usize, len: usize) {
        let Checkpoints { before, now } = self.checkpoints[sequence];
        if len >= now.len {
            return;
        }
        self.drop_checkpoint(now);
        self.checkpoints[sequence] = Checkpoints { before: Checkpoint::default(), now: before };
        if len < before.len {
            self.drop_checkpoint(before);
            self.checkpoints[sequence] = Checkpoints::default();
        }
    }

    /// Gives an empty sequence the state of another.
    pub(super) fn share(&mut self, from: usize, to: usize) {
        let checkpoints = self.checkpoints[from];
        for slot in [checkpoints.before, checkpoints.now].into_iter().filter_map(|checkpoint| checkpoint.slot) {
            self.users[slot as usize] += 1;
        }
        self.checkpoints[to] = checkpoints;
    }

    /// Uploads the runs of a batch, whose tokens belong to these sequences, padded to `padded` tokens.
    pub(super) fn place(&mut self, backend: &Backend, sequences: &[u32], padded: usize) -> Result<()> {
        let mut words = Vec::new();
        let mut first = 0;
        for run in sequences.chunk_by(|a, b| a == b) {
            let Checkpoints { before, now } = self.checkpoints[run[0] as usize];
            let slot = |checkpoint: Checkpoint| checkpoint.slot.unwrap_or(PADDING);
            // A batch has far fewer than 2^32 tokens.
            words.extend([first, run.len() as u32, slot(before), slot(now)]);
            first += run.len() as u32;
        }
        words.resize(self.runs.list.len(), 0);
        // A captured pass of so many tokens has always the same number of runs, those without rows included.
        self.runs.count = (self.runs.list.len() / RUN_WORDS).min(padded);
        Ok(backend.upload(&words, &mut self.runs.list)?)
    }
}

#[cfg(test)]
impl Fixed {
    /// Checks the invariants; `lens` are the tokens of each sequence.
    pub(super) fn check(&self, lens: &[usize]) {
        let mut users = vec![0; self.users.len()];
        for (checkpoints, &len) in self.checkpoints.iter().zip(lens) {
            let Checkpoints { before, now } = checkpoints;
            assert_eq!(now.len, len);
            assert!(before.len <= now.len && (before.len < now.len || len == 0));
            for checkpoint in [before, now] {
                assert_eq!(checkpoint.len == 0, checkpoint.slot.is_none());
                checkpoint.slot.iter().for_each(|&slot| users[slot as usize] += 1);
            }
        }
        assert_eq!(users, self.users);
    }
}
