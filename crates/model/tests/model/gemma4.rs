//! Gemma 4: experts next to an MLP, inputs of each layer and shared caches; what is read of them, and what is refused
//! by key or tensor.

use gristmill_kernels::ops::{Activation, Routing, Window};
use gristmill_model::spec::{MlpSpec, ModelSpec, MoeSpec};
use gristmill_model::{Error, Limits, ModelInfo, Runner};

use crate::reference;
use crate::tiny::{Random, Tiny};

fn read(tiny: &Tiny) -> Result<ModelSpec, Error> {
    ModelInfo::read(&tiny.file(&mut Random(5))).map(|info| info.spec)
}

/// Fails unless a change of a good file is refused in these words.
fn refused(change: impl FnOnce(&mut Tiny), says: &[&str]) {
    refused_of(Tiny::gemma4(), change, says);
}

fn refused_of(mut tiny: Tiny, change: impl FnOnce(&mut Tiny), says: &[&str]) {
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
fn experts_and_a_dense_mlp() {
    let mut tiny = Tiny::gemma4();
    for fused in [false, true] {
        if fused {
            fuse(&mut tiny);
        }
        let spec = read(&tiny).expect("a good model");
        assert!(spec.post_norms && !spec.layer_scales);
        for (layer, window) in spec.layers.iter().zip([Some(Window::Last(5)), None]) {
            let attention = layer.attention().expect("attention");
            assert_eq!((attention.window, attention.values_are_keys), (window, window.is_none()));
            let Some(MlpSpec::Moe(MoeSpec { inner, activation, routing, router_norm, expert_scales, beside, .. })) =
                layer.mlp
            else {
                panic!("experts expected");
            };
            assert_eq!((inner, activation, routing), (16, Activation::GeGlu, Routing::softmax(2, true)));
            assert!(router_norm && expert_scales && beside == Some(48));
        }
    }
}

#[test]
fn missing_tensors_of_experts_and_a_dense_mlp_are_named() {
    for name in ["ffn_gate_inp.scale", "ffn_down_exps.scale", "pre_ffw_norm_2.weight", "post_ffw_norm_1.weight"] {
        let name = format!("blk.1.{name}");
        refused(|tiny| tiny.without(&name), &[&format!("tensor `{name}` of shape"), "is missing"]);
    }
    let scale = "blk.0.ffn_down_exps.scale";
    refused(|tiny| tiny.tensor(scale, &[5]), &[scale, "[5]", "[4]"]);
    refused(|tiny| tiny.tensor(scale, &[2, 2]), &[scale, "[2, 2]", "[4]"]);
    for shape in [&[1_u64, 4][..], &[4, 1], &[1, 1, 4, 1]] {
        let mut tiny = Tiny::gemma4();
        tiny.tensor(scale, shape);
        read(&tiny).expect("dimensions of 1 change nothing");
    }
    let set = |key: &'static str, value: u32| move |tiny: &mut Tiny| tiny.set(&format!("gemma4.{key}"), value);
    refused(set("feed_forward_length", 40), &["blk.0.ffn_gate.weight", "[32, 48]", "[32, 40]"]);
    refused(set("feed_forward_length", 0), &["gemma4.feed_forward_length", "must be at least 1"]);
    refused(set("expert_used_count", 5), &["gemma4.expert_used_count`: 5 is more than the 4 experts"]);
    let shared = "`gemma4.expert_shared_count`: `1` is not supported; known: 0";
    refused(set("expert_shared_count", 1), &[shared]);
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
    // Each layer has its own tensors.
    let mut mixed = Tiny::gemma4();
    fuse(&mut mixed);
    mixed.without(name);
    mixed.tensor("blk.1.ffn_gate_exps.weight", &[32, 16, 4]);
    refused_of(mixed.clone(), |_| (), &["tensor `blk.1.ffn_up_exps.weight` of shape", "is missing"]);
    mixed.tensor("blk.1.ffn_up_exps.weight", &[32, 16, 4]);
    read(&mixed).expect("gate and up of layer 1 are two tensors");
}

#[test]
fn inputs_of_layers_and_shared_caches() {
    let spec = read(&Tiny::gemma4_e()).expect("a good model");
    assert_eq!(spec.layer_inputs, Some(8));
    let [first, second] = [0, 1].map(|layer| spec.layers[layer].attention().expect("attention"));
    assert_eq!((first.kv_from, second.kv_from), (None, Some(0)));
    assert!(first.value_norm && !second.value_norm && !second.values_are_keys);
    assert_eq!((first.qkv_columns(), second.qkv_columns()), (128, 64));
    for (layer, width) in spec.layers.iter().zip([24, 48]) {
        assert!(matches!(layer.mlp, Some(MlpSpec::Dense { inner, .. }) if inner == width));
    }
    // A window's layers share among themselves.
    let mut tiny = Tiny::gemma4_e();
    tiny.set("gemma4.attention.sliding_window_pattern", vec![true, true]);
    let spec = read(&tiny).expect("a good model");
    assert_eq!(spec.layers[1].attention().expect("attention").kv_from, Some(0));
}

/// Files may have keys and values for a layer that shares: they are not loaded, and a cache that two layers read is
/// counted once.
#[test]
fn a_shared_cache_is_one() {
    let mut shared = Tiny::gemma4_e();
    shared.tensor("blk.1.attn_k.weight", &[32, 32]);
    shared.tensor("blk.1.attn_v.weight", &[32, 32]);
    shared.tensor("blk.1.attn_k_norm.weight", &[16]);
    let spec = read(&shared).expect("a good model");
    assert!(spec.leaves_out("blk.1.attn_k.weight") && spec.leaves_out("blk.1.attn_k_norm.weight"));
    for name in ["blk.0.attn_k.weight", "blk.1.attn_q.weight", "blk.1.attn_q_norm.weight", "blk.2.attn_k.weight"] {
        assert!(!spec.leaves_out(name), "{name}");
    }
    let mut apart = shared.clone();
    apart.set("gemma4.attention.shared_kv_layers", 0_u32);
    let limits = Limits { context: Some(100), sequences: 2, ..Limits::default() };
    let bytes = |tiny: &Tiny| {
        let runner = Runner::new(reference(&tiny.file(&mut Random(7))), limits).expect("it fits");
        (runner.plan().state, runner.kv_usage().capacity)
    };
    // 7 blocks of 16 tokens, two heads of 16 + 16 numbers in f16.
    let one = 2 * 7 * 16 * 2 * 32 * 2;
    assert_eq!(bytes(&shared), (one, 2 * 7 * 16));
    assert_eq!(bytes(&apart), (2 * one, 2 * 7 * 16));
}

#[test]
fn what_inputs_of_layers_and_shared_caches_lack_is_named() {
    let refused = |change: &dyn Fn(&mut Tiny), says: &[&str]| refused_of(Tiny::gemma4_e(), change, says);
    for name in
        ["per_layer_token_embd.weight", "per_layer_model_proj.weight", "blk.1.inp_gate.weight", "blk.0.proj.weight"]
    {
        refused(&|tiny| tiny.without(name), &[&format!("tensor `{name}` of shape"), "is missing"]);
    }
    let set = |key: &'static str, value: u32| move |tiny: &mut Tiny| tiny.set(&format!("gemma4.{key}"), value);
    let width = "embedding_length_per_layer_input";
    refused(&set(width, 9), &["per_layer_token_embd.weight", "[16, 61]", "[18, 61]"]);
    refused(&set(width, 0), &["is not a weight of this gemma4 model"]);
    refused(&set(width, u32::MAX), &[width, "that gristmill supports"]);
    let shared = "attention.shared_kv_layers";
    refused(&set(shared, 0), &["blk.1.attn_k_norm.weight", "is missing"]);
    refused(&set(shared, 2), &[shared, "2 leaves none of the 2 layers with a cache of its own"]);
    refused(&set(shared, 3), &[shared, "3 leaves none of the 2 layers"]);
    let pattern = |tiny: &mut Tiny| tiny.set("gemma4.attention.sliding_window_pattern", vec![true, false]);
    refused(&pattern, &[shared, "1 leaves layer 1 without a layer before it that sees as much"]);
    let heads = |tiny: &mut Tiny| tiny.set("gemma4.attention.head_count_kv", vec![2_u32, 1]);
    refused(&heads, &["head_count_kv`: 1 of layer 1 are not those of layer 0"]);
    let widths = |widths: Vec<u32>| move |tiny: &mut Tiny| tiny.set("gemma4.feed_forward_length", widths.clone());
    refused(&widths(vec![24, 48, 48]), &["feed_forward_length`: 3 numbers are not the 2 layers"]);
    refused(&widths(vec![24, 0]), &["feed_forward_length`: 0 must be at least 1 in every layer"]);
    refused(&widths(vec![24, 24]), &["blk.1.ffn_gate.weight", "[32, 48]", "[32, 24]"]);
}
