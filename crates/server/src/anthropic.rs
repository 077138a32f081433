//! Anthropic's interface: `/v1/messages`.

use axum::extract::State;
use axum::response::sse::Event;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use gristmill_engine::engine::{Finish, FinishReason, Piece};
use gristmill_engine::template::Message;
use gristmill_engine::{Chat, Prompt, Request, SamplingOptions};
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;

use crate::access::Tenant;
use crate::body::Object;
use crate::error::{AnthropicError, AnthropicErrorBody, ApiError};
use crate::fields::{self, Policy};
use crate::generation::{Choices, id};
use crate::openai::messages::Content;
use crate::openai::settings::check_stops;
use crate::state::App;
use crate::stream::{self, Writer};
use crate::tokens::blocking;

/// A conversation to be answered.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
pub(crate) struct MessagesRequest {
    model: String,
    messages: Vec<InputMessage>,
    /// The most tokens to generate.
    #[schema(minimum = 1)]
    max_tokens: usize,
    /// What the model is told before the conversation.
    system: Option<Content>,
    /// The text ends before the first of these.
    stop_sequences: Option<Vec<String>>,
    /// Send server-sent events while the reply is generated.
    stream: Option<bool>,
    /// Divides the logits; 0 always takes the most likely token.
    #[schema(minimum = 0)]
    temperature: Option<f32>,
    /// Keep the smallest set of tokens with at least this probability.
    #[schema(exclusive_minimum = 0, maximum = 1)]
    top_p: Option<f32>,
    /// Keep so many of the most likely tokens; 0 keeps all.
    top_k: Option<u32>,
    /// Whether the model shall think, for templates with that switch.
    thinking: Option<Thinking>,
}

/// What a prompt is made of, to be counted.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
pub(crate) struct CountRequest {
    model: String,
    messages: Vec<InputMessage>,
    system: Option<Content>,
    thinking: Option<Thinking>,
}

#[derive(Debug, Deserialize, Serialize, ToSchema)]
struct InputMessage {
    /// `user` or `assistant`.
    role: String,
    content: Content,
}

#[derive(Debug, Deserialize, Serialize, ToSchema)]
struct Thinking {
    /// `enabled`, `adaptive`, or `disabled`.
    r#type: String,
}

/// The number of tokens.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Count {
    input_tokens: usize,
}

/// The reply.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MessageReply {
    id: String,
    /// `message`.
    r#type: &'static str,
    /// `assistant`.
    role: &'static str,
    content: Vec<TextBlock>,
    model: String,
    /// `end_turn`, `max_tokens`, or `stop_sequence`.
    stop_reason: Option<&'static str>,
    /// The one that ended the text.
    stop_sequence: Option<String>,
    usage: MessageUsage,
}

#[derive(Debug, Serialize, ToSchema)]
struct TextBlock {
    /// `text`.
    r#type: &'static str,
    text: String,
}

#[derive(Debug, Clone, Copy, Default, Serialize, ToSchema)]
struct MessageUsage {
    /// Tokens of the prompt that were computed.
    input_tokens: usize,
    /// Always 0: every prompt is cached, at no price.
    cache_creation_input_tokens: usize,
    /// Tokens of the prompt whose state was in the prefix cache.
    cache_read_input_tokens: usize,
    output_tokens: usize,
}

const POLICY: Policy = Policy {
    harmless: &["cache_control", "metadata", "service_tier"],
    refused: &[
        ("container", "this server runs no code"),
        ("mcp_servers", "this server asks no other"),
        ("output_config", "leave it out"),
        ("output_format", "leave it out"),
        ("tool_choice", "leave it out"),
        ("tools", "leave it out"),
    ],
};

/// Answers a conversation.
#[utoipa::path(
    post,
    path = "/v1/messages",
    request_body = MessagesRequest,
    responses(
        (status = 200, body = MessageReply),
        (status = "4XX", body = AnthropicErrorBody),
        (status = "5XX", body = AnthropicErrorBody)
    )
)]
pub(crate) async fn messages(
    State(app): State<App>,
    Extension(Tenant(tenant)): Extension<Tenant>,
    object: Result<Object, ApiError>,
) -> Result<Response, AnthropicError> {
    let Object(object) = object?;
    let asked: MessagesRequest = fields::read(&object)?;
    let ignored = fields::judge(&object, &[fields::names::<MessagesRequest>()], POLICY, app.options.strict)?;
    app.check_model(Some(&asked.model))?;
    let streams = asked.stream == Some(true);
    let stops = asked.stop_sequences.clone().unwrap_or_default();
    let request = Request { tenant, ..asked.request(&app.options.sampling)? };
    let choices = Choices::start(&app, vec![request]).await?;
    let reply = MessageReply::new(&app);
    let header = fields::ignored_header(&ignored).into_iter().collect::<Vec<_>>();
    let mut response = if streams {
        stream::respond(choices, Events { reply, stops })
    } else {
        let choice = choices.collect().await?.pop().unwrap_or_default();
        Json(reply.complete(choice.text, choice.finish, &stops)).into_response()
    };
    response.headers_mut().extend(header);
    Ok(response)
}

/// Counts the tokens of a prompt.
#[utoipa::path(
    post,
    path = "/v1/messages/count_tokens",
    request_body = CountRequest,
    responses((status = 200, body = Count), (status = "4XX", body = AnthropicErrorBody))
)]
pub(crate) async fn count_tokens(
    State(app): State<App>,
    object: Result<Object, ApiError>,
) -> Result<Json<Count>, AnthropicError> {
    let Object(object) = object?;
    let CountRequest { model, messages, system, thinking } = fields::read(&object)?;
    fields::judge(&object, &[fields::names::<CountRequest>()], POLICY, app.options.strict)?;
    app.check_model(Some(&model))?;
    let chat = Chat { thinking: on(thinking)?, ..chat(messages, system)? };
    let tokens = blocking(move || Ok(app.engine.tokens(&Prompt::Chat(chat))?)).await?;
    Ok(Json(Count { input_tokens: tokens.len() }))
}

impl MessagesRequest {
    fn request(self, defaults: &SamplingOptions) -> Result<Request, ApiError> {
        let stop = self.stop_sequences.unwrap_or_default();
        check_stops("stop_sequences", &stop)?;
        let chat = Chat { thinking: on(self.thinking)?, ..chat(self.messages, self.system)? };
        let sampling = SamplingOptions {
            temperature: self.temperature.unwrap_or(defaults.temperature),
            top_p: self.top_p.unwrap_or(defaults.top_p),
            top_k: self.top_k.unwrap_or(defaults.top_k),
            ..*defaults
        };
        Ok(Request { sampling, stop, max_tokens: Some(self.max_tokens), ..Request::new(chat) })
    }
}

fn on(thinking: Option<Thinking>) -> Result<Option<bool>, ApiError> {
    match thinking.as_ref().map(|thinking| thinking.r#type.as_str()) {
        None => Ok(None),
        Some("enabled" | "adaptive") => Ok(Some(true)),
        Some("disabled") => Ok(Some(false)),
        Some(other) => {
            let message = format!("{other:?} is not a type of thinking; use enabled, adaptive or disabled");
            Err(ApiError::param("thinking.type", message))
        }
    }
}

fn chat(messages: Vec<InputMessage>, system: Option<Content>) -> Result<Chat, ApiError> {
    if messages.is_empty() {
        return Err(ApiError::param("messages", "messages is empty; give at least one"));
    }
    let system = system.map(|system| Ok(Message::new("system", system.text("system")?)));
    let messages = messages.into_iter().enumerate().map(|(index, message)| {
        let at = format!("messages[{index}]");
        if !["user", "assistant", "system"].contains(&message.role.as_str()) {
            let role = message.role;
            return Err(ApiError::param(
                format!("{at}.role"),
                format!("{role:?} is not a role; use user or assistant"),
            ));
        }
        Ok(Message::new(message.role, message.content.text(&format!("{at}.content"))?))
    });
    Ok(Chat::new(system.into_iter().chain(messages).collect::<Result<_, ApiError>>()?))
}

impl MessageUsage {
    fn new(finish: &Finish) -> MessageUsage {
        let usage = &finish.usage;
        MessageUsage {
            input_tokens: usage.prompt_tokens - usage.reused_tokens,
            cache_creation_input_tokens: 0,
            cache_read_input_tokens: usage.reused_tokens,
            output_tokens: usage.generated_tokens,
        }
    }
}

/// Why a generation ended, and the stop sequence that ended it.
fn stop_reason(finish: &Finish, stops: &[String]) -> (&'static str, Option<String>) {
    match finish.reason {
        FinishReason::Length => ("max_tokens", None),
        FinishReason::Stop => ("stop_sequence", finish.stop.and_then(|stop| stops.get(stop)).cloned()),
        _ => ("end_turn", None),
    }
}

impl MessageReply {
    /// Before the first token.
    fn new(app: &App) -> MessageReply {
        MessageReply {
            id: id("msg"),
            r#type: "message",
            role: "assistant",
            content: Vec::new(),
            model: app.options.name.clone(),
            stop_reason: None,
            stop_sequence: None,
            usage: MessageUsage::default(),
        }
    }

    fn complete(mut self, text: String, finish: Option<Finish>, stops: &[String]) -> MessageReply {
        self.content.push(TextBlock { r#type: "text", text });
        if let Some(finish) = finish {
            let (reason, sequence) = stop_reason(&finish, stops);
            (self.stop_reason, self.stop_sequence) = (Some(reason), sequence);
            self.usage = MessageUsage::new(&finish);
        }
        self
    }
}

/// A reply in events.
struct Events {
    reply: MessageReply,
    stops: Vec<String>,
}

/// An event of this name, which its data repeat as their type.
fn event(name: &str, mut data: serde_json::Value) -> Event {
    data["type"] = name.into();
    stream::json(&data).event(name)
}

impl Writer for Events {
    fn begin(&mut self) -> Vec<Event> {
        let block = json!({"index": 0, "content_block": {"type": "text", "text": ""}});
        vec![event("message_start", json!({"message": self.reply})), event("content_block_start", block)]
    }

    fn piece(&mut self, _: usize, piece: Piece) -> Vec<Event> {
        let mut events = Vec::new();
        if !piece.text.is_empty() {
            let delta = json!({"type": "text_delta", "text": piece.text});
            events.push(event("content_block_delta", json!({"index": 0, "delta": delta})));
        }
        if let Some(finish) = &piece.finish {
            let (reason, sequence) = stop_reason(finish, &self.stops);
            events.push(event("content_block_stop", json!({"index": 0})));
            let delta = json!({"stop_reason": reason, "stop_sequence": sequence});
            events.push(event("message_delta", json!({"delta": delta, "usage": MessageUsage::new(finish)})));
        }
        events
    }

    fn end(&mut self) -> Vec<Event> {
        vec![event("message_stop", json!({}))]
    }

    fn error(&mut self, error: &ApiError) -> Vec<Event> {
        vec![stream::json(&error.anthropic_body()).event("error")]
    }
}
