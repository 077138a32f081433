//! Images of the command line.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use gristmill_engine::vision::{Detail, Limits, Picture};
use gristmill_engine::{ChatImage, Engine, EngineError};

use crate::failure::Failure;

/// What an image of the user's own may have: more than what a server accepts.
const LIMITS: Limits = Limits { bytes: 256 << 20, pixels: 200_000_000, ratio: 200 };

/// Reads an image from a file.
pub(crate) fn read(path: &Path) -> Result<Picture, Failure> {
    let wrong = |error: &dyn std::fmt::Display| Failure::new(format!("{}: {error}", path.display()));
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|error| wrong(&error))?;
    file.take(LIMITS.bytes + 1).read_to_end(&mut bytes).map_err(|error| wrong(&error))?;
    Picture::decode(&bytes, &LIMITS).map_err(|error| wrong(&error))
}

/// The images for the model of an engine.
pub(crate) fn prepared(engine: &Engine, pictures: &[Picture]) -> Result<Vec<ChatImage>, EngineError> {
    let prepare = |picture| Ok(ChatImage::new(engine.processor()?, picture, Detail::High));
    pictures.iter().map(prepare).collect()
}

/// A path as a terminal writes a file that is dropped on it: in quotes, if it has spaces.
pub(crate) fn unquoted(path: &str) -> &str {
    let quotes = ['\'', '"'].into_iter();
    quotes.filter_map(|quote| path.strip_prefix(quote)?.strip_suffix(quote)).next().unwrap_or(path)
}
