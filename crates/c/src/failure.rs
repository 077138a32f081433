//! A status with its message.

use std::cell::RefCell;
use std::ffi::CString;

use axum::http::StatusCode;
use gristmill_engine::gguf::GgufError;
use gristmill_engine::{EngineError, Error, ErrorKind};
use serde_json::Value;

use crate::abi::gm_status;

/// Why a function failed.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Failure {
    pub(crate) status: gm_status,
    pub(crate) message: String,
}

thread_local! {
    /// The message of the last failed call of this thread.
    static LAST: RefCell<CString> = RefCell::default();
}

impl Failure {
    pub(crate) fn new(status: gm_status, message: impl Into<String>) -> Failure {
        Failure { status, message: message.into() }
    }

    pub(crate) fn bad(message: impl Into<String>) -> Failure {
        Failure::new(gm_status::GM_BAD_REQUEST, message)
    }

    pub(crate) fn internal(message: impl Into<String>) -> Failure {
        Failure::new(gm_status::GM_INTERNAL, message)
    }

    pub(crate) fn cancelled() -> Failure {
        Failure::new(gm_status::GM_CANCELLED, "the request was cancelled")
    }

    /// The refusal in a reply of the server.
    pub(crate) fn of_reply(code: StatusCode, body: &[u8]) -> Failure {
        let status = match code {
            StatusCode::TOO_MANY_REQUESTS => gm_status::GM_BUSY,
            StatusCode::SERVICE_UNAVAILABLE => gm_status::GM_UNAVAILABLE,
            code if code.is_client_error() => gm_status::GM_BAD_REQUEST,
            _ => gm_status::GM_INTERNAL,
        };
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        let message = body["error"]["message"].as_str();
        Failure::new(status, message.map_or_else(|| format!("the request failed with status {code}"), str::to_owned))
    }

    /// The error in an event, which ends a reply that has started.
    pub(crate) fn of_event(error: &Value) -> Failure {
        let status = match error["type"].as_str() {
            Some("rate_limit_error") => gm_status::GM_BUSY,
            Some("server_error") => gm_status::GM_INTERNAL,
            _ => gm_status::GM_BAD_REQUEST,
        };
        Failure::new(status, error["message"].as_str().unwrap_or("the reply ended with an error"))
    }

    /// Keeps the message for [`last_message`].
    pub(crate) fn keep(&self) {
        // A message with a NUL ends there.
        let text = self.message.split('\0').next().unwrap_or_default();
        LAST.with_borrow_mut(|last| *last = CString::new(text).unwrap_or_default());
    }
}

/// A pointer to the message of the last failure of this thread; empty if no call failed.
pub(crate) fn last_message() -> *const std::ffi::c_char {
    LAST.with_borrow(|last| last.as_ptr())
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let status = match &error {
            Error::Gguf(_) | Error::Metadata(_) | Error::MissingTensor { .. } | Error::Architecture { .. } => {
                gm_status::GM_FILE
            }
            error if error.is_out_of_memory() => gm_status::GM_OUT_OF_MEMORY,
            Error::Device { .. } | Error::Limit { .. } | Error::MemoryLimit { .. } | Error::Level { .. } => {
                gm_status::GM_BAD_REQUEST
            }
            _ => gm_status::GM_INTERNAL,
        };
        Failure::new(status, error.to_string())
    }
}

impl From<GgufError> for Failure {
    fn from(error: GgufError) -> Failure {
        Failure::new(gm_status::GM_FILE, error.to_string())
    }
}

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Failure {
        let status = match error.kind() {
            ErrorKind::BadRequest => gm_status::GM_BAD_REQUEST,
            ErrorKind::Busy => gm_status::GM_BUSY,
            ErrorKind::Unavailable => gm_status::GM_UNAVAILABLE,
            _ => match error {
                EngineError::Model(error) => return error.into(),
                _ => gm_status::GM_INTERNAL,
            },
        };
        Failure::new(status, error.to_string())
    }
}
