//! Granite 4: layers with selective scans, and some with attention. It has the factors of Granite 3 and no RoPE, with experts and a shared expert, or one MLP in the place of both. Models of the same type whose layers all have
//! attention are `granite` and `granitemoe`.

use crate::family::granite::published as granite;
use crate::family::llama::published::ATTENTION;
use crate::family::parts::{
    BASE, COMMON, EXPERT_COUNT, NORMS, UNLIMITED_STEPS, WIDTH, count, expect_flag, expect_text, needed, norm_epsilon,
    scan_rules,
};
use crate::family::published::{Family, How, Key, Kind, Mlx, Need, Or, Rotated, Rule, When};

pub(crate) const FAMILY: Family =
    Family { variants: &[(When::Lacks(SCANS), &ATTENTION_ALONE), (When::Zero(EXPERT_COUNT[0]), &DENSE)], ..EXPERTS };

/// The model without scans.
const ATTENTION_ALONE: Family =
    Family { variants: &[(When::Zero(EXPERT_COUNT[0]), &DENSE_ATTENTION_ALONE)], ..EXPERTS_ATTENTION_ALONE };

/// Bamba: MLPs, no factors, and RoPE in half of each head.
pub(crate) const BAMBA: Family = Family {
    model_types: &["bamba"],
    keys: &[BAMBA_LAYERS, SCANS_AND_VOCABULARY, &norm_epsilon(1e-5), ROTATED],
    nulls: &["attn_layer_indices"],
    rotated: Rotated::Part(0.5),
    expects: &[
        UNLIMITED_STEPS,
        expect_text("hidden_act", "silu"),
        expect_flag("mamba_proj_bias", false),
        expect_flag("attention_bias", false),
        expect_flag("mlp_bias", false),
    ],
    globals: &[BAMBA_GLOBALS],
    layer: &[BAMBA_NORMS],
    mlps: &[BAMBA_MLP],
    ..EXPERTS
};

const EXPERTS: Family = Family {
    model_types: &["granitemoehybrid"],
    mlx: Mlx::No,
    architecture: "granitehybrid",
    keys: &[LAYERS, SCANS_AND_VOCABULARY, &norm_epsilon(1e-6), granite::FACTORS, POSITIONS, EXPERT_KEYS],
    pre: Some("dbrx"),
    nulls: &["position_embedding_type"],
    expects: &[UNLIMITED_STEPS, expect_text("hidden_act", "silu"), expect_flag("mamba_proj_bias", false)],
    layer: &[NORMS, granite::SHARED],
    mixers: &[SCAN, ATTENTION],
    mlps: &[granite::CHOSEN],
    ..BASE
};

/// The model without experts: what is a shared expert otherwise is its MLP.
const DENSE: Family = Family {
    keys: &[LAYERS, SCANS_AND_VOCABULARY, &norm_epsilon(1e-6), granite::FACTORS, POSITIONS, DENSE_KEYS],
    layer: &[NORMS],
    mlps: &[MLP],
    ..EXPERTS
};

const EXPERTS_ATTENTION_ALONE: Family = Family {
    architecture: "granitemoe",
    keys: &[COMMON, &norm_epsilon(1e-6), granite::KEYS, granite::FACTORS, POSITIONS, EXPERT_KEYS],
    layer: &[NORMS, ATTENTION, granite::SHARED],
    mixers: &[],
    ..EXPERTS
};

const DENSE_ATTENTION_ALONE: Family = Family {
    architecture: "granite",
    keys: &[COMMON, &norm_epsilon(1e-6), granite::KEYS, granite::FACTORS, POSITIONS, DENSE_KEYS],
    layer: &[NORMS, ATTENTION],
    mlps: &[MLP],
    ..EXPERTS_ATTENTION_ALONE
};

/// The type of layers with scans.
const SCANS: &str = "linear_attention";

/// Keys of every model with scans.
const LAYERS: &[Key] = &[
    count("block_count", &["num_hidden_layers"], Or::Refuse),
    count("context_length", &["max_position_embeddings"], Or::Refuse),
    count("embedding_length", &["hidden_size"], Or::Refuse),
    count("attention.head_count", &["num_attention_heads"], Or::Refuse),
    Key {
        ours: "attention.head_count_kv",
        theirs: &["num_key_value_heads", "num_attention_heads"],
        kind: Kind::CountUnlessLayer(SCANS),
        or: Or::Refuse,
    },
    count("rope.dimension_count", &[], WIDTH),
];

const SCANS_AND_VOCABULARY: &[Key] = &[
    count("vocab_size", &["vocab_size"], Or::Refuse),
    count("ssm.conv_kernel", &["mamba_d_conv"], Or::Count(4)),
    count("ssm.inner_size", &[], Or::Product("mamba_expand", "hidden_size")),
    count("ssm.state_size", &["mamba_d_state"], Or::Count(256)),
    count("ssm.time_step_rank", &["mamba_n_heads"], Or::Count(128)),
    count("ssm.group_count", &["mamba_n_groups"], Or::Count(1)),
];

/// Granite's models rotate only if they say so.
const POSITIONS: &[Key] = &[Key {
    ours: "rope.scaling.finetuned",
    theirs: &["position_embedding_type"],
    kind: Kind::IsText("rope"),
    or: Or::Flag(false),
}];

const EXPERT_KEYS: &[Key] = &[
    count("feed_forward_length", &["intermediate_size"], Or::Refuse),
    count("expert_count", EXPERT_COUNT, Or::Refuse),
    count("expert_used_count", &["num_experts_per_tok"], Or::Refuse),
    count("expert_shared_feed_forward_length", &["shared_intermediate_size"], Or::Refuse),
];

/// The counts of experts are 0.
const DENSE_KEYS: &[Key] = &[
    count("feed_forward_length", &["shared_intermediate_size"], Or::Refuse),
    count("expert_count", EXPERT_COUNT, Or::Refuse),
    count("expert_used_count", &["num_experts_per_tok"], Or::Refuse),
    count("expert_shared_feed_forward_length", &["shared_intermediate_size"], Or::Refuse),
];

const SCAN: &[Rule] = &scan_rules!("model.layers.{layer}.mamba", "mamba_conv_bias", "mamba_n_groups");

const GATE_UP: Rule = needed("blk.{layer}.ffn_gate.weight", "model.layers.{layer}.shared_mlp.input_linear.weight");

/// The MLP of models without experts.
const MLP: &[Rule] = &[
    Rule { how: How::Half { axis: 0, which: 0 }, ..GATE_UP },
    Rule { ours: "blk.{layer}.ffn_up.weight", how: How::Half { axis: 0, which: 1 }, ..GATE_UP },
    needed("blk.{layer}.ffn_down.weight", "model.layers.{layer}.shared_mlp.output_linear.weight"),
];

const BAMBA_LAYERS: &[Key] = &[
    count("block_count", &["num_hidden_layers"], Or::Refuse),
    count("context_length", &["max_position_embeddings"], Or::Refuse),
    count("embedding_length", &["hidden_size"], Or::Refuse),
    count("feed_forward_length", &["intermediate_size"], Or::Refuse),
    count("attention.head_count", &["num_attention_heads"], Or::Refuse),
    Key {
        ours: "attention.head_count_kv",
        theirs: &["num_key_value_heads", "num_attention_heads"],
        kind: Kind::CountAt("attn_layer_indices"),
        or: Or::Refuse,
    },
];

const ROTATED: &[Key] = &[Key { ours: "rope.scaling.finetuned", theirs: &[], kind: Kind::Flag, or: Or::Flag(true) }];

const BAMBA_GLOBALS: &[Rule] = &[
    needed("token_embd.weight", "model.embed_tokens.weight"),
    needed("output_norm.weight", "model.final_layernorm.weight"),
    Rule { need: Need::UnlessTied, ..needed("output.weight", "lm_head.weight") },
];

const BAMBA_NORMS: &[Rule] = &[
    needed("blk.{layer}.attn_norm.weight", "model.layers.{layer}.input_layernorm.weight"),
    needed("blk.{layer}.ffn_norm.weight", "model.layers.{layer}.pre_ff_layernorm.weight"),
];

const BAMBA_MLP: &[Rule] = &[
    needed("blk.{layer}.ffn_gate.weight", "model.layers.{layer}.feed_forward.gate_proj.weight"),
    needed("blk.{layer}.ffn_up.weight", "model.layers.{layer}.feed_forward.up_proj.weight"),
    needed("blk.{layer}.ffn_down.weight", "model.layers.{layer}.feed_forward.down_proj.weight"),
];
