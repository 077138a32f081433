//! `minimax-m3`: contexts in which its index chooses all blocks of tokens run, longer ones are refused.

use std::sync::Arc;

use gristmill_kernels::ops::Activation;
use gristmill_kernels::reference::Reference;
use gristmill_model::spec::MlpSpec;
use gristmill_model::{Error, Limits, LoadOptions, Model, ModelInfo, Runner};

use crate::hybrid_windows::two_layers;
use crate::tiny::{Random, Tiny};

/// The index chooses 3 blocks of 16 tokens.
fn minimax_m3() -> Tiny {
    let layer: [(&str, &[u64]); 8] = [
        ("attn_q.weight", &[32, 32]),
        ("attn_k.weight", &[32, 16]),
        ("attn_v.weight", &[32, 16]),
        ("attn_output.weight", &[32, 32]),
        ("attn_q_norm.weight", &[8]),
        ("attn_k_norm.weight", &[8]),
        ("indexer.q_proj.weight", &[32, 16]),
        ("indexer.k_norm.weight", &[8]),
    ];
    let keys = [
        ("attention.head_count", 4),
        ("attention.head_count_kv", 2),
        ("attention.key_length", 8),
        ("attention.value_length", 8),
        ("rope.dimension_count", 4),
        ("expert_shared_count", 1),
        ("expert_feed_forward_length", 16),
        ("attention.indexer.top_k", 3),
        ("attention.indexer.block_size", 16),
    ];
    let mut tiny = two_layers("minimax-m3", &keys, [&layer[..6], &layer]);
    tiny.unset("minimax-m3.attention.sliding_window");
    tiny
}

fn runner(context: Option<usize>) -> Result<Runner, Error> {
    let file = minimax_m3().file(&mut Random(5));
    let model = Model::with_backend(file, Arc::new(Reference::backend()), LoadOptions::default())?;
    Runner::new(Arc::new(model), Limits { context, ..Limits::default() })
}

#[test]
fn activations_are_clamped_and_the_index_is_left_out() {
    let spec = ModelInfo::read(&minimax_m3().file(&mut Random(5))).expect("a good model").spec;
    assert_eq!((spec.context_length, spec.unindexed_context), (100, Some(48)));
    assert!(spec.leaves_out("blk.1.indexer.q_proj.weight") && !spec.leaves_out("blk.1.attn_q.weight"));
    let clamped = Activation::ClampedSwiGlu { alpha: 1.702, limit: 7.0 };
    let is_clamped = |mlp: &MlpSpec| matches!(mlp, MlpSpec::Dense { activation, .. } if *activation == clamped);
    assert!(spec.layers.iter().all(|layer| layer.mlp.as_ref().is_some_and(is_clamped)));
}

#[test]
fn contexts_that_need_the_index_are_refused() {
    assert_eq!(runner(None).expect("the default").context(), 48);
    assert!(runner(Some(48)).is_ok());
    let error = runner(Some(49)).expect_err("a context that needs the index");
    assert!(matches!(error, Error::IndexedContext { context: 49, most: 48, .. }), "{error:?}");
    let message = error.to_string();
    let says = ["49 tokens", "minimax-m3", "by an index, which is not supported", "at most 48"];
    assert!(says.iter().all(|part| message.contains(part)), "{message}");
}

#[test]
fn keys_of_the_index_are_needed() {
    for key in ["top_k", "block_size"] {
        let mut tiny = minimax_m3();
        tiny.unset(&format!("minimax-m3.attention.indexer.{key}"));
        let message = ModelInfo::read(&tiny.file(&mut Random(5))).expect_err("a bad model").to_string();
        assert!(message.contains(&format!("minimax-m3.attention.indexer.{key}")), "{message}");
    }
}
