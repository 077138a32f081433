//! `/openapi.json`: requests and replies of this server.

use std::sync::LazyLock;

use axum::body::Bytes;
use axum::http::header;
use axum::response::IntoResponse;
use utoipa::openapi::RefOr;
use utoipa::{Modify, OpenApi};

use crate::endpoints::endpoints;
use crate::{anthropic, health, info, metrics, model, openai, worker};

macro_rules! document {
    ($($list:ident { $($method:ident $path:literal $($handler:ident)::+,)* })*) => {
        #[derive(OpenApi)]
        #[openapi(
            info(title = "gristmill", description = "A language model, with the interfaces of OpenAI and Anthropic."),
            paths($($($($handler)::+,)*)*),
            components(schemas(openai::chat::ChatChunk, openai::responses::ResponseEvent)),
            modifiers(&Completed)
        )]
        struct Document;
    };
}

endpoints!(document);

/// Adds what OpenAPI demands and handlers do not say: an id of each operation, and a description of each response.
struct Completed;

impl Modify for Completed {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        for (path, item) in &mut document.paths.paths {
            // A path has one of get and post, whose name is that of the path.
            let operations = [("", &mut item.get), ("", &mut item.post), ("_delete", &mut item.delete)];
            for (suffix, operation) in
                operations.into_iter().filter_map(|(suffix, item)| Some((suffix, item.as_mut()?)))
            {
                let id = path.trim_matches('/').replace(|c: char| !c.is_alphanumeric(), "_");
                operation.operation_id = Some(id.trim_end_matches('_').to_owned() + suffix);
                for (status, response) in &mut operation.responses.responses {
                    if let RefOr::T(response) = response
                        && response.description.is_empty()
                    {
                        response.description = meaning(status).to_owned();
                    }
                }
            }
        }
    }
}

/// The meaning of a status, which is in OpenAPI's notation.
fn meaning(status: &str) -> &'static str {
    match status {
        "4XX" => "The request is refused.",
        "5XX" => "The server cannot serve it.",
        "503" => "The server cannot serve, or accepts no requests now.",
        "404" => "There is none of this name.",
        _ => "The reply.",
    }
}

/// Written once: it has 100 kB, and anyone may request it.
static WRITTEN: LazyLock<Bytes> = LazyLock::new(|| Document::openapi().to_json().unwrap_or_default().into());

/// The description of all interfaces.
pub(crate) async fn show() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], WRITTEN.clone())
}
