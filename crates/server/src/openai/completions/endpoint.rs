//! The endpoint: its fields, and how they become a request.

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;
use utoipa::ToSchema;

use super::write::{Completion, CompletionWriter, Parts};
use crate::error::{ApiError, ErrorBody};
use crate::fields::Fields;
use crate::handler;
use crate::limit::TokenLimit;
use crate::models::ServedModel;
use crate::openai::common::{self, CommonFields, MOST_LOGPROBS};
use crate::openai::format::{FormatFields, ResponseFormat};
use crate::openai::prompts::{Prompts, SpecialFields};
use crate::openai::traces::TraceFields;
use crate::policy;
use crate::request::{ApiRequest, Input};
use crate::sampling::{SamplingFields, SettingFields};
use crate::state::App;
use crate::stream::StreamEvent;
use crate::tenant::Tenant;

/// The most prompts of a request.
const MOST_PROMPTS: usize = 1_024;
/// Tokens that OpenAI generates where `max_tokens` is left out.
const DEFAULT_TOKENS: TokenLimit = TokenLimit::Tokens(16);

/// Texts to be continued.
#[derive(Debug, Deserialize, ToSchema)]
#[expect(dead_code, reason = "it describes JSON to clients, and its parts are read one by one")]
pub(crate) struct CompletionRequest {
    #[serde(flatten)]
    common: CommonFields,
    #[serde(flatten)]
    settings: SettingFields,
    #[serde(flatten)]
    sampling: SamplingFields,
    #[serde(flatten)]
    format: FormatFields,
    #[serde(flatten)]
    completion: CompletionFields,
    #[serde(flatten)]
    special: SpecialFields,
    #[serde(flatten)]
    traces: TraceFields,
}

/// Fields that only requests for a completion have.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct CompletionFields {
    prompt: Prompts,
    /// The most tokens to generate, 16 by default; 0 only with `echo`; -1: until the context is full.
    #[serde(alias = "max_completion_tokens", alias = "n_predict")]
    #[schema(value_type = Option<i64>, minimum = -1)]
    max_tokens: Option<TokenLimit>,
    response_format: Option<ResponseFormat>,
    /// Return the prompt before its completion.
    echo: Option<bool>,
    /// Return the log-probability of each token, and of so many of the most likely; of the prompt's too with `echo`.
    #[schema(maximum = 20)]
    logprobs: Option<usize>,
}

/// Continues texts.
#[utoipa::path(
    post,
    path = "/v1/completions",
    request_body = CompletionRequest,
    responses(
        (status = 200, content((Completion = "application/json"), (StreamEvent = "text/event-stream"))),
        (status = "4XX", body = ErrorBody),
        (status = "5XX", body = ErrorBody)
    )
)]
pub(crate) async fn serve(
    State(app): State<App>,
    Extension(tenant): Extension<Tenant>,
    fields: Fields,
) -> Result<Response, ApiError> {
    handler::serve(app, tenant, fields, read).await
}

/// What a request of this interface runs.
pub(crate) fn request(model: &ServedModel, fields: Fields) -> Result<ApiRequest, ApiError> {
    read(model, fields).map(|(request, _)| request)
}

fn read(model: &ServedModel, mut fields: Fields) -> Result<(ApiRequest, CompletionWriter), ApiError> {
    let common: CommonFields = fields.read()?;
    let sampling = SamplingFields::read(&mut fields)?;
    let format: FormatFields = fields.read()?;
    let completion: CompletionFields = fields.read()?;
    let special: SpecialFields = fields.read()?;
    let traces: TraceFields = fields.read()?;
    let mut paths = common::paths(&fields, "prompt");
    let ignored = fields.judge(policy::COMPLETIONS, model.app().options.strict)?;
    let CompletionFields { prompt, max_tokens, response_format, echo, logprobs } = completion;
    let echo = echo == Some(true);
    let max_tokens = max_tokens.unwrap_or(DEFAULT_TOKENS);
    if common.streams() && echo {
        return Err(ApiError::param("echo", "echo is not supported for a reply in events; leave stream out"));
    }
    let is_empty = max_tokens == TokenLimit::Tokens(0);
    if is_empty && !echo {
        let message = format!("{} is 0, which needs echo; it must be at least 1", paths.max_tokens);
        return Err(ApiError::param(paths.max_tokens, message));
    }
    if let Some(asked) = logprobs.filter(|&asked| asked > MOST_LOGPROBS) {
        let message = format!("logprobs is {asked}; at most {MOST_LOGPROBS} are returned");
        return Err(ApiError::param("logprobs", message));
    }
    let mut settings = sampling.settings(model)?;
    settings.stop = common.stops()?;
    // The engine generates one token at least.
    settings.max_tokens = max_tokens.tokens().map(|tokens| tokens.max(1));
    settings.routing = traces.asked(model)?;
    (settings.logprobs, settings.prompt_logprobs) = (logprobs, logprobs.filter(|_| echo));
    let own_format = response_format.map(ResponseFormat::asked).transpose()?.flatten();
    let grammar = format.grammar(own_format, &mut paths)?;
    let input = Input::Texts { prompts: prompt.list("prompt", MOST_PROMPTS, special)?, grammar };
    let request = common.request(input, settings, ignored, paths)?;
    let parts = Parts { prompt: echo, completion: !is_empty };
    Ok((request, CompletionWriter::new(model.clone(), common.streamed_usage(), parts, traces.token_ids())))
}
