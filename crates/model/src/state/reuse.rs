//! Sequences that start with blocks of the prefix cache, and leave it theirs.

use gristmill_kernels::kv::KV_BLOCK;

use super::checkpoints::OPENING;
use super::events::KvListener;
use super::group::{Group, HeldBlocks};
use super::prefix::parent_behind;
use super::{SequenceId, Slot, State};
use crate::error::Result;

/// The start of a text that the prefix cache has.
struct Beginning {
    /// Its tokens.
    len: usize,
    /// For each group, the blocks from the first that the next token sees.
    held: Vec<HeldBlocks>,
    /// The slot of its state of fixed size, if the model has one and the text is not empty.
    state: Option<u32>,
}

impl State {
    /// Opens a sequence of a tenant with the longest beginning of `tokens` whose blocks the prefix cache has, and
    /// returns its length.
    pub(crate) fn open_with(&mut self, tenant: u64, tokens: &[u32]) -> Result<(SequenceId, usize)> {
        let id = self.open()?;
        let slot = id.slot as usize;
        let tokens = &tokens[..tokens.len().min(self.context)];
        let mut chain = self.prefix.chain(tenant, tokens);
        let known = chain.len() * KV_BLOCK;
        let (beginning, predicted) = loop {
            // Behind whole blocks, the start of one that differs later: it is copied before the sequence writes.
            let parts = self.prefix.alike(parent_behind(tenant, &chain), &tokens[chain.len() * KV_BLOCK..]);
            match parts.into_iter().map(Some).chain([None]).find_map(|part| Some((part, self.blocks_of(&chain, part)?)))
            {
                Some((part, found)) => break self.before_last(&mut chain, part, found),
                None => drop(chain.pop()),
            }
        };
        let Beginning { len, held, state } = beginning;
        for (group, held) in self.groups.iter_mut().zip(held) {
            group.adopt(slot, held);
        }
        if let (Some(fixed), Some(state)) = (&mut self.fixed, state) {
            fixed.adopt(slot, len, state);
        }
        if let Some(hidden) = &mut self.hidden {
            hidden.start_unknown(slot, len);
        }
        chain.iter().for_each(|&entry| self.prefix.pin(entry));
        let (open, generation, planned) = (true, id.generation, Vec::new());
        self.slots[slot] = Slot { open, generation, len, tenant, chain, started: len, planned, predicted };
        self.plan_checkpoint(id, known)?;
        self.plan_checkpoint(id, tokens.len().saturating_sub(OPENING))?;
        Ok((id, len))
    }

    /// A start without its last token if its hidden state is needed and not kept: the sequence computes this token again.
    /// Returns also how many tokens have rows of prediction heads.
    fn before_last(&self, chain: &mut Vec<u64>, part: Option<(u64, usize)>, found: Beginning) -> (Beginning, usize) {
        let entries = chain.iter().copied().chain(part.map(|(entry, _)| entry));
        let whole = entries.take_while(|&entry| self.prefix.is_predicted(entry)).count() * KV_BLOCK;
        if self.hidden.is_none() || found.len == 0 {
            let predicted = whole.min(found.len);
            return (found, predicted);
        }
        // The row of the last token must be in a block that the sequence keeps: not in one of that token alone.
        let (len, part) = match part {
            Some((_, 1)) => (found.len - 1, None),
            _ => (found.len, part),
        };
        let (blocks, part) = match (part, chain.as_slice()) {
            (Some((entry, tokens)), _) => (chain.len(), Some((entry, tokens - 1))),
            (None, [.., last]) => (chain.len() - 1, Some((*last, KV_BLOCK - 1))),
            (None, []) => (0, None),
        };
        let predicted = whole.min(len);
        match self.blocks_of(&chain[..blocks], part) {
            Some(shorter) => {
                chain.truncate(blocks);
                (shorter, predicted)
            }
            // A window that starts one token earlier starts with a block that is not kept. The next tokens get no rows.
            None => (found, 0),
        }
    }

    /// The start of a text of these entries, if all is there that its next token needs. Only this number of tokens of
    /// `part` count.
    fn blocks_of(&self, chain: &[u64], part: Option<(u64, usize)>) -> Option<Beginning> {
        let len = chain.len() * KV_BLOCK + part.map_or(0, |(_, tokens)| tokens);
        let state = match part.map(|(entry, _)| entry).or(chain.last().copied()) {
            Some(last) if self.has_fixed_size() => {
                let whole = part.is_none_or(|(entry, tokens)| self.prefix.tokens(entry) == tokens);
                Some(self.prefix.block(last, self.groups.len()).filter(|_| whole)?)
            }
            _ => None,
        };
        let of_group = |(index, group): (usize, &Group)| {
            let first = group.first_seen(len);
            let entries = chain.iter().copied().chain(part.map(|(entry, _)| entry)).skip(first);
            Some(HeldBlocks {
                first,
                blocks: entries.map(|entry| self.prefix.block(entry, index)).collect::<Option<_>>()?,
            })
        };
        Some(Beginning { len, held: self.groups.iter().enumerate().map(of_group).collect::<Option<_>>()?, state })
    }

    /// Gives the prefix cache the full blocks of a sequence, whose text starts with `tokens`, and its state of fixed
    /// size if it has a planned length.
    pub(crate) fn keep(&mut self, id: SequenceId, tokens: &[u32]) -> Result<()> {
        let slot = self.slot(id)?;
        let tokens = &tokens[..tokens.len().min(self.slots[slot].len)];
        let have = self.slots[slot].chain.len();
        for (at, block) in tokens.chunks_exact(KV_BLOCK).enumerate().skip(have) {
            let entry = self.keep_block(slot, at, block);
            self.prefix.pin(entry);
            self.slots[slot].chain.push(entry);
        }
        let Slot { len, chain, planned, .. } = &self.slots[slot];
        if let (Some(&last), true) = (chain.last(), planned.contains(len) && chain.len() * KV_BLOCK == *len) {
            self.keep_state(slot, last, *len);
        }
        Ok(())
    }

    /// Closes a sequence, whose text starts with `tokens`, and gives the prefix cache all its blocks, and its state of
    /// fixed size.
    pub(crate) fn retire(&mut self, id: SequenceId, tokens: &[u32]) -> Result<()> {
        if self.has_fixed_size() {
            // Tokens after it, such as draft tokens, are not part of the text.
            self.truncate(id, self.checkpoint(id, tokens.len())?)?;
        }
        self.keep(id, tokens)?;
        let Slot { len, chain, .. } = &self.slots[id.slot as usize];
        let slot = id.slot as usize;
        let len = *len;
        let at = chain.len();
        let last = chain.last().copied();
        let rest = &tokens[(at * KV_BLOCK).min(tokens.len())..tokens.len().min(len)];
        if !rest.is_empty() {
            let entry = self.keep_block(slot, at, rest);
            self.keep_state(slot, entry, len);
            self.prefix.prune(entry);
        } else if let Some(last) = last.filter(|_| at * KV_BLOCK == len) {
            self.keep_state(slot, last, len);
        }
        self.close(id)
    }

    /// Gives the prefix cache a slot's block with these tokens. Returns the entry.
    fn keep_block(&mut self, slot: usize, at: usize, tokens: &[u32]) -> u64 {
        let parent = parent_behind(self.slots[slot].tenant, &self.slots[slot].chain);
        let known = self.prefix.find(parent, tokens);
        let predicted = self.slots[slot].predicted >= at * KV_BLOCK + tokens.len();
        let entry = known.unwrap_or_else(|| self.prefix.insert(parent, tokens, self.pools(), predicted));
        let lacks_rows = self.has_heads() && predicted && !self.prefix.is_predicted(entry);
        // A sequence that removes the block also removes the entry and the state after the entry's tokens.
        let taken_behind = (!self.has_fixed_size()).then_some(tokens.len());
        for (index, group) in self.groups.iter_mut().enumerate() {
            match (self.prefix.block(entry, index), group.block(slot, at)) {
                // The sequence keeps its own, in which there is more.
                (Some(_), Some(_)) if lacks_rows => {}
                // Another sequence has computed the same.
                (Some(block), Some(_)) => group.replace(slot, at, block),
                (None, Some(own)) if group.blocks.keep(own, entry, taken_behind) => {
                    self.prefix.set_block(entry, index, Some(own));
                    if !predicted {
                        self.prefix.set_not_predicted(entry);
                    }
                }
                _ => {}
            }
        }
        entry
    }

    /// Removes the entries of a sequence from the prefix cache.
    pub(crate) fn evict_prefix(&mut self, id: SequenceId) -> Result<()> {
        let slot = self.slot(id)?;
        for entry in std::mem::take(&mut self.slots[slot].chain) {
            self.remove(entry);
        }
        Ok(())
    }

    /// The listener gets each change of the prefix cache from now on.
    pub(crate) fn listen(&mut self, listener: KvListener) {
        self.prefix.listen(listener);
    }

    /// Removes a tenant's entries from the prefix cache, except blocks that sequences use.
    pub(crate) fn evict_tenant(&mut self, tenant: u64) {
        for entry in self.prefix.unused(tenant) {
            self.remove(entry);
        }
    }

    /// A group, or the states of fixed size (after the groups), evicted the block of an entry. In a group without a
    /// window, the entry is then useless.
    pub(super) fn evict(&mut self, group: usize, entry: u64) {
        self.prefix.set_block(entry, group, None);
        if self.groups.get(group).is_none_or(|group| group.kind.window.is_some()) {
            self.prefix.prune(entry);
        } else {
            self.remove(entry);
        }
    }

    /// Removes an entry from the prefix cache.
    fn remove(&mut self, entry: u64) {
        for (group, block) in self.prefix.remove(entry) {
            match (self.groups.get_mut(group), &mut self.fixed) {
                (Some(group), _) => group.blocks.clear_entry(block),
                (None, Some(fixed)) => fixed.slots.clear_entry(block),
                (None, None) => None,
            };
        }
    }

    /// Blocks of an entry: one of each group, and the slot of its state of fixed size.
    fn pools(&self) -> usize {
        self.groups.len() + usize::from(self.has_fixed_size())
    }
}
