//! Jamba: layers with attention, and layers with experts, are one in a period each.

use crate::family::parts::{
    ATTENTION, BASE, EXPERT_COUNT, count, expect_flag, expect_text, needed, number, unless_unset,
};
use crate::family::published::{Change, Family, Key, Kind, Layout, Need, Or, Rule};

pub(crate) const FAMILY: Family = Family {
    model_types: &["jamba"],
    architecture: "jamba",
    keys: &[KEYS],
    expects: &[expect_text("hidden_act", "silu"), expect_flag("mamba_proj_bias", false)],
    globals: &[GLOBALS],
    layer: &[NORMS],
    mixers: &[SCAN, ATTENTION],
    mlps: &[DENSE, MOE],
    ..BASE
};

const KEYS: &[Key] = &[
    count("block_count", &["num_hidden_layers"], Or::Refuse),
    count("context_length", &["max_position_embeddings"], Or::Refuse),
    count("embedding_length", &["hidden_size"], Or::Refuse),
    count("feed_forward_length", &["intermediate_size"], Or::Refuse),
    count("attention.head_count", &["num_attention_heads"], Or::Refuse),
    Key {
        ours: "attention.head_count_kv",
        theirs: &["num_key_value_heads", "num_attention_heads"],
        kind: Kind::CountInPeriod { period: "attn_layer_period", offset: "attn_layer_offset" },
        or: Or::Refuse,
    },
    number("attention.layer_norm_rms_epsilon", &["rms_norm_eps"], Or::Number(1e-6)),
    count("ssm.conv_kernel", &["mamba_d_conv"], Or::Count(4)),
    count("ssm.inner_size", &[], Or::Product("mamba_expand", "hidden_size")),
    count("ssm.state_size", &["mamba_d_state"], Or::Count(16)),
    Key {
        ours: "ssm.time_step_rank",
        theirs: &["mamba_dt_rank"],
        kind: Kind::CountOrSixteenth("hidden_size"),
        or: Or::Refuse,
    },
    count("expert_count", EXPERT_COUNT, Or::Refuse),
    count("expert_used_count", &["num_experts_per_tok"], Or::Refuse),
];

const GLOBALS: &[Rule] = &[
    needed("token_embd.weight", "model.embed_tokens.weight"),
    needed("output_norm.weight", "model.final_layernorm.weight"),
    Rule { need: Need::UnlessTied, ..needed("output.weight", "lm_head.weight") },
];

const NORMS: &[Rule] = &[
    needed("blk.{layer}.attn_norm.weight", "model.layers.{layer}.input_layernorm.weight"),
    needed("blk.{layer}.ffn_norm.weight", "model.layers.{layer}.pre_ff_layernorm.weight"),
];

const SCAN: &[Rule] = &[
    needed("blk.{layer}.ssm_in.weight", "model.layers.{layer}.mamba.in_proj.weight"),
    Rule {
        stored: Layout::Taps,
        ..needed("blk.{layer}.ssm_conv1d.weight", "model.layers.{layer}.mamba.conv1d.weight")
    },
    unless_unset("mamba_conv_bias", "blk.{layer}.ssm_conv1d.bias", "model.layers.{layer}.mamba.conv1d.bias"),
    needed("blk.{layer}.ssm_x.weight", "model.layers.{layer}.mamba.x_proj.weight"),
    needed("blk.{layer}.ssm_dt_norm.weight", "model.layers.{layer}.mamba.dt_layernorm.weight"),
    needed("blk.{layer}.ssm_b_norm.weight", "model.layers.{layer}.mamba.b_layernorm.weight"),
    needed("blk.{layer}.ssm_c_norm.weight", "model.layers.{layer}.mamba.c_layernorm.weight"),
    needed("blk.{layer}.ssm_dt.weight", "model.layers.{layer}.mamba.dt_proj.weight"),
    needed("blk.{layer}.ssm_dt.bias", "model.layers.{layer}.mamba.dt_proj.bias"),
    Rule { change: Change::MinusExp, ..needed("blk.{layer}.ssm_a", "model.layers.{layer}.mamba.A_log") },
    needed("blk.{layer}.ssm_d", "model.layers.{layer}.mamba.D"),
    needed("blk.{layer}.ssm_out.weight", "model.layers.{layer}.mamba.out_proj.weight"),
];

const DENSE: &[Rule] = &[
    needed("blk.{layer}.ffn_gate.weight", "model.layers.{layer}.feed_forward.gate_proj.weight"),
    needed("blk.{layer}.ffn_up.weight", "model.layers.{layer}.feed_forward.up_proj.weight"),
    needed("blk.{layer}.ffn_down.weight", "model.layers.{layer}.feed_forward.down_proj.weight"),
];

const MOE: &[Rule] = &[
    needed("blk.{layer}.ffn_gate_inp.weight", "model.layers.{layer}.feed_forward.router.weight"),
    needed("blk.{layer}.ffn_gate_exps.weight", "model.layers.{layer}.feed_forward.experts.{expert}.gate_proj.weight"),
    needed("blk.{layer}.ffn_up_exps.weight", "model.layers.{layer}.feed_forward.experts.{expert}.up_proj.weight"),
    needed("blk.{layer}.ffn_down_exps.weight", "model.layers.{layer}.feed_forward.experts.{expert}.down_proj.weight"),
];
