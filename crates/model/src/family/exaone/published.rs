//! EXAONE 3 and 3.5: Llama with other tensor names.

use crate::family::parts::{BASE, COMMON, WIDTH, count, head_widths, needed, norm_epsilon};
use crate::family::published::{Family, Key, Mlx, Need, Or, Rule};

pub(crate) const FAMILY: Family = Family {
    model_types: &["exaone"],
    mlx: Mlx::No,
    architecture: "exaone",
    keys: &[COMMON, &norm_epsilon(1e-5), &head_widths(Or::Skip), KEYS],
    nulls: &["head_dim"],
    pre: Some("exaone"),
    globals: &[GLOBALS],
    layer: &[LAYER],
    mlps: &[],
    ..BASE
};

const KEYS: &[Key] = &[count("rope.dimension_count", &["head_dim"], WIDTH)];

const GLOBALS: &[Rule] = &[
    needed("token_embd.weight", "transformer.wte.weight"),
    needed("output_norm.weight", "transformer.ln_f.weight"),
    Rule { need: Need::UnlessTied, ..needed("output.weight", "lm_head.weight") },
];

const LAYER: &[Rule] = &[
    needed("blk.{layer}.attn_norm.weight", "transformer.h.{layer}.ln_1.weight"),
    needed("blk.{layer}.attn_q.weight", "transformer.h.{layer}.attn.attention.q_proj.weight"),
    needed("blk.{layer}.attn_k.weight", "transformer.h.{layer}.attn.attention.k_proj.weight"),
    needed("blk.{layer}.attn_v.weight", "transformer.h.{layer}.attn.attention.v_proj.weight"),
    needed("blk.{layer}.attn_output.weight", "transformer.h.{layer}.attn.attention.out_proj.weight"),
    needed("blk.{layer}.ffn_norm.weight", "transformer.h.{layer}.ln_2.weight"),
    needed("blk.{layer}.ffn_gate.weight", "transformer.h.{layer}.mlp.c_fc_0.weight"),
    needed("blk.{layer}.ffn_up.weight", "transformer.h.{layer}.mlp.c_fc_1.weight"),
    needed("blk.{layer}.ffn_down.weight", "transformer.h.{layer}.mlp.c_proj.weight"),
];
