//! Checkpoints in the prefix cache: states of fixed size at some lengths of texts.
//!
//! A state of fixed size belongs to a whole sequence, not to its prefixes. So a sequence can reuse a prefix only at a
//! length where a state was stored. The entry of a block, or of a sequence's end, has the state after its tokens, if it
//! was stored. Sequences store it at their end and at planned lengths. One is where a prompt starts to differ from a
//! known one, because a third prompt can have this prefix. Another is near the end of a prompt, because the next turn
//! can contain the reply in another form (for example without its thinking). A batch must end at a planned length, so
//! each may cost a step more; [`State::spacing`] bounds their number.

use gristmill_kernels::kv::KV_BLOCK;

use super::{SequenceId, State};
use crate::error::Result;

/// The least distance of planned lengths, in tokens: reading so few again costs about as much as another step.
pub(super) const SPACING: usize = 128;

/// Tokens at the end of a prompt that a longer text may write differently, such as the opening of the reply.
pub(super) const OPENING: usize = 8;

impl State {
    /// Whether there are layers whose state has a fixed size.
    pub(crate) fn has_fixed_size(&self) -> bool {
        self.fixed.is_some()
    }

    /// Plans a checkpoint at the end of the last whole block of a sequence's first `len` tokens, if that is far enough
    /// from where the sequence started and from the others. `len` is at most the length that the sequence will have.
    pub(crate) fn plan_checkpoint(&mut self, id: SequenceId, len: usize) -> Result<()> {
        let slot = self.slot(id)?;
        let len = len / KV_BLOCK * KV_BLOCK;
        let spacing = self.spacing;
        let fixed = self.has_fixed_size();
        let slot = &mut self.slots[slot];
        let far = slot.planned.iter().chain([&slot.started]).all(|other| other.abs_diff(len) >= spacing);
        if fixed && far && len > slot.len {
            slot.planned.push(len);
        }
        Ok(())
    }

    /// The next planned length, at which a batch must end; none in a model without states of fixed size.
    pub(crate) fn next_checkpoint(&self, id: SequenceId) -> Result<Option<usize>> {
        let slot = &self.slots[self.slot(id)?];
        Ok(slot.planned.iter().copied().filter(|&len| len > slot.len).min())
    }

    /// The length of the start that the prefix cache will have of a sequence's first `len` tokens, when they are
    /// computed.
    pub(crate) fn leaves(&self, id: SequenceId, len: usize) -> Result<usize> {
        let slot = &self.slots[self.slot(id)?];
        Ok(match self.fixed {
            None => len / KV_BLOCK * KV_BLOCK,
            Some(_) => slot.planned.iter().copied().filter(|&planned| planned <= len).max().unwrap_or(0),
        })
    }

    /// Gives an entry the state of a sequence of `len` tokens, which are those up to the entry's last.
    pub(super) fn keep_state(&mut self, slot: usize, entry: u64, len: usize) {
        let group = self.groups.len();
        let Some(fixed) = &mut self.fixed else { return };
        match (self.prefix.block(entry, group), fixed.slot_at(slot, len)) {
            (Some(known), Some(_)) => fixed.replace(slot, known),
            (None, Some(own)) if fixed.slots.keep(own, entry, None) => {
                self.prefix.set_block(entry, group, Some(own));
            }
            _ => {}
        }
    }
}
