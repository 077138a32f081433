//! MiniCPM 1, 2 and 4: as Llama, with factors for embeddings and residuals, and a divisor for logits.

use crate::family::llama::published::ATTENTION;
use crate::family::parts::{BASE, COMMON, NORMS, factor, needed, norm_epsilon, optional};
use crate::family::published::{Family, Key, Kind, Mlx, Or, Rule};

pub(crate) const FAMILY: Family = Family {
    model_types: &["minicpm"],
    mlx: Mlx::No,
    architecture: "minicpm",
    keys: &[COMMON, &norm_epsilon(1e-6), KEYS],
    globals: &[GLOBALS],
    layer: &[NORMS, ATTENTION],
    ..BASE
};

const KEYS: &[Key] = &[
    factor("embedding_scale", &["scale_emb"], Or::Number(1.0)),
    Key {
        ours: "residual_scale",
        theirs: &["scale_depth"],
        kind: Kind::OverRootOf("num_hidden_layers"),
        or: Or::Refuse,
    },
    Key { ours: "logit_scale", theirs: &["dim_model_base"], kind: Kind::DivisorOf("hidden_size"), or: Or::Refuse },
];

/// The settings do not state whether the output head is the embedding table.
const GLOBALS: &[Rule] = &[
    needed("token_embd.weight", "model.embed_tokens.weight"),
    needed("output_norm.weight", "model.norm.weight"),
    optional("output.weight", "lm_head.weight"),
];
