//! What programs for other servers ask about this one: `/version` of vLLM, `/props` and `/slots` of llama-server.

use axum::Json;
use axum::extract::State;
use gristmill_engine::SamplingOptions;
use gristmill_engine::engine::receipt;
use serde::Serialize;
use utoipa::ToSchema;

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
#[utoipa::path(get, path = "/props", responses((status = 200, body = Props)))]
pub(crate) async fn props(State(app): State<App>) -> Json<Props> {
    let SamplingOptions { temperature, top_k, top_p, min_p, .. } = app.options.sampling;
    let tokenizer = app.engine.model().tokenizer().ok();
    let text = |id: Option<u32>| id.and_then(|id| Some(tokenizer?.token_text(id).ok()?.to_owned())).unwrap_or_default();
    Json(Props {
        default_generation_settings: DefaultSettings {
            n_ctx: app.engine.context(),
            params: Params { temperature, top_k, top_p, min_p },
        },
        total_slots: app.engine.sequences(),
        model_alias: app.options.name.clone(),
        model_path: app.options.name.clone(),
        chat_template: app.engine.template().map(|template| template.source().to_owned()).unwrap_or_default(),
        bos_token: text(tokenizer.and_then(|tokenizer| tokenizer.bos())),
        eos_token: text(tokenizer.and_then(|tokenizer| tokenizer.eos())),
        modalities: Modalities { vision: false, audio: false },
        build_info: receipt::build(),
    })
}

/// Places for replies, and which are taken. It has no text of a request.
#[utoipa::path(get, path = "/slots", responses((status = 200, body = Vec<SlotInfo>)))]
pub(crate) async fn slots(State(app): State<App>) -> Json<Vec<SlotInfo>> {
    let (running, n_ctx) = (app.engine.stats().running, app.engine.context());
    Json((0..app.engine.sequences()).map(|id| SlotInfo { id, n_ctx, is_processing: id < running }).collect())
}
