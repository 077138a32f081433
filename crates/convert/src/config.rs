//! The settings of a model, `config.json`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use gristmill_files::json::cut;
use serde_json::{Map, Value};

use super::error::ConvertError;
use super::family::{Family, LAYER_TYPES, OfLayers, TypesOfLayers, When};
use super::files::read_json;

/// The settings with the number of layers after the others that predict further tokens.
const PREDICTION_LAYERS: &[&str] = &["num_nextn_predict_layers", "num_mtp_layers"];

/// Earlier names of types of layers, and the names that transformers has now.
const OLDER_TYPES: &[(&str, &str)] = &[("mamba", "linear_attention"), ("attention", "full_attention")];

/// A JSON object whose getters refuse a value of another type, and say what they expected.
///
/// A `null` is refused like any wrong type: transformers uses it instead of the default, which breaks the model. Where
/// transformers declares a setting as optional, `null` means that it is not set: [`Config::without_nulls`].
#[derive(Debug, Clone)]
pub(super) struct Config {
    path: PathBuf,
    entries: Map<String, Value>,
    /// The names that settings have in the file, where these are others: see [`Config::renamed`].
    aliases: BTreeMap<String, String>,
}

impl Config {
    /// Reads a file.
    pub(super) fn read(path: &Path) -> Result<Config, ConvertError> {
        Ok(Config { path: path.to_owned(), entries: read_json(path)?, aliases: BTreeMap::new() })
    }

    /// Settings of no file.
    #[cfg(test)]
    pub(super) fn of(settings: Value) -> Config {
        let Value::Object(entries) = settings else { panic!("no object") };
        Config { path: "config.json".into(), entries, aliases: BTreeMap::new() }
    }

    /// Reads a file; `None` if it does not exist.
    pub(super) fn read_optional(path: &Path) -> Result<Config, ConvertError> {
        match path.exists() {
            true => Self::read(path),
            false => Ok(Config { path: path.to_owned(), entries: Map::new(), aliases: BTreeMap::new() }),
        }
    }

    /// Takes out those of these settings that are `null`, whatever they are called in the file.
    pub(super) fn without_nulls(mut self, keys: &[&str]) -> Config {
        self.entries.retain(|key, value| !(value.is_null() && keys.contains(&key.as_str())));
        self
    }

    /// The settings, with those of other names under the names that these stand for.
    pub(super) fn renamed(mut self, aliases: &BTreeMap<String, String>) -> Config {
        for (alias, name) in aliases {
            if let Some(value) = self.entries.remove(alias) {
                // `null` under another name is no value.
                if value.is_null() && self.entries.contains_key(name) {
                    continue;
                }
                self.entries.insert(name.clone(), value);
                self.aliases.insert(name.clone(), alias.clone());
            }
        }
        self
    }

    /// Those settings whose names these are.
    pub(super) fn only(mut self, named: impl Fn(&str) -> bool) -> Config {
        self.entries.retain(|name, _| named(name));
        self
    }

    /// The settings, with these for missing ones.
    pub(super) fn with_defaults(mut self, defaults: &Map<String, Value>) -> Config {
        for (name, value) in defaults {
            if !self.entries.contains_key(name) {
                self.entries.insert(name.clone(), value.clone());
            }
        }
        self
    }

    /// The settings with the settings of an inner object, which have priority.
    pub(super) fn overlaid(mut self, key: &str) -> Result<Config, ConvertError> {
        if let Some(inner) = self.object(key)? {
            self.entries.extend(inner.entries);
        }
        Ok(self)
    }

    /// The number of layers after the others that predict further tokens.
    pub(super) fn prediction_layers(&self) -> Result<usize, ConvertError> {
        let setting = PREDICTION_LAYERS.iter().find(|setting| self.value(setting).is_some());
        Ok(setting.map_or(Ok(None), |setting| self.count(setting))?.unwrap_or(0) as usize)
    }

    /// The settings without the values of prediction layers, and with the values of layers with full attention and with a
    /// window where a list has two values.
    pub(super) fn with_values_of_layers(mut self, settings: &[OfLayers]) -> Result<Config, ConvertError> {
        let layers = self.count("num_hidden_layers")?.unwrap_or(0) as usize;
        let predicting = self.prediction_layers()?;
        for setting in settings {
            let (OfLayers::List(name) | OfLayers::Limits(name) | OfLayers::Two { list: name, .. }) = *setting;
            // One value for all layers has the same name.
            let may_be_one = !matches!(*setting, OfLayers::Two { full, .. } if full != name);
            match self.value(name) {
                None => continue,
                Some(value) if !value.is_array() && may_be_one => continue,
                Some(_) => {}
            }
            let mut values = self.list(name)?.cloned().unwrap_or_default();
            if values.len() != layers && values.len() != layers.saturating_add(predicting) {
                let expected = format!("a value for each of the {layers} layers");
                return Err(self.wrong(name, &values.len().into(), expected));
            }
            let of_heads = values.get(layers..).unwrap_or_default();
            let is_none = |value: &&Value| value.is_null() || value.as_f64() == Some(0.0);
            if let (OfLayers::Limits(_), Some(limit)) = (setting, of_heads.iter().find(|value| !is_none(value))) {
                return Err(self.wrong(name, limit, "0 or null for layers that predict further tokens"));
            }
            if let OfLayers::Two { full, windowed, .. } = *setting {
                self.entries.remove(name);
                let types = self.list(LAYER_TYPES)?.cloned().unwrap_or_default();
                for (kind, own) in [("full_attention", full), ("sliding_attention", windowed)] {
                    let mut of_kind =
                        values.iter().zip(&types).filter(|(_, found)| *found == kind).map(|(value, _)| value);
                    let Some(one) = of_kind.next() else { continue };
                    if let Some(other) = of_kind.find(|other| *other != one) {
                        let expected = format!("{one} in all layers of the type \"{kind}\"");
                        return Err(self.wrong(name, other, expected));
                    }
                    self.entries.insert(own.to_owned(), one.clone());
                    self.aliases.insert(own.to_owned(), name.to_owned());
                }
            } else {
                values.truncate(layers);
                self.entries.insert(name.to_owned(), values.into());
            }
        }
        Ok(self)
    }

    /// The settings with [`LAYER_TYPES`] as transformers names the types now. If they are elsewhere, also with the number of
    /// layers if it is missing.
    pub(super) fn with_layer_types(mut self, elsewhere: Option<&TypesOfLayers>) -> Result<Config, ConvertError> {
        if let Some(TypesOfLayers { letters, types, list }) = elsewhere {
            let of_letter = |letter: char| {
                let found = types.iter().find(|(known, _)| *known == letter);
                let known = || types.iter().map(|(letter, _)| letter.to_string()).collect::<Vec<_>>().join(", ");
                found.map(|(_, name)| Value::from(*name)).ok_or_else(|| {
                    self.wrong(letters, &letter.to_string().into(), format!("letters of types of layers: {}", known()))
                })
            };
            let (found, own): (Vec<Value>, _) = match (self.list(list)?, self.text(letters)?) {
                (Some(found), _) => (found.clone(), list),
                (None, Some(text)) => (text.chars().map(of_letter).collect::<Result<_, _>>()?, letters),
                (None, None) => return Err(self.missing(letters)),
            };
            self.entries.insert(LAYER_TYPES.to_owned(), found.into());
            self.aliases.insert(LAYER_TYPES.to_owned(), (*own).to_owned());
        }
        let is_elsewhere = elsewhere.is_some();
        let Some(Value::Array(types)) = self.entries.get_mut(LAYER_TYPES) else { return Ok(self) };
        for kind in types.iter_mut() {
            let now = OLDER_TYPES.iter().find(|(older, _)| kind == older).map(|(_, now)| *now);
            if let Some(now) = now {
                *kind = now.into();
            }
        }
        let layers = types.len();
        if is_elsewhere {
            self.entries.entry("num_hidden_layers").or_insert_with(|| layers.into());
        }
        Ok(self)
    }

    /// The family of a model of this family's `model_type`: the family itself, or one of its variants.
    pub(super) fn variant(&self, family: &'static Family) -> Result<&'static Family, ConvertError> {
        let types = self.list(LAYER_TYPES)?.map(Vec::as_slice).unwrap_or_default();
        for (when, other) in family.variants {
            let applies = match *when {
                When::Has(kind) => types.iter().any(|found| found == kind),
                When::Lacks(kind) => !types.is_empty() && !types.iter().any(|found| found == kind),
                When::Zero(setting) => self.count(setting)? == Some(0),
            };
            if applies {
                return self.variant(other);
            }
        }
        Ok(family)
    }

    /// The settings with those of the layers with full attention, which are together a setting of their own each, or
    /// are written for each layer. `names`: what they are called, together and for one layer.
    pub(super) fn with_full_layers(mut self, names: &[(&str, &str)]) -> Result<Config, ConvertError> {
        const OF_LAYERS: &str = "per_layer_config";
        let Some(of_layers) = self.object(OF_LAYERS)?.filter(|_| !names.is_empty()) else { return Ok(self) };
        let wrong = || {
            let expected = "the same known settings for each layer with full attention, and none for others";
            self.wrong(OF_LAYERS, &self.entries[OF_LAYERS], expected)
        };
        let types = self.list(LAYER_TYPES)?.map(Vec::as_slice).unwrap_or_default();
        let full = (0..types.len()).filter(|&layer| types[layer] == "full_attention");
        let full: Vec<Option<&Value>> = full.map(|layer| of_layers.value(&layer.to_string())).collect();
        let same = full.len() == of_layers.entries.len() && full.iter().all(|settings| *settings == full[0]);
        let one = full.first().copied().flatten().and_then(Value::as_object);
        let named = |(own, value): (&String, &Value)| {
            let (name, _) = names.iter().find(|(_, known)| known == own)?;
            Some(((*name).to_owned(), value.clone()))
        };
        let one: Option<Vec<_>> = one.filter(|_| same).and_then(|one| one.iter().map(named).collect());
        let one = one.ok_or_else(wrong)?;
        self.entries.extend(one);
        Ok(self)
    }

    /// The settings, with others that come before them.
    pub(super) fn updated(mut self, others: Config) -> Config {
        self.entries.extend(others.entries);
        self.aliases.extend(others.aliases);
        self
    }

    pub(super) fn into_settings(self) -> Map<String, Value> {
        self.entries
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn value(&self, key: &str) -> Option<&Value> {
        self.entries.get(key)
    }

    /// An object within, as `rope_parameters`.
    pub(super) fn object(&self, key: &str) -> Result<Option<Config>, ConvertError> {
        let entries = self.get(key, Value::is_object, Value::as_object, "an object")?;
        let within = |entries: &Map<String, Value>| Config {
            path: self.path.clone(),
            entries: entries.clone(),
            aliases: BTreeMap::new(),
        };
        Ok(entries.map(within))
    }

    pub(super) fn count(&self, key: &str) -> Result<Option<u32>, ConvertError> {
        let read = |value: &Value| value.as_u64().and_then(|n| u32::try_from(n).ok());
        self.get(key, Value::is_number, read, "a whole number of 32 bits, not negative")
    }

    pub(super) fn number(&self, key: &str) -> Result<Option<f64>, ConvertError> {
        self.get(key, Value::is_number, number, "a number that 32 bits hold")
    }

    /// A number that is not 0.
    pub(super) fn factor(&self, key: &str) -> Result<Option<f64>, ConvertError> {
        let read = |value: &Value| number(value).filter(|&x| x as f32 != 0.0);
        self.get(key, Value::is_number, read, "a number that 32 bits hold, not 0")
    }

    /// A number above 0.
    pub(super) fn positive(&self, key: &str) -> Result<Option<f64>, ConvertError> {
        let read = |value: &Value| number(value).filter(|&x| x as f32 > 0.0);
        self.get(key, Value::is_number, read, "a number above 0 that 32 bits hold")
    }

    pub(super) fn numbers(&self, key: &str) -> Result<Option<Vec<f64>>, ConvertError> {
        let all = |value: &Value| value.as_array()?.iter().map(number).collect();
        self.get(key, Value::is_array, all, "a list of numbers that 32 bits hold")
    }

    pub(super) fn flag(&self, key: &str) -> Result<Option<bool>, ConvertError> {
        self.get(key, Value::is_boolean, Value::as_bool, "true or false")
    }

    pub(super) fn list(&self, key: &str) -> Result<Option<&Vec<Value>>, ConvertError> {
        self.get(key, Value::is_array, Value::as_array, "a list")
    }

    pub(super) fn text(&self, key: &str) -> Result<Option<&str>, ConvertError> {
        self.get(key, Value::is_string, Value::as_str, "a string")
    }

    fn get<'a, T>(
        &'a self,
        key: &str,
        is_of_type: fn(&Value) -> bool,
        read: fn(&'a Value) -> Option<T>,
        expected: &'static str,
    ) -> Result<Option<T>, ConvertError> {
        match self.value(key) {
            None => Ok(None),
            Some(value) if !is_of_type(value) => Err(self.wrong_type(key, value, expected)),
            Some(value) => read(value).map(Some).ok_or_else(|| self.wrong(key, value, expected)),
        }
    }

    /// An error about a value of another type than that of `expected`.
    pub(super) fn wrong_type(&self, key: &str, found: &Value, expected: impl Into<String>) -> ConvertError {
        let kind = match found {
            // `null` is the name of its type.
            Value::Null => return self.wrong(key, found, expected),
            Value::Bool(_) => "a boolean",
            Value::Number(_) => "a number",
            Value::String(_) => "a string",
            Value::Array(_) => "a list",
            Value::Object(_) => "an object",
        };
        self.setting(key, format!("{} ({kind})", cut(found, 80)), expected)
    }

    /// An error about a key's value.
    pub(super) fn wrong(&self, key: &str, found: &Value, expected: impl Into<String>) -> ConvertError {
        self.setting(key, cut(found, 80), expected)
    }

    fn setting(&self, key: &str, found: String, expected: impl Into<String>) -> ConvertError {
        let key = self.aliases.get(key).map_or(key, String::as_str).to_owned();
        ConvertError::Setting { path: self.path.clone(), key, found, expected: expected.into() }
    }

    /// An error about a key that is not there.
    pub(super) fn missing(&self, key: &str) -> ConvertError {
        ConvertError::NoSetting { path: self.path.clone(), key: key.to_owned() }
    }
}

/// A number that is finite as f32, which it becomes.
fn number(value: &Value) -> Option<f64> {
    value.as_f64().filter(|&x| (x as f32).is_finite())
}
