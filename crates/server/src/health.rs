//! Whether the server works, and whether it accepts requests, for load balancers and supervisors.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;

use crate::state::App;

/// Paths that everybody may ask, by any name of the machine: probes have no key, and some send no `Host`.
pub(crate) const PATHS: [&str; 2] = ["/health", "/ready"];

/// The reply of `/health` and `/ready`.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Health {
    /// `ok`, `loading`, `stopping` or `unhealthy`.
    pub(crate) status: &'static str,
    /// Why requests are refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

impl Health {
    pub(crate) fn new(status: &'static str) -> Health {
        Health { status, reason: None }
    }
}

/// Whether the server can serve. If it cannot, it has to be started again.
#[utoipa::path(get, path = "/health", responses((status = 200, body = Health), (status = 503, body = Health)))]
pub(crate) async fn health(State(app): State<App>) -> (StatusCode, Json<Health>) {
    match app.models.loaded().try_for_each(|(_, model)| model.engine.health()) {
        Ok(()) => (StatusCode::OK, Json(Health::new("ok"))),
        Err(error) => {
            let health = Health { status: "unhealthy", reason: Some(error.to_string()) };
            (StatusCode::SERVICE_UNAVAILABLE, Json(health))
        }
    }
}

/// Whether the server takes requests: not before the model is loaded, and not after the signal that ends the server.
#[utoipa::path(get, path = "/ready", responses((status = 200, body = Health), (status = 503, body = Health)))]
pub(crate) async fn ready(State(app): State<App>) -> (StatusCode, Json<Health>) {
    match app.is_stopping() {
        true => (StatusCode::SERVICE_UNAVAILABLE, Json(Health::new("stopping"))),
        false => health(State(app)).await,
    }
}
