//! `/v1/chat/completions`.

use axum::extract::State;
use axum::response::sse::Event;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use gristmill_engine::Request;
use gristmill_engine::engine::{Logprob, Piece};
use gristmill_engine::reply::{ParsedReply, Reply, ReplyEvent, ReplyForm};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::finish_reason;
use super::format::{FormatFields, ResponseFormat};
use super::logprobs::TokenLogprob;
use super::messages::{ChatMessage, FunctionCall, ToolCall, conversation, messages};
use super::settings::{POLICY, Settings, check_prompt, choices, logprobs};
use super::tools::{Tool, ToolForm, Tools, tool_choice};
use super::usage::Usage;
use crate::access::Tenant;
use crate::body::Object;
use crate::error::{ApiError, ErrorBody};
use crate::fields;
use crate::generation::{self, Choice, Choices, Outcome, call_id, id};
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
    /// The text is JSON. A keyword of a schema that is not enforced is refused with its path.
    response_format: Option<ResponseFormat>,
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

/// Answers a conversation.
#[utoipa::path(
    post,
    path = "/v1/chat/completions",
    request_body = ChatRequest,
    responses((status = 200, content((ChatCompletion = "application/json"), (stream::StreamEvent = "text/event-stream"))), (status = "4XX", body = ErrorBody), (status = "5XX", body = ErrorBody))
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
    let receipt = asked.settings.receipt();
    let (request, form) = asked.request(&app, &mut ignored).await?;
    fields::check_strict(&ignored, app.options.strict)?;
    let request = Request { tenant, ..request };
    check_prompt(&app, &request, n).await?;
    let choices = Choices::start(&app, choices(&request, n).collect(), receipt).await?;
    let header = fields::ignored_header(&ignored).into_iter().collect::<Vec<_>>();
    let head = |object| Head { id: id("chatcmpl"), object, created: seconds(), model: app.options.name.clone() };
    let mut response = if streams {
        let readers = (0..n).map(|_| (form.parser(), 0)).collect();
        let events = Events { app: app.clone(), head: head("chat.completion.chunk"), usage: streams_usage, readers };
        stream::respond(&app, choices, events)
    } else {
        let (completed, outcome) = choices.collect(&app).await?;
        let usage = Usage::new(outcome, n);
        Json(ChatCompletion::new(&app, head("chat.completion"), completed, &form, usage)).into_response()
    };
    response.headers_mut().extend(header);
    Ok(response)
}

impl ChatRequest {
    /// The request for one choice, and how its text is read. Adds what changes nothing to `ignored`.
    async fn request(self, app: &App, ignored: &mut Vec<String>) -> Result<(Request, ReplyForm), ApiError> {
        let ChatRequest { settings, format, chat } = self;
        let logprobs = logprobs(chat.logprobs == Some(true), chat.top_logprobs, "logprobs to be true")?;
        let tools = Tools::read(chat.tools.unwrap_or_default(), ToolForm::Nested)?;
        let choice = tool_choice(&chat.tool_choice.unwrap_or_default(), ToolForm::Nested)?;
        let (tools, options) =
            tools.options(choice, format.grammar(chat.response_format)?, chat.parallel_tool_calls, ignored);
        let conversation =
            conversation(messages(chat.messages)?, tools, chat.chat_template_kwargs, chat.reasoning_effort);
        let (mut request, form) = generation::converse(app, conversation, options).await?;
        settings.apply(&mut request, &app.options.sampling)?;
        (request.max_tokens, request.logprobs) = (chat.max_tokens, logprobs);
        Ok((request, form))
    }
}

impl ChatCompletion {
    fn new(app: &App, head: Head, completed: Vec<Choice>, form: &ReplyForm, usage: Usage) -> ChatCompletion {
        let choice = |(index, choice): (usize, Choice)| {
            let ParsedReply { reasoning, content, calls } = form.parse(&choice.text);
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
        let content = || logprobs.iter().map(|logprob| TokenLogprob::new(app, logprob)).collect();
        (!logprobs.is_empty()).then(|| ChatLogprobs { content: content(), refusal: None })
    }
}

/// A reply in events.
struct Events {
    app: App,
    head: Head,
    /// Whether to send the usage.
    usage: bool,
    /// Of each choice, with its number of calls so far.
    readers: Vec<(Reply, usize)>,
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
        (0..self.readers.len()).map(first).collect()
    }

    fn piece(&mut self, index: usize, piece: Piece) -> Vec<Event> {
        let read = generation::events(&mut self.readers[index].0, &piece.text, piece.finish.is_some());
        let mut deltas: Vec<Delta> = read.into_iter().map(|event| self.delta(index, event)).collect();
        let mut logprobs = ChatLogprobs::new(&self.app, piece.logprob.as_slice());
        if deltas.is_empty() && logprobs.is_some() {
            deltas.push(Delta { content: Some(String::new()), ..Delta::default() });
        }
        let chunk = |delta| self.chunk(ChunkChoice { index, delta, logprobs: logprobs.take(), finish_reason: None });
        let mut events: Vec<Event> = deltas.into_iter().map(chunk).collect();
        if let Some(finish) = piece.finish {
            let finish_reason = Some(finish_reason(finish.reason, self.readers[index].0.has_calls()));
            let last = ChunkChoice { index, delta: Delta::default(), logprobs: None, finish_reason };
            events.push(self.chunk(last));
        }
        events
    }

    fn end(&mut self, outcome: Outcome) -> Vec<Event> {
        let usage = self.usage.then(|| Usage::new(outcome, self.readers.len()));
        let usage =
            usage.map(|usage| stream::json(&ChatChunk { head: &self.head, choices: Vec::new(), usage: Some(usage) }));
        usage.into_iter().chain([Event::default().data("[DONE]")]).collect()
    }

    fn error(&mut self, error: &ApiError) -> Vec<Event> {
        vec![stream::json(&error.body())]
    }
}
