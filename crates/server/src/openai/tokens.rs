//! The tokenizer and the chat template, in the shapes of vLLM and llama.cpp.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use gristmill_engine::engine::EngineError;
use gristmill_engine::tokenizer::{EncodeOptions, Tokenizer};
use gristmill_engine::{Chat, Prompt};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::messages::{ChatMessage, messages};
use super::tools::{ChatTool, ToolsRead};
use crate::blocking::blocking;
use crate::error::{ApiError, ErrorBody, Paths};
use crate::fields::Fields;
use crate::state::App;

/// The most bytes of a text that is tokenised here. A text of spaces alone takes a third of a second then.
const MOST_BYTES: usize = 1 << 20;

/// A text or a conversation to be tokenised; one of both.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct TokenizeRequest {
    model: Option<String>,
    /// A text of 1 MiB at most.
    prompt: Option<String>,
    /// A conversation, which becomes a text by the chat template.
    messages: Option<Vec<ChatMessage>>,
    /// Add the tokens that the model wants around a text, such as BOS; true by default.
    add_special_tokens: Option<bool>,
    /// Tell how the vocabulary writes each token.
    return_token_strs: Option<bool>,
}

/// The tokens of a text.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Tokenized {
    count: usize,
    /// Tokens that a prompt and its completion may have together.
    max_model_len: usize,
    tokens: Vec<u32>,
    token_strs: Option<Vec<String>>,
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
    /// Whether a text begins with BOS.
    add_bos_token: bool,
}

/// A conversation to be written as a prompt.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct TemplateRequest {
    messages: Vec<ChatMessage>,
    /// Tools that the model may call.
    tools: Option<Vec<ChatTool>>,
    /// Variables of the chat template.
    chat_template_kwargs: Option<Map<String, Value>>,
}

/// The tokens of a text or of a conversation.
#[utoipa::path(
    post,
    path = "/tokenize",
    request_body = TokenizeRequest,
    responses((status = 200, body = Tokenized), (status = "4XX", body = ErrorBody))
)]
pub(crate) async fn tokenize(State(app): State<App>, mut fields: Fields) -> Result<Json<Tokenized>, ApiError> {
    let TokenizeRequest { model, prompt, messages: conversation, add_special_tokens, return_token_strs } =
        fields.read()?;
    app.check_model(model.as_deref())?;
    let text = match (prompt, conversation) {
        (Some(text), None) if text.len() > MOST_BYTES => {
            let message = format!("the text has {} bytes; at most {MOST_BYTES} are tokenised at a time", text.len());
            return Err(ApiError::param("prompt", message));
        }
        (Some(text), None) => Text::Plain(text),
        (None, Some(conversation)) => Text::Chat(Chat::new(messages(conversation)?)),
        _ => return Err(ApiError::param("prompt", "give either prompt, a text, or messages, a conversation")),
    };
    blocking(move || {
        let tokenizer = tokenizer(&app)?;
        let tokens = match text {
            Text::Plain(text) => {
                let add_special = add_special_tokens.unwrap_or(true);
                let encoded = tokenizer.encode(&text, EncodeOptions { add_special, parse_special: false });
                encoded.map_err(EngineError::from)?
            }
            Text::Chat(chat) => {
                let rendered = app.engine.render(&chat).map(Prompt::Rendered);
                let tokens = rendered.and_then(|prompt| app.engine.tokens(&prompt));
                tokens.map_err(|error| Paths::new("messages").error(error))?
            }
        };
        let text = |&token: &u32| tokenizer.token_text(token).unwrap_or_default().to_owned();
        let token_strs = (return_token_strs == Some(true)).then(|| tokens.iter().map(text).collect());
        Ok(Json(Tokenized { count: tokens.len(), max_model_len: app.engine.context(), tokens, token_strs }))
    })
    .await
}

enum Text {
    Plain(String),
    Chat(Chat),
}

/// The text of tokens.
#[utoipa::path(
    post,
    path = "/detokenize",
    request_body = DetokenizeRequest,
    responses((status = 200, body = Detokenized), (status = "4XX", body = ErrorBody))
)]
pub(crate) async fn detokenize(State(app): State<App>, mut fields: Fields) -> Result<Json<Detokenized>, ApiError> {
    let DetokenizeRequest { model, tokens } = fields.read()?;
    app.check_model(model.as_deref())?;
    blocking(move || {
        let text = tokenizer(&app)?.decode(&tokens, false);
        let prompt = text.map_err(|error| ApiError::param("tokens", error.to_string()))?;
        Ok(Json(Detokenized { prompt }))
    })
    .await
}

/// Special tokens and the chat template, in the form that lm-eval's remote tokenizer reads.
#[utoipa::path(
    get, path = "/tokenizer_info",
    responses((status = 200, body = TokenizerInfo), (status = "4XX", body = ErrorBody))
)]
pub(crate) async fn info(State(app): State<App>) -> Result<Json<TokenizerInfo>, ApiError> {
    let tokenizer = tokenizer(&app)?;
    let text = |id: Option<u32>| id.and_then(|id| tokenizer.token_text(id).ok()).map(str::to_owned);
    Ok(Json(TokenizerInfo {
        bos_token: text(tokenizer.bos()),
        eos_token: text(tokenizer.eos()),
        pad_token: text(tokenizer.padding()),
        chat_template: app.engine.model().template().map(str::to_owned),
        vocab_size: tokenizer.vocab_size(),
        add_bos_token: tokenizer.adds_bos(),
    }))
}

/// The prompt of a conversation, as the chat template writes it.
#[utoipa::path(
    post,
    path = "/apply-template",
    request_body = TemplateRequest,
    responses((status = 200, body = Detokenized), (status = "4XX", body = ErrorBody))
)]
pub(crate) async fn apply_template(State(app): State<App>, mut fields: Fields) -> Result<Json<Detokenized>, ApiError> {
    let TemplateRequest { messages: conversation, tools, chat_template_kwargs } = fields.read()?;
    let mut chat = Chat::new(messages(conversation)?);
    chat.tools = ToolsRead::of_chat(tools.unwrap_or_default())?.tools.into_list();
    chat.variables = chat_template_kwargs.unwrap_or_default();
    blocking(move || {
        let rendered = app.engine.render(&chat);
        Ok(Json(Detokenized { prompt: rendered.map_err(|error| Paths::new("messages").error(error))? }))
    })
    .await
}

fn tokenizer(app: &App) -> Result<&Tokenizer, ApiError> {
    let none = |error: gristmill_engine::Error| ApiError::new(StatusCode::NOT_FOUND, error.to_string());
    app.engine.model().tokenizer().map_err(none)
}
