//! Falcon-H1: attention and a selective scan in every layer. The factors of embeddings, projections and logits, which are
//! settings, become part of the weights.

use crate::family::parts::{
    BASE, COMMON, UNLIMITED_STEPS, count, expect_flag, expect_text, head_widths, needed, norm_epsilon, optional,
    unless_unset,
};
use crate::family::published::{Change, Expect, Expected, Factor, Family, How, Key, Layout, Mlx, Or, Rule};

pub(crate) const FAMILY: Family = Family {
    model_types: &["falcon_h1"],
    mlx: Mlx::No,
    architecture: "falcon-h1",
    keys: &[COMMON, &norm_epsilon(1e-5), &head_widths(Or::Quotient("hidden_size", "num_attention_heads")), KEYS],
    pre: Some("falcon-h1"),
    nulls: &["mamba_d_ssm", "mlp_multipliers", "ssm_multipliers"],
    expects: &[
        UNLIMITED_STEPS,
        expect_text("hidden_act", "silu"),
        expect_flag("tie_word_embeddings", false),
        expect_flag("mamba_proj_bias", false),
        expect_flag("mlp_bias", false),
        expect_flag("attention_bias", false),
        expect_flag("projectors_bias", false),
        // The other order has no form in files.
        Expect { setting: "mamba_norm_before_gate", value: Expected::FalseIf("mamba_rms_norm") },
    ],
    globals: &[GLOBALS],
    layer: &[NORMS, SCAN, ATTENTION],
    mlps: &[MLP],
    ..BASE
};

const KEYS: &[Key] = &[
    count("vocab_size", &["vocab_size"], Or::Refuse),
    count("ssm.conv_kernel", &["mamba_d_conv"], Or::Count(4)),
    count("ssm.inner_size", &["mamba_d_ssm"], Or::Product("mamba_expand", "hidden_size")),
    count("ssm.state_size", &["mamba_d_state"], Or::Count(256)),
    count("ssm.time_step_rank", &["mamba_n_heads"], Or::Count(128)),
    count("ssm.group_count", &["mamba_n_groups"], Or::Count(1)),
];

/// A tensor times these factors.
const fn times(ours: &'static str, theirs: &'static str, factors: &'static [Factor]) -> Rule {
    Rule { change: Change::Times(factors), ..needed(ours, theirs) }
}

const GLOBALS: &[Rule] = &[
    times("token_embd.weight", "model.embed_tokens.weight", &[Factor::One("embedding_multiplier")]),
    needed("output_norm.weight", "model.final_layernorm.weight"),
    times("output.weight", "lm_head.weight", &[Factor::One("lm_head_multiplier")]),
];

/// llama.cpp's converter writes the second one without a suffix.
const NORMS: &[Rule] = &[
    needed("blk.{layer}.attn_norm.weight", "model.layers.{layer}.input_layernorm.weight"),
    needed("blk.{layer}.ffn_norm", "model.layers.{layer}.pre_ff_layernorm.weight"),
];

const SCAN: &[Rule] = &[
    times(
        "blk.{layer}.ssm_in.weight",
        "model.layers.{layer}.mamba.in_proj.weight",
        &[Factor::One("ssm_in_multiplier"), Factor::ScanInputs("ssm_multipliers")],
    ),
    Rule {
        stored: Layout::Taps,
        ..needed("blk.{layer}.ssm_conv1d.weight", "model.layers.{layer}.mamba.conv1d.weight")
    },
    unless_unset("mamba_conv_bias", "blk.{layer}.ssm_conv1d.bias", "model.layers.{layer}.mamba.conv1d.bias"),
    needed("blk.{layer}.ssm_dt.bias", "model.layers.{layer}.mamba.dt_bias"),
    Rule {
        how: How::Column,
        change: Change::MinusExp,
        ..needed("blk.{layer}.ssm_a", "model.layers.{layer}.mamba.A_log")
    },
    Rule { how: How::Column, ..needed("blk.{layer}.ssm_d", "model.layers.{layer}.mamba.D") },
    Rule {
        how: How::Groups("mamba_n_groups"),
        ..optional("blk.{layer}.ssm_norm.weight", "model.layers.{layer}.mamba.norm.weight")
    },
    times(
        "blk.{layer}.ssm_out.weight",
        "model.layers.{layer}.mamba.out_proj.weight",
        &[Factor::One("ssm_out_multiplier")],
    ),
];

const INPUT: Factor = Factor::One("attention_in_multiplier");

const ATTENTION: &[Rule] = &[
    times("blk.{layer}.attn_q.weight", "model.layers.{layer}.self_attn.q_proj.weight", &[INPUT]),
    times(
        "blk.{layer}.attn_k.weight",
        "model.layers.{layer}.self_attn.k_proj.weight",
        &[Factor::One("key_multiplier"), INPUT],
    ),
    times("blk.{layer}.attn_v.weight", "model.layers.{layer}.self_attn.v_proj.weight", &[INPUT]),
    times(
        "blk.{layer}.attn_output.weight",
        "model.layers.{layer}.self_attn.o_proj.weight",
        &[Factor::One("attention_out_multiplier")],
    ),
];

const MLP: &[Rule] = &[
    times(
        "blk.{layer}.ffn_gate.weight",
        "model.layers.{layer}.feed_forward.gate_proj.weight",
        &[Factor::Of("mlp_multipliers", 0)],
    ),
    needed("blk.{layer}.ffn_up.weight", "model.layers.{layer}.feed_forward.up_proj.weight"),
    times(
        "blk.{layer}.ffn_down.weight",
        "model.layers.{layer}.feed_forward.down_proj.weight",
        &[Factor::Of("mlp_multipliers", 1)],
    ),
];
