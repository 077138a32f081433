//! GLM-4-0414, dense: norms before and after each block; gate and up are one tensor. The published RoPE pairs are
//! interleaved too, so no rows are reordered.

use crate::family::parts::{ATTENTION, BASE, COMMON, head_widths, needed, norm_epsilon};
use crate::family::phi3::published::FUSED;
use crate::family::published::{Family, Mlx, Or, Rotated, Rule};

pub(crate) const FAMILY: Family = Family {
    model_types: &["glm4"],
    mlx: Mlx::Yes(&["glm4"]),
    architecture: "glm4",
    keys: &[COMMON, &norm_epsilon(0.000_000_156_25), &head_widths(Or::Count(128))],
    rotated: Rotated::Part(0.5),
    pre: Some("glm4"),
    special_tokens: &[("bos", "<|endoftext|>"), ("eot", "<|user|>"), ("unknown", "<|endoftext|>")],
    layer: &[NORMS, ATTENTION],
    mlps: &[FUSED],
    ..BASE
};

const NORMS: &[Rule] = &[
    needed("blk.{layer}.attn_norm.weight", "model.layers.{layer}.input_layernorm.weight"),
    needed("blk.{layer}.post_attention_norm.weight", "model.layers.{layer}.post_self_attn_layernorm.weight"),
    needed("blk.{layer}.ffn_norm.weight", "model.layers.{layer}.post_attention_layernorm.weight"),
    needed("blk.{layer}.post_ffw_norm.weight", "model.layers.{layer}.post_mlp_layernorm.weight"),
];
