//! Dense Qwen 3: norms of queries and keys. The head width is independent of the embedding width.

use crate::family::parts::{ATTENTION, COMMON, NORMS, QK_NORMS, head_widths, norm_epsilon};
use crate::family::published::{Family, Mlx, Or};
use crate::family::qwen2::published as qwen2;

pub(crate) const FAMILY: Family = Family {
    model_types: &["qwen3"],
    mlx: Mlx::Yes(&["qwen3"]),
    architecture: "qwen3",
    keys: &[COMMON, &norm_epsilon(1e-6), &head_widths(Or::Count(128))],
    layer: &[NORMS, ATTENTION, QK_NORMS],
    ..qwen2::FAMILY
};
