//! `mistral3`: Ministral 3. As `llama` with YaRN, whose magnitude is 1. The temperature of attention, which begins
//! behind the original context, is not implemented: longer contexts are refused.

use gristmill_kernels::ops::{Activation, RopeStyle};

use super::read::Reader;
use crate::error::Result;
use crate::model::spec::{ModelSpec, RopeScaling};

pub(super) fn spec(file: &Reader) -> Result<ModelSpec> {
    file.refuse_count("expert_count", "0: experts of Mistral 3 are not implemented")?;
    let mut attention = file.attention(RopeStyle::Interleaved)?;
    // The magnitude is the ratio of two logarithms, of which the file has one; published models have the same twice.
    let ratio = file.number_or_zero("rope.scaling.yarn_log_multiplier")?.is_some();
    let mut original = None;
    if let Some(RopeScaling::Yarn { factor, original_context, attention_factor, .. }) =
        attention.rope.as_mut().map(|rope| &mut rope.scaling)
    {
        original = Some(*original_context);
        if ratio {
            *attention_factor /= 0.1 * factor.ln() + 1.0;
        }
    }
    let tempered = file.number_or_zero("attention.temperature_scale")?.is_some();
    let model = file.uniform(attention, file.dense(Activation::SwiGlu)?)?;
    let context_limit = tempered.then(|| original.unwrap_or(model.context_length));
    Ok(ModelSpec { context_limit, ..model })
}
