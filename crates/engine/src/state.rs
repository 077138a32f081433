//! What a model remembers of its sequences: for now the paged KV cache.
//!
//! Layers whose state has one form are a *group*. A group has an allocator of blocks and a table that says which blocks
//! a sequence has; block `b` is a block in the cache of each of its layers. The backend owns the bytes, this module only
//! the numbers of blocks. A block may belong to several sequences ([`State::fork`]): before one of them writes into it,
//! it gets a copy of its own.

use gristmill_kernels::kv::{KV_BLOCK, KvCache, KvFormat, KvSpec, Placement};
use gristmill_kernels::ops::Backend;

use crate::error::{Error, Result};
use crate::model::spec::{AttentionSpec, ModelSpec};

/// The form of a layer's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub(crate) enum StateKind {
    /// Keys and values in blocks of [`KV_BLOCK`] tokens.
    Paged {
        /// KV heads.
        heads: usize,
        /// Elements of a key.
        key_width: usize,
        /// Elements of a value.
        value_width: usize,
        /// Only this many last positions are ever read.
        window: Option<usize>,
    },
}

impl StateKind {
    fn of(attention: &AttentionSpec) -> Self {
        let AttentionSpec { kv_heads: heads, key_width, value_width, window, .. } = *attention;
        StateKind::Paged { heads, key_width, value_width, window }
    }

    fn kv_spec(self, format: KvFormat) -> KvSpec {
        let StateKind::Paged { heads, key_width, value_width, .. } = self;
        KvSpec { heads, key_width, value_width, format }
    }
}

/// An open sequence of a [`State`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SequenceId {
    slot: u32,
    /// Tells this sequence from earlier ones in the same slot.
    generation: u64,
}

/// A layer's state during a forward pass.
pub(crate) struct LayerState<'a> {
    pub(crate) cache: &'a mut KvCache,
    pub(crate) place: &'a Placement,
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

/// Layers with the same kind of state.
#[derive(Debug)]
struct Group {
    kind: StateKind,
    blocks: Blocks,
    /// The blocks of each slot.
    owned: Vec<Vec<u32>>,
    /// For the tokens of the current batch; its table mirrors `owned`.
    place: Placement,
}

/// A sequence's slot.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    open: bool,
    generation: u64,
    len: usize,
}

/// The state of up to a number of sequences.
#[derive(Debug)]
pub(crate) struct State {
    context: usize,
    slots: Vec<Slot>,
    groups: Vec<Group>,
    /// Each layer's group, and its cache.
    layers: Vec<(usize, KvCache)>,
}

/// Blocks that a sequence of `context` tokens has.
fn blocks_for(tokens: usize) -> usize {
    tokens.div_ceil(KV_BLOCK)
}

impl State {
    /// Bytes for `sequences` sequences of `context` tokens.
    pub(crate) fn bytes(spec: &ModelSpec, format: KvFormat, context: usize, sequences: usize) -> u64 {
        let blocks = (blocks_for(context) as u128) * (sequences as u128);
        let layers = spec.layers.iter().map(|layer| StateKind::of(&layer.attention).kv_spec(format));
        let block: u128 = layers.map(|spec| spec.block_bytes() as u128).sum();
        u64::try_from(block * blocks).unwrap_or(u64::MAX)
    }

    /// Room for `sequences` sequences of `context` tokens each, in batches of at most `tokens` tokens. The caller has seen
    /// that [`Self::bytes`] is sensible.
    pub(crate) fn new(
        backend: &dyn Backend,
        spec: &ModelSpec,
        format: KvFormat,
        context: usize,
        sequences: usize,
        tokens: usize,
    ) -> Result<Self> {
        let columns = blocks_for(context);
        let count = columns.checked_mul(sequences).and_then(|n| u32::try_from(n).ok());
        let Some(count) = count.filter(|&n| n < u32::MAX) else {
            let rule = format!("{sequences} sequences of this length need more cache blocks than can be counted");
            return Err(Error::Limit { what: "the context length", found: context, rule });
        };
        let mut state = Self { context, slots: vec![Slot::default(); sequences], groups: vec![], layers: vec![] };
        for layer in &spec.layers {
            let kind = StateKind::of(&layer.attention);
            let group = match state.groups.iter().position(|group| group.kind == kind) {
                Some(group) => group,
                None => {
                    state.groups.push(Group {
                        kind,
                        blocks: Blocks::new(count),
                        owned: vec![Vec::new(); sequences],
                        place: Placement {
                            slots: backend.alloc_u32(tokens, "slots")?,
                            positions: backend.alloc_u32(tokens, "positions")?,
                            table: backend.alloc_u32(count as usize, "the block table")?,
                            table_rows: sequences,
                            table_cols: columns,
                        },
                    });
                    state.groups.len() - 1
                }
            };
            state.layers.push((group, backend.alloc_kv(kind.kv_spec(format), count as usize)?));
        }
        Ok(state)
    }

    /// Tokens that a sequence may have.
    pub(crate) fn context(&self) -> usize {
        self.context
    }

    /// Opens an empty sequence.
    ///
    /// # Errors
    /// [`Error::OutOfSequences`].
    pub(crate) fn open(&mut self) -> Result<SequenceId> {
        let free = self.slots.iter().position(|slot| !slot.open);
        let Some(index) = free else { return Err(Error::OutOfSequences { limit: self.slots.len() }) };
        let slot = &mut self.slots[index];
        *slot = Slot { open: true, generation: slot.generation + 1, len: 0 };
        Ok(SequenceId { slot: index as u32, generation: slot.generation })
    }

    fn slot(&self, id: SequenceId) -> Result<usize> {
        match self.slots.get(id.slot as usize) {
            Some(slot) if slot.open && slot.generation == id.generation => Ok(id.slot as usize),
            _ => Err(Error::UnknownSequence),
        }
    }

    /// Tokens that a sequence has.
    ///
    /// # Errors
    /// [`Error::UnknownSequence`].
    pub(crate) fn len(&self, id: SequenceId) -> Result<usize> {
        Ok(self.slots[self.slot(id)?].len)
    }

    /// Makes room for `tokens` more tokens of a sequence.
    ///
    /// # Errors
    /// [`Error::ContextOverflow`], [`Error::OutOfBlocks`]; the sequence is then as before.
    pub(crate) fn append(&mut self, backend: &dyn Backend, id: SequenceId, tokens: usize) -> Result<()> {
        let slot = self.slot(id)?;
        let have = self.slots[slot].len;
        let len = have.checked_add(tokens).filter(|&len| len <= self.context);
        let Some(len) = len else { return Err(Error::ContextOverflow { have, asked: tokens, limit: self.context }) };
        if tokens == 0 {
            return Ok(());
        }
        for group in &self.groups {
            let (needed, free) = (group.needed(slot, have, len), group.blocks.free.len());
            if needed > free {
                return Err(Error::OutOfBlocks { needed, free });
            }
        }
        for (index, group) in self.groups.iter_mut().enumerate() {
            if let Some(copy) = group.own_last_block(slot, have)? {
                for (_, cache) in self.layers.iter_mut().filter(|(of, _)| *of == index) {
                    backend.kv_copy(cache, &[copy])?;
                }
            }
            while group.owned[slot].len() < blocks_for(len) {
                let block = group.blocks.take()?;
                group.owned[slot].push(block);
            }
        }
        self.slots[slot].len = len;
        Ok(())
    }

    /// Shortens a sequence to its first `len` tokens (a rollback); a sequence that is not longer stays as it is.
    ///
    /// # Errors
    /// [`Error::UnknownSequence`].
    pub(crate) fn truncate(&mut self, id: SequenceId, len: usize) -> Result<()> {
        let slot = self.slot(id)?;
        if len < self.slots[slot].len {
            self.slots[slot].len = len;
            for group in &mut self.groups {
                for block in group.owned[slot].drain(blocks_for(len)..) {
                    group.blocks.release(block);
                }
            }
        }
        Ok(())
    }

    /// Closes a sequence and frees its blocks.
    ///
    /// # Errors
    /// [`Error::UnknownSequence`].
    pub(crate) fn close(&mut self, id: SequenceId) -> Result<()> {
        self.truncate(id, 0)?;
        self.slots[id.slot as usize].open = false;
        Ok(())
    }

    /// Opens a sequence with the same tokens as `id`, without computing or copying anything.
    ///
    /// # Errors
    /// [`Error::UnknownSequence`], [`Error::OutOfSequences`].
    pub(crate) fn fork(&mut self, id: SequenceId) -> Result<SequenceId> {
        let from = self.slot(id)?;
        let fork = self.open()?;
        let to = fork.slot as usize;
        self.slots[to].len = self.slots[from].len;
        for group in &mut self.groups {
            let blocks = group.owned[from].clone();
            blocks.iter().for_each(|&block| group.blocks.share(block));
            group.owned[to] = blocks;
        }
        Ok(fork)
    }

    /// Tells the backend where the tokens of a batch stand: each token's sequence and position.
    pub(crate) fn place(&mut self, backend: &dyn Backend, tokens: &[(SequenceId, u32)]) -> Result<()> {
        let slots: Vec<u32> = tokens.iter().map(|(id, _)| id.slot).collect();
        let positions: Vec<u32> = tokens.iter().map(|&(_, position)| position).collect();
        for group in &mut self.groups {
            let columns = group.place.table_cols;
            let mut table = vec![0; columns * group.owned.len()];
            for (row, blocks) in table.chunks_exact_mut(columns.max(1)).zip(&group.owned) {
                row[..blocks.len()].copy_from_slice(blocks);
            }
            backend.upload_u32(&slots, &mut group.place.slots)?;
            backend.upload_u32(&positions, &mut group.place.positions)?;
            backend.upload_u32(&table, &mut group.place.table)?;
        }
        Ok(())
    }

    /// The state of each layer, first to last.
    pub(crate) fn layers(&mut self) -> impl Iterator<Item = LayerState<'_>> {
        let groups = &self.groups;
        self.layers.iter_mut().map(|(group, cache)| LayerState { cache, place: &groups[*group].place })
    }
}

impl Group {
    /// Blocks to take from the allocator when a slot grows from `have` to `len` tokens.
    fn needed(&self, slot: usize, have: usize, len: usize) -> usize {
        let copy = usize::from(self.shared_last_block(slot, have).is_some());
        blocks_for(len) - self.owned[slot].len() + copy
    }

    /// The last block, if it is partly filled and has other owners.
    fn shared_last_block(&self, slot: usize, have: usize) -> Option<u32> {
        let last = self.owned[slot].last().copied()?;
        (!have.is_multiple_of(KV_BLOCK) && self.blocks.is_shared(last)).then_some(last)
    }

    /// Replaces the last block by a new one if writing into it would change another sequence; returns what to copy.
    fn own_last_block(&mut self, slot: usize, have: usize) -> Result<Option<(u32, u32)>> {
        let Some(shared) = self.shared_last_block(slot, have) else { return Ok(None) };
        let own = self.blocks.take()?;
        self.blocks.release(shared);
        if let Some(last) = self.owned[slot].last_mut() {
            *last = own;
        }
        Ok(Some((shared, own)))
    }
}
