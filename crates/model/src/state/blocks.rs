//! Numbers of blocks, or of slots for states of fixed size, and who has each: sequences, the prefix cache, or nobody.

use std::collections::BTreeMap;

use crate::error::{Error, Result};

/// One block.
#[derive(Clone, Copy, Debug, Default)]
struct Block {
    /// Sequences that have it.
    sequences: u32,
    /// The entry of the prefix cache that has it.
    entry: Option<u64>,
    /// Tokens of that entry, if a sequence that continues after them may remove the block from the entry.
    tokens: Option<usize>,
    /// When the last sequence gave it back, if only the cache has it.
    idle_since: u64,
}

/// The blocks of a group. A block without an owner is free. A block that only the prefix cache has is idle. If no block
/// is free, the block that has been idle for the longest time is evicted.
#[derive(Debug)]
pub(super) struct Blocks {
    blocks: Vec<Block>,
    free: Vec<u32>,
    idle: BTreeMap<u64, u32>,
    /// Counts events, so that `idle_since` differ.
    clock: u64,
}

impl Blocks {
    pub(super) fn new(count: u32) -> Self {
        let blocks = vec![Block::default(); count as usize];
        Self { blocks, free: (0..count).rev().collect(), idle: BTreeMap::new(), clock: 0 }
    }

    /// All blocks.
    pub(super) fn count(&self) -> usize {
        self.blocks.len()
    }

    /// Blocks that a sequence can take.
    pub(super) fn available(&self) -> usize {
        self.free.len() + self.idle.len()
    }

    /// Blocks that only the prefix cache has.
    pub(super) fn idle(&self) -> usize {
        self.idle.len()
    }

    /// Whether no other sequence has the block.
    pub(super) fn has_one_sequence(&self, block: u32) -> bool {
        self.blocks[block as usize].sequences == 1
    }

    /// Whether the prefix cache or another sequence has the block too.
    pub(super) fn is_shared(&self, block: u32) -> bool {
        let Block { sequences, entry, .. } = self.blocks[block as usize];
        sequences > 1 || entry.is_some()
    }

    /// A block for one sequence. If it was idle, the prefix cache's entry that had it is pushed to `evicted`.
    pub(super) fn take(&mut self, evicted: &mut Vec<u64>) -> Result<u32> {
        let block = match self.free.pop() {
            Some(block) => block,
            None => {
                let (_, block) = self.idle.pop_first().ok_or(Error::OutOfBlocks { needed: 1, free: 0 })?;
                evicted.extend(self.blocks[block as usize].entry.take());
                block
            }
        };
        self.blocks[block as usize].sequences = 1;
        Ok(block)
    }

    /// Shares the block with one more sequence.
    pub(super) fn share(&mut self, block: u32) {
        let state = &mut self.blocks[block as usize];
        state.sequences += 1;
        self.idle.remove(&state.idle_since);
    }

    /// Takes the block from a sequence.
    pub(super) fn release(&mut self, block: u32) {
        let state = &mut self.blocks[block as usize];
        state.sequences -= 1;
        if state.sequences > 0 {
            return;
        }
        match state.entry {
            None => self.free.push(block),
            Some(_) => {
                self.clock += 1;
                state.idle_since = self.clock;
                self.idle.insert(self.clock, block);
            }
        }
    }

    /// Moves a block of a sequence to an entry of the prefix cache, unless another entry has it: then the sequence
    /// started with a part of that entry's tokens and has written nothing after them. See [`Block::tokens`].
    pub(super) fn keep(&mut self, block: u32, entry: u64, tokens: Option<usize>) -> bool {
        let state = &mut self.blocks[block as usize];
        let free = state.entry.is_none();
        if free {
            (state.entry, state.tokens) = (Some(entry), tokens);
        }
        free
    }

    /// Whether a sequence that writes after `tokens` tokens of a block should remove it from the prefix cache instead
    /// of copying it: no cached token is overwritten, or there is no block for a copy.
    pub(super) fn is_better_taken(&self, block: u32, tokens: usize) -> bool {
        let state = self.blocks[block as usize];
        state.sequences == 1 && (state.tokens == Some(tokens) || self.available() == 0)
    }

    /// Removes the block from its entry. Returns the entry.
    pub(super) fn clear_entry(&mut self, block: u32) -> Option<u64> {
        let state = &mut self.blocks[block as usize];
        let entry = state.entry.take()?;
        if state.sequences == 0 {
            self.idle.remove(&state.idle_since);
            self.free.push(block);
        }
        Some(entry)
    }
}

#[cfg(test)]
impl Blocks {
    /// Checks the counts; `sequences` are the sequences of each block.
    pub(super) fn check(&self, sequences: &[u32]) {
        let counted: Vec<u32> = self.blocks.iter().map(|block| block.sequences).collect();
        assert_eq!(counted, sequences);
        let of = |idle: bool| {
            self.blocks.iter().filter(|block| block.sequences == 0 && block.entry.is_some() == idle).count()
        };
        assert_eq!((self.free.len(), self.idle.len()), (of(false), of(true)));
    }

    /// The block's entry.
    pub(super) fn entry(&self, block: u32) -> Option<u64> {
        self.blocks[block as usize].entry
    }
}
