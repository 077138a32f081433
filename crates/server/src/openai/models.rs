//! `/v1/models`.

use axum::Json;
use axum::extract::{Path, State};
use serde::Serialize;
use utoipa::ToSchema;

use crate::error::{ApiError, ErrorBody};
use crate::state::App;

/// The models of this server.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Models {
    /// `list`.
    object: &'static str,
    data: Vec<ModelEntry>,
}

/// A model.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ModelEntry {
    id: String,
    /// `model`.
    object: &'static str,
    /// When the server started, in seconds since 1970.
    created: u64,
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
    fn of(app: &App) -> ModelEntry {
        let spec = app.engine.model().spec();
        ModelEntry {
            id: app.options.name.clone(),
            object: "model",
            created: app.started,
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
    Json(Models { object: "list", data: vec![ModelEntry::of(&app)] })
}

/// One model.
#[utoipa::path(
    get,
    path = "/v1/models/{id}",
    params(("id" = String, Path, description = "The name of a model")),
    responses((status = 200, body = ModelEntry), (status = 404, body = ErrorBody))
)]
pub(crate) async fn one(State(app): State<App>, Path(id): Path<String>) -> Result<Json<ModelEntry>, ApiError> {
    app.check_model(Some(&id))?;
    Ok(Json(ModelEntry::of(&app)))
}
