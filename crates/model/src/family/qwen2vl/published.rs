//! Qwen2-VL and Qwen2.5-VL, the text model: Qwen 2 within a multimodal model.

use crate::family::parts::{COMMON, INNER, norm_epsilon};
use crate::family::published::{Family, Mlx, Within};
use crate::family::qwen2::published as qwen2;

pub(crate) const FAMILY: Family = Family {
    model_types: &["qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text"],
    mlx: Mlx::No,
    architecture: "qwen2vl",
    keys: &[COMMON, &norm_epsilon(1e-6)],
    sections: Some([16, 24, 24]),
    within: Some(Within {
        settings: "text_config",
        tensors: &[INNER],
        towers: &["visual.", "model.visual."],
        named: "a tower for images",
    }),
    ..qwen2::FAMILY
};
