//! Errors as the classes of `gristmill.errors`.

use gristmill_cli::library::OpenError;
use gristmill_engine::{EngineError, Error, ErrorKind};
use pyo3::prelude::*;

/// Why a call fails, before it is raised: its class, and the message. Threads without the interpreter have it.
#[derive(Debug, Clone)]
pub(crate) struct Raised {
    pub(crate) class: &'static str,
    pub(crate) message: String,
}

impl Raised {
    pub(crate) fn new(class: &'static str, message: impl Into<String>) -> Raised {
        Raised { class, message: message.into() }
    }

    /// The exception.
    pub(crate) fn exception(self, py: Python<'_>) -> PyErr {
        let made = py
            .import("gristmill.errors")
            .and_then(|errors| errors.getattr(self.class))
            .and_then(|class| class.call1((self.message,)));
        match made {
            Ok(exception) => PyErr::from_value(exception),
            Err(error) => error,
        }
    }
}

impl From<OpenError> for Raised {
    fn from(error: OpenError) -> Raised {
        let class = match error {
            OpenError::Option(_) => "OptionError",
            OpenError::File(_) => "ModelFileError",
            OpenError::Device(_) => "DeviceError",
            OpenError::Memory(_) => "OutOfMemoryError",
            _ => "GristmillError",
        };
        Raised::new(class, error.to_string())
    }
}

impl From<EngineError> for Raised {
    fn from(error: EngineError) -> Raised {
        let class = match (&error, error.kind()) {
            (EngineError::Model(error), ErrorKind::Internal) => return Raised::of_model(error),
            (_, ErrorKind::BadRequest) => "BadRequestError",
            (_, ErrorKind::Busy) => "BusyError",
            (EngineError::Device(_), _) => "DeviceError",
            (_, ErrorKind::Unavailable) => "ClosedError",
            _ => "InternalError",
        };
        Raised::new(class, error.to_string())
    }
}

impl From<Error> for Raised {
    fn from(error: Error) -> Raised {
        Raised::of_model(&error)
    }
}

impl Raised {
    fn of_model(error: &Error) -> Raised {
        let class = match error {
            Error::Tokenizer(_) => "BadRequestError",
            Error::Memory { .. } => "OutOfMemoryError",
            error if error.is_out_of_memory() => "OutOfMemoryError",
            error if error.is_of_device() => "DeviceError",
            Error::NoTokenizer => "BadRequestError",
            _ => "GristmillError",
        };
        Raised::new(class, error.to_string())
    }
}
