//! Latent attention: what is read of it, the cache of a token, and what is refused by key or tensor.

use gristmill_kernels::kv::KvFormat;
use gristmill_kernels::ops::{Gating, GroupWorth, Temperature};
use gristmill_model::spec::{LatentSpec, Mixer, MlpSpec, RopeScaling};
use gristmill_model::{Error, ModelInfo};

use crate::tiny::{Random, Tiny, VOCAB};

/// Widths of DeepSeek V3 but for the residual stream, two heads, dense layers.
pub(crate) fn tiny() -> Tiny {
    let mut tiny = Tiny { pairs: vec![], tensors: vec![] };
    tiny.set("general.architecture", "deepseek2");
    for (key, value) in [
        ("block_count", 2_u32),
        ("context_length", 100),
        ("embedding_length", 32),
        ("feed_forward_length", 48),
        ("attention.head_count", 2),
        ("attention.head_count_kv", 1),
        ("attention.q_lora_rank", 40),
        ("attention.kv_lora_rank", 512),
        ("attention.key_length", 576),
        ("attention.value_length", 512),
        ("attention.key_length_mla", 192),
        ("attention.value_length_mla", 128),
        ("rope.dimension_count", 64),
    ] {
        tiny.set(&format!("deepseek2.{key}"), value);
    }
    tiny.set("deepseek2.attention.layer_norm_rms_epsilon", 1e-6_f32);
    tiny.tensor("token_embd.weight", &[32, VOCAB]);
    tiny.tensor("output_norm.weight", &[32]);
    for layer in 0..2 {
        for (name, shape) in [
            ("attn_norm", &[32][..]),
            ("attn_q_a", &[32, 40]),
            ("attn_q_a_norm", &[40]),
            ("attn_q_b", &[40, 384]),
            ("attn_kv_a_mqa", &[32, 576]),
            ("attn_kv_a_norm", &[512]),
            ("attn_k_b", &[128, 512, 2]),
            ("attn_v_b", &[512, 128, 2]),
            ("attn_output", &[256, 32]),
            ("ffn_norm", &[32]),
            ("ffn_gate", &[32, 48]),
            ("ffn_up", &[32, 48]),
            ("ffn_down", &[48, 32]),
        ] {
            tiny.tensor(&format!("blk.{layer}.{name}.weight"), shape);
        }
    }
    tiny
}

fn read(tiny: &Tiny) -> Result<ModelInfo, Error> {
    ModelInfo::read(&tiny.file(&mut Random(7)))
}

fn latent(tiny: &Tiny) -> LatentSpec {
    let spec = read(tiny).expect("a good model").spec;
    let Mixer::Latent(latent) = spec.layers[1].mixer.clone() else { panic!("latent attention expected") };
    latent
}

fn refused(change: impl FnOnce(&mut Tiny), says: &[&str]) {
    let mut tiny = tiny();
    change(&mut tiny);
    let message = read(&tiny).expect_err("a bad model").to_string();
    assert!(says.iter().all(|part| message.contains(part)), "{message}");
}

#[test]
fn a_token_has_one_row_for_all_heads() {
    let spec = read(&tiny()).expect("a good model").spec;
    let bytes = |format| spec.layers[0].cache(format).expect("a cache").block_bytes() / 16;
    assert_eq!((bytes(KvFormat::F16), bytes(KvFormat::Q8_0)), (1152, 576 + 36));
    let expected = LatentSpec {
        heads: 2,
        query_rank: Some(40),
        latent: 512,
        plain: 128,
        rotated: 64,
        value_width: 128,
        ..latent(&tiny())
    };
    assert_eq!(latent(&tiny()), expected);
    assert!((latent(&tiny()).scale - 0.072_168_8).abs() < 1e-6);
    assert!(matches!(spec.layers[0].mlp, Some(MlpSpec::Dense { inner: 48, .. })));
}

/// The scales are those of DeepSeek V3 and V2-Lite in transformers.
#[test]
fn the_magnitude_of_yarn_is_a_factor_of_logits() {
    for (multiplier, scale) in [(0.1, 0.135_234), (0.0707, 0.114_721)] {
        let mut tiny = tiny();
        tiny.set("deepseek2.rope.scaling.type", "yarn");
        tiny.set("deepseek2.rope.scaling.factor", 40.0_f32);
        tiny.set("deepseek2.rope.scaling.original_context_length", 50_u32);
        tiny.set("deepseek2.rope.scaling.yarn_log_multiplier", multiplier);
        let latent = latent(&tiny);
        assert!((latent.scale - scale).abs() < 1e-6, "{}", latent.scale);
        let Some(RopeScaling::Yarn { attention_factor, .. }) = latent.rope.map(|rope| rope.scaling) else {
            panic!("YaRN expected");
        };
        // Sines and cosines have none.
        assert!((attention_factor * (0.1 * 40_f32.ln() + 1.0) - 1.0).abs() < 1e-6);
    }
}

/// Older files have the keys and values of all heads in one tensor, and the widths of a head under other names.
#[test]
fn older_files_have_one_tensor_for_keys_and_values() {
    let mut tiny = tiny();
    tiny.pairs.retain(|(key, _)| !key.ends_with("_mla"));
    tiny.set("deepseek2.attention.key_length", 192_u32);
    tiny.set("deepseek2.attention.value_length", 128_u32);
    for layer in 0..2 {
        ["attn_k_b", "attn_v_b"].iter().for_each(|part| tiny.without(&format!("blk.{layer}.{part}.weight")));
        tiny.tensor(&format!("blk.{layer}.attn_kv_b.weight"), &[512, 512]);
    }
    assert_eq!((latent(&tiny).plain, latent(&tiny).value_width), (128, 128));
}

/// Queries of Mistral Large 3 have a temperature, which grows with each original context.
#[test]
fn queries_may_have_a_temperature() {
    let mut tiny = tiny();
    assert_eq!(latent(&tiny).temperature, None);
    tiny.set("deepseek2.attention.temperature_scale", 0.1_f32);
    tiny.set("deepseek2.rope.scaling.original_context_length", 40_u32);
    tiny.set("deepseek2.attention.temperature_length", 40_u32);
    assert_eq!(latent(&tiny).temperature, Some(Temperature { scale: 0.1, length: 40, offset: 0 }));
}

#[test]
fn experts_are_read() {
    for (biased, gating, worth) in
        [(true, Gating::Sigmoid, GroupWorth::TwoHighest), (false, Gating::Softmax, GroupWorth::Highest)]
    {
        let mut tiny = tiny();
        for (key, value) in [
            ("expert_count", 8_u32),
            ("expert_used_count", 2),
            ("expert_feed_forward_length", 16),
            ("leading_dense_block_count", 1),
            ("expert_group_count", 4),
            ("expert_group_used_count", 2),
        ] {
            tiny.set(&format!("deepseek2.{key}"), value);
        }
        ["gate", "up", "down"].iter().for_each(|part| tiny.without(&format!("blk.1.ffn_{part}.weight")));
        for (name, shape) in [
            ("ffn_gate_inp.weight", &[32, 8][..]),
            ("ffn_gate_exps.weight", &[32, 16, 8]),
            ("ffn_up_exps.weight", &[32, 16, 8]),
            ("ffn_down_exps.weight", &[16, 32, 8]),
        ] {
            tiny.tensor(&format!("blk.1.{name}"), shape);
        }
        if biased {
            tiny.tensor("blk.1.exp_probs_b.bias", &[8]);
        }
        let spec = read(&tiny).expect("a good model").spec;
        let Some(MlpSpec::Moe(moe)) = spec.layers[1].mlp.clone() else { panic!("experts expected") };
        let routing = moe.routing;
        assert_eq!((routing.gating, routing.worth, routing.normalise), (gating, worth, false));
        assert_eq!((routing.groups, routing.top_groups, moe.selection_bias), (4, 2, biased));
    }
}

#[test]
fn contradictions_are_named() {
    let set = |key: &'static str, value: u32| move |tiny: &mut Tiny| tiny.set(&format!("deepseek2.{key}"), value);
    refused(set("attention.key_length", 575), &["deepseek2.attention.key_length`: 575 is not", "576"]);
    refused(set("attention.value_length", 576), &["deepseek2.attention.value_length`: 576 is not", "512"]);
    refused(set("rope.dimension_count", 63), &["deepseek2.rope.dimension_count`: 63 must be even", "192"]);
    refused(set("rope.dimension_count", 192), &["deepseek2.rope.dimension_count`: 192 must be even and below"]);
    refused(set("attention.head_count", 0), &["deepseek2.attention.head_count`: 0 must be at least 1"]);
    refused(set("attention.head_count", 1025), &["deepseek2.attention.head_count`: 1025 is more than the 1024"]);
    refused(set("attention.kv_lora_rank", u32::MAX), &["deepseek2.attention.kv_lora_rank", "that gristmill supports"]);
    refused(set("attention.q_lora_rank", 41), &["tensor `blk.0.attn_q_a.weight`", "[32, 41]"]);
    let temperature = |tiny: &mut Tiny| {
        tiny.set("deepseek2.attention.temperature_scale", 0.1_f32);
        tiny.set("deepseek2.attention.temperature_length", 99_u32);
    };
    refused(temperature, &["deepseek2.attention.temperature_length`: 99 is not the original context, 100"]);
    refused(|tiny| tiny.without("blk.1.attn_v_b.weight"), &["tensor `blk.1.attn_v_b.weight`", "is missing"]);
    refused(|tiny| tiny.tensor("blk.1.attn_k.weight", &[32, 32]), &["tensor `blk.1.attn_k.weight` is not a weight"]);
}
