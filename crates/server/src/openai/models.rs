//! `/v1/models`, with the fields of OpenAI and of Anthropic.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, Uri};
use axum::response::{IntoResponse, Response};
use gristmill_engine::clock;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::error::{ApiError, ErrorBody, refuse};
use crate::fields::{self, Fields};
use crate::models::{Slot, Status};
use crate::policy;
use crate::state::App;

/// All models, each by its name and by each alias without `*`.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Models {
    /// `list`.
    object: &'static str,
    data: Vec<ModelEntry>,
    /// `false`: the list is whole.
    has_more: bool,
    /// The first `id` of `data`.
    first_id: Option<String>,
    /// The last `id` of `data`.
    last_id: Option<String>,
}

/// A model.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ModelEntry {
    id: String,
    /// `model`, for OpenAI.
    object: &'static str,
    /// `model`, for Anthropic.
    r#type: &'static str,
    /// The name of the model, also where `id` is an alias.
    display_name: String,
    /// When the server started, in seconds since 1970.
    created: u64,
    /// When the server started, as RFC 3339 writes it.
    created_at: String,
    /// `gristmill`.
    owned_by: &'static str,
    status: Status,
    /// Tokens that a prompt and its completion may have together, if the model is loaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    max_model_len: Option<usize>,
    /// The model's architecture, if it is loaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    architecture: Option<String>,
    /// Tokens in the vocabulary, if the model is loaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    vocabulary: Option<usize>,
    /// What messages can have, if the model is loaded: `text`, and `image` for a model with a vision tower.
    #[serde(skip_serializing_if = "Option::is_none")]
    input_modalities: Option<Vec<&'static str>>,
}

/// A model to be loaded or unloaded.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct NamedModel {
    model: String,
}

/// The reply of `/models/load` and `/models/unload`.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Done {
    success: bool,
}

impl ModelEntry {
    /// A model by one of its names.
    fn of(app: &App, slot: &Slot, id: &str) -> ModelEntry {
        let started = UNIX_EPOCH + Duration::from_secs(app.started);
        let loaded = slot.loaded();
        let spec = loaded.as_ref().map(|loaded| loaded.engine.model().spec());
        ModelEntry {
            id: id.to_owned(),
            object: "model",
            r#type: "model",
            display_name: slot.name.clone(),
            created: app.started,
            created_at: clock::format(started, "%Y-%m-%dT%H:%M:%SZ"),
            owned_by: "gristmill",
            status: slot.status(),
            max_model_len: loaded.as_ref().map(|loaded| loaded.engine.context()),
            architecture: spec.map(|spec| spec.architecture.to_string()),
            vocabulary: spec.map(|spec| spec.vocab),
            input_modalities: loaded.as_ref().map(|loaded| match loaded.engine.processor() {
                Ok(_) => vec!["text", "image"],
                Err(_) => vec!["text"],
            }),
        }
    }
}

/// The models that this server has.
#[utoipa::path(get, path = "/v1/models", responses((status = 200, body = Models)))]
pub(crate) async fn list(State(app): State<App>) -> Json<Models> {
    let entries = |slot: &Arc<Slot>| slot.names().map(|name| ModelEntry::of(&app, slot, name)).collect::<Vec<_>>();
    let data: Vec<ModelEntry> = app.models.slots().iter().flat_map(entries).collect();
    let id = |entry: Option<&ModelEntry>| entry.map(|entry| entry.id.clone());
    let (first_id, last_id) = (id(data.first()), id(data.last()));
    Json(Models { object: "list", data, has_more: false, first_id, last_id })
}

/// One model.
#[utoipa::path(
    get,
    path = "/v1/models/{id}",
    params(("id" = String, Path, description = "The name of a model")),
    responses((status = 200, body = ModelEntry), (status = 404, body = ErrorBody))
)]
pub(crate) async fn one(
    State(app): State<App>,
    id: Result<Path<String>, PathRejection>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let wrong = |error: PathRejection| ApiError::new(error.status(), format!("the name of the model: {error}"));
    let entry = id.map_err(wrong).and_then(|Path(id)| {
        let slot = app.models.find(Some(&id))?;
        Ok(Json(ModelEntry::of(&app, slot, &id)).into_response())
    });
    entry.unwrap_or_else(|error| refuse(error, &uri, &headers))
}

/// Loads a model, as llama-server's router mode does. The reply is sent when the model is loaded.
#[utoipa::path(
    post,
    path = "/models/load",
    request_body = NamedModel,
    responses((status = 200, body = Done), (status = "4XX", body = ErrorBody), (status = "5XX", body = ErrorBody))
)]
pub(crate) async fn load(State(app): State<App>, fields: Fields) -> Result<Response, ApiError> {
    let (model, done) = named(&app, fields)?;
    app.model(Some(&model)).await?;
    Ok(done)
}

/// Unloads a model that no request uses.
#[utoipa::path(
    post,
    path = "/models/unload",
    request_body = NamedModel,
    responses((status = 200, body = Done), (status = "4XX", body = ErrorBody))
)]
pub(crate) async fn unload(State(app): State<App>, fields: Fields) -> Result<Response, ApiError> {
    let (model, done) = named(&app, fields)?;
    app.models.unload(app.models.find(Some(&model))?).await?;
    Ok(done)
}

/// The name of the model in a request, and the reply for when it is done.
fn named(app: &App, mut fields: Fields) -> Result<(String, Response), ApiError> {
    let NamedModel { model } = fields.read()?;
    let ignored = fields.judge(policy::NO_REPLY, app.options.strict)?;
    let mut done = Json(Done { success: true }).into_response();
    done.headers_mut().extend(fields::ignored_header(&ignored));
    Ok((model, done))
}
