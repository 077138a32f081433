//! The blocks of sequences, on a backend that computes nothing.

use gristmill_kernels::ops::RopeStyle;
use gristmill_kernels::reference::Reference;
use proptest::prelude::*;

use super::*;
use crate::model::spec::{LayerSpec, MlpSpec, NormKind, RopeScaling, RopeSpec};

const CONTEXT: usize = 300;
const TOKENS: usize = 40;

/// One layer for each window.
fn spec(windows: &[Option<usize>]) -> ModelSpec {
    let rope = RopeSpec { style: RopeStyle::Halves, base: 1e4, width: 2, scaling: RopeScaling::None, factors: false };
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
    let mut state = State::new(&Reference::backend(), &spec(&[Some(9), None, Some(9)]), &limits(), CONTEXT).unwrap();
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
