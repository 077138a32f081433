//! Ministral 3 and Mistral Small 3: Llama within a multimodal model. Ministral's YaRN has a magnitude of 1 and a query
//! temperature.

use crate::family::llama::published::{ATTENTION, KEYS};
use crate::family::parts::{BASE, COMMON, INNER, NORMS, OUTER, head_widths, norm_epsilon};
use crate::family::published::{Family, Mlx, Or, Within};

pub(crate) const FAMILY: Family = Family {
    model_types: &["mistral3", "ministral3"],
    mlx: Mlx::Changed(&["mistral3"]),
    architecture: "mistral3",
    keys: &[COMMON, &norm_epsilon(1e-5), &head_widths(Or::Skip), KEYS],
    nulls: &["head_dim", "sliding_window"],
    yarn_ratio: true,
    within: Some(Within {
        settings: "text_config",
        tensors: &[OUTER, INNER],
        towers: TOWERS,
        named: "a tower for images",
    }),
    layer: &[NORMS, ATTENTION],
    ..BASE
};

pub(crate) const TOWERS: &[&str] =
    &["vision_tower.", "multi_modal_projector.", "model.vision_tower.", "model.multi_modal_projector."];
