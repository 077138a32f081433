//! The rotary position embedding: its base, and its scaling for longer contexts.

use gristmill_files::gguf::{Array, Value};
use serde_json::Value as Json;

use super::config::Config;
use super::error::ConvertError;
use super::family::{Family, Rotated};
use super::keys::{Pairs, needed};

const KNOWN: &str = "default, linear, yarn, longrope or llama3";

/// The part of a head that is rotated.
const SHARE: &str = "partial_rotary_factor";

/// The divisor of the frequencies of pairs that are not rotated: their angles are 0 at every position.
const STILL: f32 = 1e30;

/// Settings that would change the maths in a way that no key expresses.
const REFUSED: &[&str] = &[MAGNITUDE, WHOLE_MAGNITUDE, TEMPERATURE, "extrapolation_factor", SECTIONS];

/// The factors of YaRN's two magnitudes, of which one divides the other.
const MAGNITUDE: &str = "mscale";
const WHOLE_MAGNITUDE: &str = "mscale_all_dim";

/// The scale of attention's temperature.
const TEMPERATURE: &str = "llama_4_scaling_beta";

/// The pairs of a head that turn by each of several positions.
const SECTIONS: &str = "mrope_section";

/// Parameters whose `null` means that they are not set: transformers then uses the default, or has no such parameter.
const NULLS: &[&str] = &[
    "full_attention",
    "sliding_attention",
    "attention_factor",
    "beta_fast",
    "beta_slow",
    MAGNITUDE,
    WHOLE_MAGNITUDE,
    TEMPERATURE,
    "extrapolation_factor",
    SECTIONS,
];

/// The keys, and name and values of tensors, which divide the frequency of each pair.
pub(super) struct Rope {
    pub(super) pairs: Pairs,
    pub(super) vectors: Vec<(&'static str, Vec<f32>)>,
}

/// Reads `rope_parameters` (transformers 5), or `rope_scaling` and `rope_theta`. Where layers with a window have a base
/// of their own, `rope_parameters` has an object for each kind of layer, older files `rope_local_base_freq`.
pub(super) fn read(family: &Family, config: &Config) -> Result<Rope, ConvertError> {
    let parameters = match config.object("rope_parameters")? {
        Some(parameters) => Some(parameters),
        None => config.object("rope_scaling")?,
    };
    let parameters = parameters.map(|parameters| parameters.without_nulls(NULLS));
    let kind = |name: &str| parameters.as_ref().map_or(Ok(None), |p| p.object(name));
    let (global, windowed) = (kind("full_attention")?, kind("sliding_attention")?);
    let windowed_base = match &windowed {
        Some(windowed) => {
            if let Some(found) = windowed.value("rope_type").filter(|&kind| kind != "default") {
                return Err(windowed.wrong("rope_type", found, "default, for layers with a window"));
            }
            windowed.positive("rope_theta")?
        }
        None => config.positive("rope_local_base_freq")?,
    };
    let parameters = global.map(|global| global.without_nulls(NULLS)).or(parameters);
    let rotated = rotated(family, config, parameters.as_ref())?;
    let parameter = |key: &str| parameters.as_ref().map_or(Ok(None), |p| p.positive(key));
    let base = match (parameter("rope_theta")?, config.positive("rope_theta")?) {
        (Some(base), _) | (None, Some(base)) => base,
        (None, None) => family.rope_base,
    };
    let mut rope = Rope { pairs: vec![("rope.freq_base".to_owned(), Value::F32(base as f32))], vectors: Vec::new() };
    rope.pairs.extend(rotated.map(|width| ("rope.dimension_count".to_owned(), Value::U32(width))));
    if let Some(usual) = family.sections {
        rope.sections(parameters.as_ref(), usual)?;
    }
    if let (Some(windowed), Rotated::Part(_)) = (&windowed, family.rotated) {
        let width = f64::from(head_width(config)?) * share(windowed)?.unwrap_or(1.0);
        rope.pairs.push(("rope.dimension_count_swa".to_owned(), Value::U32(width as u32)));
    }
    if let Some(base) = windowed_base {
        rope.pairs.push(("rope.freq_base_swa".to_owned(), Value::F32(base as f32)));
    }
    match (&parameters, family.rotated) {
        (Some(parameters), _) => rope.scaling(family, config, parameters, base)?,
        (None, Rotated::Pairs(_)) => return Err(config.missing("rope_parameters")),
        (None, _) => {}
    }
    Ok(rope)
}

/// Elements of a head that are rotated, in families whose models differ in that.
fn rotated(family: &Family, config: &Config, parameters: Option<&Config>) -> Result<Option<u32>, ConvertError> {
    let given = || parameters.into_iter().chain([config]).find_map(|from| Some((from, from.value(SHARE)?)));
    let default = match family.rotated {
        Rotated::Part(default) => default,
        Rotated::Pairs(_) => return Ok(None),
        Rotated::Whole => {
            return match given().filter(|(_, found)| found.as_f64() != Some(1.0)) {
                Some((from, found)) => {
                    Err(from.wrong(SHARE, found, "1: heads of which only a part is rotated are not supported"))
                }
                None => Ok(None),
            };
        }
    };
    let head = head_width(config)?;
    if let Some(width) = config.count("rotary_dim")? {
        return Ok(Some(width));
    }
    let share = given().map_or(Ok(None), |(from, _)| share(from))?.unwrap_or(default);
    Ok(Some((f64::from(head) * share) as u32))
}

/// The part of a head that is rotated, if these settings say it.
fn share(from: &Config) -> Result<Option<f64>, ConvertError> {
    let share = from.positive(SHARE)?;
    match share.filter(|&share| share > 1.0) {
        Some(found) => Err(from.wrong(SHARE, &found.into(), "a share, at most 1")),
        None => Ok(share),
    }
}

/// Elements of a head.
fn head_width(config: &Config) -> Result<u32, ConvertError> {
    if let Some(width) = config.count("head_dim")? {
        return Ok(width);
    }
    let heads = needed(config, "num_attention_heads")?;
    let wrong = || config.wrong("num_attention_heads", &Json::from(heads), "at least 1");
    needed(config, "hidden_size")?.checked_div(heads).ok_or_else(wrong)
}

/// A width of heads for which a tensor of factors is made.
fn bounded(config: &Config, setting: &str, width: u32) -> Result<u32, ConvertError> {
    match width {
        0..=65_536 => Ok(width),
        _ => Err(config.wrong(setting, &width.into(), "at most 65536")),
    }
}

impl Rope {
    fn set(&mut self, key: &str, value: impl Into<Value>) {
        self.pairs.push((format!("rope.scaling.{key}"), value.into()));
    }

    /// The sections of a head whose pairs turn by three positions in turn.
    fn sections(&mut self, parameters: Option<&Config>, usual: [u32; 3]) -> Result<(), ConvertError> {
        const IN_TURN: &str = "mrope_interleaved";
        let mut sections = usual.to_vec();
        if let Some(parameters) = parameters {
            if parameters.flag(IN_TURN)? == Some(false) {
                return Err(parameters.wrong(IN_TURN, &false.into(), "true, nothing else is supported"));
            }
            if let Some(found) = parameters.list(SECTIONS)? {
                let read = |n: &Json| n.as_u64().and_then(|n| u32::try_from(n).ok());
                let read: Option<Vec<u32>> = found.iter().map(read).collect();
                let wrong = || parameters.wrong(SECTIONS, &found.clone().into(), "three whole numbers");
                sections = read.filter(|all| all.len() == usual.len()).ok_or_else(wrong)?;
            }
        }
        sections.push(0);
        let sections = sections.into_iter().map(|n| i32::try_from(n).unwrap_or(i32::MAX)).collect();
        self.pairs.push(("rope.dimension_sections".to_owned(), Value::Array(Array::I32(sections))));
        Ok(())
    }

    fn scaling(
        &mut self,
        family: &Family,
        config: &Config,
        parameters: &Config,
        base: f64,
    ) -> Result<(), ConvertError> {
        let kind = match parameters.text("rope_type")? {
            Some(kind) => Some(kind),
            None => parameters.text("type")?,
        };
        let read = |key: &str| match key {
            SECTIONS => family.sections.is_some(),
            MAGNITUDE | WHOLE_MAGNITUDE | TEMPERATURE => family.yarn_ratio && kind == Some("yarn"),
            _ => false,
        };
        let refused = REFUSED.iter().filter(|key| !read(key));
        if let Some((key, found)) = refused.into_iter().find_map(|key| Some((key, parameters.value(key)?))) {
            return Err(parameters.wrong(key, found, "no such setting, it is not supported"));
        }
        if let Rotated::Pairs(width) = family.rotated {
            return match kind {
                Some("proportional") => self.still_pairs(config, parameters, width),
                Some(other) => {
                    Err(parameters.wrong("rope_type", &other.into(), "proportional, for layers without a window"))
                }
                None => Err(parameters.missing("rope_type")),
            };
        }
        let factor = || parameters.positive("factor")?.ok_or_else(|| parameters.missing("factor"));
        match kind {
            None | Some("default") => {}
            Some("linear") => {
                self.set("type", "linear");
                self.set("factor", factor()? as f32);
            }
            Some("yarn") => self.yarn(family, config, parameters, factor()?)?,
            Some("llama3") => self.vectors.push(("rope_freqs.weight", llama3(config, parameters, base, factor()?)?)),
            Some("dynamic") if parameters.value("alpha").is_some() => self.raise_base(config, parameters, base)?,
            Some("longrope" | "su") => self.longrope(config, parameters)?,
            Some(other) => return Err(parameters.wrong("rope_type", &other.into(), KNOWN)),
        }
        Ok(())
    }

    fn yarn(&mut self, family: &Family, config: &Config, parameters: &Config, factor: f64) -> Result<(), ConvertError> {
        let truncates = parameters.flag("truncate")?.unwrap_or(true);
        if truncates != family.yarn_truncates {
            let expected = format!("{}, as models of this family have it", family.yarn_truncates);
            return Err(parameters.wrong("truncate", &truncates.into(), expected));
        }
        self.set("type", "yarn");
        self.set("factor", factor as f32);
        self.set("original_context_length", original_context(parameters, config)?);
        if let Some(magnitude) = parameters.number("attention_factor")? {
            // The key multiplies YaRN's own magnitude, the setting replaces it.
            self.set("attn_factor", (magnitude / (0.1 * factor.ln() + 1.0)) as f32);
        }
        for (ours, theirs) in [("yarn_beta_fast", "beta_fast"), ("yarn_beta_slow", "beta_slow")] {
            if let Some(beta) = parameters.number(theirs)? {
                self.set(ours, beta as f32);
            }
        }
        match family.yarn_ratio {
            true => self.yarn_ratio(parameters),
            false => Ok(()),
        }
    }

    /// YaRN's magnitude as a ratio, of which files have one number, and the temperature of attention.
    fn yarn_ratio(&mut self, parameters: &Config) -> Result<(), ConvertError> {
        match (parameters.positive(MAGNITUDE)?, parameters.positive(WHOLE_MAGNITUDE)?) {
            (None, None) => {}
            (Some(own), Some(whole)) if own == whole => self.set("yarn_log_multiplier", whole as f32),
            (Some(own), Some(whole)) => {
                let expected = format!("{whole}, as {WHOLE_MAGNITUDE}; nothing else is supported");
                return Err(parameters.wrong(MAGNITUDE, &own.into(), expected));
            }
            (None, Some(_)) => return Err(parameters.missing(MAGNITUDE)),
            (Some(_), None) => return Err(parameters.missing(WHOLE_MAGNITUDE)),
        }
        if let Some(scale) = parameters.number(TEMPERATURE)? {
            self.pairs.push(("attention.temperature_scale".to_owned(), Value::F32(scale as f32)));
        }
        Ok(())
    }

    /// Gemma 4's rotation of the first pairs alone, at the frequencies that they have among all.
    fn still_pairs(&mut self, config: &Config, parameters: &Config, width: &str) -> Result<(), ConvertError> {
        let head = bounded(config, width, needed(config, width)?)?;
        let turning = (f64::from(head) * share(parameters)?.unwrap_or(1.0) / 2.0) as u32;
        let factors = (0..head / 2).map(|pair| if pair < turning { 1.0 } else { STILL });
        self.vectors.push(("rope_freqs.weight", factors.collect()));
        Ok(())
    }

    /// Hunyuan's scaling: a factor for the base, whatever the length of a text.
    fn raise_base(&mut self, config: &Config, parameters: &Config, base: f64) -> Result<(), ConvertError> {
        let alpha = parameters.positive("alpha")?.ok_or_else(|| parameters.missing("alpha"))?;
        let width = f64::from(head_width(config)?);
        let wrong = || config.wrong("head_dim", &width.into(), "more than 2");
        let exponent = Some(width / (width - 2.0)).filter(|x| x.is_finite() && *x > 0.0).ok_or_else(wrong)?;
        let raised = Value::F32((base * alpha.powf(exponent)) as f32);
        self.pairs.iter_mut().filter(|(key, _)| key == "rope.freq_base").for_each(|(_, value)| *value = raised.clone());
        Ok(())
    }

    /// LongRoPE, which its tensors say and no key.
    fn longrope(&mut self, config: &Config, parameters: &Config) -> Result<(), ConvertError> {
        let context = original_context(parameters, config)?;
        self.set("original_context_length", context);
        self.set("attn_factor", longrope_magnitude(config, parameters, context)? as f32);
        for (ours, theirs) in
            [("rope_factors_long.weight", "long_factor"), ("rope_factors_short.weight", "short_factor")]
        {
            let factors = parameters.numbers(theirs)?.ok_or_else(|| parameters.missing(theirs))?;
            if let Some(&found) = factors.iter().find(|&&x| x as f32 <= 0.0) {
                return Err(parameters.wrong(theirs, &found.into(), "numbers above 0"));
            }
            self.vectors.push((ours, factors.into_iter().map(|x| x as f32).collect()));
        }
        Ok(())
    }
}

fn original_context(parameters: &Config, config: &Config) -> Result<u32, ConvertError> {
    let key = "original_max_position_embeddings";
    match (parameters.count(key)?, config.count(key)?) {
        (Some(context), _) | (None, Some(context)) => Ok(context),
        (None, None) => needed(config, "max_position_embeddings"),
    }
}

/// The magnitude of LongRoPE, which multiplies queries and keys: a setting, or transformers' rule.
fn longrope_magnitude(config: &Config, parameters: &Config, original_context: u32) -> Result<f64, ConvertError> {
    let (short, long) = (parameters.number("short_mscale")?, parameters.number("long_mscale")?);
    if let Some((key, found)) = ["short_mscale", "long_mscale"].iter().find_map(|k| Some((k, parameters.value(k)?))) {
        // GGUF has one key for both.
        return match (short, long) {
            (Some(short), Some(long)) if short == long => Ok(short),
            _ => Err(parameters.wrong(key, found, "short_mscale and long_mscale with one value")),
        };
    }
    if let Some(magnitude) = parameters.number("attention_factor")? {
        return Ok(magnitude);
    }
    let original_context = f64::from(original_context);
    let factor = f64::from(needed(config, "max_position_embeddings")?) / original_context;
    Ok(if factor <= 1.0 { 1.0 } else { (1.0 + factor.ln() / original_context.ln()).sqrt() })
}

/// Llama 3.1's rule (<https://github.com/meta-llama/llama-models>, `apply_scaling`): the frequencies of pairs that turn
/// often are kept, those of pairs that turn seldom divided by a factor, with a ramp between. In f32, as the converters
/// do.
fn llama3(config: &Config, parameters: &Config, base: f64, factor: f64) -> Result<Vec<f32>, ConvertError> {
    let width = bounded(config, "head_dim", head_width(config)?)?;
    let low = parameters.positive("low_freq_factor")?.unwrap_or(1.0);
    let high = parameters.positive("high_freq_factor")?.unwrap_or(4.0);
    if (high as f32) < low as f32 {
        return Err(parameters.wrong("high_freq_factor", &high.into(), format!("at least low_freq_factor, {low}")));
    }
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
        } else if longest == shortest {
            // There is no ramp: Llama 4 has one factor twice.
            1.0
        } else {
            let smooth = (context as f32 / length - low as f32) / (high - low) as f32;
            1.0 / ((1.0 - smooth) / factor as f32 + smooth)
        }
    });
    Ok(factors.collect())
}
