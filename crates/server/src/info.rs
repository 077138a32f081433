//! What programs for other servers ask about this one: `/version` of vLLM, `/props` and `/slots` of llama-server.

use axum::Json;
use axum::extract::{Query, State};
use gristmill_engine::SamplingOptions;
use gristmill_engine::receipt;
use serde::Serialize;
use utoipa::ToSchema;

use crate::error::{ApiError, ErrorBody};
use crate::models::ModelQuery;
use crate::state::App;

/// The version of this server.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct VersionInfo {
    version: &'static str,
}

/// Properties of the server, in the shape of llama-server.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Props {
    default_generation_settings: DefaultSettings,
    /// Replies that are generated at a time.
    total_slots: usize,
    /// The name of the model; files are not shown.
    model_alias: String,
    model_path: String,
    /// Jinja; empty without one.
    chat_template: String,
    /// The template of conversations with tools, if the model has one of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    chat_template_tool_use: Option<String>,
    bos_token: String,
    eos_token: String,
    modalities: Modalities,
    /// The version of this server, its architecture and system.
    build_info: String,
}

/// Default settings of requests.
#[derive(Debug, Serialize, ToSchema)]
struct DefaultSettings {
    /// Tokens that a prompt and its completion may have together.
    n_ctx: usize,
    params: Params,
}

#[derive(Debug, Serialize, ToSchema)]
struct Params {
    temperature: f32,
    top_k: u32,
    top_p: f32,
    min_p: f32,
}

/// What a model reads next to text.
#[derive(Debug, Serialize, ToSchema)]
struct Modalities {
    vision: bool,
    audio: bool,
}

/// A place for a reply, in the shape of llama-server.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SlotInfo {
    id: usize,
    /// Tokens that a prompt and its completion may have together.
    n_ctx: usize,
    /// Whether a reply is being generated. Slots have no identity here: those with the lowest numbers count as busy.
    is_processing: bool,
}

/// The version of this server.
#[utoipa::path(get, path = "/version", responses((status = 200, body = VersionInfo)))]
pub(crate) async fn version() -> Json<VersionInfo> {
    Json(VersionInfo { version: env!("CARGO_PKG_VERSION") })
}

/// Properties of the server and its model.
#[utoipa::path(
    get,
    path = "/props",
    params(("model" = Option<String>, Query, description = "The name of a model; the first loaded one by default")),
    responses((status = 200, body = Props), (status = 404, body = ErrorBody), (status = 503, body = ErrorBody))
)]
pub(crate) async fn props(State(app): State<App>, Query(query): Query<ModelQuery>) -> Result<Json<Props>, ApiError> {
    let model = app.loaded_model(query.model())?;
    let SamplingOptions { temperature, top_k, top_p, min_p, .. } = model.sampling;
    let tokenizer = model.engine.model().tokenizer().ok();
    let text = |id: Option<u32>| id.and_then(|id| Some(tokenizer?.token_text(id).ok()?.to_owned())).unwrap_or_default();
    Ok(Json(Props {
        default_generation_settings: DefaultSettings {
            n_ctx: model.engine.context(),
            params: Params { temperature, top_k, top_p, min_p },
        },
        total_slots: model.engine.sequences(),
        model_alias: model.name().to_owned(),
        model_path: model.name().to_owned(),
        chat_template: model.engine.template().map(|template| template.source().to_owned()).unwrap_or_default(),
        chat_template_tool_use: model.engine.model().tool_template().map(str::to_owned),
        bos_token: text(tokenizer.and_then(|tokenizer| tokenizer.bos())),
        eos_token: text(tokenizer.and_then(|tokenizer| tokenizer.eos())),
        modalities: Modalities { vision: false, audio: false },
        build_info: receipt::build(),
    }))
}

/// Places for replies, and which are taken. It has no text of a request.
#[utoipa::path(
    get,
    path = "/slots",
    params(("model" = Option<String>, Query, description = "The name of a model; the first loaded one by default")),
    responses((status = 200, body = Vec<SlotInfo>), (status = 404, body = ErrorBody), (status = 503, body = ErrorBody))
)]
pub(crate) async fn slots(
    State(app): State<App>,
    Query(query): Query<ModelQuery>,
) -> Result<Json<Vec<SlotInfo>>, ApiError> {
    let engine = app.loaded_model(query.model())?.engine.clone();
    let running = engine.stats().running;
    let n_ctx = engine.context();
    Ok(Json((0..engine.sequences()).map(|id| SlotInfo { id, n_ctx, is_processing: id < running }).collect()))
}
