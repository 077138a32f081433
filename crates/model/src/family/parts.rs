//! Parts that several families share.

use super::published::{
    Change, Expect, Expected, Family, How, Key, Kind, Layout, Mlx, Need, OlderScaling, Or, Prefix, Rotated, Rule,
    Within,
};

/// The common base of most families. A family sets its model types, architecture, keys and differences.
pub(crate) const BASE: Family = Family {
    model_types: &[],
    mlx: Mlx::No,
    mlx_adds_one: None,
    mlx_settings: &[],
    mlx_letters: false,
    architecture: "",
    keys: &[],
    beyond: &[],
    names: &[],
    nulls: &[],
    full_layers: &[],
    of_layers: &[],
    base: 10_000.0,
    older_scaling: OlderScaling::Replaces,
    longrope: &["longrope"],
    magnitudes: false,
    alpha: false,
    yarn_truncates: true,
    yarn_ratio: false,
    yarn_scores: false,
    rotated: Rotated::Whole,
    sections: None,
    pre: None,
    merges: None,
    special_tokens: &[],
    prediction: &[],
    heads: &[],
    head_names: &[],
    whole_heads: false,
    windowed_heads: false,
    inner: None,
    layer_types: None,
    variants: &[],
    renamed: &[],
    within: None,
    expects: &[expect_text("hidden_act", "silu")],
    globals: &[GLOBALS],
    layer: &[NORMS, ATTENTION],
    filled: &[],
    mixers: &[],
    mlps: &[DENSE],
};

pub(crate) const fn count(ours: &'static str, theirs: &'static [&'static str], or: Or) -> Key {
    Key { ours, theirs, kind: Kind::Count, or }
}

pub(crate) const fn number(ours: &'static str, theirs: &'static [&'static str], or: Or) -> Key {
    Key { ours, theirs, kind: Kind::Number, or }
}

pub(crate) const fn factor(ours: &'static str, theirs: &'static [&'static str], or: Or) -> Key {
    Key { kind: Kind::Factor, ..number(ours, theirs, or) }
}

/// A count that files lack or is at least 1.
pub(crate) const fn positive(ours: &'static str, theirs: &'static [&'static str]) -> Key {
    Key { ours, theirs, kind: Kind::Positive, or: Or::Skip }
}

/// The epsilon of norms.
pub(crate) const fn norm_epsilon(default: f64) -> [Key; 1] {
    [number("attention.layer_norm_rms_epsilon", &["rms_norm_eps"], Or::Number(default))]
}

/// The head widths of keys and values.
pub(crate) const fn head_widths(or: Or) -> [Key; 2] {
    [count("attention.key_length", &["head_dim"], or), count("attention.value_length", &["head_dim"], or)]
}

/// The embedding width divided by the number of heads.
pub(crate) const WIDTH: Or = Or::Quotient("hidden_size", "num_attention_heads");

/// Whether the weights of the chosen experts are renormalised; `default` is the architecture's default without the key.
pub(crate) const fn renormalised(default: bool) -> Key {
    Key { ours: "expert_weights_norm", theirs: &["norm_topk_prob"], kind: Kind::Unless(default), or: Or::Flag(false) }
}

/// The list of layer types.
pub const LAYER_TYPES: &str = "layer_types";

/// Whether each layer has a sliding window, as a list or as a period whose last layer has none.
pub(crate) const PERIODIC: Key = Key {
    ours: "attention.sliding_window_pattern",
    theirs: &[LAYER_TYPES, "sliding_window_pattern"],
    kind: Kind::Windows,
    or: Or::Skip,
};

/// Which layers have a sliding window; `period`: see [`Kind::WindowsUnless`].
pub(crate) const fn windows(period: usize) -> Key {
    let theirs = &[LAYER_TYPES, "sliding_window_pattern"];
    Key { ours: "attention.sliding_window_pattern", theirs, kind: Kind::WindowsUnless { period }, or: Or::Skip }
}

pub(crate) const fn needed(ours: &'static str, theirs: &'static str) -> Rule {
    Rule { ours, theirs, stored: Layout::Rows, how: How::Same, change: Change::None, need: Need::Always }
}

pub(crate) const fn optional(ours: &'static str, theirs: &'static str) -> Rule {
    Rule { need: Need::IfThere, ..needed(ours, theirs) }
}

pub(crate) const fn expect_text(setting: &'static str, value: &'static str) -> Expect {
    Expect { setting, value: Expected::Text(value) }
}

/// Limits of Δ in a selective scan, which files do not have.
pub(crate) const UNLIMITED_STEPS: Expect = Expect { setting: "time_step_limit", value: Expected::Unlimited };

pub(crate) const fn expect_flag(setting: &'static str, value: bool) -> Expect {
    Expect { setting, value: Expected::Flag(value) }
}

pub(crate) const fn expect_number(setting: &'static str, value: f64) -> Expect {
    Expect { setting, value: Expected::Number(value) }
}

/// A list with 0 for the last of `period` layers, and 1 for the others.
pub(crate) const fn expect_last_of(setting: &'static str, period: usize) -> Expect {
    Expect { setting, value: Expected::LastOf(period) }
}

/// Settings whose `null` means "not set" in every family. transformers declares them as optional (`int | None`). Its
/// defaults: as many KV heads as query heads, the family's layer types, no RoPE scaling, rotation of the whole head, and no
/// layers that predict further tokens.
pub const NULLS: &[&str] = &[
    "num_key_value_heads",
    LAYER_TYPES,
    "rope_parameters",
    "rope_scaling",
    "partial_rotary_factor",
    "num_nextn_predict_layers",
    "num_mtp_layers",
];

/// Tensor names of a text model within a multimodal model in transformers.
pub(crate) const INNER: Prefix = Prefix { model: "model.language_model.", others: "" };

/// A text model beside a tower for images that is one module.
pub(crate) const BESIDE_TOWER: Within =
    Within { settings: "text_config", tensors: &[INNER], towers: &["model.visual."], named: "a tower for images" };

/// Tensor names before transformers 4.52, as in most published models.
pub(crate) const OUTER: Prefix = Prefix { model: "language_model.model.", others: "language_model." };

/// The tensors of a prediction head that is a layer after the last one.
pub(crate) const HEADS: &[Rule] =
    &heads("blk.{layer}.nextn.shared_head_norm.weight", "model.layers.{layer}.shared_head.norm.weight");

/// The same with these names of the last norm.
const fn heads(ours: &'static str, theirs: &'static str) -> [Rule; 4] {
    [
        needed("blk.{layer}.nextn.eh_proj.weight", "model.layers.{layer}.eh_proj.weight"),
        needed("blk.{layer}.nextn.enorm.weight", "model.layers.{layer}.enorm.weight"),
        needed("blk.{layer}.nextn.hnorm.weight", "model.layers.{layer}.hnorm.weight"),
        needed(ours, theirs),
    ]
}

/// The same in families that name the last norm `final_layernorm`.
pub(crate) const FINAL_NORM_HEADS: &[Rule] =
    &heads("blk.{layer}.nextn.shared_head_norm.weight", "model.layers.{layer}.final_layernorm.weight");

/// The same, and llama.cpp's converter keeps that name.
pub(crate) const OUTPUT_NORM_HEADS: &[Rule] =
    &heads("blk.{layer}.layer_output_norm.weight", "model.layers.{layer}.final_layernorm.weight");

/// Keys of every model.
pub(crate) const COMMON: &[Key] = &[
    count("block_count", &["num_hidden_layers"], Or::Refuse),
    count("context_length", &["max_position_embeddings"], Or::Refuse),
    count("embedding_length", &["hidden_size"], Or::Refuse),
    count("feed_forward_length", &["intermediate_size"], Or::Skip),
    count("attention.head_count", &["num_attention_heads"], Or::Refuse),
    count("attention.head_count_kv", &["num_key_value_heads"], Or::Same("num_attention_heads")),
];

/// The settings with the number of experts.
pub const EXPERT_COUNT: &[&str] = &["num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"];

/// The counts of routed experts.
pub(crate) const EXPERTS: &[Key] = &[
    count("expert_count", EXPERT_COUNT, Or::Refuse),
    count("expert_used_count", &["num_experts_per_tok"], Or::Refuse),
];

/// Embeddings, the last norm and the output head.
pub(crate) const GLOBALS: &[Rule] = &[
    needed("token_embd.weight", "model.embed_tokens.weight"),
    needed("output_norm.weight", "model.norm.weight"),
    Rule { need: Need::UnlessTied, ..needed("output.weight", "lm_head.weight") },
];

/// The norms before attention and MLP.
pub(crate) const NORMS: &[Rule] = &[
    needed("blk.{layer}.attn_norm.weight", "model.layers.{layer}.input_layernorm.weight"),
    needed("blk.{layer}.ffn_norm.weight", "model.layers.{layer}.post_attention_layernorm.weight"),
];

/// Grouped-query attention, with biases if `attention_bias` is set or the tensors exist.
pub(crate) const ATTENTION: &[Rule] = &attention(How::Same, How::Same);

/// Grouped-query attention; `q` and `k` state how the rows of queries and keys are reordered.
pub(crate) const fn attention(q: How, k: How) -> [Rule; 8] {
    biased(q, k, "attention_bias", "attention_bias")
}

/// Grouped-query attention; `inputs` and `output` are the settings of biases.
pub(crate) const fn biased(q: How, k: How, inputs: &'static str, output: &'static str) -> [Rule; 8] {
    [
        Rule { how: q, ..needed("blk.{layer}.attn_q.weight", "model.layers.{layer}.self_attn.q_proj.weight") },
        Rule { how: q, ..if_set(inputs, "blk.{layer}.attn_q.bias", "model.layers.{layer}.self_attn.q_proj.bias") },
        Rule { how: k, ..needed("blk.{layer}.attn_k.weight", "model.layers.{layer}.self_attn.k_proj.weight") },
        Rule { how: k, ..if_set(inputs, "blk.{layer}.attn_k.bias", "model.layers.{layer}.self_attn.k_proj.bias") },
        needed("blk.{layer}.attn_v.weight", "model.layers.{layer}.self_attn.v_proj.weight"),
        if_set(inputs, "blk.{layer}.attn_v.bias", "model.layers.{layer}.self_attn.v_proj.bias"),
        needed("blk.{layer}.attn_output.weight", "model.layers.{layer}.self_attn.o_proj.weight"),
        unless_unset(output, "blk.{layer}.attn_output.bias", "model.layers.{layer}.self_attn.o_proj.bias"),
    ]
}

/// A tensor that some variants have; ignored if a setting is false.
pub(crate) const fn unless_unset(setting: &'static str, ours: &'static str, theirs: &'static str) -> Rule {
    Rule { need: Need::UnlessUnset(setting), ..needed(ours, theirs) }
}

/// A tensor that is required if a setting is true.
pub(crate) const fn if_set(setting: &'static str, ours: &'static str, theirs: &'static str) -> Rule {
    Rule { need: Need::IfSet(setting), ..needed(ours, theirs) }
}

/// Norms of queries and keys.
pub(crate) const QK_NORMS: &[Rule] = &[
    needed("blk.{layer}.attn_q_norm.weight", "model.layers.{layer}.self_attn.q_norm.weight"),
    needed("blk.{layer}.attn_k_norm.weight", "model.layers.{layer}.self_attn.k_norm.weight"),
];

/// A norm over all heads of queries and keys, if the settings ask for it.
pub(crate) const OPTIONAL_QK_NORMS: &[Rule] = &[
    if_set("use_qk_norm", "blk.{layer}.attn_q_norm.weight", "model.layers.{layer}.self_attn.q_norm.weight"),
    if_set("use_qk_norm", "blk.{layer}.attn_k_norm.weight", "model.layers.{layer}.self_attn.k_norm.weight"),
];

/// The norms that precede attention and MLP, where GGUF names the second one `post_attention_norm`.
pub(crate) const POST_ATTENTION_NORMS: &[Rule] = &[
    needed("blk.{layer}.attn_norm.weight", "model.layers.{layer}.input_layernorm.weight"),
    needed("blk.{layer}.post_attention_norm.weight", "model.layers.{layer}.post_attention_layernorm.weight"),
];

/// A dense gated MLP.
pub(crate) const DENSE: &[Rule] = &[
    needed("blk.{layer}.ffn_gate.weight", "model.layers.{layer}.mlp.gate_proj.weight"),
    needed("blk.{layer}.ffn_up.weight", "model.layers.{layer}.mlp.up_proj.weight"),
    needed("blk.{layer}.ffn_down.weight", "model.layers.{layer}.mlp.down_proj.weight"),
];

/// Shared experts, as `mlp.shared_experts`, in layers with experts if the settings have their number.
pub(crate) const SHARED_EXPERTS: &[Rule] = &[
    optional("blk.{layer}.ffn_gate_shexp.weight", "model.layers.{layer}.mlp.shared_experts.gate_proj.weight"),
    optional("blk.{layer}.ffn_up_shexp.weight", "model.layers.{layer}.mlp.shared_experts.up_proj.weight"),
    optional("blk.{layer}.ffn_down_shexp.weight", "model.layers.{layer}.mlp.shared_experts.down_proj.weight"),
];

/// The router's function, which must be a sigmoid.
pub(crate) const fn sigmoid_router(setting: &'static [&'static str], or: Or) -> Key {
    Key { ours: "expert_gating_func", theirs: setting, kind: Kind::Named(&[("sigmoid", 2)]), or }
}

/// The keys of routers and experts like DeepSeek-V3's; the first layers are dense.
pub(crate) const ROUTED: &[Key] = &[
    positive("expert_group_count", &["n_group"]),
    positive("expert_group_used_count", &["topk_group"]),
    count("leading_dense_block_count", &["first_k_dense_replace"], Or::Count(0)),
    count("expert_feed_forward_length", &["moe_intermediate_size"], Or::Refuse),
    count("expert_shared_count", &["n_shared_experts"], Or::Skip),
    factor("expert_weights_scale", &["routed_scaling_factor"], Or::Number(1.0)),
];

/// The selection bias of layers with experts.
pub(crate) const SELECTION_BIAS: &[Rule] =
    &[optional("blk.{layer}.exp_probs_b.bias", "model.layers.{layer}.mlp.gate.e_score_correction_bias")];

/// A router and experts, as `mlp.experts`.
pub(crate) const MOE: &[Rule] = &moe("model.layers.{layer}.mlp.gate.weight");

/// Experts as `mlp.experts`, and their router.
pub(crate) const fn moe(router: &'static str) -> [Rule; 4] {
    [
        needed("blk.{layer}.ffn_gate_inp.weight", router),
        needed("blk.{layer}.ffn_gate_exps.weight", "model.layers.{layer}.mlp.experts.{expert}.gate_proj.weight"),
        needed("blk.{layer}.ffn_up_exps.weight", "model.layers.{layer}.mlp.experts.{expert}.up_proj.weight"),
        needed("blk.{layer}.ffn_down_exps.weight", "model.layers.{layer}.mlp.experts.{expert}.down_proj.weight"),
    ]
}

/// The rules of a selective scan: the name of its module, and the settings that say whether its convolution has a bias, and
/// how many groups its norm has.
macro_rules! scan_rules {
    ($module:literal, $has_bias:literal, $groups:literal) => {
        [
            $crate::family::parts::needed("blk.{layer}.ssm_in.weight", concat!($module, ".in_proj.weight")),
            $crate::family::published::Rule {
                stored: $crate::family::published::Layout::Taps,
                ..$crate::family::parts::needed("blk.{layer}.ssm_conv1d.weight", concat!($module, ".conv1d.weight"))
            },
            $crate::family::parts::unless_unset(
                $has_bias,
                "blk.{layer}.ssm_conv1d.bias",
                concat!($module, ".conv1d.bias"),
            ),
            $crate::family::parts::needed("blk.{layer}.ssm_dt.bias", concat!($module, ".dt_bias")),
            $crate::family::published::Rule {
                how: $crate::family::published::How::Column,
                change: $crate::family::published::Change::MinusExp,
                ..$crate::family::parts::needed("blk.{layer}.ssm_a", concat!($module, ".A_log"))
            },
            $crate::family::published::Rule {
                how: $crate::family::published::How::Column,
                ..$crate::family::parts::needed("blk.{layer}.ssm_d", concat!($module, ".D"))
            },
            $crate::family::published::Rule {
                how: $crate::family::published::How::Groups($groups),
                ..$crate::family::parts::needed("blk.{layer}.ssm_norm.weight", concat!($module, ".norm.weight"))
            },
            $crate::family::parts::needed("blk.{layer}.ssm_out.weight", concat!($module, ".out_proj.weight")),
        ]
    };
}
pub(crate) use scan_rules;

/// The keys of a SigLIP tower: the defaults of transformers for width, width of MLPs, heads, patch and image.
pub(crate) const fn siglip_keys(width: u32, inner: u32, heads: u32, patch: u32, image: u32) -> [Key; 8] {
    [
        count("vision.embedding_length", &["hidden_size"], Or::Count(width)),
        count("vision.feed_forward_length", &["intermediate_size"], Or::Count(inner)),
        count("vision.block_count", &["num_hidden_layers"], Or::Count(12)),
        count("vision.attention.head_count", &["num_attention_heads"], Or::Count(heads)),
        count("vision.patch_size", &["patch_size"], Or::Count(patch)),
        count("vision.image_size", &["image_size"], Or::Count(image)),
        number("vision.attention.layer_norm_epsilon", &["layer_norm_eps"], Or::Number(1e-6)),
        Key { ours: "use_gelu", theirs: &[], kind: Kind::Flag, or: Or::Flag(true) },
    ]
}

/// The tensors of a layer of SigLIP, by the name of its module.
macro_rules! siglip_layer {
    ($module:literal) => {
        &[
            $crate::family::published::linear("v.blk.{layer}.ln1", concat!($module, ".layer_norm1")),
            $crate::family::published::linear("v.blk.{layer}.ln2", concat!($module, ".layer_norm2")),
            $crate::family::published::linear("v.blk.{layer}.attn_q", concat!($module, ".self_attn.q_proj")),
            $crate::family::published::linear("v.blk.{layer}.attn_k", concat!($module, ".self_attn.k_proj")),
            $crate::family::published::linear("v.blk.{layer}.attn_v", concat!($module, ".self_attn.v_proj")),
            $crate::family::published::linear("v.blk.{layer}.attn_out", concat!($module, ".self_attn.out_proj")),
            $crate::family::published::linear("v.blk.{layer}.ffn_up", concat!($module, ".mlp.fc1")),
            $crate::family::published::linear("v.blk.{layer}.ffn_down", concat!($module, ".mlp.fc2")),
        ]
    };
}
pub(crate) use siglip_layer;
