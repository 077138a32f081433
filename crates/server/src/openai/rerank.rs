//! `/v1/rerank` and `/score` in the shapes of Jina and vLLM: how well texts answer or resemble others, by the judgement of
//! a reranker, or by the cosine of vectors.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use gristmill_engine::tokenizer::EncodeOptions;
use gristmill_engine::{Embeddings, Prompt, Reranker, Usage};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::prompts::SpecialFields;
use super::vectors::{last_states, vectors};
use crate::content::TextOr;
use crate::error::{ApiError, ErrorBody};
use crate::fields::{self, Fields};
use crate::log::Counts;
use crate::models::ServedModel;
use crate::policy;
use crate::reply::random_digits;
use crate::state::{App, seconds};
use crate::tenant::Tenant;

/// The most texts of a request.
const MOST_TEXTS: usize = 2_048;

/// Documents to be ordered by their likeness to a query.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct RerankRequest {
    /// The name of the model.
    model: Option<String>,
    query: TextOr<Text>,
    /// At most 2,048 texts, each within the context.
    documents: Vec<TextOr<Text>>,
    /// How many of the likest are returned; all by default.
    top_n: Option<usize>,
    /// Return the texts of documents; true by default.
    return_documents: Option<bool>,
    /// The task by which a reranker judges, in place of the one in its own prompt.
    #[serde(alias = "instruct")]
    instruction: Option<String>,
}

/// A document or a query.
#[derive(Debug, Deserialize, ToSchema)]
struct Text {
    text: String,
}

/// One text or several.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(untagged, expecting = "a text or a list of texts")]
enum Texts {
    One(String),
    Many(Vec<String>),
}

/// Pairs of texts to be compared: one with each, or each with the one of its index.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct ScoreRequest {
    /// The name of the model.
    model: Option<String>,
    #[serde(alias = "queries", alias = "data_1")]
    text_1: Texts,
    #[serde(alias = "documents", alias = "data_2")]
    text_2: Texts,
    /// The task by which a reranker judges, in place of the one in its own prompt.
    #[serde(alias = "instruct")]
    instruction: Option<String>,
}

/// Documents in the order of their likeness.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RerankReply {
    id: String,
    model: String,
    usage: RerankUsage,
    /// The likest first.
    results: Vec<Ranked>,
}

#[derive(Debug, Serialize, ToSchema)]
struct Ranked {
    /// The index of the document.
    index: usize,
    /// The cosine of the vectors of query and document, from -1 to 1; of a reranker the probability of "yes".
    relevance_score: f32,
    #[serde(skip_serializing_if = "Option::is_none")]
    document: Option<Document>,
}

#[derive(Debug, Serialize, ToSchema)]
struct Document {
    text: String,
}

/// Tokens of all texts.
#[derive(Debug, Serialize, ToSchema)]
struct RerankUsage {
    prompt_tokens: usize,
    total_tokens: usize,
}

/// The likeness of pairs, in their order.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ScoreReply {
    id: String,
    /// `list`.
    object: &'static str,
    /// Seconds since 1970.
    created: u64,
    model: String,
    data: Vec<Score>,
    usage: RerankUsage,
}

#[derive(Debug, Serialize, ToSchema)]
struct Score {
    /// The index of the pair.
    index: usize,
    /// `score`.
    object: &'static str,
    /// The cosine of the vectors of both texts, from -1 to 1; of a reranker the probability of "yes".
    score: f32,
}

/// Orders documents by their likeness to a query.
#[utoipa::path(
    post,
    path = "/v1/rerank",
    request_body = RerankRequest,
    responses((status = 200, body = RerankReply), (status = "4XX", body = ErrorBody), (status = "5XX", body = ErrorBody))
)]
pub(crate) async fn rerank(
    State(app): State<App>,
    Extension(tenant): Extension<Tenant>,
    mut fields: Fields,
) -> Result<Response, ApiError> {
    let asked: RerankRequest = fields.read()?;
    let compared = Compared::new(&app, fields, asked.instruction)?;
    let model = app.model(asked.model.as_deref()).await?;
    let documents: Vec<String> = asked.documents.into_iter().map(text_of).collect();
    check_count("documents", documents.len())?;
    let at = |index: usize| match index.checked_sub(1) {
        Some(index) => format!("documents[{index}]"),
        None => "query".to_owned(),
    };
    let scored = compared.scored(&model, tenant, vec![text_of(asked.query)], documents.clone(), at).await?;
    let returns = asked.return_documents != Some(false);
    let ranked = |((index, &relevance_score), text): ((usize, &f32), String)| {
        let document = returns.then_some(Document { text });
        Ranked { index, relevance_score, document }
    };
    let mut results: Vec<Ranked> = scored.scores.iter().enumerate().zip(documents).map(ranked).collect();
    // A stable sort: the order of the request where documents are equally like.
    results.sort_by(|a, b| b.relevance_score.total_cmp(&a.relevance_score));
    results.truncate(asked.top_n.unwrap_or(usize::MAX));
    let id = id("rerank");
    let usage = usage(&scored);
    compared.reply(&scored, RerankReply { id, model: model.name().to_owned(), usage, results })
}

/// Compares pairs of texts.
#[utoipa::path(
    post,
    path = "/v1/score",
    request_body = ScoreRequest,
    responses((status = 200, body = ScoreReply), (status = "4XX", body = ErrorBody), (status = "5XX", body = ErrorBody))
)]
pub(crate) async fn score(
    State(app): State<App>,
    Extension(tenant): Extension<Tenant>,
    mut fields: Fields,
) -> Result<Response, ApiError> {
    let asked: ScoreRequest = fields.read()?;
    let names =
        [fields.spelling(&["text_1", "queries", "data_1"]), fields.spelling(&["text_2", "documents", "data_2"])];
    let compared = Compared::new(&app, fields, asked.instruction)?;
    let model = app.model(asked.model.as_deref()).await?;
    let [first, second] = [asked.text_1, asked.text_2].map(Texts::into_list);
    check_count(names[0], first.len())?;
    check_count(names[1], second.len())?;
    let (ones, others) = (first.len(), second.len());
    if ones != 1 && ones != others {
        let message =
            format!("{} has {ones} texts and {} has {others}; send one text, or equal numbers", names[0], names[1]);
        return Err(ApiError::param(names[0], message));
    }
    let at = move |index: usize| match index.checked_sub(ones) {
        Some(index) => format!("{}[{index}]", names[1]),
        None => format!("{}[{index}]", names[0]),
    };
    let scored = compared.scored(&model, tenant, first, second, at).await?;
    let score = |(index, &score): (usize, &f32)| Score { index, object: "score", score };
    let data = scored.scores.iter().enumerate().map(score).collect();
    let id = id("score");
    let created = seconds();
    let model = model.name().to_owned();
    let reply = ScoreReply { id, object: "list", created, model, data, usage: usage(&scored) };
    compared.reply(&scored, reply)
}

/// The scores of pairs.
struct Scored {
    scores: Vec<f32>,
    usage: Usage,
}

/// A request whose fields are judged.
struct Compared {
    ignored: Vec<String>,
    options: EncodeOptions,
    instruction: Option<Instruction>,
}

/// An instruction, and the name of its field in the request.
struct Instruction {
    text: String,
    field: &'static str,
}

impl Compared {
    fn new(app: &App, mut fields: Fields, instruction: Option<String>) -> Result<Compared, ApiError> {
        let field = fields.spelling(&["instruction", "instruct"]);
        if instruction.as_ref().is_some_and(String::is_empty) {
            return Err(ApiError::param(field, format!("{field} is empty; leave it out for the model's own")));
        }
        let instruction = instruction.map(|text| Instruction { text, field });
        let special: SpecialFields = fields.read()?;
        let ignored = fields.judge(policy::COMPARISONS, app.options.strict)?;
        Ok(Compared { ignored, options: special.options(), instruction })
    }

    /// The score of each of the second texts with its first one, or with the only one. A reranker judges each pair; of
    /// other models the vectors are compared. `at` has the path of each text, the first ones before the second ones.
    async fn scored(
        &self,
        model: &ServedModel,
        tenant: Tenant,
        first: Vec<String>,
        second: Vec<String>,
        at: impl Fn(usize) -> String + Send + 'static,
    ) -> Result<Scored, ApiError> {
        let ones = first.len();
        let reranker = Reranker::of(model.engine.model());
        let instruction = match &self.instruction {
            Some(given) if !reranker.as_ref().is_some_and(Reranker::takes_instruction) => {
                let message = format!(
                    "{}: the model has no prompt with an instruction; write the prefix that it needs into the texts",
                    given.field
                );
                return Err(ApiError::param(given.field, message));
            }
            given => given.as_ref().map(|given| given.text.as_str()),
        };
        if let Some(reranker) = reranker {
            let prompt = |(query, document): (&String, &String)| reranker.prompt(instruction, query, document);
            let pairs = first.iter().cycle().zip(&second).map(prompt);
            let prompts = pairs.map(|(text, plain)| Prompt::rendered(text, plain)).collect();
            let at = move |index: usize| at(ones + index);
            let Embeddings { vectors, usage, .. } = last_states(model, tenant, prompts, at).await?;
            return Ok(Scored { scores: vectors.iter().map(|state| reranker.score(state)).collect(), usage });
        }
        let options = self.options;
        let prompts = first.into_iter().chain(second).map(|text| Prompt::Text { text, options }).collect();
        let Embeddings { vectors, usage, .. } = vectors(model, tenant, prompts, at).await?;
        let Some((first, second)) = vectors.split_at_checked(ones) else { return Err(missing()) };
        Ok(Scored { scores: first.iter().cycle().zip(second).map(|(one, other)| cosine(one, other)).collect(), usage })
    }

    fn reply(self, scored: &Scored, reply: impl Serialize) -> Result<Response, ApiError> {
        let counts = Counts::new();
        counts.usage(&scored.usage);
        let mut response = Json(reply).into_response();
        response.headers_mut().extend(fields::ignored_header(&self.ignored));
        response.extensions_mut().insert(counts);
        Ok(response)
    }
}

fn text_of(text: TextOr<Text>) -> String {
    match text {
        TextOr::Text(text) | TextOr::Object(Text { text }) => text,
    }
}

impl Texts {
    fn into_list(self) -> Vec<String> {
        match self {
            Texts::One(text) => vec![text],
            Texts::Many(texts) => texts,
        }
    }
}

fn check_count(field: &'static str, count: usize) -> Result<(), ApiError> {
    match count {
        0 => Err(ApiError::param(field, format!("{field} is an empty list; send at least one text"))),
        n if n > MOST_TEXTS => {
            Err(ApiError::param(field, format!("{field} has {n} texts; at most {MOST_TEXTS} are accepted")))
        }
        _ => Ok(()),
    }
}

/// The cosine of two vectors of the length 1.
fn cosine(one: &[f32], other: &[f32]) -> f32 {
    let sum: f64 = one.iter().zip(other).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
    sum.clamp(-1.0, 1.0) as f32
}

fn usage(scored: &Scored) -> RerankUsage {
    let tokens = scored.usage.prompt_tokens;
    RerankUsage { prompt_tokens: tokens, total_tokens: tokens }
}

fn id(prefix: &str) -> String {
    format!("{prefix}-{}{}", random_digits(), random_digits())
}

/// The engine gives a vector for each text.
fn missing() -> ApiError {
    ApiError::new(axum::http::StatusCode::INTERNAL_SERVER_ERROR, "vectors of texts are missing")
}
