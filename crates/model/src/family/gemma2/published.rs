//! Gemma 2. As Gemma 3 without norms of queries and keys, and with soft caps of logits.

use crate::family::gemma3::published::{GLOBALS, NORMS, SCALE};
use crate::family::parts::{
    ATTENTION, BASE, COMMON, count, expect_flag, expect_text, factor, head_widths, norm_epsilon, windows,
};
use crate::family::published::{Family, Key, Mlx, Or};

pub(crate) const FAMILY: Family = Family {
    model_types: &["gemma2"],
    mlx: Mlx::Yes(&["gemma2"]),
    architecture: "gemma2",
    keys: &[COMMON, &norm_epsilon(1e-6), &head_widths(Or::Count(256)), KEYS],
    nulls: &["attn_logit_softcapping", "final_logit_softcapping", "use_bidirectional_attention"],
    expects: &[
        expect_text("hidden_activation", "gelu_pytorch_tanh"),
        expect_flag("use_bidirectional_attention", false),
    ],
    globals: &[GLOBALS],
    layer: &[NORMS, ATTENTION],
    ..BASE
};

const KEYS: &[Key] = &[
    Key { ours: "attention.scale", theirs: &["query_pre_attn_scalar"], kind: SCALE, or: Or::Skip },
    count("attention.sliding_window", &["sliding_window"], Or::Count(4096)),
    windows(2),
    // A cap of 0 means no cap; without the key, the default cap applies.
    factor("attn_logit_softcapping", &["attn_logit_softcapping"], Or::Number(0.0)),
    factor("final_logit_softcapping", &["final_logit_softcapping"], Or::Number(0.0)),
];
