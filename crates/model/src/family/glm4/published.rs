//! GLM-4-0414, dense: norms before and after each block; gate and up are one tensor. The published RoPE pairs are
//! interleaved too, so no rows are reordered. GLM-4.1V and 4.6V Flash have it within a multimodal model, whose files have pairs
//! of halves.

use crate::family::parts::{
    ATTENTION, BASE, BESIDE_TOWER, COMMON, WIDTH, attention, head_widths, needed, norm_epsilon,
};
use crate::family::phi3::published::FUSED;
use crate::family::published::{Family, How, Mlx, Or, Rotated, Rule, Share};

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

pub(crate) const WITHIN: Family = Family {
    model_types: &["glm4v", "glm4v_text", "glm46v"],
    mlx: Mlx::No,
    keys: &[COMMON, &norm_epsilon(1e-5), &head_widths(WIDTH)],
    sections: Some([8, 12, 12]),
    within: Some(BESIDE_TOWER),
    layer: &[NORMS, HALVES],
    ..FAMILY
};

const ROTATED: Share = Share(1, 2);

const HALVES: &[Rule] = &attention(
    How::HalfRows { heads: &["num_attention_heads"], rotated: ROTATED },
    How::HalfRows { heads: &["num_key_value_heads", "num_attention_heads"], rotated: ROTATED },
);

const NORMS: &[Rule] = &[
    needed("blk.{layer}.attn_norm.weight", "model.layers.{layer}.input_layernorm.weight"),
    needed("blk.{layer}.post_attention_norm.weight", "model.layers.{layer}.post_self_attn_layernorm.weight"),
    needed("blk.{layer}.ffn_norm.weight", "model.layers.{layer}.post_attention_layernorm.weight"),
    needed("blk.{layer}.post_ffw_norm.weight", "model.layers.{layer}.post_mlp_layernorm.weight"),
];
