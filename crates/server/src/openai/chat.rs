//! `/v1/chat/completions`.

use axum::extract::State;
use axum::response::sse::Event;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use gristmill_engine::engine::{Finish, Logprob, Piece};
use gristmill_engine::{Chat, Request};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::finish_reason;
use super::messages::{ChatMessage, messages};
use super::settings::{MOST_LOGPROBS, POLICY, Settings, choices};
use super::usage::Usage;
use crate::access::Tenant;
use crate::body::Object;
use crate::error::{ApiError, ErrorBody};
use crate::fields;
use crate::generation::{Choice, Choices, id};
use crate::state::{App, seconds};
use crate::stream::{self, Writer};

/// A conversation to be answered.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ChatRequest {
    #[serde(flatten)]
    settings: Settings,
    #[serde(flatten)]
    chat: ChatFields,
}

/// What only requests for a chat have.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
struct ChatFields {
    messages: Vec<ChatMessage>,
    /// The most tokens to generate. Without it: until the context is full.
    #[serde(alias = "max_completion_tokens")]
    #[schema(minimum = 1)]
    max_tokens: Option<usize>,
    /// Tell the log-probability of each token.
    logprobs: Option<bool>,
    /// Tell those of so many of the likeliest tokens too.
    #[schema(maximum = 20)]
    top_logprobs: Option<usize>,
    /// Variables of the chat template.
    chat_template_kwargs: Option<Map<String, Value>>,
    /// For models whose template has it; `none` turns thinking off.
    reasoning_effort: Option<String>,
}

/// The reply.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ChatCompletion {
    #[serde(flatten)]
    head: Head,
    choices: Vec<ChatChoice>,
    usage: Usage,
}

/// One event of a reply in events.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ChatChunk<'a> {
    #[serde(flatten)]
    head: &'a Head,
    choices: Vec<ChunkChoice>,
    /// In the event before the last, if `stream_options.include_usage` asks for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Usage>,
}

/// What every part of a reply begins with.
#[derive(Debug, Clone, Serialize, ToSchema)]
struct Head {
    id: String,
    /// `chat.completion` or `chat.completion.chunk`.
    object: &'static str,
    /// Seconds since 1970.
    created: u64,
    model: String,
}

#[derive(Debug, Serialize, ToSchema)]
struct ChatChoice {
    index: usize,
    message: AssistantMessage,
    logprobs: Option<ChatLogprobs>,
    /// `stop` or `length`.
    finish_reason: Option<&'static str>,
}

#[derive(Debug, Serialize, ToSchema)]
struct AssistantMessage {
    /// `assistant`.
    role: &'static str,
    content: Option<String>,
    /// Always null: this server refuses with errors.
    refusal: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
struct ChunkChoice {
    index: usize,
    delta: Delta,
    logprobs: Option<ChatLogprobs>,
    finish_reason: Option<&'static str>,
}

#[derive(Debug, Default, Serialize, ToSchema)]
struct Delta {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
struct ChatLogprobs {
    content: Vec<TokenLogprob>,
    refusal: Option<Vec<TokenLogprob>>,
}

/// A token with its natural logarithm of a probability, before penalties and temperature.
#[derive(Debug, Serialize, ToSchema)]
struct TokenLogprob {
    #[serde(flatten)]
    token: TokenBytes,
    top_logprobs: Vec<TokenBytes>,
}

#[derive(Debug, Serialize, ToSchema)]
struct TokenBytes {
    /// Its text, in which bytes that are not UTF-8 are U+FFFD.
    token: String,
    logprob: f32,
    bytes: Vec<u8>,
}

/// Answers a conversation.
#[utoipa::path(
    post,
    path = "/v1/chat/completions",
    request_body = ChatRequest,
    responses((status = 200, body = ChatCompletion), (status = "4XX", body = ErrorBody), (status = "5XX", body = ErrorBody))
)]
pub(crate) async fn serve(
    State(app): State<App>,
    Extension(Tenant(tenant)): Extension<Tenant>,
    Object(object): Object,
) -> Result<Response, ApiError> {
    let asked = ChatRequest { settings: fields::read(&object)?, chat: fields::read(&object)? };
    let known = [fields::names::<Settings>(), fields::names::<ChatFields>()];
    let ignored = fields::judge(&object, &known, POLICY, app.options.strict)?;
    app.check_model(asked.settings.model.as_deref())?;
    let n = asked.settings.choices()?;
    let (streams, streams_usage) = (asked.settings.streams(), asked.settings.streams_usage());
    let request = Request { tenant, ..asked.request(&app)? };
    let choices = Choices::start(&app, choices(&request, n).collect()).await?;
    let header = fields::ignored_header(&ignored).into_iter().collect::<Vec<_>>();
    let head = |object| Head { id: id("chatcmpl"), object, created: seconds(), model: app.options.name.clone() };
    let mut response = if streams {
        let (head, finishes) = (head("chat.completion.chunk"), vec![None; n]);
        stream::respond(choices, Events { app: app.clone(), head, usage: streams_usage, finishes })
    } else {
        let completed = choices.collect().await?;
        Json(ChatCompletion::new(&app, head("chat.completion"), completed)).into_response()
    };
    response.headers_mut().extend(header);
    Ok(response)
}

impl ChatRequest {
    fn request(self, app: &App) -> Result<Request, ApiError> {
        let ChatRequest { settings, chat } = self;
        let mut variables = chat.chat_template_kwargs.unwrap_or_default();
        let thinking = chat.reasoning_effort.as_deref().filter(|&effort| effort == "none").map(|_| false);
        if let Some(effort) = chat.reasoning_effort {
            variables.entry("reasoning_effort").or_insert(Value::String(effort));
        }
        let conversation = Chat { messages: messages(chat.messages)?, thinking, variables };
        let mut request = Request::new(conversation);
        settings.apply(&mut request, &app.options.sampling)?;
        request.max_tokens = chat.max_tokens;
        request.logprobs = match (chat.logprobs.unwrap_or(false), chat.top_logprobs) {
            (false, Some(n)) if n > 0 => {
                return Err(ApiError::param("top_logprobs", "top_logprobs needs logprobs to be true"));
            }
            (_, Some(n)) if n > MOST_LOGPROBS => {
                let message = format!("top_logprobs is {n}; at most {MOST_LOGPROBS} are told");
                return Err(ApiError::param("top_logprobs", message));
            }
            (true, n) => Some(n.unwrap_or(0)),
            (false, _) => None,
        };
        Ok(request)
    }
}

impl ChatCompletion {
    fn new(app: &App, head: Head, completed: Vec<Choice>) -> ChatCompletion {
        let finishes: Vec<Finish> = completed.iter().filter_map(|choice| choice.finish).collect();
        let usage = Usage::new(&finishes, completed.len());
        let choice = |(index, choice): (usize, Choice)| ChatChoice {
            index,
            logprobs: ChatLogprobs::new(app, &choice.logprobs),
            message: AssistantMessage { role: "assistant", content: Some(choice.text), refusal: None },
            finish_reason: choice.finish.map(|finish| finish_reason(finish.reason)),
        };
        ChatCompletion { head, choices: completed.into_iter().enumerate().map(choice).collect(), usage }
    }
}

impl ChatLogprobs {
    fn new(app: &App, logprobs: &[Logprob]) -> Option<ChatLogprobs> {
        let one = |logprob: &Logprob| TokenLogprob {
            token: TokenBytes::new(app, logprob.token, logprob.logprob),
            top_logprobs: logprob.top.iter().map(|&(token, logprob)| TokenBytes::new(app, token, logprob)).collect(),
        };
        (!logprobs.is_empty()).then(|| ChatLogprobs { content: logprobs.iter().map(one).collect(), refusal: None })
    }
}

impl TokenBytes {
    fn new(app: &App, token: u32, logprob: f32) -> TokenBytes {
        let bytes = app.token_bytes(token).to_vec();
        TokenBytes { token: String::from_utf8_lossy(&bytes).into_owned(), logprob, bytes }
    }
}

/// A reply in events.
struct Events {
    app: App,
    head: Head,
    /// Whether to send the usage.
    usage: bool,
    finishes: Vec<Option<Finish>>,
}

impl Events {
    fn chunk(&self, choice: ChunkChoice) -> Event {
        stream::json(&ChatChunk { head: &self.head, choices: vec![choice], usage: None })
    }
}

impl Writer for Events {
    fn begin(&mut self) -> Vec<Event> {
        let delta = || Delta { role: Some("assistant"), content: Some(String::new()) };
        let first = |index| self.chunk(ChunkChoice { index, delta: delta(), logprobs: None, finish_reason: None });
        (0..self.finishes.len()).map(first).collect()
    }

    fn piece(&mut self, index: usize, piece: Piece) -> Vec<Event> {
        let mut events = Vec::new();
        let logprobs = ChatLogprobs::new(&self.app, piece.logprob.as_slice());
        if !piece.text.is_empty() || logprobs.is_some() {
            let delta = Delta { role: None, content: Some(piece.text) };
            events.push(self.chunk(ChunkChoice { index, delta, logprobs, finish_reason: None }));
        }
        if let Some(finish) = piece.finish {
            self.finishes[index] = Some(finish);
            let finish_reason = Some(finish_reason(finish.reason));
            let last = ChunkChoice { index, delta: Delta::default(), logprobs: None, finish_reason };
            events.push(self.chunk(last));
        }
        events
    }

    fn end(&mut self) -> Vec<Event> {
        let finishes: Vec<Finish> = self.finishes.iter().flatten().copied().collect();
        let usage = self.usage.then(|| Usage::new(&finishes, finishes.len()));
        let usage =
            usage.map(|usage| stream::json(&ChatChunk { head: &self.head, choices: Vec::new(), usage: Some(usage) }));
        usage.into_iter().chain([Event::default().data("[DONE]")]).collect()
    }

    fn error(&mut self, error: &ApiError) -> Vec<Event> {
        vec![stream::json(&error.body())]
    }
}
