//! Dense Hunyuan: attention as in Hunyuan A13B.

use crate::family::hunyuan_moe::published::QK_NORMS;
use crate::family::parts::{ATTENTION, BASE, COMMON, NORMS, head_widths, norm_epsilon};
use crate::family::published::{Family, Mlx, Or};

pub(crate) const FAMILY: Family = Family {
    model_types: &["hunyuan_v1_dense"],
    mlx: Mlx::No,
    architecture: "hunyuan-dense",
    keys: &[COMMON, &norm_epsilon(1e-5), &head_widths(Or::Skip)],
    alpha: true,
    nulls: &["head_dim"],
    layer: &[NORMS, ATTENTION, QK_NORMS],
    ..BASE
};
