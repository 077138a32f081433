//! Step 3.5 and 3.7 Flash: norms multiply by 1 + weight, experts are stacked, and lists have a value for each layer and
//! for each prediction layer.

use crate::family::gemma3::published::{GLOBALS, norm};
use crate::family::parts::{
    ATTENTION, BASE, DENSE, LAYER_TYPES, count, expect_flag, expect_text, factor, head_widths, moe, needed,
    norm_epsilon, optional, sigmoid_router,
};
use crate::family::published::{Family, Key, Kind, Mlx, Need, OfLayers, Or, Prefix, Rotated, Rule, Within};

pub(crate) const FAMILY: Family = Family {
    model_types: &["step3p5", "step3p7"],
    mlx: Mlx::Changed(&["step3p5"]),
    mlx_adds_one: Some(ROUTER_OF_MLX),
    architecture: "step35",
    keys: &[KEYS, &norm_epsilon(1e-5), &head_widths(Or::Count(128))],
    beyond: &[
        "attention_other_setting",
        "moe_every_n_layer",
        "moe_layers_enum",
        "moe_router_activation",
        "norm_expert_weight",
        "partial_rotary_factors",
    ],
    of_layers: &[
        OfLayers::Two { list: "rope_theta", full: "rope_theta", windowed: "rope_local_base_freq" },
        OfLayers::Two {
            list: "partial_rotary_factors",
            full: "partial_rotary_factor",
            windowed: "windowed_partial_rotary_factor",
        },
        OfLayers::Limits("swiglu_limits"),
        OfLayers::Limits("swiglu_limits_shared"),
        OfLayers::List(LAYER_TYPES),
    ],
    nulls: &["swiglu_limits", "swiglu_limits_shared", "query_pre_attn_scalar"],
    rotated: Rotated::HalfUnlessWindowed,
    within: Some(Within {
        settings: "text_config",
        tensors: &[Prefix { model: "model.", others: "" }],
        towers: &["vision_model.", "vit_large_projector."],
        named: "the vision tower",
    }),
    expects: &[
        expect_text("hidden_act", "silu"),
        expect_flag("attention_bias", false),
        expect_flag("mlp_bias", false),
        expect_flag("norm_expert_weight", true),
    ],
    heads: PREDICTION_HEADS,
    windowed_heads: true,
    globals: &[GLOBALS, HEAD],
    layer: &[NORMS, ATTENTION, GATE, SELECTION_BIAS, SHARED, RENAMED],
    mlps: &[MOE, MOE_OF_MLX, DENSE],
    ..BASE
};

const KEYS: &[Key] = &[
    count("block_count", &["num_hidden_layers"], Or::Refuse),
    count("context_length", &["max_position_embeddings"], Or::Refuse),
    count("embedding_length", &["hidden_size"], Or::Refuse),
    count("feed_forward_length", &["intermediate_size"], Or::Refuse),
    heads("attention.head_count", &["num_attention_heads"], "num_attention_heads"),
    heads("attention.head_count_kv", &["num_key_value_heads"], "num_attention_groups"),
    count("attention.sliding_window", &["sliding_window"], Or::Refuse),
    Key { ours: "attention.sliding_window_pattern", theirs: &[LAYER_TYPES], kind: Kind::Windows, or: Or::Refuse },
    count("expert_count", &["n_routed_experts"], Or::Refuse),
    count("expert_used_count", &["num_experts_per_tok"], Or::Refuse),
    count("expert_feed_forward_length", &["moe_intermediate_size"], Or::Refuse),
    count("expert_shared_feed_forward_length", &["share_expert_dim"], Or::Refuse),
    sigmoid_router(&["moe_router_activation"], Or::Count(2)),
    factor("expert_weights_scale", &["moe_router_scaling_factor"], Or::Number(1.0)),
    Key { ours: "expert_weights_norm", theirs: &["norm_expert_weight"], kind: Kind::Flag, or: Or::Flag(true) },
    Key { ours: "leading_dense_block_count", theirs: &["moe_layers_enum"], kind: Kind::LayersBefore, or: Or::Count(3) },
    Key {
        ours: "attention.scale",
        theirs: &["query_pre_attn_scalar"],
        kind: Kind::InverseRootUnless("head_dim"),
        or: Or::Skip,
    },
    count("moe_every_n_layers", &["moe_every_n_layer"], Or::Count(1)),
    limits("swiglu_clamp_exp", &["swiglu_limits"]),
    limits("swiglu_clamp_shexp", &["swiglu_limits_shared"]),
];

const fn heads(ours: &'static str, theirs: &'static [&'static str], windowed: &'static str) -> Key {
    let kind = Kind::CountsOfWindows { object: "attention_other_setting", windowed };
    Key { ours, theirs, kind, or: Or::Refuse }
}

const fn limits(ours: &'static str, theirs: &'static [&'static str]) -> Key {
    Key { ours, theirs, kind: Kind::NumbersOfLayers, or: Or::Skip }
}

const HEAD: &[Rule] = &[Rule { need: Need::UnlessTied, ..needed("output.weight", "lm_head.weight") }];

/// The tensors of a prediction head. Each has an output matrix of its own.
const PREDICTION_HEADS: &[Rule] = &[
    needed("blk.{layer}.nextn.eh_proj.weight", "model.layers.{layer}.eh_proj.weight"),
    norm("blk.{layer}.nextn.enorm.weight", "model.layers.{layer}.enorm.weight"),
    norm("blk.{layer}.nextn.hnorm.weight", "model.layers.{layer}.hnorm.weight"),
    norm("blk.{layer}.nextn.shared_head_norm.weight", "model.layers.{layer}.transformer.shared_head.norm.weight"),
    optional("blk.{layer}.nextn.shared_head_head.weight", "model.layers.{layer}.transformer.shared_head.output.weight"),
];

const NORMS: &[Rule] = &[
    norm("blk.{layer}.attn_norm.weight", "model.layers.{layer}.input_layernorm.weight"),
    norm("blk.{layer}.ffn_norm.weight", "model.layers.{layer}.post_attention_layernorm.weight"),
    norm("blk.{layer}.attn_q_norm.weight", "model.layers.{layer}.self_attn.q_norm.weight"),
    norm("blk.{layer}.attn_k_norm.weight", "model.layers.{layer}.self_attn.k_norm.weight"),
];

const GATE: &[Rule] = &[needed("blk.{layer}.attn_gate.weight", "model.layers.{layer}.self_attn.g_proj.weight")];

const SELECTION_BIAS: &[Rule] = &[optional("blk.{layer}.exp_probs_b.bias", "model.layers.{layer}.moe.router_bias")];

const SHARED: &[Rule] = &[
    optional("blk.{layer}.ffn_gate_shexp.weight", "model.layers.{layer}.share_expert.gate_proj.weight"),
    optional("blk.{layer}.ffn_up_shexp.weight", "model.layers.{layer}.share_expert.up_proj.weight"),
    optional("blk.{layer}.ffn_down_shexp.weight", "model.layers.{layer}.share_expert.down_proj.weight"),
];

const MOE: &[Rule] = &[
    needed("blk.{layer}.ffn_gate_inp.weight", "model.layers.{layer}.moe.gate.weight"),
    needed("blk.{layer}.ffn_gate_exps.weight", "model.layers.{layer}.moe.gate_proj.weight"),
    needed("blk.{layer}.ffn_up_exps.weight", "model.layers.{layer}.moe.up_proj.weight"),
    needed("blk.{layer}.ffn_down_exps.weight", "model.layers.{layer}.moe.down_proj.weight"),
];

const ROUTER_OF_MLX: &str = ".mlp.gate.gate.weight";

/// MLX's names of the tensors of layers with experts.
const MOE_OF_MLX: &[Rule] = &moe("model.layers.{layer}.mlp.gate.gate.weight");

const RENAMED: &[Rule] = &[
    optional("blk.{layer}.exp_probs_b.bias", "model.layers.{layer}.mlp.gate.router_bias"),
    optional("blk.{layer}.ffn_gate_shexp.weight", "model.layers.{layer}.mlp.share_expert.gate_proj.weight"),
    optional("blk.{layer}.ffn_up_shexp.weight", "model.layers.{layer}.mlp.share_expert.up_proj.weight"),
    optional("blk.{layer}.ffn_down_shexp.weight", "model.layers.{layer}.mlp.share_expert.down_proj.weight"),
];
