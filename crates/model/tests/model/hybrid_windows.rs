//! `step35` and `mimo2`: layers with a window differ from the others in heads, RoPE and sinks. What is read of their files,
//! and what is refused by key or tensor.

use gristmill_kernels::ops::{Activation, GateKind, Window};
use gristmill_model::spec::{AttentionSpec, LayerSpec, MlpSpec, OutputGate};
use gristmill_model::{Error, ModelInfo};

use crate::tiny::{Random, Tiny, VOCAB};

/// Two dense layers. `layers`: the tensors of each besides norms and MLP.
pub(crate) fn two_layers(arch: &str, keys: &[(&str, u32)], layers: [&[(&str, &[u64])]; 2]) -> Tiny {
    let mut tiny = Tiny { pairs: vec![], tensors: vec![] };
    tiny.set("general.architecture", arch);
    let common = [
        ("block_count", 2),
        ("context_length", 100),
        ("embedding_length", 32),
        ("feed_forward_length", 48),
        ("leading_dense_block_count", 2),
        ("expert_count", 4),
        ("expert_used_count", 2),
    ];
    for (key, value) in common.iter().chain(keys) {
        tiny.set(&format!("{arch}.{key}"), *value);
    }
    tiny.set(&format!("{arch}.attention.layer_norm_rms_epsilon"), 1e-5_f32);
    tiny.tensor("token_embd.weight", &[32, VOCAB]);
    tiny.tensor("output_norm.weight", &[32]);
    for (layer, own) in layers.into_iter().enumerate() {
        let mlp: [(&str, &[u64]); 5] = [
            ("attn_norm.weight", &[32]),
            ("ffn_norm.weight", &[32]),
            ("ffn_gate.weight", &[32, 48]),
            ("ffn_up.weight", &[32, 48]),
            ("ffn_down.weight", &[48, 32]),
        ];
        for (name, shape) in mlp.iter().chain(own) {
            tiny.tensor(&format!("blk.{layer}.{name}"), shape);
        }
    }
    tiny
}

pub(crate) fn step35() -> Tiny {
    let full: [(&str, &[u64]); 7] = [
        ("attn_q.weight", &[32, 32]),
        ("attn_k.weight", &[32, 16]),
        ("attn_v.weight", &[32, 16]),
        ("attn_output.weight", &[32, 32]),
        ("attn_gate.weight", &[32, 4]),
        ("attn_q_norm.weight", &[8]),
        ("attn_k_norm.weight", &[8]),
    ];
    let mut windowed = full;
    (windowed[0].1, windowed[3].1, windowed[4].1) = (&[32, 48], &[48, 32], &[32, 6]);
    let widths = [("attention.key_length", 8), ("attention.value_length", 8), ("attention.head_count_kv", 2)];
    let mut tiny = two_layers("step35", &widths, [&full, &windowed]);
    tiny.set("step35.attention.sliding_window", 9_u32);
    tiny.set("step35.rope.freq_base_swa", 500.0_f32);
    tiny.set("step35.attention.head_count", vec![4_u32, 6]);
    tiny.set("step35.attention.sliding_window_pattern", vec![false, true]);
    tiny.set("step35.swiglu_clamp_shexp", vec![0.0_f32, 2.5]);
    tiny
}

pub(crate) fn mimo2() -> Tiny {
    let full: [(&str, &[u64]); 4] = [
        ("attn_q.weight", &[32, 48]),
        ("attn_k.weight", &[32, 12]),
        ("attn_v.weight", &[32, 8]),
        ("attn_output.weight", &[32, 32]),
    ];
    let windowed: [(&str, &[u64]); 5] = [
        ("attn_q.weight", &[32, 48]),
        ("attn_k.weight", &[32, 24]),
        ("attn_v.weight", &[32, 16]),
        ("attn_output.weight", &[32, 32]),
        ("attn_sinks.weight", &[4]),
    ];
    let widths = [
        ("attention.key_length", 12),
        ("attention.value_length", 8),
        ("attention.head_count", 4),
        ("rope.dimension_count", 4),
    ];
    let mut tiny = two_layers("mimo2", &widths, [&full, &windowed]);
    tiny.set("mimo2.attention.sliding_window", 9_u32);
    tiny.set("mimo2.rope.freq_base_swa", 500.0_f32);
    tiny.set("mimo2.attention.head_count_kv", vec![1_u32, 2]);
    tiny.set("mimo2.attention.sliding_window_pattern", vec![0_i32, 1]);
    tiny.set("mimo2.attention.value_scale", 0.5_f32);
    tiny
}

fn read(tiny: &Tiny) -> Result<ModelInfo, Error> {
    ModelInfo::read(&tiny.file(&mut Random(5)))
}

fn layers(tiny: &Tiny) -> Vec<LayerSpec> {
    read(tiny).expect("a good model").spec.layers
}

fn attention(layer: &LayerSpec) -> &AttentionSpec {
    layer.attention().expect("attention")
}

fn refused(make: fn() -> Tiny, change: impl FnOnce(&mut Tiny), says: &[&str]) {
    let mut tiny = make();
    change(&mut tiny);
    let message = read(&tiny).expect_err("a bad model").to_string();
    assert!(says.iter().all(|part| message.contains(part)), "{message}");
}

/// The base and width of RoPE.
fn rotation(layer: &LayerSpec) -> (f32, usize) {
    let rope = attention(layer).rope.as_ref().expect("RoPE");
    (rope.base, rope.width)
}

#[test]
fn layers_of_step35_differ_in_heads_rotation_and_limits() {
    let layers = layers(&step35());
    let heads = |layer: &LayerSpec| (attention(layer).heads, attention(layer).window, rotation(layer));
    assert_eq!(heads(&layers[0]), (4, None, (10_000.0, 4)));
    assert_eq!(heads(&layers[1]), (6, Some(Window::Last(9)), (500.0, 8)));
    let gated = |gate: OutputGate| (gate.kind, gate.per_head);
    assert!(layers.iter().all(|layer| attention(layer).gate.map(gated) == Some((GateKind::Sigmoid, true))));
    let activation = |layer: &LayerSpec| match layer.mlp {
        Some(MlpSpec::Dense { activation, .. }) => activation,
        _ => panic!("a dense MLP expected"),
    };
    assert_eq!(activation(&layers[0]), Activation::SwiGlu);
    assert_eq!(activation(&layers[1]), Activation::LimitedSwiGlu { limit: 2.5 });
}

#[test]
fn bad_limits_and_widths_are_named() {
    let set = |value: Vec<f32>| move |tiny: &mut Tiny| tiny.set("step35.swiglu_clamp_exp", value);
    refused(step35, set(vec![1.0]), &["`step35.swiglu_clamp_exp`: 1 numbers are not the 2 layers"]);
    refused(step35, set(vec![1.0, -1.0]), &["`step35.swiglu_clamp_exp`: -1 must be finite and not negative"]);
    refused(step35, set(vec![f32::NAN, 0.0]), &["`step35.swiglu_clamp_exp`: NaN must be finite"]);
    let one = |tiny: &mut Tiny| tiny.set("step35.swiglu_clamp_shexp", -2.0_f32);
    refused(step35, one, &["`step35.swiglu_clamp_shexp`: -2 must be finite"]);
    let width = |tiny: &mut Tiny| tiny.set("step35.rope.dimension_count", 6_u32);
    refused(step35, width, &["`step35.rope.dimension_count`: 6 must be a multiple of 4"]);
    let heads = |tiny: &mut Tiny| tiny.set("step35.attention.head_count", vec![4_u32, 5]);
    refused(step35, heads, &["`step35.attention.head_count`: 5 is not a multiple of the 2 KV heads"]);
    refused(step35, |tiny| tiny.without("blk.1.attn_gate.weight"), &["`blk.1.attn_gate.weight`", "missing"]);
    let pattern = |tiny: &mut Tiny| tiny.unset("step35.attention.sliding_window_pattern");
    refused(step35, pattern, &["step35.attention.sliding_window_pattern"]);
}

#[test]
fn layers_of_mimo2_differ_in_kv_heads_base_and_sinks() {
    let layers = layers(&mimo2());
    let heads = |layer: &LayerSpec| (attention(layer).kv_heads, attention(layer).sinks, rotation(layer));
    assert_eq!(heads(&layers[0]), (1, false, (10_000.0, 4)));
    assert_eq!(heads(&layers[1]), (2, true, (500.0, 4)));
    // A window of n positions includes the token's own.
    assert_eq!([0, 1].map(|layer| attention(&layers[layer]).window), [None, Some(Window::Last(9))]);
    assert!(layers.iter().all(|layer| attention(layer).value_scale == 0.5));
}

#[test]
fn bad_windows_of_mimo2_are_named() {
    let set = |value: Vec<i32>| move |tiny: &mut Tiny| tiny.set("mimo2.attention.sliding_window_pattern", value);
    refused(mimo2, set(vec![0, 2]), &["`mimo2.attention.sliding_window_pattern`: 2 must be 0 or 1"]);
    refused(mimo2, set(vec![1]), &["`mimo2.attention.sliding_window_pattern`: 1 flags are not the 2 layers"]);
    let scale = |tiny: &mut Tiny| tiny.set("mimo2.attention.value_scale", -1.0_f32);
    refused(mimo2, scale, &["`mimo2.attention.value_scale`: -1 must be finite and above 0"]);
    let sinks = |tiny: &mut Tiny| tiny.tensor("blk.0.attn_sinks.weight", &[3]);
    refused(mimo2, sinks, &["`blk.0.attn_sinks.weight`", "[3]", "[4]"]);
}
