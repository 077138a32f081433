//! Llama 4 within a multimodal model. The last of four layers has full attention and no RoPE. All layers or every
//! second layer has experts, stored column by column, with gate and up as halves.

use crate::family::parts::{
    ATTENTION, BASE, EXPERTS, INNER, LAYER_TYPES, NORMS, OUTER, count, expect_last_of, expect_number, expect_text,
    head_widths, needed, norm_epsilon, optional,
};
use crate::family::published::{Expect, Expected, Family, How, Key, Kind, Layout, Mlx, Or, Rule, Within};

pub(crate) const FAMILY: Family = Family {
    model_types: &["llama4", "llama4_text"],
    mlx: Mlx::Changed(&["llama4"]),
    architecture: "llama4",
    keys: &[KEYS, EXPERTS, &norm_epsilon(1e-5), &head_widths(Or::Count(128))],
    nulls: &["moe_layers", "no_rope_layers"],
    pre: Some("llama4"),
    within: Some(Within {
        settings: "text_config",
        tensors: &[OUTER, INNER],
        towers: TOWERS,
        named: "a tower for images",
    }),
    expects: &[
        expect_text("hidden_act", "silu"),
        Expect { setting: "attn_temperature_tuning", value: Expected::True },
        expect_number("attn_scale", 0.1),
        expect_number("floor_scale", 8192.0),
        expect_number("attention_chunk_size", 8192.0),
        expect_number("no_rope_layer_interval", 4.0),
        expect_last_of("no_rope_layers", 4),
        // Maverick has no norms of queries and keys; GGUF has no key for that.
        Expect { setting: "use_qk_norm", value: Expected::FlagUnless("num_local_experts", 128) },
    ],
    layer: &[NORMS, ATTENTION, BESIDE],
    mlps: &[MOE, SEPARATE, SINGLE, DENSE],
    ..BASE
};

const TOWERS: &[&str] =
    &["vision_model.", "multi_modal_projector.", "model.vision_model.", "model.multi_modal_projector."];

const KEYS: &[Key] = &[
    count("block_count", &["num_hidden_layers"], Or::Refuse),
    count("context_length", &["max_position_embeddings"], Or::Refuse),
    count("embedding_length", &["hidden_size"], Or::Refuse),
    count("feed_forward_length", &["intermediate_size_mlp"], Or::Refuse),
    count("attention.head_count", &["num_attention_heads"], Or::Refuse),
    count("attention.head_count_kv", &["num_key_value_heads"], Or::Same("num_attention_heads")),
    count("rope.dimension_count", &["head_dim"], Or::Count(128)),
    count("vocab_size", &["vocab_size"], Or::Refuse),
    count("interleave_moe_layer_step", &["interleave_moe_layer_step"], Or::Count(1)),
    count("expert_feed_forward_length", &["intermediate_size"], Or::Refuse),
    Key {
        ours: "attention.sliding_window_pattern",
        theirs: &[LAYER_TYPES],
        kind: Kind::Chunks { period: 4 },
        or: Or::Skip,
    },
];

/// Experts, outputs, inputs.
const GATE: Rule = Rule {
    stored: Layout::Columns,
    how: How::Half { axis: 1, which: 0 },
    ..needed("blk.{layer}.ffn_gate_exps.weight", "model.layers.{layer}.feed_forward.experts.gate_up_proj")
};

const MOE: &[Rule] = &[
    GATE,
    Rule { ours: "blk.{layer}.ffn_up_exps.weight", how: How::Half { axis: 1, which: 1 }, ..GATE },
    Rule {
        stored: Layout::Columns,
        ..needed("blk.{layer}.ffn_down_exps.weight", "model.layers.{layer}.feed_forward.experts.down_proj")
    },
];

/// Separate gate and up matrices, in MLX's folders.
const SEPARATE: &[Rule] = &[
    needed("blk.{layer}.ffn_gate_exps.weight", "model.layers.{layer}.feed_forward.experts.gate_proj.weight"),
    needed("blk.{layer}.ffn_up_exps.weight", "model.layers.{layer}.feed_forward.experts.up_proj.weight"),
    needed("blk.{layer}.ffn_down_exps.weight", "model.layers.{layer}.feed_forward.experts.down_proj.weight"),
];

/// A tensor for each expert, in folders of compressed-tensors.
const SINGLE: &[Rule] = &[
    needed("blk.{layer}.ffn_gate_exps.weight", "model.layers.{layer}.feed_forward.experts.{expert}.gate_proj.weight"),
    needed("blk.{layer}.ffn_up_exps.weight", "model.layers.{layer}.feed_forward.experts.{expert}.up_proj.weight"),
    needed("blk.{layer}.ffn_down_exps.weight", "model.layers.{layer}.feed_forward.experts.{expert}.down_proj.weight"),
];

/// Additional tensors of layers with experts.
const BESIDE: &[Rule] = &[
    optional("blk.{layer}.ffn_gate_inp.weight", "model.layers.{layer}.feed_forward.router.weight"),
    optional("blk.{layer}.ffn_gate_shexp.weight", "model.layers.{layer}.feed_forward.shared_expert.gate_proj.weight"),
    optional("blk.{layer}.ffn_up_shexp.weight", "model.layers.{layer}.feed_forward.shared_expert.up_proj.weight"),
    optional("blk.{layer}.ffn_down_shexp.weight", "model.layers.{layer}.feed_forward.shared_expert.down_proj.weight"),
];

const DENSE: &[Rule] = &[
    needed("blk.{layer}.ffn_gate.weight", "model.layers.{layer}.feed_forward.gate_proj.weight"),
    needed("blk.{layer}.ffn_up.weight", "model.layers.{layer}.feed_forward.up_proj.weight"),
    needed("blk.{layer}.ffn_down.weight", "model.layers.{layer}.feed_forward.down_proj.weight"),
];
