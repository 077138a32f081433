//! Dense ERNIE 4.5. The published RoPE pairs are interleaved too, so no rows are reordered.

use crate::family::parts::{BASE, COMMON, NORMS, biased, head_widths, norm_epsilon};
use crate::family::published::{Family, How, Mlx, Or, Rule};

pub(crate) const FAMILY: Family = Family {
    model_types: &["ernie4_5"],
    mlx: Mlx::No,
    architecture: "ernie4_5",
    keys: &[COMMON, &norm_epsilon(1e-5), &head_widths(Or::Count(128))],
    layer: &[NORMS, ATTENTION],
    ..BASE
};

const ATTENTION: &[Rule] = &biased(How::Same, How::Same, "use_bias", "use_bias");
