//! `mistral4`: Mistral 4. As `deepseek2`; a softmax routes in the groups whose two best experts have the highest sum, and
//! queries have a temperature.

use gristmill_kernels::ops::GroupWorth;

use crate::error::Result;
use crate::family::deepseek2;
use crate::family::read::KeyReader;
use crate::spec::{MlpSpec, ModelSpec};

pub(crate) fn spec(file: &KeyReader) -> Result<ModelSpec> {
    let mut spec = deepseek2::spec::spec(file)?;
    for layer in &mut spec.layers {
        if let Some(MlpSpec::Moe(moe)) = &mut layer.mlp {
            moe.routing.worth = GroupWorth::TwoHighest;
        }
    }
    Ok(spec)
}
