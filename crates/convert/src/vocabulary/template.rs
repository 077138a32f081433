//! The chat template: a file of its own, or a setting of `tokenizer_config.json`.

use std::path::{Path, PathBuf};

use gristmill_files::gguf::{Array, Value, file_names};
use serde_json::Value as Json;

use crate::config::Config;
use crate::error::ConvertError;
use crate::files::read_text;
use crate::keys::Pairs;

const KEY: &str = "tokenizer.chat_template";
/// The name of the template without a name.
const DEFAULT: &str = "default";

/// The template of its own file, and others by their names in a folder next to it. As in transformers, these come before
/// the settings.
pub(super) fn read(folder: &Path, about: &Config) -> Result<Pairs, ConvertError> {
    let mut templates = files(folder)?;
    if templates.is_empty() {
        templates = settings(folder, about)?;
    }
    let mut pairs = Pairs::new();
    let mut names: Vec<String> = Vec::new();
    for (name, template) in templates {
        let key = if name == DEFAULT { KEY.to_owned() } else { format!("{KEY}.{name}") };
        if pairs.iter().any(|(known, _)| *known == key) {
            continue;
        }
        pairs.push((key, template.into()));
        names.extend(Some(name).filter(|name| name != DEFAULT));
    }
    if !names.is_empty() {
        pairs.push(("tokenizer.chat_templates".to_owned(), Value::Array(Array::String(names))));
    }
    Ok(pairs)
}

/// `chat_template.jinja`, and `additional_chat_templates/NAME.jinja`.
fn files(folder: &Path) -> Result<Vec<(String, String)>, ConvertError> {
    let mut templates = Vec::new();
    let path = folder.join("chat_template.jinja");
    if path.exists() {
        templates.push((DEFAULT.to_owned(), read_text(&path)?));
    }
    for path in named_files(folder) {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        templates.push((name, read_text(&path)?));
    }
    Ok(templates)
}

/// The files of templates with names, in their order.
pub(crate) fn named_files(folder: &Path) -> Vec<PathBuf> {
    let folder = folder.join("additional_chat_templates");
    let mut names = file_names(&folder);
    names.retain(|name| name.ends_with(".jinja"));
    names.sort();
    names.into_iter().map(|name| folder.join(name)).collect()
}

/// The setting of `tokenizer_config.json`, or of the older `chat_template.json`.
fn settings(folder: &Path, about: &Config) -> Result<Vec<(String, String)>, ConvertError> {
    let key = "chat_template";
    let old = Config::read_optional(&folder.join("chat_template.json"))?.without_nulls(&[key]);
    let (from, value) = match (about.value(key), old.value(key)) {
        (Some(value), _) => (about, value),
        (None, Some(value)) => (&old, value),
        (None, None) => return Ok(Vec::new()),
    };
    let expected = "a string, or a list of objects with \"name\" and \"template\"";
    let wrong = || from.wrong_type(key, value, expected);
    match value {
        Json::String(text) => Ok(vec![(DEFAULT.to_owned(), text.clone())]),
        Json::Array(entries) => {
            let named =
                |entry: &Json| Some((entry["name"].as_str()?.to_owned(), entry["template"].as_str()?.to_owned()));
            entries.iter().map(|entry| named(entry).ok_or_else(wrong)).collect()
        }
        _ => Err(wrong()),
    }
}
