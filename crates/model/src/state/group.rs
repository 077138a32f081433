//! Layers whose state has one form, and which blocks of their caches each sequence has.
//!
//! A group without a window keeps all tokens of a sequence. The capacity of a group with a window is the window and one
//! batch: when a sequence needs more blocks, its oldest ones are freed first. Until then they stay, so that the
//! sequence can be truncated while all that its next token sees is kept.
//!
//! # Layers with a window are a group of their own
//!
//! The group has blocks for the window and one batch, independent of the context. If the group needs new blocks, it
//! frees the oldest. So a sequence can be truncated by a few tokens or to nothing. `Runner::shortest` returns the
//! limit, and `truncate` refuses other lengths.

use std::collections::{HashSet, VecDeque};

use gristmill_kernels::Backend;
use gristmill_kernels::kv::{BatchRuns, KV_BLOCK, Placement};

use super::blocks::Blocks;
use super::uploaded::{Uploaded, UploadedTable};
use super::{PlacementKind, StateKind};
use crate::error::{Error, Result};
use crate::limits::Limits;

/// Blocks of a sequence of `tokens` tokens.
pub(super) fn blocks_for(tokens: usize) -> usize {
    tokens.div_ceil(KV_BLOCK)
}

/// The blocks of a sequence from the `first`-th on; earlier ones have been freed.
#[derive(Clone, Debug, Default)]
pub(super) struct HeldBlocks {
    pub(super) first: usize,
    pub(super) blocks: VecDeque<u32>,
}

impl HeldBlocks {
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
    pub(super) blocks: Blocks,
    /// The blocks of each slot.
    held: Vec<HeldBlocks>,
    /// For the tokens of the current batch.
    pub(super) placed: Placed,
    /// For the rows of prediction heads, if they are in the group.
    pub(super) heads: Option<Placed>,
}

/// A placement; its table mirrors the blocks of each slot.
#[derive(Debug)]
pub(super) struct Placed {
    pub(super) placement: Placement,
    /// Slots and positions of the placement.
    uploaded: [Uploaded; 2],
    table: UploadedTable,
}

impl Placed {
    /// For batches of `tokens` tokens, and a table with a row of `columns` blocks for each of `sequences` slots.
    fn new(backend: &Backend, tokens: usize, [sequences, columns]: [usize; 2]) -> Result<Self> {
        let placement = Placement {
            slots: backend.alloc::<u32>(tokens, "slots")?,
            positions: backend.alloc::<u32>(tokens, "positions")?,
            table: backend.alloc::<u32>(columns.saturating_mul(sequences), "the block table")?,
            table_rows: sequences,
            table_cols: columns,
            context_columns: columns,
            runs: BatchRuns::Any,
        };
        Ok(Self { placement, uploaded: Default::default(), table: UploadedTable::new(sequences) })
    }

    fn suppose(&mut self, step: PlacementKind) {
        self.placement.runs = step.runs;
        self.placement.context_columns = step.context_columns;
    }

    fn bring(
        &mut self,
        backend: &Backend,
        slots: &[u32],
        positions: &[u32],
        held: &[HeldBlocks],
        step: PlacementKind,
    ) -> Result<()> {
        self.suppose(step);
        let Self { placement, uploaded: [of_slots, of_positions], table } = self;
        of_slots.bring(backend, slots, &mut placement.slots)?;
        of_positions.bring(backend, positions, &mut placement.positions)?;
        let columns = placement.table_cols;
        for (row, HeldBlocks { first, blocks }) in held.iter().enumerate() {
            table.bring(backend, row, (*first, blocks), &mut placement.table, columns)?;
        }
        Ok(())
    }
}

impl Group {
    /// For sequences of up to `context` tokens.
    pub(super) fn new(backend: &Backend, kind: StateKind, context: usize, limits: &Limits) -> Result<Self> {
        let Limits { sequences, batch_tokens: tokens, .. } = *limits;
        let (columns, capacity) = (blocks_for(context), kind.blocks(context, tokens));
        let entries = columns.checked_mul(sequences).and_then(|n| u32::try_from(n).ok()).filter(|&n| n < u32::MAX);
        let (Some(_), Ok(blocks)) = (entries, u32::try_from(kind.all_blocks(limits, context))) else {
            let rule = format!("{sequences} sequences of this length need more cache blocks than can be counted");
            return Err(Error::Limit { what: "the context length", found: context, rule });
        };
        Ok(Self {
            kind,
            capacity,
            blocks: Blocks::new(blocks),
            held: vec![HeldBlocks::default(); sequences],
            placed: Placed::new(backend, tokens, [sequences, columns])?,
            heads: None,
        })
    }

    /// Prepares the group for the cache of a prediction head.
    pub(super) fn add_head(&mut self, backend: &Backend, limits: &Limits) -> Result<()> {
        let table = [self.placed.placement.table_rows, self.placed.placement.table_cols];
        self.heads = Some(Placed::new(backend, limits.batch_tokens, table)?);
        Ok(())
    }

    /// All blocks.
    pub(super) fn block_count(&self) -> usize {
        self.blocks.count()
    }

    /// The blocks of slots, each counted once.
    pub(super) fn distinct_blocks(&self, slots: &[usize]) -> usize {
        slots.iter().flat_map(|&slot| &self.held[slot].blocks).collect::<HashSet<_>>().len()
    }

    /// Fails unless a slot can grow from `have` to `len` tokens.
    pub(super) fn check_growth(&self, slot: usize, have: usize, len: usize) -> Result<()> {
        let (needed, freed) = self.growth(slot, have, len);
        let free = self.blocks.available() + freed;
        if needed > free { Err(Error::OutOfBlocks { needed, free }) } else { Ok(()) }
    }

    /// Whether slots can grow one after another, each from one number of tokens to another.
    pub(super) fn fits(&self, growth: &[(usize, usize, usize)]) -> bool {
        let mut free = self.blocks.available();
        growth.iter().all(|&(slot, have, len)| {
            let (needed, freed) = self.growth(slot, have, len);
            let left = (free + freed).checked_sub(needed);
            free = left.unwrap_or(0);
            left.is_some()
        })
    }

    /// The blocks that a slot needs to grow from `have` to `len` tokens, in one batch or several, and those that it
    /// frees.
    fn growth(&self, slot: usize, have: usize, len: usize) -> (usize, usize) {
        // The prefix cache's block can be taken.
        let copied = self.shared_last_block(slot, have).filter(|&block| !self.blocks.has_one_sequence(block));
        let (held, surplus) = (&self.held[slot], self.surplus(slot, len));
        // Several batches free blocks in between.
        let most = self.capacity.saturating_sub(held.blocks.len() - surplus);
        let added = blocks_for(len).saturating_sub(held.end()).min(most);
        let freed = held.blocks.iter().take(surplus).filter(|&&block| self.blocks.has_one_sequence(block)).count();
        (added + usize::from(copied.is_some()), freed)
    }

    /// Grows a slot from `have` to `len` tokens. Returns a block that must be copied into another first; the entries of
    /// the prefix cache that lose their block in this group are pushed to `evicted`.
    pub(super) fn grow(
        &mut self,
        slot: usize,
        have: usize,
        len: usize,
        evicted: &mut Vec<u64>,
    ) -> Result<Option<(u32, u32)>> {
        for _ in 0..self.surplus(slot, len) {
            if let Some(block) = self.held[slot].blocks.pop_front() {
                self.held[slot].first += 1;
                self.blocks.release(block);
            }
        }
        let copy = self.own_last_block(slot, have, evicted)?;
        while self.held[slot].end() < blocks_for(len) {
            let block = self.blocks.take(evicted)?;
            self.held[slot].blocks.push_back(block);
        }
        Ok(copy)
    }

    /// Blocks to free before a slot grows to `len` tokens. They are outside the window of every token of this batch,
    /// because the capacity is the longest batch plus the window.
    fn surplus(&self, slot: usize, len: usize) -> usize {
        let held = &self.held[slot];
        blocks_for(len).saturating_sub(held.first).saturating_sub(self.capacity).min(held.blocks.len())
    }

    /// The last block, if it is partly filled and others have it too.
    fn shared_last_block(&self, slot: usize, have: usize) -> Option<u32> {
        let last = self.held[slot].blocks.back().copied()?;
        (!have.is_multiple_of(KV_BLOCK) && self.blocks.is_shared(last)).then_some(last)
    }

    /// Replaces the last block by a new one if others have it too; returns what to copy.
    fn own_last_block(&mut self, slot: usize, have: usize, evicted: &mut Vec<u64>) -> Result<Option<(u32, u32)>> {
        let Some(shared) = self.shared_last_block(slot, have) else { return Ok(None) };
        if self.blocks.is_better_taken(shared, have % KV_BLOCK) {
            evicted.extend(self.blocks.clear_entry(shared));
            return Ok(None);
        }
        let own = self.blocks.take(evicted)?;
        self.blocks.release(shared);
        if let Some(last) = self.held[slot].blocks.back_mut() {
            *last = own;
        }
        Ok(Some((shared, own)))
    }

    /// The least length above 0 to which a slot can be truncated: the next token's window then starts with the first
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

    /// The first block that the token behind `len` tokens sees, of those that they are in.
    pub(super) fn first_seen(&self, len: usize) -> usize {
        let window = self.kind.window.unwrap_or(usize::MAX);
        ((len + 1).saturating_sub(window) / KV_BLOCK).min(blocks_for(len))
    }

    /// Gives an empty slot these blocks.
    pub(super) fn adopt(&mut self, slot: usize, held: HeldBlocks) {
        held.blocks.iter().for_each(|&block| self.blocks.share(block));
        self.held[slot] = held;
    }

    /// A slot's block, unless it has been freed.
    pub(super) fn block(&self, slot: usize, index: usize) -> Option<u32> {
        let held = &self.held[slot];
        held.blocks.get(index.checked_sub(held.first)?).copied()
    }

    /// Replaces a slot's block by another with the same content.
    pub(super) fn replace(&mut self, slot: usize, index: usize, block: u32) {
        let held = &mut self.held[slot];
        if let Some(own) = index.checked_sub(held.first).and_then(|at| held.blocks.get_mut(at)) {
            self.blocks.share(block);
            self.blocks.release(std::mem::replace(own, block));
        }
    }

    /// Gives an empty slot the blocks of another.
    pub(super) fn share(&mut self, from: usize, to: usize) {
        self.adopt(to, self.held[from].clone());
    }

    /// See [`State::suppose`](super::State::suppose).
    pub(super) fn suppose(&mut self, step: PlacementKind) {
        [Some(&mut self.placed), self.heads.as_mut()].into_iter().flatten().for_each(|it| it.suppose(step));
    }

    /// Uploads slots and positions of a batch, and the block table. `head_slots` are the slots for prediction heads.
    pub(super) fn place(
        &mut self,
        backend: &Backend,
        [slots, head_slots]: [&[u32]; 2],
        positions: &[u32],
        step: PlacementKind,
    ) -> Result<()> {
        self.placed.bring(backend, slots, positions, &self.held, step)?;
        let heads = self.heads.as_mut();
        heads.map_or(Ok(()), |heads| heads.bring(backend, head_slots, positions, &self.held, step))
    }

    /// Uploads slots and positions for prediction heads alone.
    pub(super) fn place_heads(
        &mut self,
        backend: &Backend,
        slots: &[u32],
        positions: &[u32],
        step: PlacementKind,
    ) -> Result<()> {
        let heads = self.heads.as_mut();
        heads.map_or(Ok(()), |heads| heads.bring(backend, slots, positions, &self.held, step))
    }
}

#[cfg(test)]
impl Group {
    /// Checks the invariants; `lens` are the tokens of each slot.
    pub(super) fn check(&self, lens: &[usize]) {
        let mut sequences = vec![0; self.block_count()];
        for (held, &len) in self.held.iter().zip(lens) {
            assert!(held.blocks.len() <= self.capacity, "{} blocks of {}", held.blocks.len(), self.capacity);
            assert_eq!(held.end(), blocks_for(len).max(held.first));
            let seen = self.kind.window.map_or(0, |window| (len + 1).saturating_sub(window)) / KV_BLOCK;
            assert!(held.first <= seen, "block {seen} is seen, {} is the first", held.first);
            held.blocks.iter().for_each(|&block| sequences[block as usize] += 1);
        }
        self.blocks.check(&sequences);
    }

    pub(super) fn held_blocks(&self, slot: usize) -> usize {
        self.held[slot].blocks.len()
    }
}
