//! Refusals, in the forms of OpenAI and Anthropic.

use axum::Json;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use gristmill_engine::engine::EngineError;
use serde::Serialize;
use utoipa::ToSchema;

/// Why a request is not served.
#[derive(Debug, Clone)]
pub(crate) struct ApiError {
    pub(crate) status: StatusCode,
    pub(crate) message: String,
    /// The field of the request that it is about, such as `messages[0].role`.
    param: Option<String>,
    /// A short name for programs.
    code: Option<&'static str>,
}

/// A refusal in OpenAI's form.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ErrorBody {
    error: ErrorDetail,
}

#[derive(Debug, Serialize, ToSchema)]
struct ErrorDetail {
    /// What was wrong and what to do.
    message: String,
    /// `invalid_request_error`, `authentication_error`, `not_found_error`, `rate_limit_error`, or `server_error`.
    r#type: &'static str,
    /// The field of the request.
    param: Option<String>,
    code: Option<&'static str>,
}

impl ErrorBody {
    pub(crate) fn into_parts(self) -> (String, Option<String>, Option<&'static str>) {
        let ErrorDetail { message, param, code, .. } = self.error;
        (message, param, code)
    }
}

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
    /// What was wrong and what to do.
    message: String,
}

impl ApiError {
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> ApiError {
        ApiError { status, message: message.into(), param: None, code: None }
    }

    /// A request that is wrong in this field.
    pub(crate) fn param(param: impl Into<String>, message: impl Into<String>) -> ApiError {
        ApiError { param: Some(param.into()), ..ApiError::new(StatusCode::BAD_REQUEST, message) }
    }

    pub(crate) fn with_code(self, code: &'static str) -> ApiError {
        ApiError { code: Some(code), ..self }
    }

    /// About a field that this interface names differently; `names` are pairs of the usual name and its own.
    pub(crate) fn renamed(self, names: &[(&str, &str)]) -> ApiError {
        let rename = |param: &String| {
            names.iter().find_map(|(usual, own)| {
                let rest = param.strip_prefix(usual)?;
                (rest.is_empty() || rest.starts_with(['.', '['])).then(|| format!("{own}{rest}"))
            })
        };
        let param = self.param.as_ref().and_then(rename).or(self.param);
        ApiError { param, ..self }
    }

    /// OpenAI's name for the kind of refusal.
    fn kind(&self) -> &'static str {
        match self.status {
            StatusCode::UNAUTHORIZED => "authentication_error",
            StatusCode::FORBIDDEN => "permission_error",
            StatusCode::NOT_FOUND => "not_found_error",
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            status if status.is_client_error() => "invalid_request_error",
            _ => "server_error",
        }
    }

    /// Anthropic's.
    fn anthropic_kind(&self) -> &'static str {
        match self.status {
            StatusCode::PAYLOAD_TOO_LARGE => "request_too_large",
            StatusCode::SERVICE_UNAVAILABLE => "overloaded_error",
            status if status.is_server_error() => "api_error",
            _ => self.kind(),
        }
    }

    pub(crate) fn body(&self) -> ErrorBody {
        let (message, param, code) = (self.message.clone(), self.param.clone(), self.code);
        ErrorBody { error: ErrorDetail { message, r#type: self.kind(), param, code } }
    }

    /// The message with the field, which has no place of its own in Anthropic's form.
    pub(crate) fn anthropic_message(&self) -> String {
        match &self.param {
            Some(param) => format!("{param}: {}", self.message),
            None => self.message.clone(),
        }
    }

    pub(crate) fn anthropic_body(&self) -> AnthropicErrorBody {
        let message = self.anthropic_message();
        AnthropicErrorBody { r#type: "error", error: AnthropicErrorDetail { r#type: self.anthropic_kind(), message } }
    }

    fn respond(&self, body: impl Serialize) -> Response {
        let mut response = (self.status, Json(body)).into_response();
        if self.status == StatusCode::TOO_MANY_REQUESTS {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        self.respond(self.body())
    }
}

/// A refusal by an interface of Anthropic.
#[derive(Debug)]
pub(crate) struct AnthropicError(pub(crate) ApiError);

impl From<ApiError> for AnthropicError {
    fn from(error: ApiError) -> Self {
        AnthropicError(error)
    }
}

impl IntoResponse for AnthropicError {
    fn into_response(self) -> Response {
        self.0.respond(self.0.anthropic_body())
    }
}

/// A refusal in the form of the interface that was asked: Anthropic's clients send `anthropic-version` to every path.
pub(crate) fn refuse(error: ApiError, uri: &Uri, headers: &HeaderMap) -> Response {
    if uri.path().starts_with("/v1/messages") || headers.contains_key("anthropic-version") {
        return AnthropicError(error).into_response();
    }
    error.into_response()
}

impl From<EngineError> for ApiError {
    fn from(error: EngineError) -> ApiError {
        let message = error.to_string();
        let bad = |param: &str| ApiError::param(param, message.clone());
        match &error {
            EngineError::Template(_) | EngineError::NoTemplate => bad("messages"),
            EngineError::EmptyPrompt | EngineError::Token { .. } => bad("prompt"),
            EngineError::NoTools | EngineError::UnknownTool(_) | EngineError::CallAndGrammar => bad("tool_choice"),
            EngineError::NoInputs => bad("input"),
            EngineError::NoPooling => bad("model").with_code("unsupported"),
            EngineError::PromptTooLong { .. } => bad("messages").with_code("context_length_exceeded"),
            EngineError::Sampling { what: "repeat penalty", .. } => bad("repetition_penalty"),
            EngineError::Sampling { what, .. } => bad(&what.replace([' ', '-'], "_")),
            EngineError::LogitBias { .. } | EngineError::LogitBiasToken { .. } | EngineError::LogitBiasTwice(_) => {
                bad("logit_bias")
            }
            EngineError::NoTokens => bad("max_tokens"),
            EngineError::MinTokens { .. } => bad("min_tokens"),
            EngineError::Logprobs { .. } => bad("logprobs"),
            EngineError::Model(gristmill_engine::Error::Tokenizer(_)) => bad("prompt"),
            EngineError::Schema { .. } | EngineError::Grammar(_) => bad("response_format"),
            EngineError::GrammarStuck => ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, message),
            EngineError::Busy { .. } => ApiError::new(StatusCode::TOO_MANY_REQUESTS, message).with_code("queue_full"),
            EngineError::Device(_) | EngineError::Stopped => ApiError::new(StatusCode::SERVICE_UNAVAILABLE, message),
            _ => ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, message),
        }
    }
}
