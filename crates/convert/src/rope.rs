//! The rotary position embedding: its base, and its scaling for longer contexts.

use gristmill_files::gguf::{Array, Value};
use serde_json::Value as Json;

use super::config::Config;
use super::error::ConvertError;
use super::family::{Family, OlderScaling, Rotated, Share};
use super::keys::{Pairs, needed};

const KNOWN: &str = "default, linear, dynamic, yarn, longrope or llama3";

/// The part of a head that is rotated.
const SHARE: &str = "partial_rotary_factor";

/// The part in layers with a window, if the settings have a list of both.
const WINDOWED_SHARE: &str = "windowed_partial_rotary_factor";

/// The divisor of the frequencies of pairs that are not rotated: their angles are 0 at every position.
const STILL: f32 = 1e30;

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
    SECTIONS,
];

/// The parameters of layers with full attention, and of those with a window.
const FULL: &str = "full_attention";
const WINDOWED: &str = "sliding_attention";

/// The keys, and name and values of tensors, which divide the frequency of each pair.
pub(super) struct Rope {
    pub(super) pairs: Pairs,
    pub(super) vectors: Vec<(&'static str, Vec<f32>)>,
}

/// The parameters of all layers, or of those with full attention, and those of layers with a window if they have their
/// own.
fn parameters(family: &Family, config: &Config) -> Result<(Option<Config>, Option<Config>), ConvertError> {
    let object = |key| Ok::<_, ConvertError>(config.object(key)?.map(|found| found.without_nulls(NULLS)));
    let given = object("rope_parameters")?;
    let older = object("rope_scaling")?.filter(|older| !older.is_empty());
    let of = |kind| given.as_ref().map_or(Ok(None), |given| given.object(kind));
    let full = of(FULL)?.map(|full| full.without_nulls(NULLS));
    let windowed = of(WINDOWED)?;
    let full = match (family.older_scaling, older) {
        (OlderScaling::Replaces, Some(older)) => Some(older),
        (OlderScaling::Replaces | OlderScaling::Unread, _) => full.or(given),
        // Without a kind of its own, it is the default, whatever the older name says.
        (OlderScaling::Updates, Some(older)) if full.is_none() && older.value("rope_type").is_none() => None,
        (OlderScaling::Updates, Some(older)) => Some(full.map_or(older.clone(), |full| full.updated(older))),
        (OlderScaling::Updates, None) => full,
    };
    Ok((full, windowed))
}

/// Reads `rope_parameters` (transformers 5), or `rope_scaling` and `rope_theta`. Where layers with a window have a base
/// of their own, `rope_parameters` has an object for each kind of layer, older files `rope_local_base_freq`.
pub(super) fn read(family: &Family, config: &Config) -> Result<Rope, ConvertError> {
    let (parameters, windowed) = parameters(family, config)?;
    let windowed_base = match &windowed {
        Some(windowed) => {
            if let Some(found) = kind(windowed)?.filter(|&kind| kind != "default") {
                return Err(windowed.wrong("rope_type", &found.into(), "default, for layers with a window"));
            }
            windowed.positive("rope_theta")?.or(config.positive("rope_local_base_freq")?)
        }
        None => config.positive("rope_local_base_freq")?,
    };
    let rotated = rotated(family, config, parameters.as_ref(), windowed.as_ref())?;
    let parameter = |key: &str| parameters.as_ref().map_or(Ok(None), |p| p.positive(key));
    let base = parameter("rope_theta")?.or(config.positive("rope_theta")?).unwrap_or(family.base);
    let mut rope = Rope { pairs: vec![("rope.freq_base".to_owned(), Value::F32(base as f32))], vectors: Vec::new() };
    rope.pairs.extend(rotated.map(|width| ("rope.dimension_count".to_owned(), Value::U32(width))));
    if let Some(usual) = family.sections {
        rope.sections(parameters.as_ref(), usual)?;
    }
    if let (Some(windowed), Rotated::Part(usual)) = (&windowed, family.rotated) {
        let width = f64::from(head_width(config)?) * share(windowed)?.unwrap_or(usual);
        rope.pairs.push(("rope.dimension_count_swa".to_owned(), Value::U32(width as u32)));
    }
    if let Some(base) = windowed_base {
        rope.pairs.push(("rope.freq_base_swa".to_owned(), Value::F32(base as f32)));
    }
    match (&parameters, family.rotated) {
        (Some(parameters), _) => rope.scaling(family, config, parameters, base, rotated)?,
        (None, Rotated::Pairs(_)) => return Err(config.missing("rope_parameters")),
        (None, _) => {}
    }
    Ok(rope)
}

/// Elements of a head that are rotated, in families whose models differ in that.
fn rotated(
    family: &Family,
    config: &Config,
    parameters: Option<&Config>,
    windowed: Option<&Config>,
) -> Result<Option<u32>, ConvertError> {
    let given = || parameters.into_iter().chain([config]).find_map(|from| Some((from, from.value(SHARE)?)));
    let default = match family.rotated {
        Rotated::Part(default) => default,
        Rotated::Pairs(_) => return Ok(None),
        Rotated::HalfUnlessWindowed => {
            let of_windows = windowed.map(|from| (from, SHARE)).unwrap_or((config, WINDOWED_SHARE));
            let of_full = parameters.filter(|from| from.value(SHARE).is_some()).unwrap_or(config);
            for ((from, setting), expected) in [((of_full, SHARE), 0.5), (of_windows, 1.0)] {
                let found = from.value(setting).ok_or_else(|| from.missing(setting))?;
                if found.as_f64() != Some(expected) {
                    let known = format!("{expected}: 0.5 in layers with full attention, 1 in layers with a window");
                    return Err(from.wrong(setting, found, known));
                }
            }
            return Ok(None);
        }
        Rotated::Latent => {
            let (part, others) = (needed(config, "qk_rope_head_dim")?, needed(config, "qk_nope_head_dim")?);
            let whole = part.saturating_add(others);
            // The class computes it, unless the settings have another.
            if let Some(found) = config.count("head_dim")?.filter(|&found| found != whole) {
                return Err(config.wrong("head_dim", &found.into(), format!("{whole}, the width of a query")));
            }
            let is_wrong = |found: &Json| found.as_f64().is_none_or(|share| (share * f64::from(whole)) as u32 != part);
            return match given().filter(|(_, found)| is_wrong(found)) {
                Some((from, found)) => Err(from.wrong(SHARE, found, format!("the number {part} / {whole}"))),
                None => Ok(None),
            };
        }
        Rotated::Whole | Rotated::AlwaysWhole => {
            // Without a scaling, most of these families' models do not read it.
            let is_scaled = parameters.map_or(Ok(None), kind)?.is_some_and(|kind| kind != "default");
            let is_read = is_scaled || matches!(family.rotated, Rotated::AlwaysWhole);
            return match given().filter(|(_, found)| is_read && found.as_f64() != Some(1.0)) {
                Some((from, found)) => {
                    Err(from.wrong(SHARE, found, "1: heads of which only a part is rotated are not supported"))
                }
                None => Ok(None),
            };
        }
    };
    let head = head_width(config)?;
    if let Some((from, _)) = given() {
        return Ok(Some((f64::from(head) * share(from)?.unwrap_or(default)) as u32));
    }
    match config.count("rotary_dim")? {
        Some(width) => Ok(Some(width)),
        None => Ok(Some((f64::from(head) * default) as u32)),
    }
}

/// Of a head of so many rows, those that are rotated, in a family without layers of several kinds.
pub(super) fn rotated_rows(config: &Config, head: usize, usual: Share) -> Result<usize, ConvertError> {
    let inner = ["rope_scaling", "rope_parameters"].map(|key| config.object(key)).into_iter();
    let inner = inner.collect::<Result<Vec<_>, _>>()?;
    let of_all = inner.iter().flatten().chain([config]).map(share).collect::<Result<Vec<_>, _>>()?;
    let usual = f64::from(usual.0) / f64::from(usual.1);
    let stated = of_all.into_iter().flatten().next();
    let rows = match (stated, config.count("rotary_dim")?) {
        (None, Some(width)) => width as usize,
        (stated, _) => (head as f64 * stated.unwrap_or(usual)) as usize,
    };
    match rows <= head && rows.is_multiple_of(2) {
        true => Ok(rows),
        false => Err(config.wrong(SHARE, &rows.into(), format!("an even number of the {head} rows of a head"))),
    }
}

/// The kind of scaling, by its newer or its older name.
fn kind(parameters: &Config) -> Result<Option<&str>, ConvertError> {
    match parameters.text("rope_type")? {
        Some(kind) => Ok(Some(kind)),
        None => parameters.text("type"),
    }
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

/// A width of heads for which a vector is made.
pub(super) fn bounded(config: &Config, setting: &str, width: u32) -> Result<u32, ConvertError> {
    match width {
        0..=65_536 => Ok(width),
        _ => Err(config.wrong(setting, &width.into(), "at most 65536")),
    }
}

impl Rope {
    fn set(&mut self, key: &str, value: impl Into<Value>) {
        self.pairs.push((format!("rope.scaling.{key}"), value.into()));
    }

    /// The sections of a head whose pairs the three positions rotate, in this order.
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
        rotated: Option<u32>,
    ) -> Result<(), ConvertError> {
        let kind = kind(parameters)?;
        if (family.yarn_ratio || family.yarn_scores)
            && let Some(scale) = parameters.number(TEMPERATURE)?
        {
            self.pairs.push(("attention.temperature_scale".to_owned(), Value::F32(scale as f32)));
            if kind != Some("yarn") {
                self.set("original_context_length", original_context(parameters, config)?);
            }
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
        if family.yarn_scores
            && !matches!(kind, None | Some("default" | "yarn"))
            && parameters.number("factor")?.is_some_and(|factor| factor > 1.0)
            && let Some(found) = parameters.number(WHOLE_MAGNITUDE)?.filter(|&scale| scale != 0.0)
        {
            // transformers reads it with every scaling; files have its key for YaRN alone.
            return Err(parameters.wrong(WHOLE_MAGNITUDE, &found.into(), "no such setting without YaRN"));
        }
        match kind {
            None | Some("default") => {}
            // Sections of pairs are all that it says.
            Some("mrope") if family.sections.is_some() => {}
            Some("linear") => {
                self.set("type", "linear");
                self.set("factor", factor()? as f32);
            }
            Some(kind) if family.longrope.contains(&kind) => self.longrope(family, config, parameters)?,
            Some("yarn") => self.yarn(family, config, parameters, factor()?)?,
            Some("llama3") => {
                let width = rotated.map_or_else(|| head_width(config), Ok)?;
                let divided = if matches!(family.rotated, Rotated::HalfUnlessWindowed) { width / 2 } else { width };
                let mut factors = llama3(config, parameters, base, factor()?, divided)?;
                factors.resize(width as usize / 2, 1.0);
                self.vectors.push(("rope_freqs.weight", factors));
            }
            Some("dynamic") if family.alpha && parameters.value("alpha").is_some() => {
                self.raise_base(config, parameters, base)?;
            }
            // It scales only beyond `max_position_embeddings`, where a notice warns of the context.
            Some("dynamic") => drop(factor()?),
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
        for (ours, theirs) in [("yarn_beta_fast", "beta_fast"), ("yarn_beta_slow", "beta_slow")] {
            // 0 stands for the default.
            if let Some(beta) = parameters.number(theirs)?.filter(|&beta| beta != 0.0) {
                self.set(ours, beta as f32);
            }
        }
        self.magnitude(family, parameters, factor)
    }

    /// YaRN's magnitude: a setting, the ratio of two, or its own, which the key multiplies.
    fn magnitude(&mut self, family: &Family, parameters: &Config, factor: f64) -> Result<(), ConvertError> {
        // Both settings or none; 0 is none.
        let set = |key| Ok::<_, ConvertError>(parameters.number(key)?.filter(|&scale| scale != 0.0));
        let of = |scale: f64| if factor <= 1.0 { 1.0 } else { 0.1 * scale * factor.ln() + 1.0 };
        if family.yarn_scores
            && let Some(whole) = set(WHOLE_MAGNITUDE)?
        {
            self.set("yarn_log_multiplier", (0.1 * whole) as f32);
            // Without the other key, sines and cosines have no magnitude.
            if set(MAGNITUDE)? == Some(whole) && parameters.value("attention_factor").is_none() {
                return Ok(());
            }
        }
        let magnitude = match (parameters.number("attention_factor")?, set(MAGNITUDE)?, set(WHOLE_MAGNITUDE)?) {
            (Some(magnitude), ..) => magnitude,
            (None, Some(own), Some(whole)) if own == whole && family.yarn_ratio => {
                self.set("yarn_log_multiplier", whole as f32);
                return Ok(());
            }
            (None, Some(own), Some(whole)) => of(own) / of(whole),
            (None, None, Some(_)) if family.yarn_scores => of(1.0),
            _ if factor >= 1.0 => return Ok(()),
            _ => 1.0,
        };
        let multiplier = magnitude / (0.1 * factor.ln() + 1.0);
        let wrong = || parameters.wrong("factor", &factor.into(), "a number with a magnitude above 0");
        self.set("attn_factor", Some(multiplier as f32).filter(|x| x.is_finite() && *x > 0.0).ok_or_else(wrong)?);
        Ok(())
    }

    /// Gemma 4's rotation of the first pairs alone, at the frequencies that they have among all.
    fn still_pairs(&mut self, config: &Config, parameters: &Config, width: &str) -> Result<(), ConvertError> {
        let head = bounded(config, width, needed(config, width)?)?;
        let turning = (f64::from(head) * share(parameters)?.unwrap_or(1.0) / 2.0) as u32;
        let factor = parameters.positive("factor")?.unwrap_or(1.0) as f32;
        let factors = (0..head / 2).map(|pair| if pair < turning { factor } else { STILL });
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
    fn longrope(&mut self, family: &Family, config: &Config, parameters: &Config) -> Result<(), ConvertError> {
        let context = original_context(parameters, config)?;
        self.set("original_context_length", context);
        self.set("attn_factor", longrope_magnitude(family, config, parameters, context)? as f32);
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

/// The context before scaling; the model's setting has priority over the setting of RoPE.
fn original_context(parameters: &Config, config: &Config) -> Result<u32, ConvertError> {
    let key = "original_max_position_embeddings";
    match (config.count(key)?, parameters.count(key)?) {
        (Some(context), _) | (None, Some(context)) => Ok(context),
        (None, None) => needed(config, "max_position_embeddings"),
    }
}

/// The magnitude of LongRoPE, which multiplies queries and keys: a setting, or transformers' rule.
fn longrope_magnitude(
    family: &Family,
    config: &Config,
    parameters: &Config,
    original_context: u32,
) -> Result<f64, ConvertError> {
    if family.magnitudes {
        let (short, long) = ("short_mscale", "long_mscale");
        let needed = |key| parameters.positive(key)?.ok_or_else(|| parameters.missing(key));
        let magnitude = needed(short)?;
        // GGUF has one key for both.
        return match needed(long)? == magnitude {
            true => Ok(magnitude),
            false => {
                let found = parameters.value(long).unwrap_or(&Json::Null);
                Err(parameters.wrong(long, found, format!("{magnitude}: short_mscale and long_mscale with one value")))
            }
        };
    }
    if let Some(magnitude) = parameters.number("attention_factor")? {
        return Ok(magnitude);
    }
    let original_context = f64::from(original_context);
    let factor = match parameters.positive("factor")? {
        Some(factor) => factor,
        None => f64::from(needed(config, "max_position_embeddings")?) / original_context,
    };
    Ok(if factor <= 1.0 { 1.0 } else { (1.0 + factor.ln() / original_context.ln()).sqrt() })
}

/// Llama 3.1's rule (<https://github.com/meta-llama/llama-models>, `apply_scaling`): high frequencies of pairs are
/// kept, low frequencies are divided by a factor, with a ramp between them. In f32, as the converters do.
fn llama3(config: &Config, parameters: &Config, base: f64, factor: f64, width: u32) -> Result<Vec<f32>, ConvertError> {
    let width = bounded(config, "head_dim", width)?;
    let needed = |key| parameters.positive(key)?.ok_or_else(|| parameters.missing(key));
    let (low, high) = (needed("low_freq_factor")?, needed("high_freq_factor")?);
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
