//! Which blocks hold the starts of texts, so that a sequence with such a start need not compute it again.
//!
//! An entry is a block of tokens; its parent is the preceding block. Only the last block of a sequence has fewer than
//! [`KV_BLOCK`] tokens. A lookup compares parent and token ids, so a hash collision cannot match. The parent of the
//! first entry is the tenant, so tenants share no entries.
//!
//! An entry has a block of each group that still has it: groups with a window may have freed theirs. Blocks are evicted
//! in the order in which sequences released them ([`Blocks`](super::blocks::Blocks)), and a sequence releases its last
//! block first. So in a group without a window, a parent is evicted after its children.
//!
//! # The prefix cache keeps the blocks of earlier sequences
//!
//! Entries form a chain, one entry for each block. A lookup compares parent, token ids and tenant, so a hash collision
//! cannot match. A new sequence starts with the blocks of its longest cached prefix. If a cached block differs from the
//! prompt in its middle, the sequence copies the common tokens. If no other block is free, a block that only the cache
//! has is evicted, the last block of a chain first. So the cache takes no memory from sequences. A prompt waits while a
//! running request computes blocks of its prefix. *A block belongs to at most one entry, and sequences with the same
//! prefix share one cached block.*

use std::cmp::Reverse;
use std::collections::HashMap;

use gristmill_kernels::kv::KV_BLOCK;

use super::events::{KvEvent, KvListener};

/// The place of a block: what precedes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Parent {
    /// Nothing: it is the first of a text of this tenant.
    Tenant(u64),
    Entry(u64),
}

/// The parent of what follows a chain of entries.
pub(super) fn parent_behind(tenant: u64, chain: &[u64]) -> Parent {
    chain.last().map_or(Parent::Tenant(tenant), |&entry| Parent::Entry(entry))
}

/// A block of tokens behind its parent.
#[derive(Debug)]
struct Entry {
    parent: Parent,
    /// At most [`KV_BLOCK`].
    tokens: Box<[u32]>,
    /// The block in each group, if it is kept. In a model with states of fixed size, the last element is the slot with
    /// the state after the tokens.
    blocks: Vec<Option<u32>>,
    /// Whether the blocks have the rows of prediction heads, if they are loaded.
    predicted: bool,
    /// Sequences whose text starts with it.
    sequences: usize,
}

/// All entries.
#[derive(Debug, Default)]
pub(super) struct PrefixCache {
    entries: HashMap<u64, Entry>,
    /// The entries behind each parent, by their tokens.
    children: HashMap<Parent, HashMap<Box<[u32]>, u64>>,
    /// The number of the next entry; none is used again.
    next: u64,
    /// Takes each whole block that is inserted or removed.
    listener: Option<KvListener>,
}

impl PrefixCache {
    /// The listener gets each change from now on.
    pub(super) fn listen(&mut self, listener: KvListener) {
        self.listener = Some(listener);
    }

    /// The entry of a block's tokens behind `parent`.
    pub(super) fn find(&self, parent: Parent, tokens: &[u32]) -> Option<u64> {
        self.children.get(&parent)?.get(tokens).copied()
    }

    /// The entries of whole blocks of a text's beginning.
    pub(super) fn chain(&self, tenant: u64, tokens: &[u32]) -> Vec<u64> {
        let mut chain = Vec::new();
        for block in tokens.chunks_exact(KV_BLOCK) {
            match self.find(parent_behind(tenant, &chain), block) {
                Some(entry) => chain.push(entry),
                None => break,
            }
        }
        chain
    }

    /// The children of `parent` that have a common prefix with `tokens`, each with the length of this prefix, the
    /// longest first.
    pub(super) fn alike(&self, parent: Parent, tokens: &[u32]) -> Vec<(u64, usize)> {
        let common = |other: &[u32]| tokens.iter().zip(other).take_while(|(a, b)| a == b).count();
        let children = self.children.get(&parent).into_iter().flatten();
        let mut alike: Vec<_> = children.map(|(other, &entry)| (entry, common(other))).collect();
        alike.retain(|&(_, common)| common > 0);
        alike.sort_unstable_by_key(|&(entry, common)| Reverse((common, entry)));
        alike
    }

    /// Makes an entry that has no blocks yet.
    pub(super) fn insert(&mut self, parent: Parent, tokens: &[u32], groups: usize, predicted: bool) -> u64 {
        let entry = self.next;
        self.next += 1;
        self.children.entry(parent).or_default().insert(tokens.into(), entry);
        if let Some(listener) = self.listener.as_mut().filter(|_| tokens.len() == KV_BLOCK) {
            listener.take(KvEvent::Stored { block: entry, parent: parent.into(), tokens: tokens.into() });
        }
        let tokens = tokens.into();
        let blocks = vec![None; groups];
        let sequences = 0;
        self.entries.insert(entry, Entry { parent, tokens, blocks, predicted, sequences });
        entry
    }

    /// Whether an entry's blocks have the rows of prediction heads.
    pub(super) fn is_predicted(&self, entry: u64) -> bool {
        self.entries.get(&entry).is_some_and(|entry| entry.predicted)
    }

    /// An entry gets a block that lacks rows of prediction heads.
    pub(super) fn set_not_predicted(&mut self, entry: u64) {
        if let Some(entry) = self.entries.get_mut(&entry) {
            entry.predicted = false;
        }
    }

    /// Tokens of an entry.
    pub(super) fn tokens(&self, entry: u64) -> usize {
        self.entries.get(&entry).map_or(0, |entry| entry.tokens.len())
    }

    /// An entry's block in a group.
    pub(super) fn block(&self, entry: u64, group: usize) -> Option<u32> {
        self.entries.get(&entry)?.blocks[group]
    }

    /// Sets an entry's block in a group.
    pub(super) fn set_block(&mut self, entry: u64, group: usize, block: Option<u32>) {
        if let Some(entry) = self.entries.get_mut(&entry) {
            entry.blocks[group] = block;
        }
    }

    /// Counts a sequence whose text starts with the entry.
    pub(super) fn pin(&mut self, entry: u64) {
        if let Some(entry) = self.entries.get_mut(&entry) {
            entry.sequences += 1;
        }
    }

    /// The reverse of [`Self::pin`].
    pub(super) fn unpin(&mut self, entry: u64) {
        if let Some(found) = self.entries.get_mut(&entry) {
            found.sequences -= 1;
            self.prune(entry);
        }
    }

    /// Removes an entry, and returns its blocks with their groups. Entries behind it are not found any more.
    pub(super) fn remove(&mut self, entry: u64) -> Vec<(usize, u32)> {
        let Some(Entry { parent, tokens, blocks, .. }) = self.entries.remove(&entry) else { return Vec::new() };
        if let Some(listener) = self.listener.as_mut().filter(|_| tokens.len() == KV_BLOCK) {
            listener.take(KvEvent::Removed { block: entry });
        }
        if let Some(children) = self.children.get_mut(&parent) {
            children.remove(&tokens);
            if children.is_empty() {
                self.children.remove(&parent);
            }
        }
        blocks.into_iter().enumerate().filter_map(|(group, block)| Some((group, block?))).collect()
    }

    /// All entries of a tenant that no sequence uses.
    pub(super) fn unused(&self, tenant: u64) -> Vec<u64> {
        let mut parents = vec![Parent::Tenant(tenant)];
        let mut unused = Vec::new();
        while let Some(parent) = parents.pop() {
            for &entry in self.children.get(&parent).into_iter().flat_map(HashMap::values) {
                parents.push(Parent::Entry(entry));
                if self.entries.get(&entry).is_some_and(|entry| entry.sequences == 0) {
                    unused.push(entry);
                }
            }
        }
        unused
    }

    /// Removes an entry without blocks, sequences and children, and then such parents.
    pub(super) fn prune(&mut self, mut entry: u64) {
        while let Some(Entry { parent, blocks, sequences: 0, .. }) = self.entries.get(&entry)
            && blocks.iter().all(Option::is_none)
            && !self.children.contains_key(&Parent::Entry(entry))
        {
            let parent = *parent;
            self.remove(entry);
            let Parent::Entry(next) = parent else { return };
            entry = next;
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }
}
