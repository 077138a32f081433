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

/// Parses a JSON file.
pub(super) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, ConvertError> {
    let bytes = read(path)?;
    let json = bytes.strip_prefix(BYTE_ORDER_MARK.as_bytes()).unwrap_or(&bytes);
    serde_json::from_slice(json).map_err(|source| ConvertError::Json { path: path.to_owned(), source })
}

/// Reads a text.
pub(super) fn read_text(path: &Path) -> Result<String, ConvertError> {
    let text = String::from_utf8(read(path)?).map_err(|error| {
        let source = std::io::Error::new(std::io::ErrorKind::InvalidData, error.utf8_error());
        ConvertError::Read { path: path.to_owned(), source }
    })?;
    Ok(text.strip_prefix(BYTE_ORDER_MARK).map(str::to_owned).unwrap_or(text))
}
