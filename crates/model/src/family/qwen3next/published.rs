//! Qwen3-Next: of four layers, three are gated delta rules, and the fourth has attention with gated output. Each has
//! experts and a gated shared expert. All norms except the delta rule's multiply by 1 + weight; the file stores the
//! sum.

use crate::family::parts::{
    BASE, COMMON, EXPERTS, LAYER_TYPES, MOE, attention, count, expect_flag, expect_text, head_widths, needed,
    norm_epsilon,
};
use crate::family::published::{Change, DeltaInput, Family, How, Key, Kind, Layout, Mlx, Need, Or, Rotated, Rule};
use crate::family::qwen2moe::published::SHARED;

pub(crate) const FAMILY: Family = Family {
    model_types: &["qwen3_next"],
    mlx: Mlx::Changed(&["qwen3_next"]),
    architecture: "qwen3next",
    keys: &[COMMON, &norm_epsilon(1e-6), &head_widths(Or::Count(256)), DELTA_KEYS, EXPERTS, EXPERT_KEYS],
    beyond: &["full_attention_interval"],
    rotated: Rotated::Part(0.25),
    prediction: &["mtp."],
    heads: HEADS,
    head_names: &[("model.layers.{layer}.", "mtp.layers.{head}.")],
    expects: &[expect_text("hidden_act", "silu"), expect_flag("attention_bias", false)],
    globals: &[GLOBALS],
    layer: &[NORMS, SHARED],
    mixers: &[DELTA, ATTENTION],
    mlps: &[MOE],
    ..BASE
};

/// The keys of the delta rule, and of the layers that have it.
pub(crate) const DELTA_KEYS: &[Key] = &[
    count("ssm.conv_kernel", &["linear_conv_kernel_dim"], Or::Count(4)),
    count("ssm.state_size", &["linear_key_head_dim"], Or::Count(128)),
    count("ssm.group_count", &["linear_num_key_heads"], Or::Refuse),
    count("ssm.time_step_rank", &["linear_num_value_heads"], Or::Refuse),
    count("ssm.inner_size", &[], Or::Product("linear_num_value_heads", "linear_value_head_dim")),
    count("full_attention_interval", &["full_attention_interval"], Or::Count(4)),
    Key {
        ours: "attention.recurrent_layers",
        theirs: &[LAYER_TYPES],
        kind: Kind::FlagOfLayer("linear_attention"),
        or: Or::Refuse,
    },
];

/// The keys of experts.
pub(crate) const EXPERT_KEYS: &[Key] = &[
    count("expert_feed_forward_length", &["moe_intermediate_size"], Or::Refuse),
    count("expert_shared_feed_forward_length", &["shared_expert_intermediate_size"], Or::Refuse),
    Key { ours: "expert_weights_norm", theirs: &["norm_topk_prob"], kind: Kind::Unless(true), or: Or::Flag(true) },
];

const fn norm(ours: &'static str, theirs: &'static str) -> Rule {
    Rule { change: Change::PlusOne, ..needed(ours, theirs) }
}

/// Embeddings, the last norm and the output head.
pub(crate) const GLOBALS: &[Rule] = &[
    needed("token_embd.weight", "model.embed_tokens.weight"),
    norm("output_norm.weight", "model.norm.weight"),
    Rule { need: Need::UnlessTied, ..needed("output.weight", "lm_head.weight") },
];

/// The tensors of a prediction head. All heads have the same.
const HEADS: &[Rule] = &[
    needed("blk.{layer}.nextn.eh_proj.weight", "mtp.fc.weight"),
    norm("blk.{layer}.nextn.enorm.weight", "mtp.pre_fc_norm_embedding.weight"),
    norm("blk.{layer}.nextn.hnorm.weight", "mtp.pre_fc_norm_hidden.weight"),
    norm("blk.{layer}.nextn.shared_head_norm.weight", "mtp.norm.weight"),
];

/// The norms that precede mixer and MLP.
pub(crate) const NORMS: &[Rule] = &[
    norm("blk.{layer}.attn_norm.weight", "model.layers.{layer}.input_layernorm.weight"),
    norm("blk.{layer}.post_attention_norm.weight", "model.layers.{layer}.post_attention_layernorm.weight"),
];

/// Attention. In published folders and in files, the rows of each head's gate follow the rows of its queries.
pub(crate) const ATTENTION: &[Rule] = {
    let [query, _, key, _, value, _, output, _] = attention(How::Same, How::Same);
    &[
        query,
        key,
        value,
        output,
        norm("blk.{layer}.attn_q_norm.weight", "model.layers.{layer}.self_attn.q_norm.weight"),
        norm("blk.{layer}.attn_k_norm.weight", "model.layers.{layer}.self_attn.k_norm.weight"),
    ]
};

const INPUT: Rule = needed("blk.{layer}.attn_qkv.weight", "model.layers.{layer}.linear_attn.in_proj_qkvz.weight");

const DELTA: &[Rule] = &[
    Rule { how: How::KeyHeads(&[DeltaInput::Queries, DeltaInput::Keys, DeltaInput::Values]), ..INPUT },
    Rule { ours: "blk.{layer}.attn_gate.weight", how: How::KeyHeads(&[DeltaInput::Gates]), ..INPUT },
    needed("blk.{layer}.ssm_ba.weight", "model.layers.{layer}.linear_attn.in_proj_ba.weight"),
    CONVOLUTION,
    DECAY,
    DT_BIAS,
    DELTA_NORM,
    DELTA_OUTPUT,
];

/// The tensors of a delta rule, for a file whose value heads are in transformers' order.
pub(crate) const CONVOLUTION: Rule = Rule {
    stored: Layout::Taps,
    ..needed("blk.{layer}.ssm_conv1d.weight", "model.layers.{layer}.linear_attn.conv1d.weight")
};
pub(crate) const DECAY: Rule =
    Rule { change: Change::MinusExp, ..needed("blk.{layer}.ssm_a", "model.layers.{layer}.linear_attn.A_log") };
pub(crate) const DT_BIAS: Rule = needed("blk.{layer}.ssm_dt.bias", "model.layers.{layer}.linear_attn.dt_bias");
pub(crate) const DELTA_NORM: Rule =
    needed("blk.{layer}.ssm_norm.weight", "model.layers.{layer}.linear_attn.norm.weight");
pub(crate) const DELTA_OUTPUT: Rule =
    needed("blk.{layer}.ssm_out.weight", "model.layers.{layer}.linear_attn.out_proj.weight");
