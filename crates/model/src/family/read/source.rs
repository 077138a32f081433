//! The keys of a file, and which of them were read.

use std::cell::RefCell;
use std::collections::BTreeSet;

use gristmill_files::gguf::{FromValue, GgufFile};

use crate::error::Result;

/// A file that records which metadata keys were read.
pub(crate) struct Source<'a> {
    pub(super) file: &'a GgufFile,
    /// Whether prediction heads are part of the model.
    pub(super) with_heads: bool,
    pub(super) seen: RefCell<BTreeSet<String>>,
}

impl<'a> Source<'a> {
    pub(crate) fn new(file: &'a GgufFile) -> Self {
        Self { file, with_heads: false, seen: RefCell::default() }
    }

    /// A file whose prediction heads are part of the model.
    pub(crate) fn with_heads(file: &'a GgufFile) -> Self {
        Self { with_heads: true, ..Self::new(file) }
    }

    pub(crate) fn optional<T: FromValue<'a>>(&self, key: &str) -> Result<Option<T>> {
        self.seen.borrow_mut().insert(key.to_owned());
        Ok(self.file.metadata().optional(key)?)
    }

    pub(crate) fn required<T: FromValue<'a>>(&self, key: &str) -> Result<T> {
        self.seen.borrow_mut().insert(key.to_owned());
        Ok(self.file.metadata().required(key)?)
    }

    /// Keys that were not read, in file order, except `general.` (describes the file) and `split.` (describes its
    /// shards).
    pub(crate) fn unused_keys(&self) -> Vec<String> {
        let seen = self.seen.borrow();
        let unused = |key: &&str| !(seen.contains(*key) || key.starts_with("general.") || key.starts_with("split."));
        self.file.metadata().iter().map(|(key, _)| key).filter(unused).map(str::to_owned).collect()
    }
}
