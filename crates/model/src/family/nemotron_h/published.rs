//! Nemotron Nano 2 and Nemotron 3: a layer is a selective scan, attention, an MLP without a gate, or experts without gates.
//! Folders have tensors as published, or as transformers saves them.

use crate::family::parts::{
    BASE, UNLIMITED_STEPS, count, expect_flag, expect_number, expect_text, factor, needed, number, optional, scan_rules,
};
use crate::family::published::{Family, How, Key, Kind, Mlx, Need, Or, Prefix, Rule, TypesOfLayers, When, Within};

pub(crate) const FAMILY: Family = Family { variants: &[(When::Has(EXPERTS), &WITH_EXPERTS)], ..DENSE };

const DENSE: Family = Family {
    model_types: &["nemotron_h"],
    mlx: Mlx::No,
    architecture: "nemotron_h",
    keys: &[KEYS, DENSE_KEYS],
    layer_types: Some(TypesOfLayers {
        letters: "hybrid_override_pattern",
        types: &[('M', SCANS), ('*', ATTENTION), ('-', MLPS), ('E', EXPERTS)],
        list: "layers_block_type",
    }),
    beyond: &["hybrid_override_pattern"],
    pre: Some("pixtral"),
    nulls: &["layers_block_type", "moe_latent_size"],
    expects: &[
        UNLIMITED_STEPS,
        expect_text("mlp_hidden_act", "relu2"),
        expect_text("mamba_hidden_act", "silu"),
        expect_flag("mamba_proj_bias", false),
        expect_flag("use_bias", false),
        expect_flag("mlp_bias", false),
        expect_flag("attention_bias", false),
        expect_number("n_group", 1.0),
    ],
    renamed: &[("backbone.", "model.")],
    prediction: &["mtp."],
    globals: &[GLOBALS],
    layer: &[NORM],
    mixers: &[SCAN, ATTENTION_RULES, MLP],
    mlps: &[],
    ..BASE
};

const WITH_EXPERTS: Family = Family {
    architecture: "nemotron_h_moe",
    keys: &[KEYS, EXPERT_KEYS],
    heads: HEADS,
    whole_heads: true,
    mixers: &[SCAN, ATTENTION_RULES, MOE, STACKED],
    ..DENSE
};

/// Nemotron Nano VL and Omni: the text model, without the towers.
pub(crate) const WITHIN: Family = Family { variants: &[(When::Has(EXPERTS), &WITHIN_WITH_EXPERTS)], ..WITHIN_DENSE };

const WITHIN_DENSE: Family = Family {
    model_types: &["NemotronH_Nano_VL_V2", "NemotronH_Nano_Omni_Reasoning_V3"],
    within: Some(TEXT_MODEL),
    ..DENSE
};

const WITHIN_WITH_EXPERTS: Family = Family { within: Some(TEXT_MODEL), ..WITH_EXPERTS };

const TEXT_MODEL: Within = Within {
    settings: "llm_config",
    tensors: &[Prefix { model: "language_model.backbone.", others: "language_model." }],
    towers: &["vision_model.", "mlp1.", "sound_encoder.", "sound_projection."],
    named: "towers for images and sound",
};

/// The types of layers.
const SCANS: &str = "linear_attention";
const ATTENTION: &str = "full_attention";
const MLPS: &str = "mlp";
const EXPERTS: &str = "moe";

const KEYS: &[Key] = &[
    count("block_count", &["num_hidden_layers"], Or::Refuse),
    count("context_length", &["max_position_embeddings"], Or::Refuse),
    count("embedding_length", &["hidden_size"], Or::Refuse),
    count("attention.head_count", &["num_attention_heads"], Or::Refuse),
    Key {
        ours: "attention.head_count_kv",
        theirs: &["num_key_value_heads", "num_attention_heads"],
        kind: Kind::CountOfLayer(&[ATTENTION, SCANS, MLPS, EXPERTS]),
        or: Or::Refuse,
    },
    count("attention.key_length", &["head_dim"], Or::Count(128)),
    count("attention.value_length", &["head_dim"], Or::Count(128)),
    number("attention.layer_norm_epsilon", &["layer_norm_epsilon"], Or::Number(1e-5)),
    count("vocab_size", &["vocab_size"], Or::Refuse),
    // Nothing is rotated.
    count("rope.dimension_count", &[], Or::Quotient("hidden_size", "num_attention_heads")),
    Key { ours: "rope.scaling.finetuned", theirs: &[], kind: Kind::Flag, or: Or::Flag(false) },
    count("ssm.conv_kernel", &["conv_kernel"], Or::Count(4)),
    count("ssm.inner_size", &[], Or::Product("mamba_num_heads", "mamba_head_dim")),
    count("ssm.state_size", &["ssm_state_size"], Or::Count(128)),
    count("ssm.time_step_rank", &["mamba_num_heads"], Or::Count(128)),
    count("ssm.group_count", &["n_groups"], Or::Count(8)),
];

const DENSE_KEYS: &[Key] = &[Key {
    ours: "feed_forward_length",
    theirs: &["intermediate_size"],
    kind: Kind::CountOfLayer(&[MLPS, SCANS, ATTENTION]),
    or: Or::Refuse,
}];

/// A model with experts has no dense MLPs in files.
const EXPERT_KEYS: &[Key] = &[
    Key {
        ours: "feed_forward_length",
        theirs: &["moe_intermediate_size"],
        kind: Kind::CountOfLayer(&[EXPERTS, SCANS, ATTENTION]),
        or: Or::Refuse,
    },
    count("expert_count", &["n_routed_experts"], Or::Refuse),
    count("expert_used_count", &["num_experts_per_tok"], Or::Refuse),
    count("expert_feed_forward_length", &["moe_intermediate_size"], Or::Refuse),
    count("expert_shared_feed_forward_length", &["moe_shared_expert_intermediate_size"], Or::Refuse),
    count("expert_shared_count", &["n_shared_experts"], Or::Count(1)),
    Key { ours: "expert_weights_norm", theirs: &["norm_topk_prob"], kind: Kind::Flag, or: Or::Flag(true) },
    factor("expert_weights_scale", &["routed_scaling_factor"], Or::Number(1.0)),
    count("expert_group_count", &["n_group"], Or::Count(1)),
    count("expert_group_used_count", &["topk_group"], Or::Count(1)),
    count("moe_latent_size", &["moe_latent_size"], Or::Skip),
];

const GLOBALS: &[Rule] = &[
    needed("token_embd.weight", "model.embeddings.weight"),
    needed("output_norm.weight", "model.norm_f.weight"),
    Rule { need: Need::UnlessTied, ..needed("output.weight", "lm_head.weight") },
];

const NORM: &[Rule] = &[needed("blk.{layer}.attn_norm.weight", "model.layers.{layer}.norm.weight")];

const SCAN: &[Rule] = &scan_rules!("model.layers.{layer}.mixer", "use_conv_bias", "n_groups");

/// llama.cpp's converter reorders queries and keys, both alike. They are not rotated, so their products stay the same.
const ATTENTION_RULES: &[Rule] = &[
    Rule {
        how: How::PairRows(&["num_attention_heads"]),
        ..needed("blk.{layer}.attn_q.weight", "model.layers.{layer}.mixer.q_proj.weight")
    },
    Rule {
        how: How::PairRows(&["num_key_value_heads", "num_attention_heads"]),
        ..needed("blk.{layer}.attn_k.weight", "model.layers.{layer}.mixer.k_proj.weight")
    },
    needed("blk.{layer}.attn_v.weight", "model.layers.{layer}.mixer.v_proj.weight"),
    needed("blk.{layer}.attn_output.weight", "model.layers.{layer}.mixer.o_proj.weight"),
];

const MLP: &[Rule] = &[
    needed("blk.{layer}.ffn_up.weight", "model.layers.{layer}.mixer.up_proj.weight"),
    needed("blk.{layer}.ffn_down.weight", "model.layers.{layer}.mixer.down_proj.weight"),
];

const ROUTER: Rule = needed("blk.{layer}.ffn_gate_inp.weight", "model.layers.{layer}.mixer.gate.weight");

/// The selection bias, which a layer must have, has two names.
const BIASES: [Rule; 2] = [
    optional("blk.{layer}.exp_probs_b.bias", "model.layers.{layer}.mixer.gate.e_score_correction_bias"),
    optional("blk.{layer}.exp_probs_b.bias", "model.layers.{layer}.mixer.gate.e_score_correction.bias"),
];

const SHARED: [Rule; 2] = [
    needed("blk.{layer}.ffn_up_shexp.weight", "model.layers.{layer}.mixer.shared_experts.up_proj.weight"),
    needed("blk.{layer}.ffn_down_shexp.weight", "model.layers.{layer}.mixer.shared_experts.down_proj.weight"),
];

/// The projections of models whose experts have rows of a smaller width.
const LATENT: [Rule; 2] = [
    optional("blk.{layer}.ffn_latent_down.weight", "model.layers.{layer}.mixer.fc1_latent_proj.weight"),
    optional("blk.{layer}.ffn_latent_up.weight", "model.layers.{layer}.mixer.fc2_latent_proj.weight"),
];

/// Experts with these names of their matrices, and what is next to them.
const fn moe(up: &'static str, down: &'static str) -> [Rule; 9] {
    let ([bias, other], [shared_up, shared_down], [latent_down, latent_up]) = (BIASES, SHARED, LATENT);
    [
        needed("blk.{layer}.ffn_up_exps.weight", up),
        needed("blk.{layer}.ffn_down_exps.weight", down),
        ROUTER,
        bias,
        other,
        shared_up,
        shared_down,
        latent_down,
        latent_up,
    ]
}

const MOE: &[Rule] = &moe(
    "model.layers.{layer}.mixer.experts.{expert}.up_proj.weight",
    "model.layers.{layer}.mixer.experts.{expert}.down_proj.weight",
);

/// The tensors of all experts as one, as a model of transformers has them.
const STACKED: &[Rule] =
    &moe("model.layers.{layer}.mixer.experts.up_proj", "model.layers.{layer}.mixer.experts.down_proj");

/// The prediction head: one layer of attention and one of experts, which are one layer in files.
const HEADS: &[Rule] = &[
    needed("blk.{layer}.nextn.eh_proj.weight", "mtp.layers.0.eh_proj.weight"),
    needed("blk.{layer}.nextn.enorm.weight", "mtp.layers.0.enorm.weight"),
    needed("blk.{layer}.nextn.hnorm.weight", "mtp.layers.0.hnorm.weight"),
    needed("blk.{layer}.attn_norm.weight", "mtp.layers.0.norm.weight"),
    Rule {
        how: How::PairRows(&["num_attention_heads"]),
        ..needed("blk.{layer}.attn_q.weight", "mtp.layers.0.mixer.q_proj.weight")
    },
    Rule {
        how: How::PairRows(&["num_key_value_heads", "num_attention_heads"]),
        ..needed("blk.{layer}.attn_k.weight", "mtp.layers.0.mixer.k_proj.weight")
    },
    needed("blk.{layer}.attn_v.weight", "mtp.layers.0.mixer.v_proj.weight"),
    needed("blk.{layer}.attn_output.weight", "mtp.layers.0.mixer.o_proj.weight"),
    needed("blk.{layer}.post_attention_norm.weight", "mtp.layers.1.norm.weight"),
    needed("blk.{layer}.ffn_gate_inp.weight", "mtp.layers.1.mixer.gate.weight"),
    optional("blk.{layer}.exp_probs_b.bias", "mtp.layers.1.mixer.gate.e_score_correction_bias"),
    optional("blk.{layer}.exp_probs_b.bias", "mtp.layers.1.mixer.gate.e_score_correction.bias"),
    needed("blk.{layer}.ffn_up_exps.weight", "mtp.layers.1.mixer.experts.{expert}.up_proj.weight"),
    needed("blk.{layer}.ffn_down_exps.weight", "mtp.layers.1.mixer.experts.{expert}.down_proj.weight"),
    needed("blk.{layer}.ffn_up_shexp.weight", "mtp.layers.1.mixer.shared_experts.up_proj.weight"),
    needed("blk.{layer}.ffn_down_shexp.weight", "mtp.layers.1.mixer.shared_experts.down_proj.weight"),
    optional("blk.{layer}.ffn_latent_down.weight", "mtp.layers.1.mixer.fc1_latent_proj.weight"),
    optional("blk.{layer}.ffn_latent_up.weight", "mtp.layers.1.mixer.fc2_latent_proj.weight"),
    needed("blk.{layer}.nextn.shared_head_norm.weight", "mtp.layers.1.final_layernorm.weight"),
];
