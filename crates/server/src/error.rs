//! Refusals, in OpenAI's form, and in that of `anthropic`. `paths` names the caller's fields in errors of the engine,
//! `overflow` has the words for a prompt that is longer than the context.

mod anthropic;
mod overflow;
mod paths;

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use gristmill_engine::EngineError;
use serde::Serialize;
use utoipa::ToSchema;

pub(crate) use anthropic::{AnthropicError, AnthropicErrorBody, is_anthropic, refuse};
pub(crate) use overflow::Overflow;
pub(crate) use paths::{GrammarPath, Paths, joined};

/// Why a request is not served.
#[derive(Debug, Clone)]
pub(crate) struct ApiError {
    pub(crate) status: StatusCode,
    pub(crate) message: String,
    /// The field of the request that it is about, such as `messages[0].role`.
    pub(crate) param: Option<String>,
    /// A short name for programs.
    pub(crate) code: Option<&'static str>,
    /// When to try again, in seconds.
    pub(crate) retry_after: Option<u32>,
}

/// A refusal in OpenAI's form.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ErrorBody {
    error: ErrorDetail,
}

/// What a refusal says.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ErrorDetail {
    /// The problem and the remedy.
    message: String,
    /// `invalid_request_error`, `authentication_error`, `not_found_error`, `rate_limit_error`, or `server_error`.
    r#type: &'static str,
    /// The field of the request.
    param: Option<String>,
    code: Option<&'static str>,
}

impl ErrorBody {
    pub(crate) fn detail(&self) -> &ErrorDetail {
        &self.error
    }
}

impl ApiError {
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> ApiError {
        ApiError { status, message: message.into(), param: None, code: None, retry_after: None }
    }

    /// A request that is wrong in this field.
    pub(crate) fn param(param: impl Into<String>, message: impl Into<String>) -> ApiError {
        ApiError { param: Some(param.into()), ..ApiError::new(StatusCode::BAD_REQUEST, message) }
    }

    pub(crate) fn with_code(self, code: &'static str) -> ApiError {
        ApiError { code: Some(code), ..self }
    }

    /// A refusal that holds for this number of seconds.
    pub(crate) fn retry_after(self, seconds: u32) -> ApiError {
        ApiError { retry_after: Some(seconds), ..self }
    }

    /// OpenAI's name for the kind of refusal.
    pub(crate) fn kind(&self) -> &'static str {
        match self.status {
            StatusCode::UNAUTHORIZED => "authentication_error",
            StatusCode::FORBIDDEN => "permission_error",
            StatusCode::NOT_FOUND => "not_found_error",
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            status if status.is_client_error() => "invalid_request_error",
            _ => "server_error",
        }
    }

    pub(crate) fn body(&self) -> ErrorBody {
        let message = self.message.clone();
        let param = self.param.clone();
        let code = self.code;
        ErrorBody { error: ErrorDetail { message, r#type: self.kind(), param, code } }
    }

    /// The response with this body.
    pub(crate) fn response(&self, body: impl Serialize) -> Response {
        let mut response = (self.status, Json(body)).into_response();
        if self.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        self.response(self.body())
    }
}

impl From<EngineError> for ApiError {
    /// An error of a request that runs, or of one without fields that the engine checks.
    fn from(error: EngineError) -> ApiError {
        Paths::new("prompt").error(error)
    }
}
