//! Gemma 4: experts beside an MLP; what is read of them, and what is refused by key or tensor.

use gristmill_engine::model::spec::{MlpSpec, ModelSpec};
use gristmill_engine::{Error, ModelInfo};
use gristmill_kernels::ops::{Activation, Routing};

use crate::tiny::{Random, Tiny};

fn read(tiny: &Tiny) -> Result<ModelSpec, Error> {
    ModelInfo::read(&tiny.file(&mut Random(5))).map(|info| info.spec)
}

/// Fails unless a change of a good file is refused in these words.
fn refused(change: impl FnOnce(&mut Tiny), says: &[&str]) {
    let mut tiny = Tiny::gemma4();
    change(&mut tiny);
    let message = read(&tiny).expect_err("a bad model").to_string();
    assert!(says.iter().all(|part| message.contains(part)), "{message}");
}

/// Gate and up of the experts in one tensor.
fn fuse(tiny: &mut Tiny) {
    for layer in 0..2 {
        tiny.without(&format!("blk.{layer}.ffn_gate_exps.weight"));
        tiny.without(&format!("blk.{layer}.ffn_up_exps.weight"));
        tiny.tensor(&format!("blk.{layer}.ffn_gate_up_exps.weight"), &[32, 32, 4]);
    }
}

#[test]
fn experts_beside_an_mlp() {
    let mut tiny = Tiny::gemma4();
    for fused in [false, true] {
        if fused {
            fuse(&mut tiny);
        }
        let spec = read(&tiny).expect("a good model");
        assert!(spec.post_norms && !spec.layer_scales);
        for (layer, window) in spec.layers.iter().zip([Some(5), None]) {
            let attention = layer.attention().expect("attention");
            assert_eq!((attention.window, attention.values_are_keys), (window, window.is_none()));
            let Some(MlpSpec::Moe { inner, activation, routing, router_norm, expert_scales, beside, .. }) = layer.mlp
            else {
                panic!("experts expected");
            };
            assert_eq!((inner, activation, routing), (16, Activation::GeGlu, Routing::softmax(2, true)));
            assert!(router_norm && expert_scales && beside == Some(48));
            assert!(matches!(layer.mlp, Some(MlpSpec::Moe { fused_gate_up, .. }) if fused_gate_up == fused));
        }
    }
}

#[test]
fn what_experts_beside_an_mlp_lack_is_named() {
    for name in ["ffn_gate_inp.scale", "ffn_down_exps.scale", "pre_ffw_norm_2.weight", "post_ffw_norm_1.weight"] {
        let name = format!("blk.1.{name}");
        refused(|tiny| tiny.without(&name), &[&format!("tensor `{name}` of shape"), "is missing"]);
    }
    let scale = "blk.0.ffn_down_exps.scale";
    refused(|tiny| tiny.tensor(scale, &[5]), &[scale, "[5]", "[4]"]);
    refused(|tiny| tiny.tensor(scale, &[1, 4]), &[scale, "[1, 4]", "[4]"]);
    let set = |key: &'static str, value: u32| move |tiny: &mut Tiny| tiny.set(&format!("gemma4.{key}"), value);
    refused(set("feed_forward_length", 40), &["blk.0.ffn_gate.weight", "[32, 48]", "[32, 40]"]);
    refused(set("feed_forward_length", 0), &["gemma4.feed_forward_length", "must be at least 1"]);
    refused(set("expert_used_count", 5), &["gemma4.expert_used_count`: 5 is more than the 4 experts"]);
    // Without the count of experts their tensors belong to no model.
    refused(set("expert_count", 0), &["blk.0.ffn_", "is not a weight of this gemma4 model"]);
}

#[test]
fn fused_rows_must_be_twice_an_expert() {
    let fused = |shape: [u64; 3]| {
        move |tiny: &mut Tiny| {
            fuse(tiny);
            tiny.tensor("blk.1.ffn_gate_up_exps.weight", &shape);
        }
    };
    let name = "blk.1.ffn_gate_up_exps.weight";
    refused(fused([32, 16, 4]), &[name, "[32, 16, 4]", "[32, 32, 4]"]);
    refused(fused([32, 32, 3]), &[name, "[32, 32, 3]"]);
    // Layers must agree: the first says in which tensors gate and up are.
    let split = |tiny: &mut Tiny| {
        fuse(tiny);
        tiny.without(name);
        tiny.tensor("blk.1.ffn_gate_exps.weight", &[32, 16, 4]);
        tiny.tensor("blk.1.ffn_up_exps.weight", &[32, 16, 4]);
    };
    refused(split, &[&format!("tensor `{name}` of shape [32, 32, 4] is missing")]);
}
