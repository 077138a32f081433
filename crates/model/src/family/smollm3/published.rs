//! SmolLM3: Llama, but every fourth layer has no RoPE; there is no key for that.

use crate::family::llama::published::ATTENTION;
use crate::family::parts::{
    BASE, COMMON, NORMS, WIDTH, count, expect_flag, expect_last_of, expect_number, expect_text, norm_epsilon,
};
use crate::family::published::{Family, Key, Mlx, Or};

pub(crate) const FAMILY: Family = Family {
    model_types: &["smollm3"],
    mlx: Mlx::Yes(&["smollm3"]),
    architecture: "smollm3",
    keys: &[COMMON, &norm_epsilon(1e-6), KEYS],
    expects: &[
        expect_text("hidden_act", "silu"),
        expect_flag("use_sliding_window", false),
        expect_number("no_rope_layer_interval", 4.0),
        expect_last_of("no_rope_layers", 4),
    ],
    nulls: &["no_rope_layers"],
    layer: &[NORMS, ATTENTION],
    ..BASE
};

const KEYS: &[Key] =
    &[count("rope.dimension_count", &["head_dim"], WIDTH), count("vocab_size", &["vocab_size"], Or::Refuse)];
