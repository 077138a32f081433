//! `/v1/models`, with the fields of OpenAI and of Anthropic.

use std::time::{Duration, UNIX_EPOCH};

use axum::Json;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, Uri};
use axum::response::{IntoResponse, Response};
use gristmill_engine::clock;
use serde::Serialize;
use utoipa::ToSchema;

use crate::error::{ErrorBody, refuse};
use crate::state::App;

/// The model, by its name and by each alias without `*`.
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
    /// Tokens that a prompt and its completion may have together.
    max_model_len: usize,
    /// The model's architecture.
    architecture: String,
    /// Tokens in the vocabulary.
    vocabulary: usize,
}

impl ModelEntry {
    /// The model by one of its names.
    fn of(app: &App, id: &str) -> ModelEntry {
        let spec = app.engine.model().spec();
        let started = UNIX_EPOCH + Duration::from_secs(app.started);
        ModelEntry {
            id: id.to_owned(),
            object: "model",
            r#type: "model",
            display_name: app.options.name.clone(),
            created: app.started,
            created_at: clock::format(started, "%Y-%m-%dT%H:%M:%SZ"),
            owned_by: "gristmill",
            max_model_len: app.engine.context(),
            architecture: spec.architecture.to_string(),
            vocabulary: spec.vocab,
        }
    }
}

/// The models that this server has.
#[utoipa::path(get, path = "/v1/models", responses((status = 200, body = Models)))]
pub(crate) async fn list(State(app): State<App>) -> Json<Models> {
    let data: Vec<ModelEntry> = app.options.names().map(|name| ModelEntry::of(&app, name)).collect();
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
pub(crate) async fn one(State(app): State<App>, Path(id): Path<String>, uri: Uri, headers: HeaderMap) -> Response {
    match app.check_model(Some(&id)) {
        Ok(()) => Json(ModelEntry::of(&app, &id)).into_response(),
        Err(error) => refuse(error, &uri, &headers),
    }
}
