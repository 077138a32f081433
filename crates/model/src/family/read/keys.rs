//! The keys of one architecture: numbers, flags, and refusals of what is not implemented.

use std::fmt::Display;

use gristmill_files::gguf::Value;

use super::source::Source;
use crate::error::{Error, Result};
use crate::limits::MAX_CONTEXT;

/// The maximum width or head count; products of two fit into 64 bits.
pub(super) const MAX_WIDTH: usize = 1 << 24;
/// The maximum number of experts of the router.
pub(super) const MAX_EXPERTS: usize = 1024;
/// Keys that converters write as one number, or as an array with a number for each layer.
const OF_LAYERS: [&str; 3] = ["attention.head_count", "attention.head_count_kv", "feed_forward_length"];

/// The error message for a limit of gristmill itself.
pub(super) fn supported(max: usize) -> String {
    format!("is more than the {max} that gristmill supports")
}

/// The keys of one architecture: `{arch}.{suffix}`.
pub(in crate::family) struct KeyReader<'a> {
    pub(super) source: &'a Source<'a>,
    pub(super) arch: &'static str,
}

impl<'a> KeyReader<'a> {
    pub(in crate::family) fn new(source: &'a Source<'a>, arch: &'static str) -> Self {
        Self { source, arch }
    }

    pub(super) fn key(&self, suffix: &str) -> String {
        format!("{}.{suffix}", self.arch)
    }

    pub(super) fn wrong<T>(&self, suffix: &str, found: impl Display, rule: impl Into<String>) -> Result<T> {
        Err(Error::Value { key: self.key(suffix), found: found.to_string(), rule: rule.into() })
    }

    pub(in crate::family) fn tensor(&self, name: &str) -> bool {
        self.source.file.tensor(name).is_some()
    }

    /// A whole number. The keys [`OF_LAYERS`] may have it once for each layer.
    fn whole(&self, suffix: &str) -> Result<Option<usize>> {
        let key = self.key(suffix);
        let is_list = matches!(self.source.file.metadata().value(&key), Some(Value::Array(_)));
        if !is_list || !OF_LAYERS.contains(&suffix) {
            return self.source.optional(&key);
        }
        let all: Vec<usize> = self.source.required(&key)?;
        match self.of_layers(suffix, &all, "numbers")? {
            [first, others @ ..] if others.iter().all(|other| other == first) => Ok(Some(*first)),
            numbers => {
                let rule = "are numbers of layers; this architecture is supported with one number for all layers";
                self.wrong(suffix, format!("{numbers:?}"), rule)
            }
        }
    }

    /// A count of at least 1. Zero means "none" in some converters, so it is `None`.
    pub(super) fn optional_count(&self, suffix: &str, max: usize) -> Result<Option<usize>> {
        match self.whole(suffix)? {
            None | Some(0) => Ok(None),
            Some(n) if n <= max => Ok(Some(n)),
            Some(n) => self.wrong(suffix, n, supported(max)),
        }
    }

    /// A count of at least 1 and at most gristmill's limit.
    pub(super) fn count(&self, suffix: &str, max: usize) -> Result<usize> {
        self.count_within(suffix, max, || supported(max))
    }

    /// A count of at least 1 and at most `max`; `rule` names the origin of the limit, as a phrase that follows the
    /// number.
    pub(super) fn count_within(&self, suffix: &str, max: usize, rule: impl Fn() -> String) -> Result<usize> {
        let found = match self.whole(suffix)? {
            Some(n) => n,
            None => self.source.required(&self.key(suffix))?,
        };
        match found {
            0 => self.wrong(suffix, 0, "must be at least 1"),
            n if n <= max => Ok(n),
            n => self.wrong(suffix, n, rule()),
        }
    }

    /// A finite number above zero.
    pub(super) fn optional_number(&self, suffix: &str) -> Result<Option<f32>> {
        match self.source.optional::<f32>(&self.key(suffix))? {
            Some(v) if !(v.is_finite() && v > 0.0) => self.wrong(suffix, v, "must be finite and above 0"),
            v => Ok(v),
        }
    }

    /// The value of [`Self::optional_number`]; zero means "none".
    pub(in crate::family) fn number_or_zero(&self, suffix: &str) -> Result<Option<f32>> {
        match self.source.optional::<f32>(&self.key(suffix))? {
            Some(0.0) => Ok(None),
            _ => self.optional_number(suffix),
        }
    }

    /// A soft cap of logits; 0 means none, and `default` applies without the key.
    pub(in crate::family) fn cap(&self, suffix: &str, default: Option<f32>) -> Result<Option<f32>> {
        match self.source.optional::<f32>(&self.key(suffix))? {
            None => Ok(default),
            Some(_) => self.number_or_zero(suffix),
        }
    }

    /// A factor; the default is 1.
    pub(in crate::family) fn factor(&self, suffix: &str) -> Result<f32> {
        Ok(self.number_or_zero(suffix)?.unwrap_or(1.0))
    }

    /// 1 / a divisor; the default is 1.
    pub(in crate::family) fn divisor(&self, suffix: &str) -> Result<f32> {
        let divisor = self.factor(suffix)?;
        let factor = 1.0 / divisor;
        if factor.is_finite() { Ok(factor) } else { self.wrong(suffix, divisor, "is too small to divide by") }
    }

    /// A count; the default is 0.
    pub(in crate::family) fn count_or_zero(&self, suffix: &str) -> Result<usize> {
        Ok(self.optional_count(suffix, MAX_WIDTH)?.unwrap_or(0))
    }

    /// Whether a count is set and not zero.
    pub(in crate::family) fn has(&self, suffix: &str) -> Result<bool> {
        Ok(self.optional_count(suffix, usize::MAX)?.is_some())
    }

    /// Whether the file has a key, with any value.
    pub(in crate::family) fn has_key(&self, suffix: &str) -> bool {
        self.source.file.metadata().value(&self.key(suffix)).is_some()
    }

    /// Width of the residual stream.
    pub(in crate::family) fn hidden(&self) -> Result<usize> {
        self.count("embedding_length", MAX_WIDTH)
    }

    pub(super) fn context_length(&self) -> Result<usize> {
        self.count("context_length", MAX_CONTEXT)
    }

    /// The longest context in which an index chooses all blocks of tokens.
    pub(in crate::family) fn unindexed_context(&self) -> Result<usize> {
        let block = self.count("attention.indexer.block_size", MAX_CONTEXT)?;
        let blocks = self.count("attention.indexer.top_k", MAX_CONTEXT)?;
        Ok(block.saturating_mul(blocks))
    }

    /// Rejects a number other than zero, which is not implemented.
    pub(in crate::family) fn refuse(&self, suffix: &str, known: &'static str) -> Result<()> {
        match self.source.optional::<f32>(&self.key(suffix))? {
            None | Some(0.0) => Ok(()),
            Some(found) => Err(Error::Unsupported { key: self.key(suffix), found: found.to_string(), known }),
        }
    }

    /// Rejects numbers of the model's layers other than zero, which are not implemented.
    pub(in crate::family) fn refuse_numbers(&self, suffix: &str, known: &'static str) -> Result<()> {
        let key = self.key(suffix);
        let Some(Value::Array(_)) = self.source.file.metadata().value(&key) else { return self.refuse(suffix, known) };
        match self.of_layers(suffix, self.source.required::<&[f32]>(&key)?, "numbers")?.iter().find(|&&n| n != 0.0) {
            None => Ok(()),
            Some(found) => Err(Error::Unsupported { key, found: found.to_string(), known }),
        }
    }

    /// Rejects a count other than zero, which is not implemented.
    pub(in crate::family) fn refuse_count(&self, suffix: &str, known: &'static str) -> Result<()> {
        match self.source.optional::<u64>(&self.key(suffix))? {
            None | Some(0) => Ok(()),
            Some(found) => Err(Error::Unsupported { key: self.key(suffix), found: found.to_string(), known }),
        }
    }

    /// Rejects a key of files for other programs, whose other keys can differ.
    pub(in crate::family) fn refuse_key(&self, suffix: &str, known: &'static str) -> Result<()> {
        match self.has_key(suffix) {
            true => Err(Error::Unsupported { key: self.key(suffix), found: "the key".to_owned(), known }),
            false => Ok(()),
        }
    }

    /// A flag, with its default.
    pub(in crate::family) fn flag_or(&self, suffix: &str, default: bool) -> Result<bool> {
        Ok(self.source.optional(&self.key(suffix))?.unwrap_or(default))
    }

    /// A key that says nothing about the model.
    pub(in crate::family) fn ignore(&self, suffix: &str) {
        self.source.seen.borrow_mut().insert(self.key(suffix));
    }

    /// Rejects a number that is not that of another key.
    pub(in crate::family) fn same_number(&self, suffix: &str, other: &str) -> Result<()> {
        let [number, other_number] = [suffix, other].map(|suffix| self.source.optional::<f32>(&self.key(suffix)));
        match (number?, other_number?) {
            (Some(found), Some(wanted)) if found != wanted => {
                self.wrong(suffix, found, format!("is not `{}`, {wanted}; both must be equal", self.key(other)))
            }
            _ => Ok(()),
        }
    }

    /// Rejects a flag that is false, which is not implemented.
    pub(in crate::family) fn insist(&self, suffix: &str, known: &'static str) -> Result<()> {
        match self.source.optional::<bool>(&self.key(suffix))? {
            None | Some(true) => Ok(()),
            Some(false) => Err(Error::Unsupported { key: self.key(suffix), found: "false".to_owned(), known }),
        }
    }
}
