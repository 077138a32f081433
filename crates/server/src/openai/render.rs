//! `…/render`: the tokens of a request's prompt, which routers compare with those that their workers have in the cache.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use gristmill_engine::EngineError;
use serde::Serialize;
use utoipa::ToSchema;

use super::{chat, completions, responses};
use crate::blocking::blocking;
use crate::error::{ApiError, ErrorBody, Paths};
use crate::fields::{self, Fields};
use crate::models::ServedModel;
use crate::request::{ApiRequest, Conversation, Input};
use crate::state::App;
use crate::tenant::Tenant;

/// The tokens of a prompt.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Rendered {
    token_ids: Vec<u32>,
}

/// The prompt that `/v1/chat/completions` would run.
#[utoipa::path(
    post,
    path = "/v1/chat/completions/render",
    request_body = chat::ChatRequest,
    responses((status = 200, body = Rendered), (status = "4XX", body = ErrorBody))
)]
pub(crate) async fn chat(State(app): State<App>, fields: Fields) -> Result<Response, ApiError> {
    let model = app.model_of(&fields).await?;
    let request = chat::request(&model, fields)?;
    render(model, request).await
}

/// The prompts that `/v1/completions` would run: a list, also of one.
#[utoipa::path(
    post,
    path = "/v1/completions/render",
    request_body = completions::CompletionRequest,
    responses((status = 200, body = Vec<Rendered>), (status = "4XX", body = ErrorBody))
)]
pub(crate) async fn completions(State(app): State<App>, fields: Fields) -> Result<Response, ApiError> {
    let model = app.model_of(&fields).await?;
    let request = completions::request(&model, fields)?;
    render(model, request).await
}

/// The prompt that `/v1/responses` would run.
#[utoipa::path(
    post,
    path = "/v1/responses/render",
    request_body = responses::ResponsesRequest,
    responses((status = 200, body = Rendered), (status = "4XX", body = ErrorBody))
)]
pub(crate) async fn responses(
    State(app): State<App>,
    Extension(tenant): Extension<Tenant>,
    fields: Fields,
) -> Result<Response, ApiError> {
    let model = app.model_of(&fields).await?;
    let request = responses::request(&model, &tenant, fields)?;
    render(model, request).await
}

/// The number of tokens of a prompt.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct InputTokens {
    /// `response.input_tokens`.
    object: &'static str,
    input_tokens: usize,
}

/// Counts the tokens of the prompt that `/v1/responses` would run; it can be longer than the context.
#[utoipa::path(
    post,
    path = "/v1/responses/input_tokens",
    request_body = responses::ResponsesRequest,
    responses((status = 200, body = InputTokens), (status = "4XX", body = ErrorBody))
)]
pub(crate) async fn input_tokens(
    State(app): State<App>,
    Extension(tenant): Extension<Tenant>,
    fields: Fields,
) -> Result<Response, ApiError> {
    let model = app.model_of(&fields).await?;
    let request = responses::request(&model, &tenant, fields)?;
    with_ignored(model, request, |model, input, paths| {
        let Input::Conversation(mut conversation) = input else {
            return Err(ApiError::param("input", "send a conversation"));
        };
        conversation.prepare_images(model)?;
        let conversation = model.engine.converse(conversation.chat, conversation.options);
        let tokens = conversation.and_then(|conversation| model.engine.tokens(conversation.prompt()));
        let input_tokens = tokens.map_err(|error| paths.error(error))?.len();
        Ok(Json(InputTokens { object: "response.input_tokens", input_tokens }).into_response())
    })
    .await
}

async fn render(model: ServedModel, request: ApiRequest) -> Result<Response, ApiError> {
    with_ignored(model, request, |model, input, paths| match input {
        Input::Conversation(mut conversation) => {
            conversation.prepare_images(model)?;
            let token_ids = tokens(model, *conversation).map_err(|error| paths.error(error))?;
            Ok(Json(Rendered { token_ids }).into_response())
        }
        Input::Texts { prompts, .. } => {
            let several = prompts.len() > 1;
            let of_prompt = |(index, prompt)| {
                let tokens = model.engine.prompt_tokens(prompt);
                let token_ids = tokens.map_err(|error| paths.error_of_prompt(several.then_some(index), error))?;
                Ok(Rendered { token_ids })
            };
            let rendered: Vec<Rendered> = prompts.iter().enumerate().map(of_prompt).collect::<Result<_, ApiError>>()?;
            Ok(Json(rendered).into_response())
        }
    })
    .await
}

/// A reply that names the ignored fields of its request in a header.
async fn with_ignored(
    model: ServedModel,
    request: ApiRequest,
    reply: impl FnOnce(&ServedModel, Input, &Paths) -> Result<Response, ApiError> + Send + 'static,
) -> Result<Response, ApiError> {
    let ApiRequest { input, ignored, paths, .. } = request;
    fields::check_strict(&ignored, model.app().options.strict)?;
    let mut response = blocking(move || reply(&model, input, &paths)).await?;
    response.headers_mut().extend(fields::ignored_header(&ignored));
    Ok(response)
}

fn tokens(model: &ServedModel, Conversation { chat, options, .. }: Conversation) -> Result<Vec<u32>, EngineError> {
    let conversation = model.engine.converse(chat, options)?;
    model.engine.prompt_tokens(conversation.prompt())
}
