//! The blocks of sequences, on a backend that computes nothing.

mod fixed;
mod pool;

use gristmill_kernels::ops::RopeStyle;
use gristmill_kernels::reference::Reference;
use proptest::prelude::*;

use super::*;
use crate::spec::{AttentionSpec, BlockInputs, Mixer, MlpSpec, NormKind, RopeScaling, RopeSpec};
use crate::state::fixed::Checkpoints;

const CONTEXT: usize = 300;
const TOKENS: usize = 40;

/// One layer for each window.
fn spec(windows: &[Option<usize>]) -> ModelSpec {
    let rope = RopeSpec {
        style: RopeStyle::Halves,
        base: 1e4,
        width: 2,
        scaling: RopeScaling::None,
        factors: false,
        axes: None,
    };
    let attention = |&window: &Option<usize>| AttentionSpec {
        heads: 1,
        kv_heads: 1,
        key_width: 2,
        value_width: 2,
        scale: 1.0,
        temperature: None,
        window: window.map(Window::Last),
        both_ways: false,
        sinks: false,
        qk_norm: None,
        norm_after_rope: false,
        value_norm: false,
        values_are_keys: false,
        cap: None,
        qkv_bias: false,
        output_bias: false,
        value_scale: 1.0,
        gate: None,
        kv_from: None,
        rope: Some(rope.clone()),
        halves_alternate: false,
    };
    let mlp = MlpSpec::Dense { inner: 2, activation: gristmill_kernels::ops::Activation::SwiGlu };
    let layer = |window| LayerSpec { mixer: Mixer::Attention(attention(window)), mlp: Some(mlp.clone()) };
    ModelSpec {
        picture_layers: 0,
        architecture: String::new(),
        name: None,
        vocab: 2,
        hidden: 2,
        context_length: CONTEXT,
        unindexed_context: None,
        norm: NormKind::Rms,
        norm_eps: 1e-5,
        inputs: BlockInputs::Normed,
        mlp_norm: "ffn_norm",
        output_norm: "output_norm",
        post_norms: false,
        post_norm_eps: None,
        embedding_norm: false,
        embedding_scale: 1.0,
        residual_scale: 1.0,
        logit_scale: 1.0,
        layer_scales: false,
        layer_inputs: None,
        logit_cap: None,
        tied_embeddings: true,
        output_bias: false,
        pooling: None,
        layers: windows.iter().map(layer).collect(),
        prediction_layers: 0,
        heads: Vec::new(),
        head_inputs: crate::spec::HeadInputs::default(),
        head_norm: NormKind::Rms,
    }
}

fn limits() -> Limits {
    Limits { context: Some(CONTEXT), sequences: 3, batch_tokens: TOKENS, ..Limits::default() }
}

/// Blocks of each layer's cache.
fn cache_blocks(state: &mut State) -> Vec<usize> {
    let layers = state.layers.len();
    (0..layers).filter_map(|layer| Some(state.cache(layer)?.cache.blocks())).collect()
}

#[test]
fn a_window_bounds_the_blocks() {
    let bytes = |windows: &[_], context| {
        State::bytes(&Reference::backend(), &spec(windows), &limits(), context, Reuse::Prefixes)
    };
    let block = (2 + 2) * KV_BLOCK as u64 * 2 * 3;
    // 19 blocks of 16 are 304 tokens; 1 + 40 + 7 positions, wherever they start, are in 4.
    assert_eq!(bytes(&[None], CONTEXT), 19 * block);
    assert_eq!(bytes(&[Some(9)], CONTEXT), 4 * block);
    assert_eq!(bytes(&[Some(9), None, Some(9)], CONTEXT), (4 + 19 + 4) * block);
    assert_eq!(bytes(&[Some(9)], 1 << 40), 4 * block);
    assert_eq!(bytes(&[Some(9)], 20), 2 * block);
    assert_eq!(bytes(&[Some(usize::MAX)], CONTEXT), 19 * block);
    let mut state =
        State::new(&Reference::backend(), &spec(&[Some(9), None, Some(9)]), &limits(), CONTEXT, Reuse::Prefixes)
            .unwrap();
    assert_eq!(state.groups.len(), 2);
    assert_eq!(cache_blocks(&mut state), [12, 57, 12]);
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
    /// Whatever is done: blocks are counted right, none that will be seen is returned, and there are always enough.
    #[test]
    fn blocks_are_never_lost(
        window in 1usize..60,
        steps in prop::collection::vec((0usize..3, 0usize..5, 0usize..CONTEXT), 1..200),
    ) {
        let spec = spec(&[Some(window), None]);
        let mut state = State::new(&Reference::backend(), &spec, &limits(), CONTEXT, Reuse::Prefixes).unwrap();
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

/// The tokens of a text: texts of different variants are the same up to a place, and differ behind it.
fn text(variant: usize) -> Vec<u32> {
    let token = |at: usize| if at < 24 * variant { at } else { 1000 * (variant + 1) + at };
    (0..CONTEXT).map(|at| token(at) as u32).collect()
}

/// A token's tenant and the token, which tells all tokens before it.
type Token = (u64, u32);

/// A state, and what a backend would have in its blocks.
struct Shadow {
    state: State,
    /// For each group, block and place in it.
    content: Vec<Vec<[Option<Token>; KV_BLOCK]>>,
    /// The last token that each slot's state of fixed size is behind.
    states: Vec<Option<Token>>,
    /// Tenant and variant of each sequence.
    open: Vec<(SequenceId, u64, usize)>,
    reused: usize,
}

impl Shadow {
    fn new(windows: &[Option<usize>]) -> Self {
        Shadow::of(State::new(&Reference::backend(), &spec(windows), &limits(), CONTEXT, Reuse::Prefixes).unwrap())
    }

    fn of(state: State) -> Self {
        let content = state.groups.iter().map(|group| vec![[None; KV_BLOCK]; group.block_count()]).collect();
        let states = vec![None; state.fixed.as_ref().map_or(0, |fixed| fixed.slots.count())];
        Shadow { state, content, states, open: vec![], reused: 0 }
    }

    fn open(&mut self, tenant: u64, variant: usize) -> usize {
        let (id, len) = self.state.open_with(tenant, &text(variant)).unwrap();
        self.open.push((id, tenant, variant));
        self.reused += len;
        len
    }

    fn append(&mut self, at: usize, tokens: usize) {
        let (id, tenant, variant) = self.open[at];
        let slot = id.slot as usize;
        let have = self.state.len(id).unwrap();
        let before: Vec<_> = self.state.groups.iter().map(|group| group.block(slot, have / KV_BLOCK)).collect();
        let end = (have + tokens).min(CONTEXT);
        self.state.append(&Reference::backend(), id, end - have).unwrap();
        for ((group, content), before) in self.state.groups.iter().zip(&mut self.content).zip(before) {
            let partly_filled = before.filter(|_| !have.is_multiple_of(KV_BLOCK));
            if let (Some(before), Some(after)) = (partly_filled, group.block(slot, have / KV_BLOCK)) {
                content[after as usize] = content[before as usize];
            }
            for at in have..end {
                let block = group.block(slot, at / KV_BLOCK).unwrap();
                content[block as usize][at % KV_BLOCK] = Some((tenant, text(variant)[at]));
            }
        }
        if let Some(written) = self.state.fixed.as_ref().and_then(|fixed| fixed.slot_at(slot, end)) {
            self.states[written as usize] = Some((tenant, text(variant)[end - 1]));
        }
    }

    /// The batch of a sequence's last `tokens` tokens keeps the inputs of its recurrent operations.
    fn keep_inputs(&mut self, at: usize, tokens: usize) {
        let id = self.open[at].0;
        let len = self.state.len(id).unwrap();
        let places: Vec<_> = (len - tokens..len).map(|position| (id, position as u32)).collect();
        self.state.place(&Reference::backend(), &places, tokens, true).unwrap();
    }

    /// Computes the due states, each from the one before it.
    fn replay(&mut self) {
        while self.state.needs_replay() {
            let due = self.due();
            let replayed = self.state.place_replay(&Reference::backend(), TOKENS).unwrap();
            self.state.finish_replay(replayed);
            let still_due = self.due();
            assert!(still_due.len() < due.len(), "no state was computed");
            let fixed = self.state.fixed.as_ref().unwrap();
            for &(id, tenant, variant) in due.iter().filter(|sequence| !still_due.contains(sequence)) {
                let Checkpoints { before, now, .. } = fixed.checkpoints[id.slot as usize];
                let read = before.slot.and_then(|slot| self.states[slot as usize]);
                let expected = before.len.checked_sub(1).map(|last| (tenant, text(variant)[last]));
                assert_eq!(read, expected, "the state of {}", before.len);
                self.states[now.slot.unwrap() as usize] = Some((tenant, text(variant)[now.len - 1]));
            }
        }
    }

    /// The sequences whose states are due.
    fn due(&self) -> Vec<(SequenceId, u64, usize)> {
        self.open.iter().filter(|(id, ..)| self.state.is_due(*id).unwrap()).copied().collect()
    }

    fn keep(&mut self, at: usize) {
        let (id, _, variant) = self.open[at];
        self.state.keep(id, &text(variant)).unwrap();
    }

    fn close(&mut self, at: usize) {
        self.state.close(self.open.remove(at).0).unwrap();
    }

    fn retire(&mut self, at: usize) {
        let (id, _, variant) = self.open.remove(at);
        self.state.retire(id, &text(variant)).unwrap();
    }

    /// Every sequence has its own tokens in its blocks, and all blocks are counted right.
    fn check(&self) {
        let lens = self.state.slots.iter().map(|slot| if slot.open { slot.len } else { 0 }).collect::<Vec<_>>();
        self.state.groups.iter().for_each(|group| group.check(&lens));
        for &(id, tenant, variant) in &self.open {
            let slot = id.slot as usize;
            let len = self.state.len(id).unwrap();
            for (group, content) in self.state.groups.iter().zip(&self.content) {
                for at in 0..len {
                    let Some(block) = group.block(slot, at / KV_BLOCK) else { continue };
                    let expected = Some((tenant, text(variant)[at]));
                    assert_eq!(content[block as usize][at % KV_BLOCK], expected, "token {at} of {len}");
                }
            }
            if let Some(fixed) = &self.state.fixed {
                for (len, state) in fixed.states(slot) {
                    assert_eq!(self.states[state as usize], Some((tenant, text(variant)[len - 1])), "state of {len}");
                }
            }
        }
        self.state.fixed.iter().for_each(|fixed| fixed.check(&lens));
        for (index, group) in self.state.groups.iter().enumerate() {
            for block in 0..group.block_count() as u32 {
                if let Some(entry) = group.blocks.entry(block) {
                    assert_eq!(self.state.prefix.block(entry, index), Some(block));
                }
            }
        }
    }
}

#[test]
fn a_text_is_computed_once() {
    for windows in [&[None][..], &[None, Some(20)], &[Some(20)]] {
        let mut shadow = Shadow::new(windows);
        assert_eq!(shadow.open(0, 4), 0);
        (0..3).for_each(|_| shadow.append(0, 40));
        shadow.keep(0);
        // While it is open: full blocks, 112 of 120 tokens.
        assert_eq!(shadow.open(0, 4), 112);
        // The texts of 3 and 4 have 72 tokens in common.
        assert_eq!(shadow.open(0, 3), 72);
        shadow.append(2, 1);
        shadow.check();
        shadow.close(2);
        // Another tenant finds nothing.
        assert_eq!(shadow.open(1, 4), 0);
        shadow.close(2);
        shadow.close(1);
        shadow.retire(0);
        assert_eq!(shadow.open(0, 4), 120);
        shadow.append(0, 5);
        shadow.check();
        // A discarded prefix is not found.
        shadow.state.evict_prefix(shadow.open[0].0).unwrap();
        assert_eq!(shadow.open(0, 4), 0);
        shadow.check();
    }
}

#[test]
fn the_cache_gives_way_to_sequences() {
    let mut shadow = Shadow::new(&[None, Some(20)]);
    for variant in [1, 2, 3, 4] {
        shadow.open(0, variant);
        while shadow.state.len(shadow.open[0].0).unwrap() < CONTEXT {
            shadow.append(0, 40);
            shadow.keep(0);
        }
        shadow.retire(0);
        shadow.check();
    }
    assert_eq!(shadow.open(0, 4), CONTEXT);
    assert!(shadow.state.prefix.len() <= 57, "{}", shadow.state.prefix.len());
    // All three sequences of another tenant have room.
    shadow.close(0);
    for at in 0..3 {
        shadow.open(1, 4);
        (0..8).for_each(|_| shadow.append(at, 40));
        shadow.check();
    }
}

proptest! {
    /// Whatever is done, no sequence ever sees another text's tokens.
    #[test]
    fn shared_blocks_have_the_right_tokens(
        windows in prop::sample::select(
            vec![vec![None], vec![None, Some(20)], vec![Some(33)], vec![Some(5), None, Some(90)]],
        ),
        steps in prop::collection::vec((0usize..8, 0usize..3, 1usize..6, 1usize..=TOKENS), 1..150),
    ) {
        let mut shadow = Shadow::new(&windows);
        for (what, at, variant, n) in steps {
            if at >= shadow.open.len() {
                shadow.open((variant % 2) as u64, variant);
            } else {
                let (id, tenant, variant) = shadow.open[at];
                match what {
                    0 if n % 2 == 0 => shadow.close(at),
                    0 => shadow.retire(at),
                    1 => {
                        let (len, shortest) = (shadow.state.len(id).unwrap(), shadow.state.shortest(id).unwrap());
                        shadow.state.truncate(id, (len * n / TOKENS).max(shortest)).unwrap();
                    }
                    2 if n == 1 => shadow.state.evict_prefix(id).unwrap(),
                    2 if shadow.open.len() < 3 => {
                        let fork = shadow.state.fork(id).unwrap();
                        shadow.open.push((fork, tenant, variant));
                    }
                    _ => {
                        shadow.append(at, n);
                        if what % 2 == 0 {
                            shadow.keep(at);
                        }
                    }
                }
            }
            shadow.check();
        }
        while !shadow.open.is_empty() {
            shadow.close(0);
        }
        for group in &shadow.state.groups {
            prop_assert_eq!(group.blocks.available(), group.block_count());
        }
    }
}
