//! The cost limits of one rendering.
//!
//! minijinja counts instructions (fuel), but one instruction may copy or compare any amount of text. Each operation
//! whose cost grows with its operands is therefore charged here, in bytes, before or as it happens; see `guard`.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use minijinja::value::ValueKind;
use minijinja::{Error, ErrorKind, Value};

use super::error::TemplateError;
use super::python;

/// The most bytes that a rendering may produce, copy or compare, intermediate values included.
pub(super) const MAX_WORK: usize = 128 << 20;

/// How deeply lists and mappings may be nested.
pub(super) const MAX_NESTING: usize = 64;

/// The memory of a list entry, in round figures.
const ENTRY: usize = 32;

/// The account of one rendering, shared by everything that works for it.
#[derive(Debug, Clone)]
pub(super) struct Budget(Arc<Account>);

#[derive(Debug)]
struct Account {
    left: AtomicUsize,
    failure: Mutex<Option<TemplateError>>,
}

impl Budget {
    pub(super) fn new() -> Self {
        Self(Arc::new(Account { left: AtomicUsize::new(MAX_WORK), failure: Mutex::new(None) }))
    }

    /// Notes why the rendering fails; the error returned only stops the engine.
    pub(super) fn fail(&self, failure: TemplateError) -> Error {
        let error = Error::new(ErrorKind::InvalidOperation, failure.to_string());
        *self.0.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(failure);
        error
    }

    /// The failure noted by [`Self::fail`].
    pub(super) fn failure(&self) -> Option<TemplateError> {
        self.0.failure.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Pays for `bytes` bytes.
    pub(super) fn charge(&self, bytes: usize) -> Result<(), Error> {
        let take = |left: usize| left.checked_sub(bytes);
        match self.0.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take) {
            Ok(_) => Ok(()),
            Err(_) => Err(self.fail(TemplateError::TooMuchText(MAX_WORK))),
        }
    }

    /// Pays for `count` entries of a list.
    pub(super) fn charge_entries(&self, count: usize) -> Result<(), Error> {
        self.charge(count.saturating_mul(ENTRY))
    }

    /// Pays for reading a value once, without what its entries hold.
    pub(super) fn charge_shallow(&self, value: &Value) -> Result<(), Error> {
        match value.kind() {
            ValueKind::String => self.charge(value.as_str().map_or(0, str::len)),
            ValueKind::Seq | ValueKind::Iterable | ValueKind::Map => self.charge_entries(value.len().unwrap_or(1)),
            _ => Ok(()),
        }
    }

    /// Pays for reading a value if it is a text.
    pub(super) fn charge_text(&self, value: &Value) -> Result<(), Error> {
        self.charge(value.as_str().map_or(0, str::len))
    }

    /// Pays for reading a value with all that it holds.
    pub(super) fn charge_deep(&self, value: &Value) -> Result<(), Error> {
        self.walk(value, MAX_NESTING, false)
    }

    /// Checks a value that is about to be stored in another: endless nesting would overflow the stack when the value
    /// is dropped.
    pub(super) fn check_nesting(&self, value: &Value) -> Result<(), Error> {
        self.walk(value, MAX_NESTING, true)
    }

    fn walk(&self, value: &Value, levels: usize, storing: bool) -> Result<(), Error> {
        let deeper = || levels.checked_sub(1).ok_or_else(|| self.fail(TemplateError::TooDeep(MAX_NESTING)));
        let held = match value.kind() {
            ValueKind::Iterable | ValueKind::Plain => python::held(value),
            _ => Vec::new(),
        };
        match value.kind() {
            _ if !held.is_empty() => held.iter().try_for_each(|entry| {
                self.charge_entries(1)?;
                self.walk(entry, deeper()?, storing)
            }),
            ValueKind::Seq | ValueKind::Iterable | ValueKind::Map => {
                let levels = deeper()?;
                let is_map = value.kind() == ValueKind::Map;
                for entry in value.try_iter()? {
                    self.charge_entries(1)?;
                    if is_map {
                        self.walk(&value.get_item(&entry)?, levels, storing)?;
                    }
                    self.walk(&entry, levels, storing)?;
                }
                Ok(())
            }
            ValueKind::String if storing => Ok(()),
            _ => self.charge_shallow(value),
        }
    }

    /// Pays for a new value, and checks that its nesting is bounded.
    pub(super) fn settle(&self, value: Value) -> Result<Value, Error> {
        match value.kind() {
            ValueKind::Seq | ValueKind::Iterable | ValueKind::Map | ValueKind::Plain => {
                self.check_nesting(&value).map(|()| value)
            }
            // An invalid value carries the error that made it.
            ValueKind::Invalid => value.try_iter().map(|_| value.clone()),
            _ => self.charge_shallow(&value).map(|()| value),
        }
    }
}
