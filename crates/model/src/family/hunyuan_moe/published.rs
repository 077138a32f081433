//! Hunyuan A13B: every layer has a shared expert, and experts routed by softmax.

use crate::family::parts::{ATTENTION, BASE, COMMON, EXPERT_COUNT, NORMS, count, head_widths, needed, norm_epsilon};
use crate::family::published::{Family, Key, Kind, Mlx, Or, Rule};

pub(crate) const FAMILY: Family = Family {
    model_types: &["hunyuan_v1_moe"],
    mlx: Mlx::No,
    architecture: "hunyuan-moe",
    keys: &[COMMON, &norm_epsilon(1e-5), &head_widths(Or::Skip), KEYS],
    beyond: &["moe_intermediate_size", "num_shared_expert"],
    alpha: true,
    nulls: &["head_dim"],
    pre: Some("hunyuan"),
    layer: &[NORMS, ATTENTION, QK_NORMS, ROUTER, SHARED],
    mlps: &[EXPERTS],
    ..BASE
};

const fn of_layers(ours: &'static str, theirs: &'static [&'static str], or: Or) -> Key {
    Key { ours, theirs, kind: Kind::CountOfLayers, or }
}

const KEYS: &[Key] = &[
    count("expert_count", EXPERT_COUNT, Or::Refuse),
    of_layers("expert_used_count", &["moe_topk"], Or::Refuse),
    of_layers("expert_feed_forward_length", &["moe_intermediate_size"], Or::Same("intermediate_size")),
    of_layers("expert_shared_count", &["num_shared_expert"], Or::Count(1)),
    count("expert_shared_feed_forward_length", &["intermediate_size"], Or::Refuse),
];

/// Norms that follow RoPE.
pub(crate) const QK_NORMS: &[Rule] = &[
    needed("blk.{layer}.attn_q_norm.weight", "model.layers.{layer}.self_attn.query_layernorm.weight"),
    needed("blk.{layer}.attn_k_norm.weight", "model.layers.{layer}.self_attn.key_layernorm.weight"),
];

const ROUTER: &[Rule] = &[needed("blk.{layer}.ffn_gate_inp.weight", "model.layers.{layer}.mlp.gate.wg.weight")];

const EXPERTS: &[Rule] = &[
    needed("blk.{layer}.ffn_gate_exps.weight", "model.layers.{layer}.mlp.experts.{expert}.gate_proj.weight"),
    needed("blk.{layer}.ffn_up_exps.weight", "model.layers.{layer}.mlp.experts.{expert}.up_proj.weight"),
    needed("blk.{layer}.ffn_down_exps.weight", "model.layers.{layer}.mlp.experts.{expert}.down_proj.weight"),
];

const SHARED: &[Rule] = &[
    needed("blk.{layer}.ffn_gate_shexp.weight", "model.layers.{layer}.mlp.shared_mlp.gate_proj.weight"),
    needed("blk.{layer}.ffn_up_shexp.weight", "model.layers.{layer}.mlp.shared_mlp.up_proj.weight"),
    needed("blk.{layer}.ffn_down_shexp.weight", "model.layers.{layer}.mlp.shared_mlp.down_proj.weight"),
];
