//! Results of what templates call.

use std::borrow::Cow;

use minijinja::{Error, ErrorKind, Value};

/// The result of a function of the library.
pub(super) type Outcome = Result<Value, Error>;

/// A call that Python refuses.
pub(super) fn invalid(message: impl Into<Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::InvalidOperation, message)
}
