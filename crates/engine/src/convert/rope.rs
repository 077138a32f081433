//! The rotary position embedding: its base, and how it was stretched to longer contexts.

use serde_json::Value as Json;

use super::config::Config;
use super::error::ConvertError;
use super::family::Family;
use super::keys::{Pairs, needed};
use crate::gguf::Value;

const KNOWN: &str = "default, linear, yarn or llama3";

/// Settings that would change the maths in a way that no key expresses.
const REFUSED: &[&str] = &["mscale", "mscale_all_dim", "extrapolation_factor", "mrope_section"];

/// The keys, and the factors by which Llama 3 divides the frequency of each pair.
pub(super) struct Rope {
    pub(super) pairs: Pairs,
    pub(super) factors: Option<Vec<f32>>,
}

/// Reads `rope_parameters`, or what stood for it before transformers 5: `rope_scaling` and `rope_theta`.
pub(super) fn read(family: &Family, config: &Config) -> Result<Rope, ConvertError> {
    let parameters = match config.object("rope_parameters")? {
        Some(parameters) => Some(parameters),
        None => config.object("rope_scaling")?,
    };
    let parameter = |key: &str| parameters.as_ref().map_or(Ok(None), |p| p.number(key));
    let base = match (parameter("rope_theta")?, config.number("rope_theta")?) {
        (Some(base), _) | (None, Some(base)) => base,
        (None, None) => family.rope_base,
    };
    let mut rope = Rope { pairs: vec![("rope.freq_base".to_owned(), Value::F32(base as f32))], factors: None };
    let Some(parameters) = parameters else { return Ok(rope) };
    if let Some((key, found)) = REFUSED.iter().find_map(|key| Some((key, parameters.value(key)?))) {
        return Err(parameters.wrong(key, found, "no such setting, it is not supported"));
    }
    let kind = match parameters.text("rope_type")? {
        Some(kind) => Some(kind),
        None => parameters.text("type")?,
    };
    let mut set = |key: &str, value: Value| rope.pairs.push((format!("rope.scaling.{key}"), value));
    let factor = || parameters.number("factor")?.ok_or_else(|| parameters.missing("factor"));
    match kind {
        None | Some("default") => {}
        Some("linear") => {
            set("type", "linear".into());
            set("factor", Value::F32(factor()? as f32));
        }
        Some("yarn") => {
            let factor = factor()?;
            set("type", "yarn".into());
            set("factor", Value::F32(factor as f32));
            set("original_context_length", Value::U32(original_context(&parameters, config)?));
            if let Some(magnitude) = parameters.number("attention_factor")? {
                // The key multiplies YaRN's own magnitude, the setting replaces it.
                set("attn_factor", Value::F32((magnitude / (0.1 * factor.ln() + 1.0)) as f32));
            }
            for (ours, theirs) in [("yarn_beta_fast", "beta_fast"), ("yarn_beta_slow", "beta_slow")] {
                if let Some(beta) = parameters.number(theirs)? {
                    set(ours, Value::F32(beta as f32));
                }
            }
        }
        Some("llama3") => rope.factors = Some(llama3(config, &parameters, base, factor()?)?),
        Some(other) => return Err(parameters.wrong("rope_type", &other.into(), KNOWN)),
    }
    Ok(rope)
}

fn original_context(parameters: &Config, config: &Config) -> Result<u32, ConvertError> {
    let key = "original_max_position_embeddings";
    match (parameters.count(key)?, config.count(key)?) {
        (Some(context), _) | (None, Some(context)) => Ok(context),
        (None, None) => needed(config, "max_position_embeddings"),
    }
}

/// Llama 3.1's rule (<https://github.com/meta-llama/llama-models>, `apply_scaling`): the frequencies of pairs that turn
/// often are kept, those of pairs that turn seldom divided by a factor, with a ramp between. In f32, as the converters do.
fn llama3(config: &Config, parameters: &Config, base: f64, factor: f64) -> Result<Vec<f32>, ConvertError> {
    let width = match config.count("head_dim")? {
        Some(width) => width,
        None => {
            let heads = needed(config, "num_attention_heads")?;
            let wrong = || config.wrong("num_attention_heads", &Json::from(heads), "at least 1");
            needed(config, "hidden_size")?.checked_div(heads).ok_or_else(wrong)?
        }
    };
    if width > 1 << 16 {
        return Err(config.wrong("head_dim", &width.into(), "at most 65536"));
    }
    let low = parameters.number("low_freq_factor")?.unwrap_or(1.0);
    let high = parameters.number("high_freq_factor")?.unwrap_or(4.0);
    let context = f64::from(original_context(parameters, config)?);
    let (longest, shortest) = ((context / low) as f32, (context / high) as f32);
    let factors = (0..width).step_by(2).map(|i| {
        let exponent = i as f32 / width as f32;
        let frequency = 1.0 / base.powf(exponent.into()) as f32;
        let length = std::f64::consts::TAU as f32 / frequency;
        if length < shortest {
            1.0
        } else if length > longest {
            factor as f32
        } else {
            let smooth = (context as f32 / length - low as f32) / (high - low) as f32;
            1.0 / ((1.0 - smooth) / factor as f32 + smooth)
        }
    });
    Ok(factors.collect())
}
