//! Refusals in Anthropic's form.

use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use super::ApiError;

/// A refusal by an interface of Anthropic.
#[derive(Debug)]
pub(crate) struct AnthropicError(pub(crate) ApiError);

/// A refusal in Anthropic's form.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AnthropicErrorBody {
    /// `error`.
    r#type: &'static str,
    error: AnthropicErrorDetail,
}

#[derive(Debug, Serialize, ToSchema)]
struct AnthropicErrorDetail {
    r#type: &'static str,
    /// The problem and the remedy.
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<Unsupported>,
}

/// A feature that the server lacks, in the form by which Anthropic's clients decide to do without it.
#[derive(Debug, Serialize, ToSchema)]
struct Unsupported {
    error_code: &'static str,
    /// Fields of the request.
    unsupported: [&'static str; 1],
}

/// Clients that keep a conversation on the server (`thread`) send the whole of it instead when they read this.
const NO_THREADS: Unsupported = Unsupported { error_code: "thread_unsupported_request", unsupported: [THREAD] };
const THREAD: &str = "thread";

impl AnthropicErrorBody {
    pub(crate) fn new(error: &ApiError) -> AnthropicErrorBody {
        let kind = match error.status {
            StatusCode::PAYLOAD_TOO_LARGE => "request_too_large",
            StatusCode::SERVICE_UNAVAILABLE => "overloaded_error",
            status if status.is_server_error() => "api_error",
            _ => error.kind(),
        };
        // The field has no place of its own.
        let message = match &error.param {
            Some(param) => format!("{param}: {}", error.message),
            None => error.message.clone(),
        };
        let details = error.param.as_deref().filter(|&param| param == THREAD).map(|_| NO_THREADS);
        AnthropicErrorBody { r#type: "error", error: AnthropicErrorDetail { r#type: kind, message, details } }
    }
}

impl From<ApiError> for AnthropicError {
    fn from(error: ApiError) -> Self {
        AnthropicError(error)
    }
}

/// A refusal in the form of the interface that was asked.
pub(crate) fn refuse(error: ApiError, uri: &Uri, headers: &HeaderMap) -> Response {
    if is_anthropic(uri, headers) {
        return AnthropicError(error).into_response();
    }
    error.into_response()
}

/// Whether a request is for Anthropic's interface: its clients send `anthropic-version` to every path.
pub(crate) fn is_anthropic(uri: &Uri, headers: &HeaderMap) -> bool {
    uri.path().split('/').any(|part| part == "messages") || headers.contains_key("anthropic-version")
}

impl IntoResponse for AnthropicError {
    fn into_response(self) -> Response {
        self.0.response(AnthropicErrorBody::new(&self.0))
    }
}
