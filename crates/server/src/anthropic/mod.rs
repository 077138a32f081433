//! Anthropic's interface: `/v1/messages`.

mod input;
mod output;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use gristmill_engine::reply::ReplyForm;
use gristmill_engine::{Chat, ConverseOptions, Request, SamplingOptions, ToolChoice as Choice};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::access::Tenant;
use crate::body::Object;
use crate::error::{AnthropicError, AnthropicErrorBody, ApiError};
use crate::fields::{self, Policy};
use crate::generation::{self, Choices};
use crate::openai::settings::check_stops;
use crate::state::App;
use crate::stream;
use crate::tokens::blocking;
use input::{Blocks, InputMessage, InputTool};
use output::{Events, MessageReply};

/// A conversation to be answered.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
pub(crate) struct MessagesRequest {
    model: String,
    messages: Vec<InputMessage>,
    /// The most tokens to generate.
    #[schema(minimum = 1)]
    max_tokens: usize,
    /// What the model is told before the conversation.
    #[schema(value_type = Option<Blocks>)]
    system: Option<Value>,
    /// What the model may call.
    #[schema(value_type = Option<Vec<InputTool>>)]
    tools: Option<Vec<Value>>,
    tool_choice: Option<ToolChoice>,
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
    /// Tell in `usage.gristmill.receipt` all that `gristmill replay` needs to generate the same again.
    receipt: Option<bool>,
}

/// What a prompt is made of, to be counted.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
pub(crate) struct CountRequest {
    model: String,
    messages: Vec<InputMessage>,
    #[schema(value_type = Option<Blocks>)]
    system: Option<Value>,
    #[schema(value_type = Option<Vec<InputTool>>)]
    tools: Option<Vec<Value>>,
    tool_choice: Option<ToolChoice>,
    thinking: Option<Thinking>,
}

/// What is asked for of tools.
#[derive(Debug, Default, Deserialize, Serialize, ToSchema)]
struct ToolChoice {
    /// `auto`, `any`, `tool`, or `none`.
    r#type: String,
    /// For `tool`.
    name: Option<String>,
    /// Whether a reply has one call at most.
    disable_parallel_tool_use: Option<bool>,
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

const POLICY: Policy = Policy {
    harmless: &["cache_control", "metadata", "service_tier"],
    refused: &[
        ("container", "this server runs no code"),
        ("mcp_servers", "this server asks no other"),
        ("output_config", "leave it out"),
        ("output_format", "leave it out"),
    ],
};

/// Answers a conversation.
#[utoipa::path(
    post,
    path = "/v1/messages",
    request_body = MessagesRequest,
    responses(
        (status = 200, content((MessageReply = "application/json"), (stream::StreamEvent = "text/event-stream"))),
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
    let mut ignored = fields::judge(&object, &[fields::names::<MessagesRequest>()], POLICY, app.options.strict)?;
    app.check_model(Some(&asked.model))?;
    let (streams, receipt) = (asked.stream == Some(true), asked.receipt == Some(true));
    let stops = asked.stop_sequences.clone().unwrap_or_default();
    let (request, form) = asked.request(&app, &mut ignored).await?;
    fields::check_strict(&ignored, app.options.strict)?;
    let choices = Choices::start(&app, vec![Request { tenant, ..request }], receipt).await;
    // Grammars come from tools alone.
    let choices = choices.map_err(|error| error.renamed(&[("response_format", "tools")]))?;
    let reply = MessageReply::new(&app);
    let header = fields::ignored_header(&ignored).into_iter().collect::<Vec<_>>();
    let mut response = if streams {
        stream::respond(&app, choices, Events::new(reply, stops, form.parser()))
    } else {
        let (mut completed, outcome) = choices.collect(&app).await?;
        let text = completed.pop().unwrap_or_default().text;
        Json(reply.complete(form.parse(&text), outcome, &stops)).into_response()
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
    let CountRequest { model, messages, system, tools, tool_choice, thinking } = fields::read(&object)?;
    fields::judge(&object, &[fields::names::<CountRequest>()], POLICY, app.options.strict)?;
    app.check_model(Some(&model))?;
    let (tools, _) = input::tools(tools.unwrap_or_default())?;
    let chat = Chat { thinking: on(thinking)?, tools, ..input::chat(messages, system)? };
    let options = tool_choice.unwrap_or_default().options()?;
    let (request, _) = generation::converse(&app, chat, options).await?;
    let tokens = blocking(move || Ok(app.engine.tokens(&request.prompt)?)).await?;
    Ok(Json(Count { input_tokens: tokens.len() }))
}

impl ToolChoice {
    fn options(self) -> Result<ConverseOptions, ApiError> {
        let tool_choice = match (self.r#type.as_str(), self.name) {
            ("" | "auto", _) => Choice::Auto,
            ("none", _) => Choice::None,
            ("any", _) => Choice::Required,
            ("tool", Some(name)) => Choice::Among(vec![name]),
            ("tool", None) => {
                return Err(ApiError::param("tool_choice.name", "the type tool needs the name of a tool"));
            }
            (other, _) => {
                let message = format!("{other:?} is not a choice of tools; use auto, any, tool or none");
                return Err(ApiError::param("tool_choice.type", message));
            }
        };
        let parallel_calls = self.disable_parallel_tool_use != Some(true);
        Ok(ConverseOptions { tool_choice, parallel_calls, grammar: None })
    }
}

impl MessagesRequest {
    /// The request, and how its text is read. Adds what changes nothing to `ignored`.
    async fn request(self, app: &App, ignored: &mut Vec<String>) -> Result<(Request, ReplyForm), ApiError> {
        let stop = self.stop_sequences.unwrap_or_default();
        check_stops("stop_sequences", &stop)?;
        let (tools, others) = input::tools(self.tools.unwrap_or_default())?;
        let chat = Chat { thinking: on(self.thinking)?, tools, ..input::chat(self.messages, self.system)? };
        ignored.extend(others);
        let options = self.tool_choice.unwrap_or_default().options()?;
        let (request, form) = generation::converse(app, chat, options).await?;
        let defaults = &app.options.sampling;
        let sampling = SamplingOptions {
            temperature: self.temperature.unwrap_or(defaults.temperature),
            top_p: self.top_p.unwrap_or(defaults.top_p),
            top_k: self.top_k.unwrap_or(defaults.top_k),
            ..*defaults
        };
        Ok((Request { sampling, stop, max_tokens: Some(self.max_tokens), ..request }, form))
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
