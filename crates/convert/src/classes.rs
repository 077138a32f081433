//! Which settings transformers reads, and what it takes for those that are missing: the fields of each family's
//! configuration class, which `scripts/settings/classes.py` writes into `classes.json`.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::config::Config;
use super::error::ConvertError;
use super::family::{Family, NULLS};

const CLASSES: &str = include_str!("classes.json");

/// Settings that every class reads, whatever its fields: of RoPE, of the output head, and of the folder itself.
const OF_ALL: &[&str] = &[
    "model_type",
    "text_config",
    "quantization",
    "quantization_config",
    "tie_word_embeddings",
    "rope_parameters",
    "rope_scaling",
    "rope_theta",
    "partial_rotary_factor",
    "original_max_position_embeddings",
    "num_nextn_predict_layers",
    "num_mtp_layers",
    "head_dim",
];

/// The fields of a class.
#[derive(Deserialize)]
struct Class {
    /// Fields without a default, and sizes, which must be there if they are read.
    names: Vec<String>,
    /// The values of missing fields.
    defaults: Map<String, Value>,
    /// Other names of fields, which come before these.
    aliases: BTreeMap<String, String>,
    /// Missing lists with a value for each layer.
    layers: BTreeMap<String, Pattern>,
    /// Settings that are no fields, but from which the class may compute other lists.
    unless: Vec<String>,
    /// Settings of [`OF_ALL`] that the class does not read.
    unread: Vec<String>,
}

/// A list with a value for each layer: the first values, and those that then repeat.
#[derive(Deserialize)]
struct Pattern {
    first: Vec<Value>,
    then: Vec<Value>,
}

impl Class {
    /// The defaults for these settings.
    fn missing(&self, family: &Family, config: &Config) -> Result<Map<String, Value>, ConvertError> {
        let mut defaults = self.defaults.clone();
        // The authors' code reads it instead.
        if family.beyond.contains(&WINDOWED_BASE) && config.value(WINDOWED_BASE).is_some() {
            defaults.remove("rope_parameters");
        }
        let has = |name: &str| config.value(name).is_some_and(|value| !value.is_null());
        let layers = config.count("num_hidden_layers")?.unwrap_or(0) as usize;
        if layers > MAX_LAYERS || self.unless.iter().any(|name| has(name)) {
            return Ok(defaults);
        }
        let keys = || family.keys.iter().copied().flatten();
        let is_said = |name: &str| {
            keys().any(|key| key.theirs.contains(&name) && key.theirs.iter().any(|&other| other != name && has(other)))
        };
        for (name, pattern) in self.layers.iter().filter(|(name, _)| !is_said(name)) {
            let values = pattern.first.iter().chain(pattern.then.iter().cycle());
            defaults.insert(name.clone(), values.take(layers).cloned().collect());
        }
        Ok(defaults)
    }
}

/// The base of RoPE in layers with a window.
const WINDOWED_BASE: &str = "rope_local_base_freq";

/// More layers than any model has; the folder lacks their tensors.
const MAX_LAYERS: usize = 1 << 16;

/// The settings that the family's class reads, the text model's first, with the class's defaults for missing settings,
/// and without `null` settings. Families that transformers lacks keep all settings.
pub(super) fn read(family: &Family, config: Config) -> Result<Config, ConvertError> {
    let outer = config.text("model_type")?.unwrap_or_default().to_owned();
    let mut config = match &family.within {
        Some(within) => config.overlaid(within.settings)?,
        None => config,
    };
    let names = family.names.iter().map(|&(theirs, ours)| (theirs.to_owned(), ours.to_owned())).collect();
    config = match family.inner {
        // Only the settings of the object have other names.
        Some(inner) => match config.object(inner)? {
            Some(settings) => config.updated(settings.renamed(&names)),
            None => config,
        },
        None => config.renamed(&names),
    };
    let inner = config.text("model_type")?.unwrap_or_default().to_owned();
    let classes: BTreeMap<String, Class> = serde_json::from_str(CLASSES).unwrap_or_default();
    if let Some(class) = classes.get(&inner).or(classes.get(&outer)) {
        config = config.renamed(&class.aliases);
        let nulls: Vec<&str> = class.layers.keys().map(String::as_str).chain(["rope_parameters"]).collect();
        let known = |name: &str| {
            let is_of_all = OF_ALL.contains(&name) && !class.unread.iter().any(|unread| unread == name);
            class.names.iter().any(|known| known == name)
                || class.defaults.contains_key(name)
                || is_of_all
                || family.beyond.contains(&name)
                || name.ends_with("_token_id")
        };
        let defaults = class.missing(family, &config)?;
        config = config.only(known).without_nulls(&nulls).with_defaults(&defaults);
    }
    let config =
        config.without_nulls(NULLS).without_nulls(family.nulls).with_layer_types(family.layer_types.as_ref())?;
    config.with_values_of_layers(family.of_layers)?.with_full_layers(family.full_layers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_read() {
        let classes: BTreeMap<String, Class> = serde_json::from_str(CLASSES).expect("the file is valid");
        assert_eq!(classes["gemma2"].defaults["attn_logit_softcapping"], 50.0);
        assert!(classes["llama"].names.iter().any(|name| name == "hidden_size"));
        assert_eq!(classes["kimi_k2"].defaults, classes["deepseek_v3"].defaults);
        assert_eq!(classes["mellum"].layers["layer_types"].then, ["full_attention"]);
        assert!(classes["lfm2"].layers.is_empty(), "they depend on `full_attn_idxs`");
    }
}
