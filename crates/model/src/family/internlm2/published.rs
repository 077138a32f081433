//! InternLM 2 and 2.5: Llama with other tensor names. One tensor has, for each KV head, the rows of its queries, key
//! and value.

use crate::family::parts::{BASE, COMMON, expect_flag, expect_text, needed, norm_epsilon};
use crate::family::published::{Family, GroupPart, How, Mlx, Need, Rule};

pub(crate) const FAMILY: Family = Family {
    model_types: &["internlm2"],
    mlx: Mlx::No,
    architecture: "internlm2",
    keys: &[COMMON, &norm_epsilon(1e-6)],
    expects: &[expect_text("hidden_act", "silu"), expect_flag("bias", false)],
    special_tokens: &[("eos", "<|im_end|>")],
    globals: &[GLOBALS],
    layer: &[LAYER],
    mlps: &[],
    ..BASE
};

const GLOBALS: &[Rule] = &[
    needed("token_embd.weight", "model.tok_embeddings.weight"),
    needed("output_norm.weight", "model.norm.weight"),
    Rule { need: Need::UnlessTied, ..needed("output.weight", "output.weight") },
];

const QUERIES: Rule = Rule {
    how: How::Group(GroupPart::Queries),
    ..needed("blk.{layer}.attn_q.weight", "model.layers.{layer}.attention.wqkv.weight")
};

const LAYER: &[Rule] = &[
    needed("blk.{layer}.attn_norm.weight", "model.layers.{layer}.attention_norm.weight"),
    QUERIES,
    Rule { ours: "blk.{layer}.attn_k.weight", how: How::Group(GroupPart::Keys), ..QUERIES },
    Rule { ours: "blk.{layer}.attn_v.weight", how: How::Group(GroupPart::Values), ..QUERIES },
    needed("blk.{layer}.attn_output.weight", "model.layers.{layer}.attention.wo.weight"),
    needed("blk.{layer}.ffn_norm.weight", "model.layers.{layer}.ffn_norm.weight"),
    needed("blk.{layer}.ffn_gate.weight", "model.layers.{layer}.feed_forward.w1.weight"),
    needed("blk.{layer}.ffn_up.weight", "model.layers.{layer}.feed_forward.w3.weight"),
    needed("blk.{layer}.ffn_down.weight", "model.layers.{layer}.feed_forward.w2.weight"),
];
