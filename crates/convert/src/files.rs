//! Reading the small files of a model's folder: everything but the weights.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use serde::de::DeserializeOwned;

use super::error::ConvertError;

/// The list of the tensors in files of weights.
pub(super) const INDEX: &str = "model.safetensors.index.json";

/// Files that another folder of the same model has too: generation settings, tokenizer and chat template.
pub(super) const COPIED: &[&str] = &[
    "generation_config.json",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
];

/// The files next to the weights that are read, as far as they are there.
pub(super) const NAMES: &[&str] = &[
    "config.json",
    "generation_config.json",
    INDEX,
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
];

/// The longest of these in bytes, several times what large vocabularies take.
const LIMIT: u64 = 256 << 20;

/// Reads a file whole.
///
/// A path that is not a regular file is rejected before it is opened. A pipe would wait for its writer, and some
/// devices never end.
pub(super) fn read(path: &Path) -> Result<Vec<u8>, ConvertError> {
    let io = |source| ConvertError::Read { path: path.to_owned(), source };
    let about = fs::metadata(path).map_err(io)?;
    if !about.is_file() {
        return Err(ConvertError::NoFile(path.to_owned()));
    }
    let mut bytes = Vec::new();
    if about.len() <= LIMIT {
        // It may grow while it is read.
        File::open(path).map_err(io)?.take(LIMIT + 1).read_to_end(&mut bytes).map_err(io)?;
    }
    match about.len().max(bytes.len() as u64) {
        ..=LIMIT => Ok(bytes),
        _ => Err(ConvertError::LongFile { path: path.to_owned(), limit: LIMIT }),
    }
}

/// Editors of some systems write it at the start of a file. It is not a part of the text.
const BYTE_ORDER_MARK: &str = "\u{feff}";

/// Python writes these names for numbers that JSON does not have.
const NOT_FINITE: [&str; 3] = ["-Infinity", "Infinity", "NaN"];

/// Parses a JSON file. A number that is not finite, as Python writes it, is `null`: such settings have no limit.
pub(super) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, ConvertError> {
    let bytes = read(path)?;
    let json = bytes.strip_prefix(BYTE_ORDER_MARK.as_bytes()).unwrap_or(&bytes);
    let parsed = serde_json::from_slice(json).or_else(|error| match null_for_not_finite(json) {
        Some(json) => serde_json::from_slice(&json),
        None => Err(error),
    });
    parsed.map_err(|source| ConvertError::Json { path: path.to_owned(), source })
}

/// The text with `null` for each of [`NOT_FINITE`] outside of strings; `None` if there is none.
fn null_for_not_finite(json: &[u8]) -> Option<Vec<u8>> {
    let mut text = Vec::with_capacity(json.len());
    let mut rest = json;
    let mut is_string = false;
    let mut found = false;
    while let [first, others @ ..] = rest {
        let name = NOT_FINITE.iter().find(|name| !is_string && rest.starts_with(name.as_bytes()));
        if let Some(name) = name {
            (found, rest) = (true, &rest[name.len()..]);
            text.extend_from_slice(b"null");
            continue;
        }
        let taken = match (first, others) {
            (b'\\', [_, ..]) if is_string => 2,
            _ => 1,
        };
        is_string ^= *first == b'"';
        text.extend_from_slice(&rest[..taken]);
        rest = &rest[taken..];
    }
    found.then_some(text)
}

/// Reads a text.
pub(super) fn read_text(path: &Path) -> Result<String, ConvertError> {
    let text = String::from_utf8(read(path)?).map_err(|error| {
        let source = std::io::Error::new(std::io::ErrorKind::InvalidData, error.utf8_error());
        ConvertError::Read { path: path.to_owned(), source }
    })?;
    Ok(text.strip_prefix(BYTE_ORDER_MARK).map(str::to_owned).unwrap_or(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_are_not_finite_are_null() {
        let found = |json: &str| null_for_not_finite(json.as_bytes()).map(|text| String::from_utf8(text).unwrap());
        let limits = r#"{"limits": [0.0, Infinity, -Infinity,NaN], "a": "é\"Infinity\\", "NaN": NaN}"#;
        let expected = r#"{"limits": [0.0, null, null,null], "a": "é\"Infinity\\", "NaN": null}"#;
        assert_eq!(found(limits).as_deref(), Some(expected));
        assert_eq!(found(r#"{"NaN": "Infinity", "a": "\"#), None);
        assert_eq!(found(""), None);
    }

    #[test]
    fn a_file_of_python_is_read() {
        let path = std::env::temp_dir().join(format!("gristmill-not-finite-{}.json", std::process::id()));
        fs::write(&path, "{\"time_step_limit\": [0.5, Infinity]}").unwrap();
        let read = read_json::<serde_json::Value>(&path);
        fs::write(&path, "{\"time_step_limit\": [0.5, Infinity}").unwrap();
        let refused = read_json::<serde_json::Value>(&path);
        fs::remove_file(&path).unwrap();
        assert_eq!(read.unwrap()["time_step_limit"], serde_json::json!([0.5, null]));
        assert!(refused.unwrap_err().to_string().contains("line 1"));
    }
}
