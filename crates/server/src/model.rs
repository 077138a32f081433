//! `/model`: facts about the model that is served.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::{Query, State};
use gristmill_engine::SamplingOptions;
use gristmill_engine::receipt;
use serde::Serialize;
use utoipa::ToSchema;

use crate::error::{ApiError, ErrorBody};
use crate::models::{ModelQuery, ServedModel};
use crate::state::App;

/// Facts about the model that is served.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ModelFacts {
    /// The name that requests use for it.
    name: String,
    /// The name that its file says.
    title: Option<String>,
    architecture: String,
    /// Elements of all tensors.
    parameters: u64,
    /// Bytes of the tensors' data in the file.
    bytes: u64,
    /// The format that most of these bytes have.
    format: Option<String>,
    /// [`gristmill_engine::Model::fingerprint`] of its file.
    fingerprint: String,
    /// Layers.
    layers: usize,
    /// For each layer its experts; 0 for a layer without.
    experts: Vec<usize>,
    /// For each layer the experts that a token gets.
    experts_per_token: Vec<usize>,
    /// Tokens in the vocabulary.
    vocabulary: usize,
    /// Tokens that a prompt and its completion may have together.
    context: usize,
    /// Whether the file has a chat template.
    chat_template: bool,
    /// Whether conversations can have images: the model has a vision tower and a chat template.
    images: bool,
    /// The device that it runs on.
    device: String,
    /// The version of this server, its architecture and system.
    build: String,
    /// Default sampling of requests.
    sampling: SamplingFacts,
}

/// Default sampling of requests.
#[derive(Debug, Serialize, ToSchema)]
struct SamplingFacts {
    temperature: f32,
    top_p: f32,
    top_k: u32,
    min_p: f32,
}

/// Facts about the model that is served.
#[utoipa::path(
    get,
    path = "/model",
    params(("model" = Option<String>, Query, description = "The name of a model; the first loaded one by default")),
    responses((status = 200, body = ModelFacts), (status = 404, body = ErrorBody), (status = 503, body = ErrorBody))
)]
pub(crate) async fn show(
    State(app): State<App>,
    Query(query): Query<ModelQuery>,
) -> Result<Json<ModelFacts>, ApiError> {
    Ok(Json(ModelFacts::new(&app.loaded_model(query.model())?)))
}

impl ModelFacts {
    fn new(served: &ServedModel) -> ModelFacts {
        let model = served.engine.model();
        let spec = model.spec();
        let routers = model.spec().routers();
        let mut formats: BTreeMap<&str, u64> = BTreeMap::new();
        let (mut parameters, mut bytes) = (0, 0);
        for tensor in model.file().tensors() {
            *formats.entry(tensor.type_name()).or_default() += tensor.bytes;
            parameters += tensor.shape.iter().product::<u64>();
            bytes += tensor.bytes;
        }
        let most = formats.into_iter().max_by_key(|&(_, bytes)| bytes);
        let SamplingOptions { temperature, top_p, top_k, min_p, .. } = served.sampling;
        ModelFacts {
            name: served.name().to_owned(),
            title: spec.name.clone(),
            architecture: spec.architecture.clone(),
            parameters,
            bytes,
            format: most.map(|(name, _)| name.to_owned()),
            fingerprint: model.fingerprint().to_owned(),
            layers: spec.layers.len(),
            experts: routers.iter().map(|router| router.experts).collect(),
            experts_per_token: routers.iter().map(|router| router.top_k).collect(),
            vocabulary: spec.vocab,
            context: served.engine.context(),
            chat_template: served.engine.template().is_some(),
            images: served.engine.template().is_some() && served.engine.processor().is_ok(),
            device: model.device_name(),
            build: receipt::build(),
            sampling: SamplingFacts { temperature, top_p, top_k, min_p },
        }
    }
}
