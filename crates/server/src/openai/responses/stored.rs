//! Kept responses: to read, to list what they answer, and to delete.

use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::kept::not_kept;
use super::object::ResponseObject;
use crate::error::{ApiError, ErrorBody};
use crate::state::App;
use crate::tenant::Tenant;

/// A response that the server keeps.
#[utoipa::path(
    get,
    path = "/v1/responses/{id}",
    params(("id" = String, Path), Events),
    responses((status = 200, body = ResponseObject), (status = "4XX", body = ErrorBody))
)]
pub(crate) async fn get(
    State(app): State<App>,
    Extension(tenant): Extension<Tenant>,
    Path(id): Path<String>,
    events: Result<Query<Events>, QueryRejection>,
) -> Result<impl IntoResponse, ApiError> {
    if query(events)?.stream == Some(true) {
        let message = "a kept response is complete, and is read without events; leave stream out";
        return Err(ApiError::param("stream", message).with_code("unsupported"));
    }
    let kept = app.responses.get(tenant.id(), &id).ok_or_else(|| missing(&id))?;
    Ok(Json(serde_json::from_str::<Value>(&kept.response).unwrap_or_default()))
}

/// How a kept response is read.
#[derive(Debug, Deserialize, IntoParams)]
pub(crate) struct Events {
    /// Only false.
    stream: Option<bool>,
}

/// What was deleted.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Deleted {
    id: String,
    /// `response`.
    object: &'static str,
    /// Always true.
    deleted: bool,
}

/// Deletes a response that the server keeps.
#[utoipa::path(
    delete,
    path = "/v1/responses/{id}",
    params(("id" = String, Path)),
    responses((status = 200, body = Deleted), (status = "4XX", body = ErrorBody))
)]
pub(crate) async fn delete(
    State(app): State<App>,
    Extension(tenant): Extension<Tenant>,
    Path(id): Path<String>,
) -> Result<Json<Deleted>, ApiError> {
    match app.responses.delete(tenant.id(), &id) {
        true => Ok(Json(Deleted { id, object: "response", deleted: true })),
        false => Err(missing(&id)),
    }
}

/// Which items of a list.
#[derive(Debug, Deserialize, IntoParams)]
pub(crate) struct Page {
    /// The most items: 1 to 100, 20 by default.
    #[param(minimum = 1, maximum = 100)]
    limit: Option<usize>,
    /// `desc`, the newest first, or `asc`.
    order: Option<String>,
    /// Only items after the one with this id.
    after: Option<String>,
}

/// The items that a response answers.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct InputItems {
    /// `list`.
    object: &'static str,
    data: Vec<Value>,
    first_id: Option<Value>,
    last_id: Option<Value>,
    has_more: bool,
}

/// The items that a kept response answers, also those of the responses before it.
#[utoipa::path(
    get,
    path = "/v1/responses/{id}/input_items",
    params(("id" = String, Path), Page),
    responses((status = 200, body = InputItems), (status = "4XX", body = ErrorBody))
)]
pub(crate) async fn input_items(
    State(app): State<App>,
    Extension(tenant): Extension<Tenant>,
    Path(id): Path<String>,
    page: Result<Query<Page>, QueryRejection>,
) -> Result<Json<InputItems>, ApiError> {
    let page = query(page)?;
    let kept = app.responses.get(tenant.id(), &id).ok_or_else(|| missing(&id))?;
    let limit = page.limit.unwrap_or(20);
    if !(1..=100).contains(&limit) {
        return Err(ApiError::param("limit", format!("{limit} is not between 1 and 100")));
    }
    let mut items: Vec<Value> = kept.input.iter().filter_map(|item| serde_json::from_str(item).ok()).collect();
    match page.order.as_deref() {
        None | Some("desc") => items.reverse(),
        Some("asc") => {}
        Some(other) => return Err(ApiError::param("order", format!("{other:?} is not an order; use asc or desc"))),
    }
    if let Some(after) = page.after {
        let at = items.iter().position(|item| item["id"] == after.as_str());
        let at = at.ok_or_else(|| ApiError::param("after", format!("the response answers no item {after:?}")))?;
        items.drain(..=at);
    }
    let has_more = items.len() > limit;
    items.truncate(limit);
    let id_of = |item: Option<&Value>| item.map(|item| item["id"].clone());
    let (first_id, last_id) = (id_of(items.first()), id_of(items.last()));
    Ok(Json(InputItems { object: "list", data: items, first_id, last_id, has_more }))
}

fn missing(id: &str) -> ApiError {
    ApiError::new(StatusCode::NOT_FOUND, not_kept(id))
}

/// What follows the path, or what is wrong there.
fn query<T>(found: Result<Query<T>, QueryRejection>) -> Result<T, ApiError> {
    let wrong = |rejection: QueryRejection| ApiError::new(StatusCode::BAD_REQUEST, rejection.body_text());
    found.map(|Query(found)| found).map_err(wrong)
}
