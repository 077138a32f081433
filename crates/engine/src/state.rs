//! What a model remembers of its sequences: for now the paged KV cache.
//!
//! Layers whose state has one form are a *group*. A group has an allocator of blocks and a table that says which blocks
//! a sequence has; block `b` is a block in the cache of each of its layers. The backend owns the bytes, this module only
//! the numbers of blocks. A block may belong to several sequences ([`State::fork`]): before one of them writes into it,
//! it gets a copy of its own. A group whose layers see a window only forgets what is behind it, so that a sequence cannot
//! be shortened to any length ([`State::shortest`]).

mod group;

use std::collections::HashSet;

use gristmill_kernels::Backend;
use gristmill_kernels::kv::{KV_BLOCK, KvCache, KvFormat, KvSpec, Placement};
use gristmill_kernels::ops::KvCopy;

use crate::error::{Error, Result};
use crate::model::spec::{AttentionSpec, ModelSpec};
use crate::plan::Limits;
use group::{Group, blocks_for};

/// What backends are told of a batch's tokens as a whole; it decides which operations a forward pass is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Step {
    /// Each token is of a sequence of its own: [`Placement::apart`].
    one_token_per_sequence: bool,
    /// [`Placement::reach`].
    context_columns: usize,
}

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

    /// Blocks that a sequence of `context` tokens has at most, in batches of at most `tokens` tokens.
    fn blocks(self, context: usize, tokens: usize) -> usize {
        let StateKind::Paged { window, .. } = self;
        let all = blocks_for(context);
        // A batch's first token sees `window - 1` positions before it; they may begin anywhere in a block.
        let seen = |window: usize| window.saturating_add(tokens).saturating_sub(2).div_ceil(KV_BLOCK) + 1;
        window.map_or(all, |window| seen(window).min(all))
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
    pub(crate) placement: &'a Placement,
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

impl State {
    /// Bytes of the caches for sequences of `context` tokens.
    pub(crate) fn bytes(backend: &Backend, spec: &ModelSpec, limits: &Limits, context: usize) -> u64 {
        let layer = |kind: StateKind| {
            let blocks = kind.blocks(context, limits.batch_tokens).saturating_mul(limits.sequences);
            backend.kv_bytes(kind.kv_spec(limits.kv_format), blocks)
        };
        let layers = spec.layers.iter().map(|spec| layer(StateKind::of(&spec.attention)));
        layers.fold(0, u64::saturating_add)
    }

    /// Bytes of what says where tokens stand in them: for each group, slots, positions and block tables.
    pub(crate) fn table_bytes(spec: &ModelSpec, limits: &Limits, context: usize) -> u64 {
        let mut groups: Vec<StateKind> = Vec::new();
        for kind in spec.layers.iter().map(|spec| StateKind::of(&spec.attention)) {
            if !groups.contains(&kind) {
                groups.push(kind);
            }
        }
        let entries = limits.sequences.saturating_mul(blocks_for(context));
        let words = entries.saturating_add(limits.batch_tokens.saturating_mul(2)).saturating_mul(groups.len());
        (size_of::<u32>() as u64).saturating_mul(words as u64)
    }

    /// Room for sequences of `context` tokens. The caller has seen that [`Self::bytes`] is sensible.
    pub(crate) fn new(backend: &Backend, spec: &ModelSpec, limits: &Limits, context: usize) -> Result<Self> {
        let Limits { sequences, batch_tokens, .. } = *limits;
        let mut state = Self { context, slots: vec![Slot::default(); sequences], groups: vec![], layers: vec![] };
        for layer in &spec.layers {
            let kind = StateKind::of(&layer.attention);
            let group = match state.groups.iter().position(|group| group.kind == kind) {
                Some(group) => group,
                None => {
                    state.groups.push(Group::new(backend, kind, context, sequences, batch_tokens)?);
                    state.groups.len() - 1
                }
            };
            state
                .layers
                .push((group, backend.alloc_kv(kind.kv_spec(limits.kv_format), state.groups[group].block_count())?));
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
    pub(crate) fn append(&mut self, backend: &Backend, id: SequenceId, tokens: usize) -> Result<()> {
        let slot = self.slot(id)?;
        let have = self.slots[slot].len;
        let len = have.checked_add(tokens).filter(|&len| len <= self.context);
        let Some(len) = len else { return Err(Error::ContextOverflow { have, asked: tokens, limit: self.context }) };
        if tokens == 0 {
            return Ok(());
        }
        self.groups.iter().try_for_each(|group| group.check_growth(slot, have, len))?;
        for (index, group) in self.groups.iter_mut().enumerate() {
            if let Some(copy) = group.grow(slot, have, len)? {
                for (_, cache) in self.layers.iter_mut().filter(|(of, _)| *of == index) {
                    backend.run(KvCopy { cache, blocks: &[copy] })?;
                }
            }
        }
        self.slots[slot].len = len;
        Ok(())
    }

    /// The least length above 0 to which a sequence can be shortened: layers with a window have forgotten what the next
    /// token would see after fewer tokens.
    ///
    /// # Errors
    /// [`Error::UnknownSequence`].
    pub(crate) fn shortest(&self, id: SequenceId) -> Result<usize> {
        let slot = self.slot(id)?;
        Ok(self.groups.iter().map(|group| group.shortest(slot)).max().unwrap_or(0))
    }

    /// Shortens a sequence to its first `len` tokens (a rollback); a sequence that is not longer stays as it is. The length
    /// that it had before the last [`Self::append`]s of one batch is always possible.
    ///
    /// # Errors
    /// [`Error::UnknownSequence`], [`Error::Forgotten`]; the sequence is then as before.
    pub(crate) fn truncate(&mut self, id: SequenceId, len: usize) -> Result<()> {
        let slot = self.slot(id)?;
        if len >= self.slots[slot].len {
            return Ok(());
        }
        let shortest = self.shortest(id)?;
        if len > 0 && len < shortest {
            return Err(Error::Forgotten { len, shortest });
        }
        self.slots[slot].len = len;
        self.groups.iter_mut().for_each(|group| group.truncate(slot, len));
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
        self.groups.iter_mut().for_each(|group| group.share(from, to));
        Ok(fork)
    }

    /// Tells the backend where the tokens of a batch stand: each token's sequence and position. Up to `padded` tokens,
    /// those that follow are nobody's.
    pub(crate) fn place(&mut self, backend: &Backend, tokens: &[(SequenceId, u32)], padded: usize) -> Result<Step> {
        let mut slots: Vec<u32> = tokens.iter().map(|(id, _)| id.slot).collect();
        let mut positions: Vec<u32> = tokens.iter().map(|&(_, position)| position).collect();
        let mut met = HashSet::new();
        let one_token_per_sequence = slots.iter().all(|slot| met.insert(*slot));
        let last = positions.iter().max().map_or(0, |&position| position as usize);
        let context_columns = backend.context_bucket(last / KV_BLOCK + 1);
        let step = Step { one_token_per_sequence, context_columns };
        slots.resize(padded, u32::MAX);
        positions.resize(padded, 0);
        self.groups.iter_mut().try_for_each(|group| group.place(backend, &slots, &positions, step))?;
        Ok(step)
    }

    /// The state of each layer, first to last.
    pub(crate) fn layers(&mut self) -> impl Iterator<Item = LayerState<'_>> {
        let groups = &self.groups;
        self.layers.iter_mut().map(|(group, cache)| LayerState { cache, placement: &groups[*group].placement })
    }
}

#[cfg(test)]
mod tests {
    use gristmill_kernels::ops::RopeStyle;
    use gristmill_kernels::reference::Reference;
    use proptest::prelude::*;

    use super::*;
    use crate::model::spec::{LayerSpec, MlpSpec, NormKind, RopeScaling, RopeSpec};

    const CONTEXT: usize = 300;
    const TOKENS: usize = 40;

    /// One layer for each window.
    fn spec(windows: &[Option<usize>]) -> ModelSpec {
        let rope =
            RopeSpec { style: RopeStyle::Halves, base: 1e4, width: 2, scaling: RopeScaling::None, factors: false };
        let attention = |&window| AttentionSpec {
            heads: 1,
            kv_heads: 1,
            key_width: 2,
            value_width: 2,
            scale: 1.0,
            window,
            sinks: false,
            qk_norm: None,
            qkv_bias: false,
            output_bias: false,
            rope: rope.clone(),
        };
        let mlp = MlpSpec::Dense { inner: 2, activation: gristmill_kernels::ops::Activation::SwiGlu };
        let layer = |window| LayerSpec { attention: attention(window), mlp: mlp.clone() };
        ModelSpec {
            architecture: String::new(),
            name: None,
            vocab: 2,
            hidden: 2,
            context_length: CONTEXT,
            norm: NormKind::Rms,
            norm_eps: 1e-5,
            mlp_norm: "ffn_norm",
            post_norms: false,
            embedding_scale: 1.0,
            residual_scale: 1.0,
            logit_scale: 1.0,
            tied_embeddings: true,
            output_bias: false,
            layers: windows.iter().map(layer).collect(),
        }
    }

    fn limits() -> Limits {
        Limits { context: Some(CONTEXT), sequences: 3, batch_tokens: TOKENS, ..Limits::default() }
    }

    #[test]
    fn a_window_bounds_the_blocks() {
        let bytes = |windows: &[_], context| State::bytes(&Reference::backend(), &spec(windows), &limits(), context);
        let block = (2 + 2) * KV_BLOCK as u64 * 2 * 3;
        // 19 blocks of 16 are 304 tokens; 1 + 40 + 7 positions, wherever they begin, are in 4.
        assert_eq!(bytes(&[None], CONTEXT), 19 * block);
        assert_eq!(bytes(&[Some(9)], CONTEXT), 4 * block);
        assert_eq!(bytes(&[Some(9), None, Some(9)], CONTEXT), (4 + 19 + 4) * block);
        assert_eq!(bytes(&[Some(9)], 1 << 40), 4 * block);
        assert_eq!(bytes(&[Some(9)], 20), 2 * block);
        assert_eq!(bytes(&[Some(usize::MAX)], CONTEXT), 19 * block);
        let mut state =
            State::new(&Reference::backend(), &spec(&[Some(9), None, Some(9)]), &limits(), CONTEXT).unwrap();
        assert_eq!(state.groups.len(), 2);
        assert_eq!(state.layers().map(|layer| layer.cache.blocks()).collect::<Vec<_>>(), [12, 57, 12]);
        let id = state.open().unwrap();
        for len in 1..=CONTEXT {
            state.append(&Reference::backend(), id, 1).unwrap();
            assert_eq!(state.groups[1].held_blocks(0), len.div_ceil(KV_BLOCK));
            assert_eq!(state.groups[0].held_blocks(0), len.div_ceil(KV_BLOCK).min(4));
        }
        // Blocks 15 to 18 are there: the token after 248 sees 240 to 248.
        assert_eq!(state.shortest(id).unwrap(), 15 * KV_BLOCK + 8);
        let error = state.truncate(id, 247).unwrap_err();
        assert!(matches!(error, Error::Forgotten { len: 247, shortest: 248 }), "{error}");
        assert_eq!(state.len(id).unwrap(), CONTEXT);
        state.truncate(id, 248).unwrap();
        state.truncate(id, 0).unwrap();
        assert_eq!(state.shortest(id).unwrap(), 0);
    }

    proptest! {
        /// Whatever is done: blocks are counted right, none that will be seen is given back, and there are always enough.
        #[test]
        fn blocks_are_never_lost(window in 1usize..60, steps in prop::collection::vec((0usize..3, 0usize..5, 0usize..CONTEXT), 1..200)) {
            let mut state = State::new(&Reference::backend(), &spec(&[Some(window), None]), &limits(), CONTEXT).unwrap();
            let mut ids: Vec<Option<SequenceId>> = vec![None; 3];
            for (at, what, n) in steps {
                match (ids[at], what) {
                    (None, _) => {
                        let other = ids.iter().flatten().next().copied().filter(|_| what > 2);
                        let opened = if let Some(other) = other { state.fork(other) } else { state.open() };
                        ids[at] = Some(opened.unwrap());
                    }
                    (Some(id), 0) => {
                        state.close(id).unwrap();
                        ids[at] = None;
                    }
                    (Some(id), 1) => {
                        let (len, shortest) = (state.len(id).unwrap(), state.shortest(id).unwrap());
                        prop_assert!(shortest <= len);
                        let allowed = n == 0 || n >= shortest;
                        prop_assert_eq!(state.truncate(id, n).is_ok(), allowed);
                        prop_assert_eq!(state.len(id).unwrap(), if allowed { len.min(n) } else { len });
                    }
                    // One batch, which may name a sequence twice, and may fail.
                    (Some(id), _) => {
                        let len = state.len(id).unwrap();
                        let parts = [n % TOKENS, TOKENS - n % TOKENS];
                        let room = CONTEXT - len;
                        let done = parts.iter().try_for_each(|&n| state.append(&Reference::backend(), id, n));
                        prop_assert_eq!(done.is_ok(), TOKENS <= room);
                        if done.is_err() || n % 3 == 0 {
                            state.truncate(id, len).unwrap();
                        }
                    }
                }
                let lens = state.slots.iter().map(|slot| if slot.open { slot.len } else { 0 }).collect::<Vec<_>>();
                state.groups.iter().for_each(|group| group.check(&lens));
            }
        }
    }
}
