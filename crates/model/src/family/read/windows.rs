//! Which layers have a sliding window.

use gristmill_files::gguf::{Array, Value};

use super::keys::KeyReader;
use crate::error::Result;
use crate::limits::MAX_CONTEXT;

/// The key with the layers that have a window.
pub(super) const WINDOW_PATTERN: &str = "attention.sliding_window_pattern";

impl KeyReader<'_> {
    /// Whether each layer has a sliding window: see [`Self::window_pattern`]. The file must have the window's width.
    pub(in crate::family) fn windowed(&self, period: usize) -> Result<Vec<bool>> {
        self.count("attention.sliding_window", MAX_CONTEXT)?;
        self.window_pattern(period)
    }

    /// [`Self::windowed`] for a file without a required window: if it has none, no layer has one.
    pub(in crate::family) fn windowed_if_any(&self, period: usize) -> Result<Vec<bool>> {
        match self.has("attention.sliding_window")? {
            true => self.windowed(period),
            false => Ok(vec![false; self.layers()?]),
        }
    }

    /// [`Self::windowed`] for a file that must have one flag per layer; a flag can be a number, 0 or 1.
    pub(in crate::family) fn windowed_by_flags(&self) -> Result<Vec<bool>> {
        self.count("attention.sliding_window", MAX_CONTEXT)?;
        Ok(self.of_layers(WINDOW_PATTERN, &self.window_flags()?, "flags")?.to_vec())
    }

    /// The flags of sliding windows, those of MTP layers too; a flag can be a number, 0 or 1.
    pub(super) fn window_flags(&self) -> Result<Vec<bool>> {
        let key = self.key(WINDOW_PATTERN);
        if let Some(Value::Array(Array::Bool(_))) = self.source.file.metadata().value(&key) {
            return Ok(self.source.required::<&[bool]>(&key)?.to_vec());
        }
        let numbers: Vec<usize> = self.source.required(&key)?;
        match numbers.iter().find(|&&number| number > 1) {
            Some(found) => self.wrong(WINDOW_PATTERN, found, "must be 0 or 1"),
            None => Ok(numbers.into_iter().map(|number| number == 1).collect()),
        }
    }

    /// Whether each layer has a sliding window. By default all layers have one but the last of every `period`; the file
    /// can have another period or one flag per layer.
    pub(in crate::family) fn window_pattern(&self, period: usize) -> Result<Vec<bool>> {
        self.pattern(period, |layer, period| layer % period < period - 1)
    }

    /// [`Self::window_pattern`] with the first instead of the last layer of every `period`, if the file has a window.
    pub(in crate::family) fn windowed_after_first(&self, period: usize) -> Result<Vec<bool>> {
        match self.has("attention.sliding_window")? {
            true => self.pattern(period, |layer, period| layer % period > 0),
            false => Ok(vec![false; self.layers()?]),
        }
    }

    fn pattern(&self, period: usize, windowed: fn(usize, usize) -> bool) -> Result<Vec<bool>> {
        let (layers, suffix) = (self.layers()?, "attention.sliding_window_pattern");
        let key = self.key(suffix);
        if let Some(Value::Array(_)) = self.source.file.metadata().value(&key) {
            let windowed = self.source.required::<&[bool]>(&key)?;
            return Ok(self.of_layers(suffix, windowed, "flags")?.to_vec());
        }
        let period = self.optional_count(suffix, MAX_CONTEXT)?.unwrap_or(period);
        Ok((0..layers).map(|layer| windowed(layer, period)).collect())
    }
}
