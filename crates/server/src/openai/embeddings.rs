//! `/v1/embeddings`: texts that become vectors.

use axum::Extension;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gristmill_engine::Embeddings;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::prompts::{Prompts, SpecialFields};
use super::vectors::vectors;
use crate::blocking::blocking;
use crate::error::{ApiError, ErrorBody};
use crate::fields::{self, Fields};
use crate::log::Counts;
use crate::models::ServedModel;
use crate::policy;
use crate::state::App;
use crate::tenant::Tenant;

/// The most inputs of a request, as OpenAI has it.
const MOST_INPUTS: usize = 2_048;

/// Texts to be embedded.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct EmbeddingsRequest {
    /// The name of the model.
    model: Option<String>,
    /// At most 2,048 texts, each within the context; vectors are in their order.
    input: Prompts,
    encoding_format: Option<EncodingFormat>,
    /// The length of a vector: the model's, because it is not trained for shorter ones.
    #[schema(minimum = 1)]
    dimensions: Option<usize>,
    /// Add the tokens that the model wants around a text, such as BOS, unless the text has them; true by default.
    add_special_tokens: Option<bool>,
    /// Read control tokens written in a text as control tokens; true by default.
    parse_special: Option<bool>,
}

/// How vectors are written; numbers by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum EncodingFormat {
    /// Numbers.
    Float,
    /// Floats of 32 bits, little-endian, in Base64.
    Base64,
}

/// The vectors of texts.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EmbeddingList<'a> {
    /// `list`.
    object: &'static str,
    data: Vec<EmbeddingItem>,
    model: &'a str,
    usage: EmbeddingUsage,
}

/// The vector of one text.
#[derive(Debug, Serialize, ToSchema)]
struct EmbeddingItem {
    /// `embedding`.
    object: &'static str,
    /// The index of the text.
    index: usize,
    embedding: Vector,
}

/// A vector of length 1.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
enum Vector {
    Numbers(Vec<f32>),
    Base64(String),
}

/// Tokens of all texts.
#[derive(Debug, Serialize, ToSchema)]
struct EmbeddingUsage {
    prompt_tokens: usize,
    total_tokens: usize,
}

/// Embeds texts.
#[utoipa::path(
    post,
    path = "/v1/embeddings",
    request_body = EmbeddingsRequest,
    responses(
        (status = 200, body = EmbeddingList),
        (status = "4XX", body = ErrorBody),
        (status = "5XX", body = ErrorBody)
    )
)]
pub(crate) async fn serve(
    State(app): State<App>,
    Extension(tenant): Extension<Tenant>,
    mut fields: Fields,
) -> Result<Response, ApiError> {
    let asked: EmbeddingsRequest = fields.read()?;
    let ignored = fields.judge(policy::EMBEDDINGS, app.options.strict)?;
    let model = app.model(asked.model.as_deref()).await?;
    let format = asked.encoding_format.unwrap_or(EncodingFormat::Float);
    let width = model.engine.model().spec().hidden;
    if let Some(asked) = asked.dimensions.filter(|&asked| asked != width) {
        let message = format!("dimensions is {asked}; vectors of this model have {width}, and cannot be truncated");
        return Err(ApiError::param("dimensions", message));
    }
    let several = !matches!(asked.input, Prompts::Text(_) | Prompts::Tokens(_));
    let EmbeddingsRequest { add_special_tokens, parse_special, .. } = asked;
    let special = SpecialFields { add_special_tokens, parse_special };
    let texts = asked.input.list("input", MOST_INPUTS, special)?;
    let at = move |index: usize| if several { format!("input[{index}]") } else { "input".to_owned() };
    let embeddings = vectors(&model, tenant, texts, at).await?;
    let counts = Counts::new();
    counts.usage(&embeddings.usage);
    // A long list of numbers takes a while to write.
    let json = blocking(move || Ok(written(&model, embeddings, format))).await?;
    let mut response = ([(header::CONTENT_TYPE, "application/json")], json).into_response();
    response.headers_mut().extend(fields::ignored_header(&ignored));
    response.extensions_mut().insert(counts);
    Ok(response)
}

/// The reply.
fn written(model: &ServedModel, embeddings: Embeddings, format: EncodingFormat) -> Vec<u8> {
    let vector = |numbers: Vec<f32>| match format {
        EncodingFormat::Float => Vector::Numbers(numbers),
        EncodingFormat::Base64 => {
            Vector::Base64(STANDARD.encode(numbers.into_iter().flat_map(f32::to_le_bytes).collect::<Vec<u8>>()))
        }
    };
    let vectors = embeddings.vectors.into_iter().enumerate();
    let item = |(index, numbers)| EmbeddingItem { object: "embedding", index, embedding: vector(numbers) };
    let tokens = embeddings.usage.prompt_tokens;
    let usage = EmbeddingUsage { prompt_tokens: tokens, total_tokens: tokens };
    let list = EmbeddingList { object: "list", data: vectors.map(item).collect(), model: model.name(), usage };
    // Writing into memory does not fail.
    serde_json::to_vec(&list).unwrap_or_default()
}
