//! The rows of prediction heads: one for each token, in blocks of the same numbers as the keys and values of the token.
//!
//! The row of a token depends on the hidden state of the token before it: that of the model, and in the second head that of
//! the first head. [`State::last_hidden`] keeps that of a sequence's last token. In a model with states of fixed size, and in
//! one with several heads, it is one of them. In other models a sequence can have a length at which it is unknown: after a
//! truncation into earlier batches, and at its start with cached blocks. Then the next token gets no row. A sequence that starts with cached blocks computes the last cached token again, whose row the
//! blocks have; so it lacks none. Invariant: the first [`Slot::predicted`](super::Slot) tokens have their rows; checked by
//! `tests/model/heads.rs`.

use gristmill_kernels::Backend;
use gristmill_kernels::kv::{BatchRuns, KV_BLOCK};
use gristmill_kernels::ops::PADDING;
use gristmill_kernels::tensor::{Buffer, View};

use super::fixed::Fixed;
use super::{FixedLayer, PlacementKind, SequenceId, State};
use crate::error::Result;
use crate::spec::StateName;

impl State {
    /// Whether prediction heads are loaded.
    pub(super) fn has_heads(&self) -> bool {
        !self.last_hidden.is_empty()
    }

    /// Who has the slots of hidden states.
    fn hidden_slots(&self) -> Option<&Fixed> {
        self.fixed.as_ref().or(self.hidden.as_ref()).filter(|_| self.has_heads())
    }

    /// The hidden state of each sequence's last token that a head reads, for a forward pass.
    pub(super) fn hidden_of_head(&mut self, head: usize) -> Option<FixedLayer<'_>> {
        let fixed = self.fixed.as_ref().or(self.hidden.as_ref())?;
        let buffers = self.last_hidden.get_mut(head)?;
        Some(FixedLayer { buffers, runs: &fixed.runs })
    }

    /// Grows the rows of a slot with its tokens.
    pub(super) fn grow_heads(&mut self, slot: usize, [have, len]: [usize; 2]) -> Result<()> {
        if let Some(hidden) = &mut self.hidden {
            // Only the prefix cache's slots are evicted, and it has none of these.
            hidden.grow(slot, len, &mut Vec::new())?;
        }
        let knows = self.hidden_slots().is_some_and(|hidden| hidden.knows_before(slot));
        let predicted = &mut self.slots[slot].predicted;
        if *predicted > have || (knows && *predicted == have) {
            *predicted = len;
        }
        Ok(())
    }

    /// Shortens the rows of a slot.
    pub(super) fn truncate_heads(&mut self, slot: usize, len: usize) -> Result<()> {
        if let Some(hidden) = &mut self.hidden {
            hidden.truncate_to_any(slot, len)?;
        }
        let predicted = &mut self.slots[slot].predicted;
        *predicted = (*predicted).min(len);
        Ok(())
    }

    /// The slots of a batch for prediction heads, of the slots of its tokens: the first token of a sequence gets no row if
    /// the hidden state before it is unknown.
    pub(super) fn head_slots(&self, slots: &[u32]) -> Vec<u32> {
        let Some(hidden) = self.hidden_slots() else { return Vec::new() };
        let mut rows = Vec::with_capacity(slots.len());
        for run in slots.chunk_by(|a, b| a == b) {
            let is_known = hidden.knows_before(run[0] as usize);
            rows.push(if is_known { run[0] } else { PADDING });
            rows.extend(&run[1..]);
        }
        rows
    }

    /// Whether the hidden state of a sequence's last token is unknown, and can be set ([`Self::learn_hidden`]).
    pub(crate) fn lacks_hidden(&self, id: SequenceId) -> Result<bool> {
        let slot = self.slot(id)?;
        Ok(self.hidden.as_ref().is_some_and(|hidden| self.slots[slot].len > 0 && hidden.last(slot).is_none()))
    }

    /// The row for the hidden state of a sequence's last token, which is unknown: its number, and the buffer of all.
    pub(crate) fn learn_hidden(&mut self, id: SequenceId) -> Result<Option<(usize, &mut Buffer<f32>)>> {
        let slot = self.slot(id)?;
        let (Some(hidden), Some(buffers)) = (&mut self.hidden, self.last_hidden.first_mut()) else { return Ok(None) };
        let Some(buffer) = buffers.buffer_mut(StateName::Hidden) else { return Ok(None) };
        Ok(Some((hidden.learn(slot)? as usize, buffer)))
    }

    /// The hidden state of a sequence's last token that a head reads, if all tokens have their rows.
    pub(crate) fn predicting(&self, id: SequenceId, head: usize) -> Result<Option<View<'_, f32>>> {
        let slot = self.slot(id)?;
        let (Some(slots), Some(buffers)) = (self.hidden_slots(), self.last_hidden.get(head)) else { return Ok(None) };
        let known = slots.last(slot).filter(|_| self.slots[slot].predicted == self.slots[slot].len);
        known.map(|slot| buffers.row(StateName::Hidden, slot)).transpose()
    }

    /// Takes the blocks for rows of `tokens` more tokens, which are drafted. `false` if there are too few. The next
    /// [`Self::release_drafts`] frees them.
    pub(crate) fn reserve_drafts(&mut self, backend: &Backend, id: SequenceId, tokens: usize) -> Result<bool> {
        let slot = self.slot(id)?;
        let have = self.slots[slot].len;
        let len = have.saturating_add(tokens);
        let with_heads = |state: &Self, group: usize| state.groups[group].heads.is_some();
        let groups: Vec<usize> = (0..self.groups.len()).filter(|&group| with_heads(self, group)).collect();
        if len > self.context || groups.iter().any(|&group| self.groups[group].check_growth(slot, have, len).is_err()) {
            return Ok(false);
        }
        for group in groups {
            self.grow(backend, group, slot, [have, len])?;
        }
        Ok(true)
    }

    /// Frees the blocks that only drafted tokens have.
    pub(crate) fn release_drafts(&mut self, id: SequenceId) -> Result<()> {
        let slot = self.slot(id)?;
        let len = self.slots[slot].len;
        self.groups.iter_mut().for_each(|group| group.truncate(slot, len));
        Ok(())
    }

    /// Uploads the sequence and position of each drafted token, for prediction heads alone.
    pub(crate) fn place_drafts(&mut self, backend: &Backend, tokens: &[(SequenceId, u32)]) -> Result<PlacementKind> {
        let slots: Vec<u32> = tokens.iter().map(|(id, _)| id.slot).collect();
        let positions: Vec<u32> = tokens.iter().map(|&(_, position)| position).collect();
        let last = positions.iter().max().map_or(0, |&position| position as usize);
        let context_columns = backend.context_bucket(last / KV_BLOCK + 1);
        let step = PlacementKind { runs: BatchRuns::of(&slots, &positions), context_columns };
        self.groups.iter_mut().try_for_each(|group| group.place_heads(backend, &slots, &positions, step))?;
        Ok(step)
    }
}
