//! Mamba-2: a selective scan in every layer, and no MLP.

use crate::family::parts::{BASE, UNLIMITED_STEPS, count, expect_flag, expect_text, needed, number, scan_rules};
use crate::family::published::{Family, Key, Mlx, Need, Or, Rule};

pub(crate) const FAMILY: Family = Family {
    model_types: &["mamba2"],
    mlx: Mlx::No,
    architecture: "mamba2",
    keys: &[KEYS],
    expects: &[UNLIMITED_STEPS, expect_text("hidden_act", "silu"), expect_flag("use_bias", false)],
    // Codestral Mamba has the whole model in a module.
    renamed: &[("model.backbone.", "backbone."), ("model.lm_head.", "lm_head.")],
    globals: &[GLOBALS],
    layer: &[NORM, SCAN],
    mlps: &[],
    ..BASE
};

const KEYS: &[Key] = &[
    count("block_count", &["num_hidden_layers"], Or::Refuse),
    // No limit, as llama.cpp's converter writes it.
    count("context_length", &[], Or::Count(1 << 20)),
    count("embedding_length", &["hidden_size"], Or::Refuse),
    count("feed_forward_length", &[], Or::Count(0)),
    count("attention.head_count", &[], Or::Count(0)),
    number("attention.layer_norm_rms_epsilon", &["layer_norm_epsilon"], Or::Number(1e-5)),
    count("ssm.conv_kernel", &["conv_kernel"], Or::Count(4)),
    count("ssm.inner_size", &[], Or::Product("expand", "hidden_size")),
    count("ssm.state_size", &["state_size"], Or::Count(128)),
    count("ssm.time_step_rank", &["num_heads"], Or::Count(128)),
    count("ssm.group_count", &["n_groups"], Or::Count(8)),
];

const GLOBALS: &[Rule] = &[
    needed("token_embd.weight", "backbone.embeddings.weight"),
    needed("output_norm.weight", "backbone.norm_f.weight"),
    Rule { need: Need::UnlessTied, ..needed("output.weight", "lm_head.weight") },
];

const NORM: &[Rule] = &[needed("blk.{layer}.attn_norm.weight", "backbone.layers.{layer}.norm.weight")];

const SCAN: &[Rule] = &scan_rules!("backbone.layers.{layer}.mixer", "use_conv_bias", "n_groups");
