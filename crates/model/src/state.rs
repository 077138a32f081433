//! The state of sequences: the paged KV cache.
//!
//! Layers whose state has one form are a *group*. A group has an allocator of blocks and a table with the blocks of
//! each sequence; block `b` is a block in the cache of each of its layers. The backend owns the bytes, this module only
//! the numbers of blocks. A block may belong to several sequences ([`State::fork`]) and to the prefix cache; it is
//! copied before a sequence writes into it. A group of layers with a window frees blocks behind the window, which
//! bounds how far a sequence can be truncated ([`State::shortest`]).
//!
//! The prefix cache (`prefix`) keeps full blocks of sequences. A sequence adds its blocks ([`State::keep`]), and a new
//! sequence with the same prefix starts with them ([`State::open_with`]). Blocks that only the cache has are evicted
//! when sequences need them, so the cache needs no memory of its own. States of a fixed size (`fixed`) are kept at some
//! lengths of a text (`checkpoints`).
//!
//! With [`Limits::kv_tokens`] there may be fewer blocks than all sequences can have. [`State::fits`] says beforehand
//! whether sequences can grow; [`State::append`] fails where they cannot.
//!
//! # State is paged
//!
//! Keys and values are stored in blocks of 16 tokens, with a block table for each sequence. A block that a fork shares
//! is copied before a write. `forward` accepts tokens of several sequences. *A single sequence has no code path of its
//! own.*

mod blocks;
mod checkpoints;
mod events;
mod fixed;
mod group;
mod heads;
mod prefix;
mod reuse;
mod rollback;
mod uploaded;

use gristmill_kernels::Backend;
use gristmill_kernels::kv::{BatchRuns, KV_BLOCK, KvCache, KvFormat, KvSpec, Placement};
use gristmill_kernels::ops::{KvCopy, Runs, Window};

use crate::error::{Error, Result};
use crate::limits::Limits;
use crate::spec::{LayerSpec, ModelSpec};
use checkpoints::SPACING;
pub use events::{KvEvent, KvListener, KvParent};
use fixed::{Fixed, FixedBuffers};
use group::{Group, blocks_for};
use prefix::PrefixCache;
pub(crate) use uploaded::Uploaded;

/// Properties of a batch that decide which kernels a forward pass launches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PlacementKind {
    /// [`Placement::runs`].
    runs: BatchRuns,
    /// [`Placement::context_columns`].
    context_columns: usize,
}

impl PlacementKind {
    /// Of a pass without attention.
    pub(crate) const NONE: Self = Self { runs: BatchRuns::Any, context_columns: 0 };
}

/// The form of a layer's state: keys and values in blocks of [`KV_BLOCK`] tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StateKind {
    kv: KvSpec,
    /// Only this many last positions are ever read.
    window: Option<usize>,
}

impl StateKind {
    /// `None` for a layer without keys and values of its own.
    fn of(layer: &LayerSpec, format: KvFormat) -> Option<Self> {
        let kv = layer.cache(format)?;
        let window = layer.attention().and_then(|attention| attention.window).map(Window::positions);
        Some(StateKind { kv, window })
    }

    /// Blocks that a sequence of `context` tokens has at most, in batches of at most `tokens` tokens.
    fn blocks(self, context: usize, tokens: usize) -> usize {
        let all = blocks_for(context);
        // A batch's first token sees `window - 1` positions before it; they may start anywhere in a block.
        let seen = |window: usize| window.saturating_add(tokens).saturating_sub(2).div_ceil(KV_BLOCK) + 1;
        self.window.map_or(all, |window| seen(window).min(all))
    }

    /// Blocks for all sequences of `context` tokens.
    fn all_blocks(self, limits: &Limits, context: usize) -> usize {
        let most = self.blocks(context, limits.batch_tokens).saturating_mul(limits.sequences);
        match (limits.kv_tokens.map(blocks_for), self.window) {
            (None, _) => most,
            // More than the sequences can have is for the prefix cache.
            (Some(blocks), None) => blocks,
            (Some(blocks), Some(_)) => blocks.min(most),
        }
    }
}

/// An open sequence of a [`State`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct SequenceId {
    slot: u32,
    /// Tells this sequence from earlier ones in the same slot.
    generation: u64,
}

/// The contents of a KV cache, in tokens of whole blocks. If layers differ, those that keep most tokens count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KvUsage {
    /// Tokens of blocks that sequences have.
    pub used: usize,
    /// Tokens of blocks that only the prefix cache has; sequences take them when no other block is free.
    pub cached: usize,
    /// Tokens of all blocks.
    pub capacity: usize,
}

/// Whether sequences start with what others have computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reuse {
    /// There are slots for states of fixed size in the prefix cache.
    Prefixes,
    /// Sequences have only their own slots: for a draft model, which does not use the prefix cache.
    Nothing,
}

/// The keys and values of a layer during a forward pass.
pub(crate) struct CachedLayer<'a> {
    pub(crate) cache: &'a mut KvCache,
    pub(crate) placement: &'a Placement,
}

/// The states of all layers during a forward pass.
pub(crate) trait LayerStates {
    /// The cache of a layer, which may be that of a layer before it.
    fn cache(&mut self, index: usize) -> Option<CachedLayer<'_>>;

    /// The state of fixed size of a layer.
    fn fixed(&mut self, index: usize) -> Option<FixedLayer<'_>>;

    /// The hidden state of each sequence's last token that a prediction head reads.
    fn last_hidden(&mut self, head: usize) -> Option<FixedLayer<'_>>;

    /// The keys and values of a layer, and the places of queries that see those of all tokens of their picture.
    fn whole(&self, _layer: usize) -> Option<(&KvCache, &Placement)> {
        None
    }
}

/// The state of a layer that has a fixed size, during a forward pass.
pub(crate) struct FixedLayer<'a> {
    pub(crate) buffers: &'a mut FixedBuffers,
    pub(crate) runs: &'a Runs,
}

/// A layer's state.
#[derive(Debug, Default)]
struct LayerMemory {
    cache: LayerCache,
    fixed: FixedBuffers,
}

/// The keys and values of a layer.
#[derive(Debug, Default)]
enum LayerCache {
    #[default]
    None,
    /// Its blocks are those of a group.
    Own(usize, KvCache),
    /// The layer reads the cache of this one.
    Shared(usize),
}

#[derive(Clone, Debug, Default)]
struct Slot {
    open: bool,
    generation: u64,
    len: usize,
    /// The tenant: sequences share blocks only within a tenant.
    tenant: u64,
    /// The prefix cache's entries of the text's first blocks.
    chain: Vec<u64>,
    /// Tokens that the sequence started with.
    started: usize,
    /// See [`State::plan_checkpoint`].
    planned: Vec<usize>,
    /// See `heads`: the first tokens that have a row of the prediction heads. It can be one more than `len`.
    predicted: usize,
}

/// The state of up to a number of sequences.
#[derive(Debug)]
pub(crate) struct State {
    context: usize,
    slots: Vec<Slot>,
    groups: Vec<Group>,
    /// The states of layers with a fixed size, if there are any.
    fixed: Option<Fixed>,
    /// The slots of `last_hidden`, if `fixed` has none.
    hidden: Option<Fixed>,
    /// For each prediction head, the hidden state of each sequence's last token that it reads.
    last_hidden: Vec<FixedBuffers>,
    /// Those of the model, then those of its prediction heads.
    layers: Vec<LayerMemory>,
    /// The first of them that is of a prediction head.
    first_head: usize,
    prefix: PrefixCache,
    /// The least distance of planned checkpoints.
    spacing: usize,
}

impl State {
    /// Bytes of the caches for sequences of `context` tokens.
    pub(crate) fn bytes(backend: &Backend, spec: &ModelSpec, limits: &Limits, context: usize, reuse: Reuse) -> u64 {
        let layer = |kind: StateKind| backend.kv_bytes(kind.kv, kind.all_blocks(limits, context));
        let caches = spec.all_layers().filter_map(|spec| StateKind::of(spec, limits.kv_format)).map(layer);
        caches.fold(fixed::bytes(spec, limits.sequences, reuse), u64::saturating_add)
    }

    /// Bytes of slots, positions and block tables, for each group and for the prediction heads in it.
    pub(crate) fn table_bytes(spec: &ModelSpec, limits: &Limits, context: usize) -> u64 {
        let mut groups: Vec<(StateKind, bool)> = Vec::new();
        let of = |is_head| move |layer: &LayerSpec| Some((StateKind::of(layer, limits.kv_format)?, is_head));
        let (layers, heads) = (spec.layers.iter().filter_map(of(false)), spec.heads.iter().filter_map(of(true)));
        for kind in layers.chain(heads) {
            if !groups.contains(&kind) {
                groups.push(kind);
            }
        }
        let entries = limits.sequences.saturating_mul(blocks_for(context));
        let words = entries.saturating_add(limits.batch_tokens.saturating_mul(2)).saturating_mul(groups.len());
        (size_of::<u32>() as u64).saturating_mul(words as u64)
    }

    /// Allocates for sequences of `context` tokens. The caller has checked [`Self::bytes`].
    pub(crate) fn new(
        backend: &Backend,
        spec: &ModelSpec,
        limits: &Limits,
        context: usize,
        reuse: Reuse,
    ) -> Result<Self> {
        let slots = vec![Slot::default(); limits.sequences];
        let fixed = Fixed::new(backend, spec, limits, reuse)?;
        let prefix = PrefixCache::default();
        let hidden = Fixed::of_hidden(backend, spec, limits)?;
        let slots_of_hidden = fixed.as_ref().or(hidden.as_ref()).map_or(0, |fixed| fixed.slots.count());
        let last_hidden =
            fixed::last_hidden(spec).map(|state| FixedBuffers::new(backend, vec![state], slots_of_hidden));
        let last_hidden = last_hidden.collect::<Result<_>>()?;
        let groups = vec![];
        let layers = vec![];
        let first_head = spec.layers.len();
        let spacing = SPACING;
        let mut state =
            Self { context, slots, groups, fixed, hidden, last_hidden, layers, first_head, prefix, spacing };
        for (index, layer) in spec.all_layers().enumerate() {
            let slots = state.fixed.as_ref().map_or(0, |fixed| fixed.slots.count());
            let fixed = FixedBuffers::new(backend, layer.mixer.fixed_state(spec.hidden), slots)?;
            let cache = state.layer_cache(backend, layer, index, context, limits)?;
            state.layers.push(LayerMemory { cache, fixed });
        }
        Ok(state)
    }

    /// Allocates the cache of a layer.
    fn layer_cache(
        &mut self,
        backend: &Backend,
        layer: &LayerSpec,
        index: usize,
        context: usize,
        limits: &Limits,
    ) -> Result<LayerCache> {
        if let Some(source) = layer.attention().and_then(|attention| attention.kv_from) {
            return Ok(LayerCache::Shared(source));
        }
        let Some(kind) = StateKind::of(layer, limits.kv_format) else { return Ok(LayerCache::None) };
        let group = match self.groups.iter().position(|group| group.kind == kind) {
            Some(group) => group,
            None => {
                self.groups.push(Group::new(backend, kind, context, limits)?);
                self.groups.len() - 1
            }
        };
        if index >= self.first_head && self.groups[group].heads.is_none() {
            self.groups[group].add_head(backend, limits)?;
        }
        Ok(LayerCache::Own(group, backend.alloc_kv(kind.kv, self.groups[group].block_count())?))
    }

    pub(crate) fn context(&self) -> usize {
        self.context
    }

    /// The contents of the cache.
    pub(crate) fn usage(&self) -> KvUsage {
        let Some(group) = self.groups.iter().max_by_key(|group| group.block_count()) else { return KvUsage::default() };
        let [all, available, idle] = [group.blocks.count(), group.blocks.available(), group.blocks.idle()];
        let tokens = |blocks: usize| blocks * KV_BLOCK;
        KvUsage { used: tokens(all - available), cached: tokens(idle), capacity: tokens(all) }
    }

    /// Tokens of the blocks that sequences have, where a block that several of them share counts once.
    pub(crate) fn tokens_of(&self, ids: &[SequenceId]) -> Result<usize> {
        let slots = ids.iter().map(|&id| self.slot(id)).collect::<Result<Vec<_>>>()?;
        let largest = self.groups.iter().max_by_key(|group| group.block_count());
        Ok(largest.map_or(0, |group| group.distinct_blocks(&slots) * KV_BLOCK))
    }

    pub(crate) fn open(&mut self) -> Result<SequenceId> {
        let free = self.slots.iter().position(|slot| !slot.open);
        let Some(index) = free else { return Err(Error::OutOfSequences(self.slots.len())) };
        let slot = &mut self.slots[index];
        *slot = Slot { open: true, generation: slot.generation + 1, ..Slot::default() };
        Ok(SequenceId { slot: index as u32, generation: slot.generation })
    }

    fn slot(&self, id: SequenceId) -> Result<usize> {
        match self.slots.get(id.slot as usize) {
            Some(slot) if slot.open && slot.generation == id.generation => Ok(id.slot as usize),
            _ => Err(Error::UnknownSequence),
        }
    }

    pub(crate) fn len(&self, id: SequenceId) -> Result<usize> {
        Ok(self.slots[self.slot(id)?].len)
    }

    /// Whether there are blocks for all these sequences to grow to these lengths. `true` is certain for batches of
    /// whatever size; `false` may be wrong where sequences share blocks that they free or copy, and is certain for a
    /// sequence that is the only one open.
    pub(crate) fn fits(&self, lengths: &[(SequenceId, usize)]) -> Result<bool> {
        let grows = |&(id, len): &(SequenceId, usize)| self.slot(id).map(|slot| (slot, self.slots[slot].len, len));
        let growth = lengths.iter().map(grows).collect::<Result<Vec<_>>>()?;
        Ok(self.groups.iter().all(|group| group.fits(&growth)))
    }

    /// Takes the blocks for `tokens` more tokens of a sequence. After an error the sequence is as before.
    pub(crate) fn append(&mut self, backend: &Backend, id: SequenceId, tokens: usize) -> Result<()> {
        let slot = self.slot(id)?;
        let have = self.slots[slot].len;
        let len = have.checked_add(tokens).filter(|&len| len <= self.context);
        let Some(len) = len else { return Err(Error::ContextOverflow { have, asked: tokens, limit: self.context }) };
        if tokens == 0 {
            return Ok(());
        }
        self.groups.iter().try_for_each(|group| group.check_growth(slot, have, len))?;
        for index in 0..self.groups.len() {
            self.grow(backend, index, slot, [have, len])?;
        }
        if let Some(fixed) = &mut self.fixed {
            let mut evicted = Vec::new();
            fixed.grow(slot, len, &mut evicted)?;
            evicted.into_iter().for_each(|entry| self.evict(self.groups.len(), entry));
        }
        self.grow_heads(slot, [have, len])?;
        self.slots[slot].len = len;
        Ok(())
    }

    /// Grows a slot in a group from one length to another.
    fn grow(&mut self, backend: &Backend, group: usize, slot: usize, [have, len]: [usize; 2]) -> Result<()> {
        let mut evicted = Vec::new();
        let copy = self.groups[group].grow(slot, have, len, &mut evicted);
        evicted.into_iter().for_each(|entry| self.evict(group, entry));
        let Some(copy) = copy? else { return Ok(()) };
        for layer in &mut self.layers {
            match &mut layer.cache {
                LayerCache::Own(of, cache) if *of == group => backend.run(KvCopy { cache, blocks: &[copy] })?,
                LayerCache::Own(..) | LayerCache::Shared(_) | LayerCache::None => {}
            }
        }
        Ok(())
    }

    /// The greatest length up to `len` to which a sequence can be truncated: see [`crate::Runner::checkpoint`].
    pub(crate) fn checkpoint(&self, id: SequenceId, len: usize) -> Result<usize> {
        let slot = self.slot(id)?;
        let len = len.min(self.slots[slot].len);
        let nearest = self.fixed.as_ref().map_or(len, |fixed| fixed.checkpoint(slot, len));
        Ok(if nearest < self.shortest(id)? { 0 } else { nearest })
    }

    /// The least length above 0 to which a sequence can be truncated: see [`crate::Runner::shortest`].
    pub(crate) fn shortest(&self, id: SequenceId) -> Result<usize> {
        let slot = self.slot(id)?;
        Ok(self.groups.iter().map(|group| group.shortest(slot)).max().unwrap_or(0))
    }

    /// Shortens a sequence to its first `len` tokens (a rollback); a sequence that is not longer stays as it is, also
    /// after an error. The length that it had before the last [`Self::append`]s of one batch is always possible.
    pub(crate) fn truncate(&mut self, id: SequenceId, len: usize) -> Result<()> {
        let slot = self.slot(id)?;
        if len >= self.slots[slot].len {
            return Ok(());
        }
        let shortest = self.shortest(id)?;
        if len > 0 && len < shortest {
            return Err(Error::Forgotten { len, shortest });
        }
        let nearest = self.checkpoint(id, len)?;
        if nearest < len {
            return Err(Error::NoCheckpoint { len, nearest });
        }
        if let Some(fixed) = &mut self.fixed {
            let mut evicted = Vec::new();
            fixed.truncate(slot, len, &mut evicted)?;
            evicted.into_iter().for_each(|entry| self.evict(self.groups.len(), entry));
        }
        self.truncate_heads(slot, len)?;
        self.slots[slot].len = len;
        self.groups.iter_mut().for_each(|group| group.truncate(slot, len));
        let chain = &mut self.slots[slot].chain;
        let left = chain.split_off((len / KV_BLOCK).min(chain.len()));
        left.into_iter().for_each(|entry| self.prefix.unpin(entry));
        Ok(())
    }

    /// Closes a sequence and frees its blocks.
    pub(crate) fn close(&mut self, id: SequenceId) -> Result<()> {
        self.truncate(id, 0)?;
        self.slots[id.slot as usize].open = false;
        Ok(())
    }

    /// Opens a sequence with the same tokens as `id`, without computation and copies.
    pub(crate) fn fork(&mut self, id: SequenceId) -> Result<SequenceId> {
        let from = self.slot(id)?;
        let fork = self.open()?;
        let to = fork.slot as usize;
        let origin = self.slots[from].clone();
        origin.chain.iter().for_each(|&entry| self.prefix.pin(entry));
        self.slots[to] = Slot { generation: fork.generation, ..origin };
        self.groups.iter_mut().for_each(|group| group.share(from, to));
        self.fixed.iter_mut().chain(&mut self.hidden).for_each(|fixed| fixed.share(from, to));
        Ok(fork)
    }

    /// Uploads the sequence and position of each token of a batch, padded to `padded` tokens that belong to no
    /// sequence. `keeps`: whether the pass keeps the inputs of its recurrent operations (`rollback`).
    pub(crate) fn place(
        &mut self,
        backend: &Backend,
        tokens: &[(SequenceId, u32)],
        padded: usize,
        keeps: bool,
    ) -> Result<PlacementKind> {
        let mut slots: Vec<u32> = tokens.iter().map(|(id, _)| id.slot).collect();
        let mut positions: Vec<u32> = tokens.iter().map(|&(_, position)| position).collect();
        let last = positions.iter().max().map_or(0, |&position| position as usize);
        let context_columns = backend.context_bucket(last / KV_BLOCK + 1);
        for fixed in self.fixed.iter_mut().chain(&mut self.hidden) {
            fixed.place(backend, &slots, padded, keeps)?;
        }
        let mut head_slots = self.head_slots(&slots);
        slots.resize(padded, u32::MAX);
        head_slots.resize(padded, u32::MAX);
        positions.resize(padded, 0);
        let step = PlacementKind { runs: BatchRuns::of(&slots, &positions), context_columns };
        let slots = [&slots[..], &head_slots];
        self.groups.iter_mut().try_for_each(|group| group.place(backend, slots, &positions, step))?;
        Ok(step)
    }

    /// Guarantees runs of the next batch that is not placed, and the columns of block tables that its tokens reach: for a
    /// pass that only notes launches.
    pub(crate) fn suppose(&mut self, runs: BatchRuns, context_columns: usize) {
        self.groups.iter_mut().for_each(|group| group.suppose(PlacementKind { runs, context_columns }));
    }

    /// The kinds of context that a device tells apart, by their columns of block tables.
    pub(crate) fn context_kinds(&self, backend: &Backend) -> Vec<usize> {
        let mut kinds = [1, blocks_for(self.context)].map(|columns| backend.context_bucket(columns)).to_vec();
        kinds.dedup();
        kinds
    }
}

impl LayerStates for State {
    fn cache(&mut self, index: usize) -> Option<CachedLayer<'_>> {
        let index = match self.layers.get(index)?.cache {
            LayerCache::Shared(source) => source,
            LayerCache::Own(..) | LayerCache::None => index,
        };
        let LayerCache::Own(group, cache) = &mut self.layers.get_mut(index)?.cache else { return None };
        let group = self.groups.get(*group)?;
        let placed = if index < self.first_head { Some(&group.placed) } else { group.heads.as_ref() };
        Some(CachedLayer { cache, placement: &placed?.placement })
    }

    fn fixed(&mut self, index: usize) -> Option<FixedLayer<'_>> {
        let buffers = &mut self.layers.get_mut(index)?.fixed;
        Some(FixedLayer { buffers, runs: &self.fixed.as_ref()?.runs })
    }

    fn last_hidden(&mut self, head: usize) -> Option<FixedLayer<'_>> {
        self.hidden_of_head(head)
    }
}

#[cfg(test)]
mod tests;
