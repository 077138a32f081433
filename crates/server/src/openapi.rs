//! `/openapi.json`: what this server takes and gives.

use axum::Json;
use utoipa::OpenApi;

use crate::{anthropic, listen, metrics, openai, tokens};

#[derive(OpenApi)]
#[openapi(
    info(title = "gristmill", description = "A language model, with the interfaces of OpenAI and Anthropic."),
    paths(
        openai::chat::serve,
        openai::completions::serve,
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

/// The description of all interfaces.
pub(crate) async fn show() -> Json<utoipa::openapi::OpenApi> {
    Json(Document::openapi())
}
