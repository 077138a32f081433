//! States of a fixed size: of a sequence, whatever its length, named buffers such as a convolution's last inputs and the
//! matrices of a delta rule ([`StateBuffer`]).
//!
//! Each buffer of a layer has slots. A batch reads the slot that has a sequence's state before it and writes another, so
//! the state before the last batch is still there: it is the checkpoint to which the sequence can be truncated. A
//! sequence has two slots at most, and a fork shares those of its origin until each continues.
//!
//! Within the last batch there can be more lengths to which a sequence can be truncated (`rollback`).
//!
//! A slot that has been written stays as it is while anybody has it. So a sequence shares its state with the prefix
//! cache without a copy, and a sequence of the same start continues from there.
//!
//! # A state of fixed size has two slots
//!
//! A state of fixed size has two slots: the state of the whole sequence, and the state before its last batch. A pass
//! reads one slot and writes the other. So a pass can be run again, and after a failed batch or a rejected draft token
//! the earlier state is still there. A fork shares slots until one of the sequences continues. An entry of the prefix
//! cache can have a slot, as it has blocks (`state/checkpoints.rs`). It gets the slot where a sequence ended, or where
//! a batch was planned to end. The least recently used slot is evicted first. *A slot in use is never written again.
//! Operations read runs (rows, slot read, slot written) from a buffer, so a captured pass serves any slots.*

use gristmill_kernels::Backend;
use gristmill_kernels::ops::{PADDING, RUN_WORDS, Runs};
use gristmill_kernels::tensor::{Buffer, View, ViewMut};

use super::Reuse;
use super::blocks::Blocks;
use crate::error::{Error, Result};
use crate::limits::Limits;
use crate::spec::{ModelSpec, StateBuffer, StateName};

/// Slots of a sequence: the state after the last batch, and the one before it.
const SLOTS_OF_SEQUENCE: usize = 2;

/// Slots of the prefix cache while all sequences use theirs. There are more slots than sequences, because each request
/// stores a state at its end, and one slot must remain for the prefix that requests share.
const MORE_CHECKPOINTS: usize = 3;

/// The most such slots; a slot of Qwen3-Next 80B-A3B has 79 MB.
const MOST_CHECKPOINTS: usize = 16;

/// Slots of each layer's buffers.
fn slot_count(sequences: usize, reuse: Reuse) -> usize {
    let checkpoints = match reuse {
        Reuse::Prefixes => sequences.saturating_add(MORE_CHECKPOINTS).min(MOST_CHECKPOINTS),
        Reuse::Nothing => 0,
    };
    sequences.saturating_mul(SLOTS_OF_SEQUENCE).saturating_add(checkpoints)
}

/// The state of a sequence of this number of tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Checkpoint {
    pub(super) len: usize,
    /// `None` for an empty sequence.
    pub(super) slot: Option<u32>,
}

/// The states of a sequence.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Checkpoints {
    /// Before the last batch.
    pub(super) before: Checkpoint,
    pub(super) now: Checkpoint,
    /// See `rollback`: the first row of the sequence in the last batch, if the inputs of the batch are kept.
    pub(super) first_row: Option<u32>,
    /// See `rollback`: the slot of `now` is not written yet.
    pub(super) is_due: bool,
}

/// The slots of all layers with a state of fixed size; each has a buffer of all slots.
#[derive(Debug)]
pub(super) struct Fixed {
    /// Who has each slot.
    pub(super) slots: Blocks,
    pub(super) checkpoints: Vec<Checkpoints>,
    /// For the tokens of the current batch, or of a replay.
    pub(super) runs: Runs,
}

impl Checkpoints {
    /// The run of this number of rows, from a row on.
    pub(super) fn run(&self, first: u32, rows: u32) -> [u32; RUN_WORDS] {
        let slot = |checkpoint: Checkpoint| checkpoint.slot.unwrap_or(PADDING);
        [first, rows, slot(self.before), slot(self.now)]
    }
}

/// A layer's buffers, each with a row for each slot.
#[derive(Debug, Default)]
pub(crate) struct FixedBuffers {
    slots: usize,
    buffers: Vec<(StateBuffer, Buffer<f32>)>,
}

impl FixedBuffers {
    /// For this number of slots.
    pub(super) fn new(backend: &Backend, state: Vec<StateBuffer>, slots: usize) -> Result<Self> {
        let allocate = |state: StateBuffer| {
            let buffer = backend.alloc::<f32>(state.elements.saturating_mul(slots), "the state of sequences")?;
            Ok((state, buffer))
        };
        Ok(Self { slots, buffers: state.into_iter().map(allocate).collect::<Result<_>>()? })
    }

    /// The rows of a buffer.
    pub(crate) fn rows_mut(&mut self, name: StateName) -> Result<ViewMut<'_, f32>> {
        let found = self.buffers.iter_mut().find(|(state, _)| state.name == name);
        // The program and the state are made of the same spec.
        let (state, buffer) = found.ok_or(Error::UnknownSequence)?;
        Ok(buffer.view_mut(self.slots, state.elements)?)
    }

    /// The row of a slot.
    pub(super) fn row(&self, name: StateName, slot: u32) -> Result<View<'_, f32>> {
        let found = self.buffers.iter().find(|(state, _)| state.name == name);
        let (StateBuffer { elements, .. }, buffer) = found.ok_or(Error::UnknownSequence)?;
        let first = slot as usize * elements;
        Ok(buffer.view(1, self.slots * elements)?.columns(first..first + elements)?)
    }

    pub(super) fn buffer_mut(&mut self, name: StateName) -> Option<&mut Buffer<f32>> {
        self.buffers.iter_mut().find(|(state, _)| state.name == name).map(|(_, buffer)| buffer)
    }
}

/// Bytes of all layers' buffers, and of the hidden states that prediction heads need.
pub(super) fn bytes(spec: &ModelSpec, sequences: usize, reuse: Reuse) -> u64 {
    let slots = if has_fixed_size(spec) { slot_count(sequences, reuse) } else { hidden_slots(sequences) };
    let slots = slots.saturating_mul(size_of::<f32>()) as u64;
    let of_buffer = |state: StateBuffer| (state.elements as u64).saturating_mul(slots);
    let states = spec.layers.iter().flat_map(|layer| layer.mixer.fixed_state(spec.hidden));
    states.chain(last_hidden(spec)).map(of_buffer).fold(0, u64::saturating_add)
}

/// Whether each length of a sequence must have a state of fixed size: in a model with such layers, and with several prediction
/// heads. The second head reads the output of the first one for the last token, which depends on the hidden state of the token
/// before it. So it is not enough to compute the last token again.
fn has_fixed_size(spec: &ModelSpec) -> bool {
    spec.heads.len() > 1 || spec.layers.iter().any(|layer| !layer.mixer.fixed_state(spec.hidden).is_empty())
}

/// The states of prediction heads: the hidden state of the last token.
pub(super) fn last_hidden(spec: &ModelSpec) -> impl Iterator<Item = StateBuffer> {
    spec.heads.iter().map(|_| StateBuffer { name: StateName::Hidden, elements: spec.hidden })
}

/// Slots for hidden states in a model without other states of fixed size.
fn hidden_slots(sequences: usize) -> usize {
    sequences.saturating_mul(SLOTS_OF_SEQUENCE)
}

impl Fixed {
    /// `None` for a model without such layers.
    pub(super) fn new(backend: &Backend, spec: &ModelSpec, limits: &Limits, reuse: Reuse) -> Result<Option<Self>> {
        match has_fixed_size(spec) {
            true => Self::with_slots(backend, limits, slot_count(limits.sequences, reuse)).map(Some),
            false => Ok(None),
        }
    }

    /// The slots for hidden states, in a model with prediction heads and without layers with a state of fixed size. Its
    /// sequences can have lengths whose hidden state is unknown.
    pub(super) fn of_hidden(backend: &Backend, spec: &ModelSpec, limits: &Limits) -> Result<Option<Self>> {
        match !spec.heads.is_empty() && !has_fixed_size(spec) {
            true => Self::with_slots(backend, limits, hidden_slots(limits.sequences)).map(Some),
            false => Ok(None),
        }
    }

    fn with_slots(backend: &Backend, limits: &Limits, slots: usize) -> Result<Self> {
        let Ok(slots) = u32::try_from(slots) else {
            let rule = "more than can be counted; use fewer".to_owned();
            return Err(Error::Limit { what: "the number of sequences", found: limits.sequences, rule });
        };
        // Each token of a batch may be a run by itself.
        let count = limits.sequences.min(limits.batch_tokens);
        let list = backend.alloc::<u32>(count * RUN_WORDS, "runs")?;
        let checkpoints = vec![Checkpoints::default(); limits.sequences];
        Ok(Self { slots: Blocks::new(slots), checkpoints, runs: Runs { list, count } })
    }

    pub(super) fn drop_checkpoint(&mut self, checkpoint: Checkpoint) {
        if let Some(slot) = checkpoint.slot {
            self.slots.release(slot);
        }
    }

    /// Takes a slot for the state of a sequence that grows to `len` tokens. If the prefix cache had it, its entry is
    /// pushed to `evicted`.
    pub(super) fn grow(&mut self, sequence: usize, len: usize, evicted: &mut Vec<u64>) -> Result<()> {
        let Checkpoints { before, now, .. } = std::mem::take(&mut self.checkpoints[sequence]);
        self.drop_checkpoint(before);
        // Each sequence has two at most, and this one only one now.
        let slot = Some(self.slots.take(evicted)?);
        let checkpoints = &mut self.checkpoints[sequence];
        (checkpoints.before, checkpoints.now) = (now, Checkpoint { len, slot });
        Ok(())
    }

    /// The slot with the state of a sequence's first `len` tokens, if it is written.
    pub(super) fn slot_at(&self, sequence: usize, len: usize) -> Option<u32> {
        let Checkpoints { before, now, is_due, .. } = self.checkpoints[sequence];
        let written = [now, before].into_iter().skip(usize::from(is_due));
        written.filter(|checkpoint| checkpoint.len == len).find_map(|checkpoint| checkpoint.slot)
    }

    /// Gives an empty sequence the state of `len` tokens in a slot.
    pub(super) fn adopt(&mut self, sequence: usize, len: usize, slot: u32) {
        self.slots.share(slot);
        self.checkpoints[sequence].now = Checkpoint { len, slot: Some(slot) };
    }

    /// Replaces the slot of a sequence's whole state by another with the same content.
    pub(super) fn replace(&mut self, sequence: usize, slot: u32) {
        if let Some(own) = self.checkpoints[sequence].now.slot.replace(slot) {
            self.slots.share(slot);
            self.slots.release(own);
        }
    }

    /// The greatest length up to `len` to which a sequence can be truncated.
    pub(super) fn checkpoint(&self, sequence: usize, len: usize) -> usize {
        let Checkpoints { before, now, first_row, .. } = self.checkpoints[sequence];
        if first_row.is_some() && (before.len..=now.len).contains(&len) {
            return len;
        }
        [now.len, before.len].into_iter().find(|&checkpoint| checkpoint <= len).unwrap_or(0)
    }

    /// Shortens a sequence to a length of [`Self::checkpoint`]. If the prefix cache had a slot that it needs, the entry is
    /// pushed to `evicted`.
    pub(super) fn truncate(&mut self, sequence: usize, len: usize, evicted: &mut Vec<u64>) -> Result<()> {
        let Checkpoints { before, now, .. } = self.checkpoints[sequence];
        if len >= now.len {
            return Ok(());
        }
        if len > before.len {
            return self.roll_back(sequence, len, evicted);
        }
        self.drop_checkpoint(now);
        self.checkpoints[sequence] = Checkpoints { now: before, ..Checkpoints::default() };
        if len < before.len {
            self.drop_checkpoint(before);
            self.checkpoints[sequence] = Checkpoints::default();
        }
        Ok(())
    }

    /// Shortens a sequence to any length, at which its state can be unknown.
    pub(super) fn truncate_to_any(&mut self, sequence: usize, len: usize) -> Result<()> {
        let Checkpoints { before, now, .. } = self.checkpoints[sequence];
        if len >= now.len || len == before.len || len == 0 {
            return self.truncate(sequence, len, &mut Vec::new());
        }
        self.drop_checkpoint(now);
        let is_earlier = before.len < len;
        if !is_earlier {
            self.drop_checkpoint(before);
        }
        let before = if is_earlier { before } else { Checkpoint::default() };
        let now = Checkpoint { len, slot: None };
        self.checkpoints[sequence] = Checkpoints { before, now, ..Checkpoints::default() };
        Ok(())
    }

    /// The slot of a sequence's whole state, if it is known.
    pub(super) fn last(&self, sequence: usize) -> Option<u32> {
        self.checkpoints[sequence].now.slot
    }

    /// Whether the state of a sequence before its last batch is known.
    pub(super) fn knows_before(&self, sequence: usize) -> bool {
        let Checkpoint { len, slot } = self.checkpoints[sequence].before;
        len == 0 || slot.is_some()
    }

    /// A slot for the whole state of a sequence, which is unknown.
    pub(super) fn learn(&mut self, sequence: usize) -> Result<u32> {
        let slot = self.slots.take(&mut Vec::new())?;
        self.checkpoints[sequence].now.slot = Some(slot);
        Ok(slot)
    }

    /// Gives an empty sequence a length at which its state is unknown.
    pub(super) fn start_unknown(&mut self, sequence: usize, len: usize) {
        self.checkpoints[sequence].now = Checkpoint { len, slot: None };
    }

    /// Gives an empty sequence the state of another.
    pub(super) fn share(&mut self, from: usize, to: usize) {
        let checkpoints = self.checkpoints[from];
        for slot in [checkpoints.before, checkpoints.now].into_iter().filter_map(|checkpoint| checkpoint.slot) {
            self.slots.share(slot);
        }
        self.checkpoints[to] = checkpoints;
    }

    /// Uploads the runs of a batch, whose tokens belong to these sequences, padded to `padded` tokens. `keeps`: whether the
    /// inputs of the batch are kept.
    pub(super) fn place(&mut self, backend: &Backend, sequences: &[u32], padded: usize, keeps: bool) -> Result<()> {
        self.checkpoints.iter_mut().for_each(|checkpoints| checkpoints.first_row = None);
        let mut runs = Vec::new();
        let mut first = 0;
        for run in sequences.chunk_by(|a, b| a == b) {
            let checkpoints = &mut self.checkpoints[run[0] as usize];
            checkpoints.first_row = keeps.then_some(first);
            // A batch has far fewer than 2^32 tokens.
            runs.push(checkpoints.run(first, run.len() as u32));
            first += run.len() as u32;
        }
        self.upload_runs(backend, &runs, padded)
    }

    /// Uploads the runs of a pass of `padded` tokens.
    pub(super) fn upload_runs(&mut self, backend: &Backend, runs: &[[u32; RUN_WORDS]], padded: usize) -> Result<()> {
        let mut words = runs.concat();
        words.resize(self.runs.list.len(), 0);
        // A captured pass of this number of tokens always has the same number of runs, including runs without rows.
        self.runs.count = (self.runs.list.len() / RUN_WORDS).min(padded);
        Ok(backend.upload(&words, &mut self.runs.list)?)
    }
}

#[cfg(test)]
impl Fixed {
    /// The lengths of a sequence's checkpoints, with their slots if they are written.
    pub(super) fn states(&self, sequence: usize) -> impl Iterator<Item = (usize, u32)> {
        let Checkpoints { before, now, is_due, .. } = self.checkpoints[sequence];
        let written = [now, before].into_iter().skip(usize::from(is_due));
        written.filter_map(|checkpoint| Some((checkpoint.len, checkpoint.slot?)))
    }

    /// Checks the invariants; `lens` are the tokens of each sequence.
    pub(super) fn check(&self, lens: &[usize]) {
        let mut sequences = vec![0; self.slots.count()];
        for (checkpoints, &len) in self.checkpoints.iter().zip(lens) {
            let Checkpoints { before, now, .. } = checkpoints;
            assert_eq!(now.len, len);
            assert!(before.len <= now.len && (before.len < now.len || len == 0));
            let is_shared = now.slot.is_some_and(|slot| self.slots.is_shared(slot));
            assert!(!checkpoints.is_due || (checkpoints.first_row.is_some() && !is_shared));
            for checkpoint in [before, now] {
                assert_eq!(checkpoint.len == 0, checkpoint.slot.is_none());
                checkpoint.slot.iter().for_each(|&slot| sequences[slot as usize] += 1);
            }
        }
        self.slots.check(&sequences);
    }
}
