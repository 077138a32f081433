//! `mistral3`: Ministral 3. As `llama` with YaRN of magnitude 1, and a query temperature. The temperature grows with
//! each multiple of the original context.

use gristmill_kernels::ops::{Activation, RopeStyle};

use crate::error::Result;
use crate::family::read::KeyReader;
use crate::spec::{ModelSpec, RopeScaling};

pub(crate) fn spec(file: &KeyReader) -> Result<ModelSpec> {
    file.refuse_count("expert_count", "0: experts of Mistral 3 are not implemented")?;
    let mut attention = file.attention(RopeStyle::Interleaved)?;
    attention.temperature = file.temperature(0)?;
    // The magnitude is the ratio of two logarithms, and the file has one of them; they are equal in published models.
    if let (true, Some(RopeScaling::Yarn { factor, attention_factor, .. })) = (
        file.number_or_zero("rope.scaling.yarn_log_multiplier")?.is_some(),
        attention.rope.as_mut().map(|rope| &mut rope.scaling),
    ) {
        *attention_factor /= 0.1 * factor.ln() + 1.0;
    }
    file.uniform(attention, file.dense(Activation::SwiGlu)?)
}
