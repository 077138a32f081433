//! The tokenizer and the chat template, in the shapes of vLLM and llama.cpp.
//!
//! A conversation is read as `/v1/chat/completions` reads it, with all of its fields, so what is shown here is what
//! that interface would run.

use axum::Json;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use gristmill_engine::EngineError;
use gristmill_engine::Prompt;
use gristmill_engine::tokenizer::{EncodeOptions, Tokenizer};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::chat::{self, ChatRequest};
use crate::blocking::blocking;
use crate::error::{ApiError, ErrorBody, Paths};
use crate::fields::{self, Fields};
use crate::models::{ModelQuery, ServedModel};
use crate::policy;
use crate::request::Conversation;
use crate::state::App;

/// The maximum number of bytes of a text to tokenise. A text of this length that has only spaces takes a third of a
/// second.
const MOST_BYTES: usize = 1 << 20;

/// How tokens are returned.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
pub(crate) struct TokensFields {
    /// Return how the vocabulary writes each token.
    return_token_strs: Option<bool>,
    /// Return each token as an object with its text, as llama-server does.
    with_pieces: Option<bool>,
}

/// A text to be tokenised. Instead of it, a request may have a conversation: the fields of `/v1/chat/completions`.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct TextFields {
    #[expect(dead_code, reason = "the handler reads it first")]
    model: Option<String>,
    /// A text of 1 MiB at most.
    prompt: Option<String>,
    /// Another name of `prompt`, with which BOS is added only on request, as by llama-server.
    content: Option<String>,
    /// Add the tokens that the model wants around a text, such as BOS, unless the text has them; true by default.
    add_special_tokens: Option<bool>,
    /// Another name of `add_special_tokens`.
    add_special: Option<bool>,
    /// Read control tokens written in the text, such as `<|im_start|>`, as control tokens; true by default.
    parse_special: Option<bool>,
}

/// A text or a conversation to be tokenised.
#[derive(Debug, Deserialize, ToSchema)]
#[expect(dead_code, reason = "it describes JSON to clients, and its parts are read one by one")]
pub(crate) struct TokenizeRequest {
    #[serde(flatten)]
    tokens: TokensFields,
    #[serde(flatten)]
    text: TextFields,
}

/// The tokens of a text.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Tokenized {
    count: usize,
    /// Tokens that a prompt and its completion may have together.
    max_model_len: usize,
    tokens: Vec<TokenItem>,
    token_strs: Option<Vec<String>>,
}

/// The id of a token, or with `with_pieces` an object.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
enum TokenItem {
    Id(u32),
    Piece { id: u32, piece: TokenPiece },
}

/// The text of a token, or its bytes if they are not whole characters.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
enum TokenPiece {
    Text(String),
    Bytes(Vec<u8>),
}

/// Tokens to be made a text.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct DetokenizeRequest {
    model: Option<String>,
    tokens: Vec<u32>,
}

/// The text of tokens.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Detokenized {
    prompt: String,
}

/// The special tokens and the chat template.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TokenizerInfo {
    bos_token: Option<String>,
    eos_token: Option<String>,
    pad_token: Option<String>,
    /// Jinja.
    chat_template: Option<String>,
    vocab_size: usize,
    /// Whether a text starts with BOS.
    add_bos_token: bool,
}

/// What is tokenised.
enum Source {
    Text(String, EncodeOptions),
    Conversation(Box<Conversation>),
}

impl TextFields {
    fn read(self) -> Result<Source, ApiError> {
        let (text, adds) = match (self.prompt, self.content) {
            (Some(text), None) => (text, true),
            (None, Some(text)) => (text, false),
            _ => return Err(one_of_several()),
        };
        if text.len() > MOST_BYTES {
            let message = format!("the text has {} bytes; at most {MOST_BYTES} can be tokenised", text.len());
            return Err(ApiError::param("prompt", message));
        }
        let add_special = self.add_special_tokens.or(self.add_special).unwrap_or(adds);
        Ok(Source::Text(text, EncodeOptions { add_special, parse_special: self.parse_special.unwrap_or(true) }))
    }
}

/// The tokens of a text or of a conversation.
#[utoipa::path(
    post,
    path = "/tokenize",
    request_body = TokenizeRequest,
    responses((status = 200, body = Tokenized), (status = "4XX", body = ErrorBody))
)]
pub(crate) async fn tokenize(State(app): State<App>, mut fields: Fields) -> Result<Response, ApiError> {
    let model = app.model_of(&fields).await?;
    let shown: TokensFields = fields.read()?;
    let (source, ignored, paths) = if fields.has("messages") {
        if fields.has("prompt") || fields.has("content") {
            return Err(one_of_several());
        }
        let (conversation, ignored, paths) = chat::conversation_of(&model, fields)?;
        (Source::Conversation(Box::new(conversation)), ignored, paths)
    } else {
        let text: TextFields = fields.read()?;
        (text.read()?, fields.judge(policy::NO_REPLY, model.app().options.strict)?, Paths::new("prompt"))
    };
    fields::check_strict(&ignored, model.app().options.strict)?;
    let tokenized = blocking(move || {
        let tokenizer = tokenizer(&model)?;
        let tokens = match source {
            Source::Text(text, options) => tokenizer.encode(&text, options).map_err(EngineError::from),
            Source::Conversation(mut conversation) => {
                conversation.prepare_images(&model)?;
                prompt(&model, *conversation).and_then(|text| model.engine.tokens(&text))
            }
        };
        let tokens = tokens.map_err(|error| paths.error(error))?;
        let text = |&token: &u32| tokenizer.token_text(token).unwrap_or_default().to_owned();
        let token_strs = (shown.return_token_strs == Some(true)).then(|| tokens.iter().map(text).collect());
        let item = |&id: &u32| match shown.with_pieces {
            Some(true) => TokenItem::Piece { id, piece: piece(tokenizer, id) },
            _ => TokenItem::Id(id),
        };
        let items = tokens.iter().map(item).collect();
        Ok(Tokenized { count: tokens.len(), max_model_len: model.engine.context(), tokens: items, token_strs })
    });
    let mut response = Json(tokenized.await?).into_response();
    response.headers_mut().extend(fields::ignored_header(&ignored));
    Ok(response)
}

fn one_of_several() -> ApiError {
    ApiError::param("prompt", "send prompt (or content), a text, or messages, a conversation")
}

fn piece(tokenizer: &Tokenizer, id: u32) -> TokenPiece {
    let bytes = tokenizer.token_bytes(id).unwrap_or_default().to_vec();
    String::from_utf8(bytes).map_or_else(|error| TokenPiece::Bytes(error.into_bytes()), TokenPiece::Text)
}

/// The prompt that a chat would run.
fn prompt(model: &ServedModel, Conversation { chat, options, .. }: Conversation) -> Result<Prompt, EngineError> {
    Ok(model.engine.converse(chat, options)?.prompt().clone())
}

/// The text of tokens.
#[utoipa::path(
    post,
    path = "/detokenize",
    request_body = DetokenizeRequest,
    responses((status = 200, body = Detokenized), (status = "4XX", body = ErrorBody))
)]
pub(crate) async fn detokenize(State(app): State<App>, mut fields: Fields) -> Result<Response, ApiError> {
    let DetokenizeRequest { model, tokens } = fields.read()?;
    let ignored = fields.judge(policy::NO_REPLY, app.options.strict)?;
    let model = app.model(model.as_deref()).await?;
    let detokenized = blocking(move || {
        let text = tokenizer(&model)?.decode(&tokens, false);
        let prompt = text.map_err(|error| ApiError::param("tokens", error.to_string()))?;
        Ok(Json(Detokenized { prompt }))
    });
    let mut response = detokenized.await?.into_response();
    response.headers_mut().extend(fields::ignored_header(&ignored));
    Ok(response)
}

/// Special tokens and the chat template, in the form that lm-eval's remote tokenizer reads.
#[utoipa::path(
    get, path = "/tokenizer_info",
    responses((status = 200, body = TokenizerInfo), (status = "4XX", body = ErrorBody))
)]
pub(crate) async fn info(
    State(app): State<App>,
    Query(query): Query<ModelQuery>,
) -> Result<Json<TokenizerInfo>, ApiError> {
    let model = app.loaded_model(query.model())?;
    let tokenizer = tokenizer(&model)?;
    let text = |id: Option<u32>| id.and_then(|id| tokenizer.token_text(id).ok()).map(str::to_owned);
    Ok(Json(TokenizerInfo {
        bos_token: text(tokenizer.bos()),
        eos_token: text(tokenizer.eos()),
        pad_token: text(tokenizer.padding()),
        chat_template: model.engine.template().map(|template| template.source().to_owned()),
        vocab_size: tokenizer.vocab_size(),
        add_bos_token: tokenizer.adds_bos(),
    }))
}

/// The prompt that `/v1/chat/completions` builds from a conversation with the chat template. A text does not show
/// whether a control token in it is text of a message: `/tokenize` returns the tokens.
#[utoipa::path(
    post,
    path = "/apply-template",
    request_body = ChatRequest,
    responses((status = 200, body = Detokenized), (status = "4XX", body = ErrorBody))
)]
pub(crate) async fn apply_template(State(app): State<App>, fields: Fields) -> Result<Response, ApiError> {
    let model = app.model_of(&fields).await?;
    let (mut conversation, ignored, paths) = chat::conversation_of(&model, fields)?;
    fields::check_strict(&ignored, model.app().options.strict)?;
    let rendered = blocking(move || {
        conversation.prepare_images(&model)?;
        match prompt(&model, conversation) {
            Ok(Prompt::Rendered { text, .. }) => Ok(Detokenized { prompt: text }),
            Ok(_) => {
                let message = "the prompt of the conversation is not a text";
                Err(ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, message))
            }
            Err(error) => Err(paths.error(error)),
        }
    });
    let mut response = Json(rendered.await?).into_response();
    response.headers_mut().extend(fields::ignored_header(&ignored));
    Ok(response)
}

fn tokenizer(model: &ServedModel) -> Result<&Tokenizer, ApiError> {
    let none = |error: gristmill_engine::Error| ApiError::new(StatusCode::NOT_FOUND, error.to_string());
    model.engine.model().tokenizer().map_err(none)
}
