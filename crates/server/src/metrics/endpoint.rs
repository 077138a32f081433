//! The endpoint of all metrics.

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use gristmill_engine::Stats;
use prometheus_client::encoding::text::{encode_eof, encode_registry};

use super::{figures, vllm};
use crate::error::ApiError;
use crate::state::App;

/// Counters and histograms of this server, for Prometheus.
#[utoipa::path(
    get, path = "/metrics",
    responses((status = 200, body = String, content_type = "application/openmetrics-text"))
)]
pub(crate) async fn show(State(app): State<App>) -> Result<Response, ApiError> {
    let mut text = String::new();
    let stats: Vec<(String, Stats)> =
        app.models.loaded().map(|(slot, model)| (slot.name.clone(), model.engine.stats())).collect();
    let vllm = app.metrics.vllm.as_ref();
    let moment = vllm.is_some().then(|| vllm::moment(stats.clone()));
    let figures = figures::registry(stats);
    let parts = [&app.metrics.registry, &figures].into_iter().chain(&moment).chain(vllm);
    let written = parts.into_iter().try_for_each(|part| encode_registry(&mut text, part));
    // Writing into a string does not fail.
    let _ = written.and_then(|()| encode_eof(&mut text));
    let content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(header::CONTENT_TYPE, content_type)], text).into_response())
}
