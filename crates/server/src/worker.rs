//! What routers ask their workers, in the shapes of SGLang and vLLM: names and sizes when they register one, then its
//! load.

use axum::Extension;
use axum::Json;
use axum::extract::{Query, State};
use gristmill_engine::Stats;
use serde::Serialize;
use utoipa::ToSchema;

use crate::error::{ApiError, ErrorBody};
use crate::models::ModelQuery;
use crate::state::{App, seconds};
use crate::tenant::Tenant;

/// Other paths of `/server_info` and `/model_info`, which older routers ask.
pub(crate) const OLDER: [&str; 2] = ["/get_server_info", "/get_model_info"];

/// The server, for a router that registers it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ServerInfo {
    served_model_name: String,
    /// The name of the model; files are not shown.
    model_path: String,
    tokenizer_path: String,
    version: &'static str,
    /// Replies that are generated at a time.
    max_running_requests: usize,
    /// Tokens of the KV cache.
    max_total_tokens: usize,
    max_total_num_tokens: usize,
    /// Tokens that a prompt and its completion may have together.
    context_length: usize,
    /// Copies of the model and parts of each copy: one.
    dp_size: usize,
    tp_size: usize,
    /// `ready`.
    status: &'static str,
}

/// The model, for a router that registers the server.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ModelInfo {
    served_model_name: String,
    /// The name of the model; files are not shown.
    model_path: String,
    tokenizer_path: String,
    /// The name of the architecture in a GGUF file.
    model_type: String,
    architectures: [String; 1],
    is_generation: bool,
    has_image_understanding: bool,
    has_audio_understanding: bool,
    /// [`gristmill_engine::Model::fingerprint`] of its file.
    weight_version: String,
}

/// The load, in the older shape.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Load {
    dp_rank: usize,
    /// Requests that run or wait.
    num_reqs: usize,
    num_waiting_reqs: usize,
    /// Tokens of the KV cache that running requests have.
    num_tokens: usize,
}

/// The load, in the newer shape.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Loads {
    /// Seconds since 1970.
    timestamp: u64,
    version: &'static str,
    dp_rank_count: usize,
    loads: [RankLoad; 1],
    aggregate: AllLoad,
}

#[derive(Debug, Serialize, ToSchema)]
struct RankLoad {
    dp_rank: usize,
    num_running_reqs: usize,
    num_waiting_reqs: usize,
    num_used_tokens: usize,
    num_total_tokens: usize,
    max_total_num_tokens: usize,
    /// The part of the KV cache that running requests have.
    token_usage: f64,
    max_running_requests: usize,
}

#[derive(Debug, Serialize, ToSchema)]
struct AllLoad {
    total_running_reqs: usize,
    total_waiting_reqs: usize,
    total_reqs: usize,
    total_tokens: usize,
}

/// The reply of `/flush_cache`.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Flushed {
    success: bool,
    message: &'static str,
}

/// Names and sizes of the server: of the model that the query names, or of the first loaded one.
#[utoipa::path(
    get,
    path = "/server_info",
    params(("model" = Option<String>, Query, description = "The name of a model; the first loaded one by default")),
    responses((status = 200, body = ServerInfo), (status = 404, body = ErrorBody), (status = 503, body = ErrorBody))
)]
pub(crate) async fn server_info(
    State(app): State<App>,
    Query(query): Query<ModelQuery>,
) -> Result<Json<ServerInfo>, ApiError> {
    let model = app.loaded_model(query.model())?;
    let name = model.name().to_owned();
    let engine = &model.engine;
    let capacity = engine.stats().kv.capacity;
    Ok(Json(ServerInfo {
        served_model_name: name.clone(),
        model_path: name.clone(),
        tokenizer_path: name,
        version: env!("CARGO_PKG_VERSION"),
        max_running_requests: engine.sequences(),
        max_total_tokens: capacity,
        max_total_num_tokens: capacity,
        context_length: engine.context(),
        dp_size: 1,
        tp_size: 1,
        status: "ready",
    }))
}

/// The model's name and architecture.
#[utoipa::path(
    get,
    path = "/model_info",
    params(("model" = Option<String>, Query, description = "The name of a model; the first loaded one by default")),
    responses((status = 200, body = ModelInfo), (status = 404, body = ErrorBody), (status = 503, body = ErrorBody))
)]
pub(crate) async fn model_info(
    State(app): State<App>,
    Query(query): Query<ModelQuery>,
) -> Result<Json<ModelInfo>, ApiError> {
    let served = app.loaded_model(query.model())?;
    let name = served.name().to_owned();
    let model = served.engine.model();
    let architecture = model.spec().architecture.to_string();
    Ok(Json(ModelInfo {
        served_model_name: name.clone(),
        model_path: name.clone(),
        tokenizer_path: name,
        model_type: architecture.clone(),
        architectures: [architecture],
        is_generation: true,
        has_image_understanding: false,
        has_audio_understanding: false,
        weight_version: model.fingerprint().to_owned(),
    }))
}

/// The load of all models that are loaded.
#[derive(Debug, Default)]
struct Sum {
    running: usize,
    waiting: usize,
    used: usize,
    capacity: usize,
    sequences: usize,
}

impl Sum {
    fn of(app: &App) -> Sum {
        app.models.loaded().fold(Sum::default(), |sum, (_, model)| {
            let Stats { running, waiting, kv, .. } = model.engine.stats();
            Sum {
                running: sum.running + running,
                waiting: sum.waiting + waiting,
                used: sum.used + kv.used,
                capacity: sum.capacity + kv.capacity,
                sequences: sum.sequences + model.engine.sequences(),
            }
        })
    }
}

/// Requests and tokens now, of all models.
#[utoipa::path(get, path = "/get_load", responses((status = 200, body = Vec<Load>)))]
pub(crate) async fn load(State(app): State<App>) -> Json<[Load; 1]> {
    let Sum { running, waiting, used, .. } = Sum::of(&app);
    Json([Load { dp_rank: 0, num_reqs: running + waiting, num_waiting_reqs: waiting, num_tokens: used }])
}

/// Requests and tokens now, with the limits, of all models.
#[utoipa::path(get, path = "/v1/loads", responses((status = 200, body = Loads)))]
pub(crate) async fn loads(State(app): State<App>) -> Json<Loads> {
    let Sum { running, waiting, used, capacity, sequences } = Sum::of(&app);
    let rank = RankLoad {
        dp_rank: 0,
        num_running_reqs: running,
        num_waiting_reqs: waiting,
        num_used_tokens: used,
        num_total_tokens: used,
        max_total_num_tokens: capacity,
        token_usage: used as f64 / capacity.max(1) as f64,
        max_running_requests: sequences,
    };
    let aggregate = AllLoad {
        total_running_reqs: running,
        total_waiting_reqs: waiting,
        total_reqs: running + waiting,
        total_tokens: used,
    };
    let version = env!("CARGO_PKG_VERSION");
    Json(Loads { timestamp: seconds(), version, dp_rank_count: 1, loads: [rank], aggregate })
}

/// Empties the prefix caches of the key's prompts, but for those of requests that run.
#[utoipa::path(post, path = "/flush_cache", responses((status = 200, body = Flushed)))]
pub(crate) async fn flush_cache(
    State(app): State<App>,
    Extension(tenant): Extension<Tenant>,
) -> Result<Json<Flushed>, ApiError> {
    for (_, model) in app.models.loaded() {
        model.engine.evict_prefixes(tenant.id())?;
    }
    Ok(Json(Flushed { success: true, message: "the prefix cache has no prompts of this key that no request uses" }))
}
