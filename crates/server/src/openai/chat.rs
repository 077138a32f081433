//! `/v1/chat/completions`.

use axum::extract::State;
use axum::response::sse::Event;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use gristmill_engine::engine::{Finish, Logprob, Piece};
use gristmill_engine::reply::ReplyEvent;
use gristmill_engine::{Chat, Request};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::finish_reason;
use super::format::FormatFields;
use super::messages::{ChatMessage, FunctionCall, Tool, ToolCall, functions, messages};
use super::settings::{MOST_LOGPROBS, POLICY, Settings, choices};
use super::usage::Usage;
use crate::access::Tenant;
use crate::body::Object;
use crate::error::{ApiError, ErrorBody};
use crate::fields;
use crate::generation::{Choice, Choices, call_id, id};
use crate::reply::{self, Form, Parts, Reader, Wanted};
use crate::state::{App, seconds};
use crate::stream::{self, Writer};

/// A conversation to be answered.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ChatRequest {
    #[serde(flatten)]
    settings: Settings,
    #[serde(flatten)]
    format: FormatFields,
    #[serde(flatten)]
    chat: ChatFields,
}

/// What only requests for a chat have.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
struct ChatFields {
    #[schema(value_type = Vec<ChatMessage>)]
    messages: Vec<Value>,
    /// What the model may call.
    #[schema(value_type = Option<Vec<Tool>>)]
    tools: Option<Vec<Value>>,
    /// `auto`, `none`, `required`, or `{"type": "function", "function": {"name": …}}`. A call that is asked for follows
    /// the schema of its tool.
    tool_choice: Option<Value>,
    /// Whether a reply may have several calls; true by default.
    parallel_tool_calls: Option<bool>,
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
    /// `stop`, `tool_calls`, or `length`.
    finish_reason: Option<&'static str>,
}

#[derive(Debug, Serialize, ToSchema)]
struct AssistantMessage {
    /// `assistant`.
    role: &'static str,
    content: Option<String>,
    /// Always null: this server refuses with errors.
    refusal: Option<String>,
    /// What the model thought.
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_calls: Option<Vec<ToolCall>>,
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
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_calls: Option<Vec<ToolCall>>,
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
    let [settings, format] = [fields::names::<Settings>(), fields::names::<FormatFields>()];
    let known = [settings, format, fields::names::<ChatFields>()];
    let asked =
        ChatRequest { settings: fields::read(&object)?, format: fields::read(&object)?, chat: fields::read(&object)? };
    let mut ignored = fields::judge(&object, &known, POLICY, app.options.strict)?;
    app.check_model(asked.settings.model.as_deref())?;
    let n = asked.settings.choices()?;
    let (streams, streams_usage) = (asked.settings.streams(), asked.settings.streams_usage());
    let (request, form) = asked.request(&app, &mut ignored).await?;
    fields::check_strict(&ignored, app.options.strict)?;
    let request = Request { tenant, ..request };
    let choices = Choices::start(&app, choices(&request, n).collect()).await?;
    let header = fields::ignored_header(&ignored).into_iter().collect::<Vec<_>>();
    let head = |object| Head { id: id("chatcmpl"), object, created: seconds(), model: app.options.name.clone() };
    let mut response = if streams {
        let (head, finishes) = (head("chat.completion.chunk"), vec![None; n]);
        let readers = (0..n).map(|_| (form.reader(&app), 0)).collect();
        stream::respond(choices, Events { app: app.clone(), head, usage: streams_usage, readers, finishes })
    } else {
        let completed = choices.collect().await?;
        Json(ChatCompletion::new(&app, head("chat.completion"), completed, &form)).into_response()
    };
    response.headers_mut().extend(header);
    Ok(response)
}

impl ChatRequest {
    /// The request for one choice, and how its text is read. Adds what changes nothing to `ignored`.
    async fn request(self, app: &App, ignored: &mut Vec<String>) -> Result<(Request, Form), ApiError> {
        let ChatRequest { settings, format, chat } = self;
        let logprobs = chat.logprobs()?;
        let mut variables = chat.chat_template_kwargs.unwrap_or_default();
        let thinking = chat.reasoning_effort.as_deref().filter(|&effort| effort == "none").map(|_| false);
        if let Some(effort) = chat.reasoning_effort {
            variables.entry("reasoning_effort").or_insert(Value::String(effort));
        }
        let (mut tools, others) = functions(chat.tools.unwrap_or_default())?;
        ignored.extend(others);
        let wanted = match (choice(chat.tool_choice)?, format.grammar()?) {
            (ToolChoice::Call(_), Some(_)) => {
                let message = "a call is asked for and response_format too; leave one of them out";
                return Err(ApiError::param("tool_choice", message));
            }
            (ToolChoice::Call(name), None) => Wanted::Call(name),
            (_, Some(grammar)) => Wanted::Grammar(grammar),
            (ToolChoice::Auto, None) => {
                // A call that the model chooses is checked to be JSON, and may differ from the schema.
                let strict = tools.iter().enumerate().filter(|(_, tool)| tool["function"]["strict"] == true);
                ignored.extend(strict.map(|(index, _)| format!("tools[{index}].function.strict")));
                Wanted::Anything
            }
            (ToolChoice::None, None) => {
                tools.clear();
                Wanted::Anything
            }
        };
        let conversation = Chat { messages: messages(chat.messages)?, thinking, variables };
        let several_calls = chat.parallel_tool_calls != Some(false);
        let (mut request, form) = reply::request(app, conversation, tools, wanted, several_calls).await?;
        settings.apply(&mut request, &app.options.sampling)?;
        (request.max_tokens, request.logprobs) = (chat.max_tokens, logprobs);
        Ok((request, form))
    }
}

impl ChatFields {
    fn logprobs(&self) -> Result<Option<usize>, ApiError> {
        match (self.logprobs.unwrap_or(false), self.top_logprobs) {
            (false, Some(n)) if n > 0 => Err(ApiError::param("top_logprobs", "top_logprobs needs logprobs to be true")),
            (_, Some(n)) if n > MOST_LOGPROBS => {
                let message = format!("top_logprobs is {n}; at most {MOST_LOGPROBS} are told");
                Err(ApiError::param("top_logprobs", message))
            }
            (true, n) => Ok(Some(n.unwrap_or(0))),
            (false, _) => Ok(None),
        }
    }
}

/// What is asked for of tools.
enum ToolChoice {
    Auto,
    None,
    /// One call, of this tool or of any.
    Call(Option<String>),
}

fn choice(choice: Option<Value>) -> Result<ToolChoice, ApiError> {
    let Some(choice) = choice else { return Ok(ToolChoice::Auto) };
    match (choice.as_str(), choice["type"].as_str(), choice["function"]["name"].as_str()) {
        (Some("auto"), ..) => Ok(ToolChoice::Auto),
        (Some("none"), ..) => Ok(ToolChoice::None),
        (Some("required"), ..) => Ok(ToolChoice::Call(None)),
        (None, Some("function"), Some(name)) => Ok(ToolChoice::Call(Some(name.to_owned()))),
        _ => {
            let form = r#"{"type": "function", "function": {"name": …}}"#;
            Err(ApiError::param("tool_choice", format!("tool_choice is auto, none, required, or {form}")))
        }
    }
}

impl ChatCompletion {
    fn new(app: &App, head: Head, completed: Vec<Choice>, form: &Form) -> ChatCompletion {
        let finishes: Vec<Finish> = completed.iter().filter_map(|choice| choice.finish).collect();
        let usage = Usage::new(&finishes, completed.len());
        let choice = |(index, choice): (usize, Choice)| {
            let Parts { reasoning, content, calls } = form.reader(app).parts(&choice.text);
            let has_calls = !calls.is_empty();
            let calls: Vec<ToolCall> = calls.into_iter().map(|call| tool_call(None, call)).collect();
            let message = AssistantMessage {
                role: "assistant",
                // A call needs no words.
                content: (!has_calls || !content.is_empty()).then_some(content),
                refusal: None,
                reasoning_content: (!reasoning.is_empty()).then_some(reasoning),
                tool_calls: has_calls.then_some(calls),
            };
            let finish_reason = choice.finish.map(|finish| finish_reason(finish.reason, has_calls));
            ChatChoice { index, message, logprobs: ChatLogprobs::new(app, &choice.logprobs), finish_reason }
        };
        ChatCompletion { head, choices: completed.into_iter().enumerate().map(choice).collect(), usage }
    }
}

/// A call for clients, in events with its number.
fn tool_call(index: Option<usize>, call: gristmill_engine::reply::ToolCall) -> ToolCall {
    let function = FunctionCall { name: call.name, arguments: call.arguments };
    ToolCall { index, id: call_id(), r#type: "function", function }
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
    /// Of each choice, with its number of calls so far.
    readers: Vec<(Reader, usize)>,
    finishes: Vec<Option<Finish>>,
}

impl Events {
    fn chunk(&self, choice: ChunkChoice) -> Event {
        stream::json(&ChatChunk { head: &self.head, choices: vec![choice], usage: None })
    }

    fn delta(&mut self, index: usize, event: ReplyEvent) -> Delta {
        match event {
            ReplyEvent::Reasoning(text) => Delta { reasoning_content: Some(text), ..Delta::default() },
            ReplyEvent::Content(text) => Delta { content: Some(text), ..Delta::default() },
            ReplyEvent::ToolCall(call) => {
                let calls = &mut self.readers[index].1;
                let call = tool_call(Some(*calls), call);
                *calls += 1;
                Delta { tool_calls: Some(vec![call]), ..Delta::default() }
            }
        }
    }
}

impl Writer for Events {
    fn begin(&mut self) -> Vec<Event> {
        let delta = || Delta { role: Some("assistant"), content: Some(String::new()), ..Delta::default() };
        let first = |index| self.chunk(ChunkChoice { index, delta: delta(), logprobs: None, finish_reason: None });
        (0..self.finishes.len()).map(first).collect()
    }

    fn piece(&mut self, index: usize, piece: Piece) -> Vec<Event> {
        let read = self.readers[index].0.read(&piece.text, piece.finish.is_some());
        let mut deltas: Vec<Delta> = read.into_iter().map(|event| self.delta(index, event)).collect();
        let mut logprobs = ChatLogprobs::new(&self.app, piece.logprob.as_slice());
        if deltas.is_empty() && logprobs.is_some() {
            deltas.push(Delta { content: Some(String::new()), ..Delta::default() });
        }
        let chunk = |delta| self.chunk(ChunkChoice { index, delta, logprobs: logprobs.take(), finish_reason: None });
        let mut events: Vec<Event> = deltas.into_iter().map(chunk).collect();
        if let Some(finish) = piece.finish {
            self.finishes[index] = Some(finish);
            let finish_reason = Some(finish_reason(finish.reason, self.readers[index].0.has_calls()));
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
