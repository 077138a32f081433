//! `ernie4_5-moe`: ERNIE 4.5. The first layers are dense, the others have experts that serve every token and experts
//! chosen by softmax over all with a bias. Pairs of neighbours are rotated.

use gristmill_kernels::ops::{Activation, RopeStyle};

use crate::error::Result;
use crate::family::read::KeyReader;
use crate::spec::{MlpSpec, ModelSpec, MoeSpec};

pub(crate) fn spec(file: &KeyReader) -> Result<ModelSpec> {
    let attention = file.attention(RopeStyle::Interleaved)?;
    let mut moe = file.moe(true, file.shared_experts()?)?;
    if let MlpSpec::Moe(MoeSpec { selection_bias, .. }) = &mut moe {
        *selection_bias = file.has_selection_bias()?;
    }
    file.model(file.dense_first(attention, file.dense(Activation::SwiGlu)?, moe)?)
}
