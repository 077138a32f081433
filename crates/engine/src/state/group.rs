//! Layers whose state has one form, and which blocks of their caches each sequence has.
//!
//! A group without a window keeps all tokens of a sequence. The capacity of a group with a window is the window and one
//! batch: when a sequence needs more blocks, its oldest ones are freed first. Until then they stay, so that the
//! sequence can be shortened while all that its next token sees is kept.

use std::collections::VecDeque;

use gristmill_kernels::Backend;
use gristmill_kernels::kv::{KV_BLOCK, Placement};

use super::{StateKind, Step};
use crate::error::{Error, Result};

/// Blocks of a sequence of `tokens` tokens.
pub(super) fn blocks_for(tokens: usize) -> usize {
    tokens.div_ceil(KV_BLOCK)
}

/// Numbers of blocks, each with the number of sequences that have it.
#[derive(Debug)]
struct Blocks {
    owners: Vec<u32>,
    free: Vec<u32>,
}

impl Blocks {
    fn new(count: u32) -> Self {
        Self { owners: vec![0; count as usize], free: (0..count).rev().collect() }
    }

    fn take(&mut self) -> Result<u32> {
        let block = self.free.pop().ok_or(Error::OutOfBlocks { needed: 1, free: 0 })?;
        self.owners[block as usize] = 1;
        Ok(block)
    }

    fn share(&mut self, block: u32) {
        self.owners[block as usize] += 1;
    }

    fn is_shared(&self, block: u32) -> bool {
        self.owners[block as usize] > 1
    }

    fn release(&mut self, block: u32) {
        let owners = &mut self.owners[block as usize];
        *owners -= 1;
        if *owners == 0 {
            self.free.push(block);
        }
    }
}

/// The blocks of a sequence from the `first`-th on; earlier ones have been freed.
#[derive(Clone, Debug, Default)]
struct Held {
    first: usize,
    blocks: VecDeque<u32>,
}

impl Held {
    fn end(&self) -> usize {
        self.first + self.blocks.len()
    }
}

/// Layers with the same kind of state.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) kind: StateKind,
    /// Blocks that one sequence may have.
    capacity: usize,
    blocks: Blocks,
    /// The blocks of each slot.
    held: Vec<Held>,
    /// For the tokens of the current batch; its table mirrors `held`.
    pub(super) placement: Placement,
}

impl Group {
    /// For `sequences` sequences of up to `context` tokens, in batches of at most `tokens` tokens.
    pub(super) fn new(
        backend: &Backend,
        kind: StateKind,
        context: usize,
        sequences: usize,
        tokens: usize,
    ) -> Result<Self> {
        let (columns, capacity) = (blocks_for(context), kind.blocks(context, tokens));
        let count = |columns: usize| columns.checked_mul(sequences).and_then(|n| u32::try_from(n).ok());
        let (Some(entries), Some(blocks)) = (count(columns).filter(|&n| n < u32::MAX), count(capacity)) else {
            let rule = format!("{sequences} sequences of this length need more cache blocks than can be counted");
            return Err(Error::Limit { what: "the context length", found: context, rule });
        };
        Ok(Self {
            kind,
            capacity,
            blocks: Blocks::new(blocks),
            held: vec![Held::default(); sequences],
            placement: Placement {
                slots: backend.alloc::<u32>(tokens, "slots")?,
                positions: backend.alloc::<u32>(tokens, "positions")?,
                table: backend.alloc::<u32>(entries as usize, "the block table")?,
                table_rows: sequences,
                table_cols: columns,
                context_columns: columns,
                one_token_per_sequence: false,
            },
        })
    }

    /// Blocks of all sequences.
    pub(super) fn block_count(&self) -> usize {
        self.blocks.owners.len()
    }

    /// Fails unless a slot can grow from `have` to `len` tokens.
    pub(super) fn check_growth(&self, slot: usize, have: usize, len: usize) -> Result<()> {
        let copy = usize::from(self.shared_last_block(slot, have).is_some());
        let needed = blocks_for(len) - self.held[slot].end() + copy;
        let given_back = self.held[slot].blocks.iter().take(self.surplus(slot, len));
        let free = self.blocks.free.len() + given_back.filter(|&&block| !self.blocks.is_shared(block)).count();
        if needed > free { Err(Error::OutOfBlocks { needed, free }) } else { Ok(()) }
    }

    /// Grows a slot from `have` to `len` tokens. Returns a block that must be copied into another first.
    pub(super) fn grow(&mut self, slot: usize, have: usize, len: usize) -> Result<Option<(u32, u32)>> {
        for _ in 0..self.surplus(slot, len) {
            if let Some(block) = self.held[slot].blocks.pop_front() {
                self.held[slot].first += 1;
                self.blocks.release(block);
            }
        }
        let copy = self.own_last_block(slot, have)?;
        while self.held[slot].end() < blocks_for(len) {
            let block = self.blocks.take()?;
            self.held[slot].blocks.push_back(block);
        }
        Ok(copy)
    }

    /// Blocks to free before a slot grows to `len` tokens. They are behind the window of every token of this batch,
    /// since the capacity is that of the longest batch and the window before it.
    fn surplus(&self, slot: usize, len: usize) -> usize {
        let held = &self.held[slot];
        (blocks_for(len) - held.first).saturating_sub(self.capacity).min(held.blocks.len())
    }

    /// The last block, if it is partly filled and has other owners.
    fn shared_last_block(&self, slot: usize, have: usize) -> Option<u32> {
        let last = self.held[slot].blocks.back().copied()?;
        (!have.is_multiple_of(KV_BLOCK) && self.blocks.is_shared(last)).then_some(last)
    }

    /// Replaces the last block by a new one if writing into it would change another sequence; returns what to copy.
    fn own_last_block(&mut self, slot: usize, have: usize) -> Result<Option<(u32, u32)>> {
        let Some(shared) = self.shared_last_block(slot, have) else { return Ok(None) };
        let own = self.blocks.take()?;
        self.blocks.release(shared);
        if let Some(last) = self.held[slot].blocks.back_mut() {
            *last = own;
        }
        Ok(Some((shared, own)))
    }

    /// The least length above 0 to which a slot can be shortened: the next token's window then begins with the first
    /// block that is kept.
    pub(super) fn shortest(&self, slot: usize) -> usize {
        match (self.held[slot].first, self.kind.window) {
            (0, _) | (_, None) => 0,
            (first, Some(window)) => first * KV_BLOCK + window - 1,
        }
    }

    /// Shortens a slot to `len` tokens: 0, or at least [`Self::shortest`].
    pub(super) fn truncate(&mut self, slot: usize, len: usize) {
        let held = &mut self.held[slot];
        while held.end() > blocks_for(len)
            && let Some(block) = held.blocks.pop_back()
        {
            self.blocks.release(block);
        }
        if len == 0 {
            held.first = 0;
        }
    }

    /// Gives an empty slot the blocks of another.
    pub(super) fn share(&mut self, from: usize, to: usize) {
        let held = self.held[from].clone();
        held.blocks.iter().for_each(|&block| self.blocks.share(block));
        self.held[to] = held;
    }

    /// Uploads slots and positions of a batch, and the block table.
    pub(super) fn place(&mut self, backend: &Backend, slots: &[u32], positions: &[u32], step: Step) -> Result<()> {
        self.placement.one_token_per_sequence = step.one_token_per_sequence;
        self.placement.context_columns = step.context_columns;
        let columns = self.placement.table_cols;
        // Entries of freed blocks are behind every window and never read.
        let mut table = vec![0; columns * self.held.len()];
        for (row, held) in table.chunks_exact_mut(columns.max(1)).zip(&self.held) {
            row[held.first..].iter_mut().zip(&held.blocks).for_each(|(entry, block)| *entry = *block);
        }
        backend.upload(slots, &mut self.placement.slots)?;
        backend.upload(positions, &mut self.placement.positions)?;
        Ok(backend.upload(&table, &mut self.placement.table)?)
    }
}

#[cfg(test)]
impl Group {
    /// Checks the invariants; `lens` are the tokens of each slot.
    pub(super) fn check(&self, lens: &[usize]) {
        let mut owners = vec![0; self.block_count()];
        for (held, &len) in self.held.iter().zip(lens) {
            assert!(held.blocks.len() <= self.capacity, "{} blocks of {}", held.blocks.len(), self.capacity);
            assert_eq!(held.end(), blocks_for(len).max(held.first));
            let seen = self.kind.window.map_or(0, |window| (len + 1).saturating_sub(window)) / KV_BLOCK;
            assert!(held.first <= seen, "block {seen} is seen, {} is the first", held.first);
            held.blocks.iter().for_each(|&block| owners[block as usize] += 1);
        }
        assert_eq!(self.blocks.owners, owners);
        let unowned = owners.iter().filter(|&&n| n == 0).count();
        assert_eq!(self.blocks.free.len(), unowned);
    }

    pub(super) fn held_blocks(&self, slot: usize) -> usize {
        self.held[slot].blocks.len()
    }
}
