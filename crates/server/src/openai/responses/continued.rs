//! What a request takes from kept responses, and what is kept of it.

use std::sync::Arc;

use serde_json::{Value, json};

use super::kept::{Kept, not_kept, with_id};
use super::object::ResponseObject;
use crate::error::ApiError;
use crate::fields::Fields;
use crate::reply::random_digits;
use crate::state::App;
use crate::tenant::Tenant;

/// The field with the id of the response that a request continues.
pub(super) const PREVIOUS: &str = "previous_response_id";

/// A conversation that the server keeps a part of, or will keep.
#[derive(Debug)]
pub(super) struct Continued {
    app: App,
    tenant: u64,
    /// The response that this one continues.
    pub(super) previous: Option<String>,
    /// Items of the conversation with that response, before those of the request.
    pub(super) before: usize,
    /// All items, if the response is to be kept.
    items: Option<Vec<Value>>,
}

impl Continued {
    /// Puts the items of the previous response into `input`, before its own, and kept items in the place of references.
    pub(super) fn read(app: &App, tenant: &Tenant, fields: &mut Fields) -> Result<Continued, ApiError> {
        let previous: Option<String> = fields.take(PREVIOUS)?;
        let is_kept = app.responses.is_on() && fields.take::<bool>("store")? != Some(false);
        let tenant = tenant.id();
        let mut continued = Continued { app: app.clone(), tenant, previous, before: 0, items: None };
        let before = continued.before()?;
        continued.before = before.len();
        let Some(input) = fields.value_mut("input") else { return Ok(continued) };
        if let Value::Array(items) = input {
            items.iter_mut().for_each(|item| continued.refer(item));
        }
        if !before.is_empty() || is_kept {
            let text = |input: &Value| json!({"type": "message", "role": "user", "content": input});
            let own = match input.take() {
                Value::Array(items) => items,
                text_of_user if text_of_user.is_string() => vec![text(&text_of_user)],
                // It is refused where it is read.
                other => {
                    *input = other;
                    return Ok(continued);
                }
            };
            // An empty list is refused where it is read.
            let is_empty = own.is_empty();
            let items: Vec<Value> = if is_empty { own } else { before.into_iter().chain(own).collect() };
            continued.items = (is_kept && !is_empty).then(|| items.clone());
            *input = items.into();
        }
        Ok(continued)
    }

    /// The path of an item in the request.
    pub(super) fn path(&self, index: usize) -> String {
        match index.checked_sub(self.before) {
            Some(own) => format!("input[{own}]"),
            None => PREVIOUS.to_owned(),
        }
    }

    /// An error of an item with its path in the request.
    pub(super) fn renamed(&self, error: ApiError) -> ApiError {
        let param = error.param.as_deref().map(|param| self.renamed_path(param));
        ApiError { message: self.renamed_path(&error.message), param, ..error }
    }

    /// Whether a path is not that of an item of the previous response.
    pub(super) fn is_own(&self, path: &str) -> bool {
        index_of(path).is_none_or(|(index, _)| index >= self.before)
    }

    /// A path, or a message that starts with one.
    pub(super) fn renamed_path(&self, path: &str) -> String {
        index_of(path).map_or_else(|| path.to_owned(), |(index, rest)| self.path(index) + rest)
    }

    /// Keeps the response, if the request allows it.
    pub(super) fn keep(&self, id: &str, object: &ResponseObject) {
        let (Some(items), Ok(response)) = (&self.items, serde_json::to_string(object)) else { return };
        let text = |item: &Value| -> Arc<str> { item.to_string().into() };
        let new_id = |prefix: &str| format!("{prefix}_{}", random_digits());
        let input = items.iter().map(|item| text(&with_id(item.clone(), new_id))).collect();
        let written: Value = serde_json::from_str(&response).unwrap_or_default();
        let output = written["output"].as_array().into_iter().flatten();
        let output = output.map(|item| (item["id"].as_str().unwrap_or_default().to_owned(), text(item))).collect();
        self.app.responses.keep(self.tenant, id.to_owned(), Kept { input, output, response });
    }

    /// Whether the response is to be kept.
    pub(super) fn is_kept(&self) -> bool {
        self.items.is_some()
    }

    /// The conversation with the previous response.
    fn before(&self) -> Result<Vec<Value>, ApiError> {
        let Some(id) = &self.previous else { return Ok(Vec::new()) };
        let wrong = |message| Err(ApiError::param(PREVIOUS, message));
        if !self.app.responses.is_on() {
            return wrong(
                "this server keeps no responses; send the items of the conversation again in input".to_owned(),
            )
            .map_err(|error| error.with_code("unsupported"));
        }
        match self.app.responses.get(self.tenant, id) {
            Some(kept) => Ok(kept.items().filter_map(|item| serde_json::from_str(item).ok()).collect()),
            None => wrong(format!("{}; send the items of the conversation again in input", not_kept(id)))
                .map_err(|error| error.with_code("previous_response_not_found")),
        }
    }

    /// Replaces a reference by the item, if it is kept.
    fn refer(&self, item: &mut Value) {
        let is_reference = match item["type"].as_str() {
            Some(kind) => kind == "item_reference",
            None => item.get("role").is_none(),
        };
        let id = item["id"].as_str().filter(|_| is_reference);
        if let Some(kept) = id.and_then(|id| self.app.responses.item(self.tenant, id))
            && let Ok(found) = serde_json::from_str(&kept)
        {
            *item = found;
        }
    }
}

/// The number of the item at the start of a path, and the rest of the path.
fn index_of(path: &str) -> Option<(usize, &str)> {
    let (index, rest) = path.strip_prefix("input[")?.split_once(']')?;
    Some((index.parse().ok()?, rest))
}
