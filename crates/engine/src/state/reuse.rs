//! Sequences that begin with blocks of the prefix cache, and leave it theirs.

use gristmill_kernels::kv::KV_BLOCK;

use super::group::{Group, HeldBlocks};
use super::prefix::parent_behind;
use super::{SequenceId, Slot, State};
use crate::error::Result;

impl State {
    /// Whether sequences begin with what others have computed. A state of fixed size is that of a whole text and of
    /// none of its beginnings.
    pub(crate) fn reuses_prefixes(&self) -> bool {
        self.fixed.is_none()
    }

    /// Opens a sequence of a tenant with the longest beginning of `tokens` whose blocks the prefix cache has, and
    /// returns its length.
    pub(crate) fn open_with(&mut self, tenant: u64, tokens: &[u32]) -> Result<(SequenceId, usize)> {
        let id = self.open()?;
        let slot = id.slot as usize;
        let tokens = if self.reuses_prefixes() { &tokens[..tokens.len().min(self.context)] } else { &[] };
        let mut chain = self.prefix.chain(tenant, tokens);
        let (len, held) = loop {
            // Behind whole blocks, the beginning of one that differs later: it is copied before the sequence writes.
            let parts = self.prefix.alike(parent_behind(tenant, &chain), &tokens[chain.len() * KV_BLOCK..]);
            match parts.into_iter().map(Some).chain([None]).find_map(|part| self.blocks_of(&chain, part)) {
                Some(found) => break found,
                None => drop(chain.pop()),
            }
        };
        for (group, held) in self.groups.iter_mut().zip(held) {
            group.adopt(slot, held);
        }
        chain.iter().for_each(|&entry| self.prefix.pin(entry));
        self.slots[slot] = Slot { open: true, generation: id.generation, len, tenant, chain };
        Ok((id, len))
    }

    /// The length of a text of these entries, and for each group the blocks from the first that its next token sees, if
    /// all are there. Of `part` only so many tokens count.
    fn blocks_of(&self, chain: &[u64], part: Option<(u64, usize)>) -> Option<(usize, Vec<HeldBlocks>)> {
        let len = chain.len() * KV_BLOCK + part.map_or(0, |(_, tokens)| tokens);
        let of_group = |(index, group): (usize, &Group)| {
            let first = group.first_seen(len);
            let entries = chain.iter().copied().chain(part.map(|(entry, _)| entry)).skip(first);
            Some(HeldBlocks {
                first,
                blocks: entries.map(|entry| self.prefix.block(entry, index)).collect::<Option<_>>()?,
            })
        };
        Some((len, self.groups.iter().enumerate().map(of_group).collect::<Option<_>>()?))
    }

    /// Gives the prefix cache the full blocks of a sequence, whose text begins with `tokens`.
    pub(crate) fn keep(&mut self, id: SequenceId, tokens: &[u32]) -> Result<()> {
        let slot = self.slot(id)?;
        if !self.reuses_prefixes() {
            return Ok(());
        }
        let tokens = &tokens[..tokens.len().min(self.slots[slot].len)];
        let have = self.slots[slot].chain.len();
        for (at, block) in tokens.chunks_exact(KV_BLOCK).enumerate().skip(have) {
            let entry = self.keep_block(slot, at, block);
            self.prefix.pin(entry);
            self.slots[slot].chain.push(entry);
        }
        Ok(())
    }

    /// Closes a sequence, whose text begins with `tokens`, and gives the prefix cache all its blocks.
    pub(crate) fn retire(&mut self, id: SequenceId, tokens: &[u32]) -> Result<()> {
        self.keep(id, tokens)?;
        let Slot { len, chain, .. } = &self.slots[id.slot as usize];
        let at = chain.len();
        let rest = &tokens[(at * KV_BLOCK).min(tokens.len())..tokens.len().min(*len)];
        if !rest.is_empty() && self.reuses_prefixes() {
            let entry = self.keep_block(id.slot as usize, at, rest);
            self.prefix.prune(entry);
        }
        self.close(id)
    }

    /// Gives the prefix cache a slot's block with these tokens. Returns the entry.
    fn keep_block(&mut self, slot: usize, at: usize, tokens: &[u32]) -> u64 {
        let parent = parent_behind(self.slots[slot].tenant, &self.slots[slot].chain);
        let known = self.prefix.find(parent, tokens);
        let entry = known.unwrap_or_else(|| self.prefix.insert(parent, tokens, self.groups.len()));
        for (index, group) in self.groups.iter_mut().enumerate() {
            match (self.prefix.block(entry, index), group.block(slot, at)) {
                // Another sequence has computed the same.
                (Some(block), Some(_)) => group.replace(slot, at, block),
                (None, Some(own)) if group.blocks.keep(own, entry, tokens.len()) => {
                    self.prefix.set_block(entry, index, Some(own));
                }
                _ => {}
            }
        }
        entry
    }

    /// Removes the text of a sequence from the prefix cache.
    pub(crate) fn forget(&mut self, id: SequenceId) -> Result<()> {
        let slot = self.slot(id)?;
        for entry in std::mem::take(&mut self.slots[slot].chain) {
            for (group, block) in self.prefix.remove(entry) {
                self.groups[group].blocks.forget(block);
            }
        }
        Ok(())
    }

    /// A group has taken the block of an entry. In a group without a window the entry is then of no use.
    pub(super) fn evict(&mut self, group: usize, entry: u64) {
        self.prefix.set_block(entry, group, None);
        if self.groups[group].kind.window.is_some() {
            self.prefix.prune(entry);
            return;
        }
        for (group, block) in self.prefix.remove(entry) {
            self.groups[group].blocks.forget(block);
        }
    }
}
