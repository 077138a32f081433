//! `/openapi.json`: what this server takes and gives.

use std::sync::LazyLock;

use axum::body::Bytes;
use axum::http::header;
use axum::response::IntoResponse;
use utoipa::OpenApi;

use crate::{anthropic, listen, metrics, openai, tokens};

#[derive(OpenApi)]
#[openapi(
    info(title = "gristmill", description = "A language model, with the interfaces of OpenAI and Anthropic."),
    paths(
        openai::chat::serve,
        openai::completions::serve,
        openai::embeddings::serve,
        openai::responses::serve,
        openai::models::list,
        openai::models::one,
        anthropic::messages,
        anthropic::count_tokens,
        tokens::tokenize,
        tokens::detokenize,
        tokens::info,
        tokens::apply_template,
        listen::health,
        metrics::show,
    ),
    components(schemas(openai::chat::ChatChunk, openai::responses::ResponseEvent))
)]
struct Document;

/// Written once: it has 100 kB, and anyone may ask for it.
static WRITTEN: LazyLock<Bytes> = LazyLock::new(|| Document::openapi().to_json().unwrap_or_default().into());

/// The description of all interfaces.
pub(crate) async fn show() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], WRITTEN.clone())
}
