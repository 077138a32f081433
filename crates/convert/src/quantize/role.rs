//! The role of a tensor, by its name.

/// The role of a weight, as far as its format depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// The token embeddings next to an output head of its own.
    Embedding,
    /// The output head, or token embeddings that also serve as one.
    Output,
    /// Keys of attention.
    Key,
    /// Values of attention, also together with queries and keys.
    Value,
    /// The output projection of attention.
    AttentionOutput,
    /// The last matrix of an MLP or of experts.
    Down,
    /// Any other matrix.
    Other,
    /// In rules alone: every part but the output head.
    Any,
}

/// The name of the output head.
pub(super) const OUTPUT: &str = "output.weight";

/// Roles by what the names of tensors contain; the first line that fits counts.
const ROLES: &[(&str, Role)] = &[
    ("attn_qkv.weight", Role::Value),
    ("attn_kv_b.weight", Role::Value),
    ("attn_v.weight", Role::Value),
    ("attn_k.weight", Role::Key),
    ("attn_output.weight", Role::AttentionOutput),
    ("ffn_down", Role::Down),
];

/// Matrices that are never quantised, by what their names contain: routers, and small ones that errors hurt.
const NEVER: &[&str] = &[
    "_norm.weight",
    "ffn_gate_inp.weight",
    "altup",
    "laurel",
    "per_layer_model_proj",
    "indexer.",
    "ssm_conv1d",
    "shortconv.conv.weight",
    "attn_rel_b.weight",
    "position_embd",
    "token_types.weight",
    "time_mix_first.weight",
    "time_mix_lerp_fused.weight",
    "time_mix_w",
    "time_mix_v",
    "time_mix_a",
    "time_mix_g",
    "time_mix_decay_w",
];

/// Those of [`NEVER`] that llama.cpp's converter writes in the type that is requested, like other matrices.
const CONVERTED: &[&str] = &["per_layer_model_proj"];

impl Role {
    pub(super) fn of(name: &str) -> Role {
        match name {
            OUTPUT => Role::Output,
            "token_embd.weight" | "per_layer_token_embd.weight" => Role::Embedding,
            _ => ROLES.iter().find(|(text, _)| name.contains(text)).map_or(Role::Other, |(_, part)| *part),
        }
    }
}

/// Whether tensors of this name are quantised, if they are matrices.
pub(super) fn is_quantised(name: &str) -> bool {
    name.ends_with("weight") && !NEVER.iter().any(|text| name.contains(text))
}

/// Whether tensors of this name are converted to the type that is requested, although they are never quantised.
pub(super) fn is_converted(name: &str) -> bool {
    CONVERTED.iter().any(|text| name.contains(text))
}
