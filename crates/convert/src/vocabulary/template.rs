//! The chat template: a file of its own, or a setting of `tokenizer_config.json`.

use std::path::Path;

use gristmill_files::gguf::{Array, Value};
use serde_json::Value as Json;

use crate::config::Config;
use crate::error::ConvertError;
use crate::files::read_text;
use crate::keys::Pairs;

const KEY: &str = "tokenizer.chat_template";

/// The template, and others by their names. `chat_template.jinja` comes first, as in transformers.
pub(super) fn read(folder: &Path, about: &Config) -> Result<Pairs, ConvertError> {
    let path = folder.join("chat_template.jinja");
    if path.exists() {
        return Ok(vec![(KEY.to_owned(), read_text(&path)?.into())]);
    }
    let key = "chat_template";
    let old = Config::read_optional(&folder.join("chat_template.json"))?.without_nulls(&[key]);
    let (from, value) = match (about.value(key), old.value(key)) {
        (Some(value), _) => (about, value),
        (None, Some(value)) => (&old, value),
        (None, None) => return Ok(Pairs::new()),
    };
    let expected = "a string, or a list of objects with \"name\" and \"template\"";
    let wrong = || from.wrong_type(key, value, expected);
    let mut pairs = Pairs::new();
    let mut names = Vec::new();
    match value {
        Json::String(text) => pairs.push((KEY.to_owned(), text.as_str().into())),
        Json::Array(entries) => {
            for entry in entries {
                let (name, template) = entry["name"].as_str().zip(entry["template"].as_str()).ok_or_else(wrong)?;
                if name == "default" {
                    pairs.push((KEY.to_owned(), template.into()));
                } else if !names.iter().any(|known| known == name) {
                    pairs.push((format!("{KEY}.{name}"), template.into()));
                    names.push(name.to_owned());
                }
            }
        }
        _ => return Err(wrong()),
    }
    if !names.is_empty() {
        pairs.push(("tokenizer.chat_templates".to_owned(), Value::Array(Array::String(names))));
    }
    Ok(pairs)
}
