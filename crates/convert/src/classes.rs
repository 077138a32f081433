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
}

/// The settings that the family's class reads, the text model's first, with the class's defaults for missing settings,
/// and without `null` settings. Families that transformers lacks keep all settings.
pub(super) fn read(family: &Family, config: Config) -> Result<Config, ConvertError> {
    let outer = config.text("model_type")?.unwrap_or_default().to_owned();
    let mut config = match &family.within {
        Some(within) => config.overlaid(within.settings)?,
        None => config,
    };
    if let Some(inner) = family.inner {
        config = config.overlaid(inner)?;
    }
    let names = family.names.iter().map(|&(theirs, ours)| (theirs.to_owned(), ours.to_owned())).collect();
    config = config.renamed(&names);
    let inner = config.text("model_type")?.unwrap_or_default().to_owned();
    let classes: BTreeMap<String, Class> = serde_json::from_str(CLASSES).unwrap_or_default();
    if let Some(class) = classes.get(&inner).or(classes.get(&outer)) {
        config = config.renamed(&class.aliases);
        let known = |name: &str| {
            class.names.iter().any(|known| known == name)
                || class.defaults.contains_key(name)
                || OF_ALL.contains(&name)
                || family.beyond.contains(&name)
                || name.ends_with("_token_id")
        };
        config = config.only(known).without_nulls(&["rope_parameters"]).with_defaults(&class.defaults);
    }
    let config = config.without_nulls(NULLS).without_nulls(family.nulls);
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
    }
}
