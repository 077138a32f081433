//! Delta rules in which each element of a key has a gate (KDA), next to latent attention: what is read of their files,
//! and what is refused by key or tensor.

use std::sync::Arc;

use gristmill_kernels::ops::DecayKind;
use gristmill_kernels::reference::Reference;
use gristmill_model::gguf::{Array, Value};
use gristmill_model::spec::{ChannelGates, DeltaProjections, DeltaSpec, LatentSpec, Mixer, StateBuffer, StateName};
use gristmill_model::{Batch, Error, Limits, LoadOptions, Model, ModelInfo, Outputs, Runner};

use crate::hybrid_windows::two_layers;
use crate::tiny::{Random, Tiny};

/// Two heads, a layer with a delta rule, then one with latent attention, dense layers. The tensors of both are those of
/// the architecture.
fn hybrid(arch: &str, delta: &[(&str, &[u64])], latent: &[(&str, &[u64])]) -> Tiny {
    let keys = [
        ("attention.head_count", 2),
        ("attention.kv_lora_rank", 48),
        ("attention.key_length", 56),
        ("attention.value_length", 72),
        ("attention.key_length_mla", 24),
        ("attention.value_length_mla", 12),
        ("rope.dimension_count", 8),
        ("kda.head_dim", 16),
        ("ssm.conv_kernel", 4),
    ];
    let mut tiny = two_layers(arch, &keys, [delta, latent]);
    tiny.set(&format!("{arch}.attention.head_count_kv"), vec![0_u32, 1]);
    tiny.set(&format!("{arch}.attention.layer_norm_rms_epsilon"), 1e-6_f32);
    tiny
}

/// Shapes as llama.cpp writes them, with dimensions of 1.
pub(crate) fn kimi_linear() -> Tiny {
    let delta: [(&str, &[u64]); 14] = [
        ("attn_q.weight", &[32, 32]),
        ("attn_k.weight", &[32, 32]),
        ("attn_v.weight", &[32, 32]),
        ("ssm_conv1d_q.weight", &[4, 1, 32, 1]),
        ("ssm_conv1d_k.weight", &[4, 1, 32]),
        ("ssm_conv1d_v.weight", &[4, 32]),
        ("ssm_f_a.weight", &[32, 16]),
        ("ssm_f_b.weight", &[16, 32]),
        ("ssm_g_a.weight", &[32, 16]),
        ("ssm_g_b.weight", &[16, 32]),
        ("ssm_a", &[1, 2, 1, 1]),
        ("ssm_dt.bias", &[32]),
        ("ssm_beta.weight", &[32, 2]),
        ("ssm_norm.weight", &[16]),
    ];
    let latent: [(&str, &[u64]); 5] = [
        ("attn_q.weight", &[32, 48]),
        ("attn_kv_a_mqa.weight", &[32, 56]),
        ("attn_kv_a_norm.weight", &[48]),
        ("attn_k_b.weight", &[16, 48, 2]),
        ("attn_v_b.weight", &[48, 12, 2]),
    ];
    let mut tiny = hybrid("kimi-linear", &delta, &latent);
    tiny.tensor("blk.0.attn_output.weight", &[32, 32]);
    tiny.tensor("blk.1.attn_output.weight", &[24, 32]);
    tiny
}

/// Queries, keys and values of the delta rule are one tensor, and queries of the attention have a rank.
pub(crate) fn bailingmoe3() -> Tiny {
    let delta: [(&str, &[u64]); 10] = [
        ("attn_qkv.weight", &[32, 96]),
        ("ssm_conv1d_q.weight", &[4, 1, 32, 1]),
        ("ssm_conv1d_k.weight", &[4, 1, 32, 1]),
        ("ssm_conv1d_v.weight", &[4, 1, 32, 1]),
        ("ssm_f_a.weight", &[32, 32]),
        ("ssm_g_a.weight", &[32, 32]),
        ("ssm_a", &[1, 2]),
        ("ssm_dt.bias", &[32]),
        ("ssm_beta.weight", &[32, 2]),
        ("ssm_norm.weight", &[16]),
    ];
    let latent: [(&str, &[u64]); 8] = [
        ("attn_q_a.weight", &[32, 20]),
        ("attn_q_a_norm.weight", &[20]),
        ("attn_q_b.weight", &[20, 48]),
        ("attn_kv_a_mqa.weight", &[32, 56]),
        ("attn_kv_a_norm.weight", &[48]),
        ("attn_k_b.weight", &[16, 48, 2]),
        ("attn_v_b.weight", &[48, 12, 2]),
        ("attn_gate.weight", &[32, 2]),
    ];
    let mut tiny = hybrid("bailingmoe3", &delta, &latent);
    tiny.tensor("blk.0.attn_output.weight", &[32, 32]);
    tiny.tensor("blk.1.attn_output.weight", &[24, 32]);
    tiny.set("bailingmoe3.attention.q_lora_rank", 20_u32);
    tiny.set("bailingmoe3.kda.safe_gate", true);
    tiny.set("bailingmoe3.kda.gate_lower_bound", -5.0_f32);
    tiny
}

fn read(tiny: &Tiny) -> Result<ModelInfo, Error> {
    ModelInfo::read(&tiny.file(&mut Random(5)))
}

/// The delta rule and the attention of a model.
fn mixers(tiny: &Tiny) -> (DeltaSpec, LatentSpec) {
    let spec = read(tiny).expect("a good model").spec;
    match [0, 1].map(|layer: usize| spec.layers[layer].mixer.clone()) {
        [Mixer::Delta(delta), Mixer::Latent(latent)] => (delta, latent),
        others => panic!("{others:?}"),
    }
}

fn gates(tiny: &Tiny) -> ChannelGates {
    match mixers(tiny).0.projections {
        DeltaProjections::PerChannel(gates) => gates,
        other => panic!("{other:?}"),
    }
}

/// Kimi Linear: gates without a bound, of two matrices, and the negative decay; attention without RoPE. Ling 3: gates
/// with a bound, of one matrix, and the decay itself; attention with RoPE and a gate.
#[test]
fn gates_and_attention_are_those_of_the_architecture() {
    let kimi = ChannelGates { decay: DecayKind::Softplus, is_negated: false, rank: Some(16) };
    assert_eq!(gates(&kimi_linear()), kimi);
    let ling = ChannelGates { decay: DecayKind::Bounded(-5.0), is_negated: true, rank: None };
    assert_eq!(gates(&bailingmoe3()), ling);
    let mut bounded = kimi_linear();
    bounded.set("kimi-linear.kda.gate_lower_bound", -3.0_f32);
    assert_eq!(gates(&bounded).decay, DecayKind::Bounded(-3.0));
    let mut unbounded = bailingmoe3();
    unbounded.set("bailingmoe3.kda.safe_gate", false);
    assert_eq!(gates(&unbounded).decay, DecayKind::Softplus);

    let ((delta, kimi), (_, ling)) = (mixers(&kimi_linear()), mixers(&bailingmoe3()));
    assert_eq!((kimi.rope.is_some(), kimi.is_gated, kimi.query_rank), (false, false, None));
    assert_eq!((ling.rope.is_some(), ling.is_gated, ling.query_rank), (true, true, Some(20)));
    assert!((kimi.scale - 24_f32.powf(-0.5)).abs() < 1e-6);
    // The inputs of three convolutions of 32 channels, and two matrices.
    let buffer = |name, elements| StateBuffer { name, elements };
    let state = [buffer(StateName::Convolution, 3 * 3 * 32), buffer(StateName::Delta, 2 * 16 * 16)];
    assert_eq!(Mixer::Delta(delta).fixed_state(32), state);
}

#[test]
fn what_is_wrong_is_refused_by_name() {
    type Change = fn(&mut Tiny);
    let numbers = |values: &[u32]| Value::Array(Array::U32(values.to_vec()));
    let cases: [(Tiny, Change, &str); 22] = [
        (kimi_linear(), |t| t.unset("kimi-linear.kda.head_dim"), "`kimi-linear.kda.head_dim`"),
        (
            kimi_linear(),
            |t| t.set("kimi-linear.kda.head_dim", 48_u32),
            "`kimi-linear.kda.head_dim`: `48` is not supported",
        ),
        (kimi_linear(), |t| t.unset("kimi-linear.ssm.conv_kernel"), "`kimi-linear.ssm.conv_kernel`"),
        (kimi_linear(), |t| t.unset("kimi-linear.attention.key_length_mla"), "`kimi-linear.attention.key_length_mla`"),
        (
            kimi_linear(),
            |t| t.unset("kimi-linear.attention.value_length_mla"),
            "`kimi-linear.attention.value_length_mla`",
        ),
        (kimi_linear(), |t| t.set("kimi-linear.attention.head_count", 1025_u32), "1025 is more than the 1024"),
        (
            kimi_linear(),
            |t| t.set("kimi-linear.kda.gate_lower_bound", 0.0_f32),
            "`kimi-linear.kda.gate_lower_bound`: 0 must be",
        ),
        (
            kimi_linear(),
            |t| t.set("kimi-linear.kda.gate_lower_bound", f32::NAN),
            "`kimi-linear.kda.gate_lower_bound`: NaN must be",
        ),
        (kimi_linear(), |t| t.without("blk.0.ssm_f_a.weight"), "`blk.0.ssm_f_a.weight`"),
        (kimi_linear(), |t| t.without("blk.0.ssm_g_b.weight"), "`blk.0.ssm_g_b.weight`"),
        (kimi_linear(), |t| t.without("blk.0.ssm_conv1d_k.weight"), "`blk.0.ssm_conv1d_k.weight`"),
        (kimi_linear(), |t| t.without("blk.0.ssm_dt.bias"), "`blk.0.ssm_dt.bias`"),
        (kimi_linear(), |t| t.without("blk.0.ssm_a"), "`blk.0.ssm_a`"),
        (kimi_linear(), |t| t.tensor("blk.0.ssm_dt.bias", &[2]), "`blk.0.ssm_dt.bias`"),
        (kimi_linear(), |t| t.tensor("blk.0.ssm_a", &[32]), "`blk.0.ssm_a`"),
        (kimi_linear(), |t| t.tensor("blk.0.ssm_conv1d_v.weight", &[3, 32]), "`blk.0.ssm_conv1d_v.weight`"),
        (kimi_linear(), |t| t.tensor("blk.1.attn_gate.weight", &[32, 2]), "`blk.1.attn_gate.weight` is not a weight"),
        (bailingmoe3(), |t| t.unset("bailingmoe3.kda.gate_lower_bound"), "`bailingmoe3.kda.gate_lower_bound`"),
        (bailingmoe3(), |t| t.without("blk.1.attn_gate.weight"), "`blk.1.attn_gate.weight`"),
        (bailingmoe3(), |t| t.tensor("blk.0.ssm_f_a.weight", &[32, 16]), "`blk.0.ssm_f_a.weight`"),
        (
            bailingmoe3(),
            |t| t.set("bailingmoe3.swiglu_clamp_exp", Value::Array(Array::F32(vec![0.0, 7.0]))),
            "`bailingmoe3.swiglu_clamp_exp`: `7` is not supported",
        ),
        (
            bailingmoe3(),
            |t| t.set("bailingmoe3.swiglu_clamp_shexp", Value::Array(Array::F32(vec![0.0]))),
            "1 numbers are not the 2 layers",
        ),
    ];
    for (mut tiny, change, says) in cases {
        change(&mut tiny);
        let message = read(&tiny).expect_err(says).to_string();
        assert!(message.contains(says), "{message}, not {says}");
    }
    let mut tiny = bailingmoe3();
    tiny.set("bailingmoe3.attention.head_count_kv", numbers(&[0, 1, 1]));
    let message = read(&tiny).expect_err("a bad length").to_string();
    assert!(message.contains("3 numbers are not the 2 layers"), "{message}");
}

/// A sequence in one batch, in several, after truncation, and of a fork.
#[test]
fn states_continue_fork_and_go_back() {
    for tiny in [kimi_linear(), bailingmoe3()] {
        let file = tiny.file(&mut Random(5));
        let model = Arc::new(Model::with_backend(file, Reference::backend().into(), LoadOptions::default()).unwrap());
        let limits = Limits { sequences: 3, context: Some(20), output_rows: Some(20), ..Limits::default() };
        let mut runner = Runner::new(model, limits).expect("a runner");
        let [whole, parts] = [(); 2].map(|()| runner.open_sequence().unwrap());
        let run = |runner: &mut Runner, id, tokens: &[u32]| {
            runner.forward(Batch::new().push(id, tokens, Outputs::All)).unwrap().to_vec().unwrap()
        };
        let expected = run(&mut runner, whole, &[1, 2, 3, 4, 5, 6, 7]);
        let mut found = run(&mut runner, parts, &[1]);
        for tokens in [&[2, 3][..], &[4]] {
            found.extend(run(&mut runner, parts, tokens));
        }
        let fork = runner.fork_sequence(parts).unwrap();
        let rest = run(&mut runner, fork, &[5, 6, 7]);
        assert_eq!([found, rest.clone()].concat(), expected);
        assert_eq!(run(&mut runner, parts, &[5, 6, 7]), rest);
        runner.truncate(parts, 4).unwrap();
        assert_eq!(run(&mut runner, parts, &[5, 6, 7]), rest);
    }
}
