//! Routers with a bias, experts for every token, and layers that predict further tokens: what is read of them, and what
//! is refused by key or tensor.

use gristmill_kernels::ops::{Activation, Gating, Routing};
use gristmill_model::spec::{MlpSpec, MoeSpec, SharedExpert};
use gristmill_model::{Error, ModelInfo};

use crate::tiny::{Random, Tiny};

fn read(tiny: &Tiny) -> Result<ModelInfo, Error> {
    ModelInfo::read(&tiny.file(&mut Random(5)))
}

fn refused(change: impl FnOnce(&mut Tiny), says: &[&str]) {
    let mut tiny = Tiny::dots1();
    change(&mut tiny);
    let message = read(&tiny).expect_err("a bad model").to_string();
    assert!(says.iter().all(|part| message.contains(part)), "{message}");
}

/// Makes the last layer one that predicts further tokens.
fn predict(tiny: &mut Tiny) {
    tiny.set("dots1.nextn_predict_layers", 1_u32);
    tiny.tensor("blk.1.nextn.eh_proj.weight", &[64, 32]);
    tiny.tensor("blk.1.nextn.enorm.weight", &[32]);
    tiny.tensor("blk.1.nextn.hnorm.weight", &[32]);
}

#[test]
fn a_router_with_a_bias() {
    let mut tiny = Tiny::dots1();
    for (key, value) in [("expert_group_count", 2_u32), ("expert_group_used_count", 1)] {
        tiny.set(&format!("dots1.{key}"), value);
    }
    tiny.set("dots1.expert_weights_scale", 2.5_f32);
    tiny.set("dots1.expert_weights_norm", true);
    let spec = read(&tiny).expect("a good model").spec;
    let Some(MlpSpec::Moe(MoeSpec { routing, selection_bias, shared, .. })) = spec.layers[0].mlp.clone() else {
        panic!("experts expected");
    };
    let wanted = Routing { gating: Gating::Sigmoid, scale: 2.5, groups: 2, top_groups: 1, ..Routing::softmax(2, true) };
    assert_eq!((routing, selection_bias), (wanted, true));
    assert_eq!(shared, Some(SharedExpert { inner: 16, activation: Activation::SwiGlu, gated: false }));
    assert_eq!(spec.prediction_layers, 0);
}

#[test]
fn layers_that_predict_further_tokens_are_left_out() {
    let mut tiny = Tiny::dots1();
    predict(&mut tiny);
    let spec = read(&tiny).expect("a good model").spec;
    assert_eq!((spec.layers.len(), spec.prediction_layers), (1, 1));
    assert!(spec.leaves_out("blk.1.attn_norm.weight") && spec.leaves_out("blk.1.nextn.enorm.weight"));
    for name in ["blk.0.attn_norm.weight", "blk.2.attn_norm.weight", "blk.x.attn_norm.weight", "output_norm.weight"] {
        assert!(!spec.leaves_out(name), "{name}");
    }
    // A layer after those that are declared is none of the model's.
    tiny.tensor("blk.2.attn_norm.weight", &[32]);
    let message = read(&tiny).expect_err("a bad model").to_string();
    assert!(message.contains("tensor `blk.2.attn_norm.weight` is not a weight of this dots1 model"), "{message}");
}

#[test]
fn contradictions_are_named() {
    let set = |key: &'static str, value: u32| move |tiny: &mut Tiny| tiny.set(&format!("dots1.{key}"), value);
    let own = "`dots1.expert_shared_count`, 1, times the width of an expert, 16";
    refused(
        set("expert_shared_feed_forward_length", 17),
        &["dots1.expert_shared_feed_forward_length`: 17 is not", own],
    );
    refused(set("expert_shared_count", 2), &["tensor `blk.0.ffn_gate_shexp.weight`", "[32, 32]"]);
    refused(set("expert_shared_count", u32::MAX), &["dots1.expert_shared_count", "that gristmill supports"]);
    refused(set("expert_shared_count", 0), &["tensor `blk.0.ffn_", "_shexp.weight` is not a weight"]);
    refused(set("leading_dense_block_count", 3), &["leading_dense_block_count`: 3 is more than the 2 layers"]);
    refused(set("leading_dense_block_count", 1), &["tensor `blk.0.ffn_gate.weight` of shape [32, 16] is missing"]);
    refused(set("interleave_moe_layer_step", 2), &["tensor `blk.0.ffn_gate.weight` of shape [32, 16] is missing"]);
    refused(set("expert_group_count", 3), &["expert_group_count`: 3 does not divide the 4 experts"]);
    let groups = |groups: u32, used: u32| {
        move |tiny: &mut Tiny| {
            tiny.set("dots1.expert_group_count", groups);
            tiny.set("dots1.expert_group_used_count", used);
        }
    };
    refused(groups(2, 3), &["expert_group_used_count`: 3 is more than the 2 groups"]);
    refused(groups(4, 1), &["expert_group_used_count`: 1 groups have 1 experts, but 2 are chosen"]);
    refused(
        |tiny| tiny.without("blk.1.exp_probs_b.bias"),
        &["tensor `blk.1.exp_probs_b.bias` of shape [4] is missing"],
    );
    refused(|tiny| tiny.without("blk.0.exp_probs_b.bias"), &["tensor `blk.1.exp_probs_b.bias` is not a weight"]);
}

#[test]
fn layers_that_predict_further_tokens_are_whole_and_not_alone() {
    let set = |value: u32| move |tiny: &mut Tiny| tiny.set("dots1.nextn_predict_layers", value);
    refused(set(1), &["tensor `blk.1.nextn.eh_proj.weight` of shape [64, 32] is missing"]);
    refused(set(2), &["nextn_predict_layers`: 2 leaves none of the 2 layers of `dots1.block_count`"]);
    refused(set(u32::MAX), &["nextn_predict_layers", "that gristmill supports"]);
    let part = |tiny: &mut Tiny| {
        predict(tiny);
        tiny.without("blk.1.nextn.hnorm.weight");
    };
    refused(part, &["tensor `blk.1.nextn.hnorm.weight` of shape [32] is missing"]);
    let alone = |tiny: &mut Tiny| {
        predict(tiny);
        tiny.tensors.retain(|(name, ..)| !name.starts_with("blk.0."));
    };
    refused(alone, &["nextn_predict_layers`: 1 layers that predict further tokens are all that the file has", "open"]);
}
