//! The endpoints: their fields, and how they become a request.

use axum::extract::State;
use axum::response::Response;
use axum::{Extension, Json};
use gristmill_engine::template::Role;
use gristmill_engine::{ConverseOptions, Grammar, ToolChoice, closed_schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::blocks::Block;
use super::messages::InputMessage;
use super::tools::{InputTool, InputToolChoice};
use super::write::{MessageReply, MessageWriter};
use crate::blocking::blocking;
use crate::content::Content;
use crate::error::{AnthropicError, AnthropicErrorBody, ApiError, GrammarPath, Overflow, Paths};
use crate::fields::Fields;
use crate::handler;
use crate::images::Images;
use crate::limit::TokenLimit;
use crate::models::ServedModel;
use crate::policy;
use crate::request::{ApiRequest, Conversation, Input, check_stops};
use crate::sampling::{REPETITION_PENALTY, SamplingFields, SettingFields};
use crate::state::App;
use crate::stream::StreamEvent;
use crate::tenant::Tenant;
use crate::thinking::ThinkingFields;

/// A conversation to be answered.
#[derive(Debug, Deserialize, ToSchema)]
#[expect(dead_code, reason = "it describes JSON to clients, and its parts are read one by one")]
pub(crate) struct MessagesRequest {
    #[serde(flatten)]
    prompt: PromptFields,
    #[serde(flatten)]
    thinking: ThinkingFields,
    #[serde(flatten)]
    reply: ReplyFields,
    #[serde(flatten)]
    settings: SettingFields,
    #[serde(flatten)]
    sampling: SamplingFields,
}

/// A conversation whose tokens are counted.
#[derive(Debug, Deserialize, ToSchema)]
#[expect(dead_code, reason = "it describes JSON to clients, and its parts are read one by one")]
pub(crate) struct CountRequest {
    #[serde(flatten)]
    prompt: PromptFields,
    #[serde(flatten)]
    thinking: ThinkingFields,
}

/// The fields that make the prompt.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct PromptFields {
    model: String,
    messages: Vec<InputMessage>,
    /// Instructions to the model before the conversation.
    system: Option<Content<Block>>,
    /// Tools that the model may call.
    tools: Option<Vec<InputTool>>,
    tool_choice: Option<InputToolChoice>,
    output_config: Option<OutputConfig>,
    /// The older name of `output_config.format`.
    output_format: Option<OutputFormat>,
}

/// The fields that make the reply.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct ReplyFields {
    /// The most tokens to generate; -1: until the context is full.
    #[schema(value_type = i64, minimum = -1)]
    max_tokens: TokenLimit,
    /// The text ends before the first of these.
    stop_sequences: Option<Vec<String>>,
    /// Send server-sent events while the reply is generated.
    #[expect(dead_code, reason = "the handler reads it first")]
    stream: Option<bool>,
    /// Return in `usage.gristmill.receipt` all that `gristmill replay` needs to generate the same again.
    receipt: Option<bool>,
}

/// How the model answers.
#[derive(Debug, Default, Deserialize, ToSchema)]
struct OutputConfig {
    /// The same as `reasoning_effort`.
    effort: Option<String>,
    format: Option<OutputFormat>,
}

/// The form of the text, if the reply is no call. It holds from the first token on, so the model does not think.
#[derive(Debug, Deserialize, ToSchema)]
struct OutputFormat {
    /// `json_schema`.
    r#type: String,
    /// A keyword that is not enforced is refused with its path.
    schema: Option<Value>,
}

/// The number of tokens.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Count {
    input_tokens: usize,
}

/// Answers a conversation.
#[utoipa::path(
    post,
    path = "/v1/messages",
    request_body = MessagesRequest,
    responses(
        (status = 200, content((MessageReply = "application/json"), (StreamEvent = "text/event-stream"))),
        (status = "4XX", body = AnthropicErrorBody),
        (status = "5XX", body = AnthropicErrorBody)
    )
)]
pub(crate) async fn messages(
    State(app): State<App>,
    Extension(tenant): Extension<Tenant>,
    fields: Result<Fields, ApiError>,
) -> Result<Response, AnthropicError> {
    Ok(handler::serve(app, tenant, fields?, read).await?)
}

/// Counts the tokens of a prompt.
#[utoipa::path(
    post,
    path = "/v1/messages/count_tokens",
    request_body = CountRequest,
    responses(
        (status = 200, body = Count),
        (status = "4XX", body = AnthropicErrorBody),
        (status = "5XX", body = AnthropicErrorBody)
    )
)]
pub(crate) async fn count_tokens(
    State(app): State<App>,
    fields: Result<Fields, ApiError>,
) -> Result<Json<Count>, AnthropicError> {
    let mut fields = fields?;
    let prompt: PromptFields = fields.read()?;
    let thinking: ThinkingFields = fields.read()?;
    let mut ignored = fields.judge(policy::MESSAGES, app.options.strict)?;
    let model = app.model(Some(&prompt.model)).await?;
    let mut paths = paths();
    let mut conversation = prompt.conversation(thinking, Images::of(&model), &mut paths, &mut ignored)?;
    crate::fields::check_strict(&ignored, model.app().options.strict)?;
    let tokens = blocking(move || {
        conversation.prepare_images(&model)?;
        let Conversation { chat, options, .. } = conversation;
        let conversation = model.engine.converse(chat, options);
        let tokens = conversation.and_then(|conversation| model.engine.tokens(conversation.prompt()));
        tokens.map_err(|error| paths.error(error))
    });
    Ok(Json(Count { input_tokens: tokens.await?.len() }))
}

/// The paths of settings, and Anthropic's words.
fn paths() -> Paths {
    Paths { overflow: Overflow::Anthropic, ..Paths::new("messages") }
}

fn read(model: &ServedModel, mut fields: Fields) -> Result<(ApiRequest, MessageWriter), ApiError> {
    let prompt: PromptFields = fields.read()?;
    let ReplyFields { max_tokens, stop_sequences, receipt, .. } = fields.read()?;
    let sampling = SamplingFields::read(&mut fields)?;
    let repetition_penalty = fields.spelling(&REPETITION_PENALTY);
    let thinking: ThinkingFields = fields.read()?;
    let mut ignored = fields.judge(policy::MESSAGES, model.app().options.strict)?;
    let mut paths = Paths { repetition_penalty, ..paths() };
    let mut settings = sampling.settings(model)?;
    settings.max_tokens = max_tokens.tokens();
    settings.stop = stop_sequences.unwrap_or_default();
    check_stops("stop_sequences", &settings.stop)?;
    let writer = MessageWriter::new(model.clone(), settings.max_tokens, settings.stop.clone());
    let conversation = prompt.conversation(thinking, Images::of(model), &mut paths, &mut ignored)?;
    let request = ApiRequest {
        input: Input::Conversation(Box::new(conversation)),
        n: 1,
        settings,
        receipt: receipt == Some(true),
        ignored,
        paths,
    };
    Ok((request, writer))
}

impl PromptFields {
    /// The conversation. Sets the path of its grammar, and adds the paths of what changes nothing to `ignored`.
    fn conversation(
        self,
        thinking: ThinkingFields,
        mut images: Images,
        paths: &mut Paths,
        ignored: &mut Vec<String>,
    ) -> Result<Conversation, ApiError> {
        let OutputConfig { effort, format } = self.output_config.unwrap_or_default();
        let mut grammar = None;
        for (format, at) in [(self.output_format, "output_format"), (format, "output_config.format")] {
            if let Some(format) = format {
                grammar = Some(format.grammar(at)?);
                paths.grammar = GrammarPath::Field(format!("{at}.schema"));
            }
        }
        let (tools, stricts) = super::tools::tools(self.tools.unwrap_or_default(), ignored)?;
        let choice = self.tool_choice.unwrap_or_default();
        let tool_choice = choice.read()?;
        let parallel_calls = choice.parallel_calls();
        if tool_choice == ToolChoice::Auto && grammar.is_none() {
            // A call that the model chooses is checked to be JSON, and may differ from the schema.
            ignored.extend(stricts);
        }
        let reasoning_tokens = thinking.budget();
        let effort = effort.map(|effort| ("output_config.effort", effort));
        let messages = super::messages::messages(self.messages, self.system, &tools, &mut images)?;
        let mut chat = thinking.chat_with(messages, effort)?;
        let schemas;
        (chat.tools, schemas) = tools.chosen(&tool_choice, paths);
        // The words that the assistant has started with, unless it has to call a tool.
        let started = chat.messages.last().is_some_and(|last| last.role == Role::Assistant && last.calls.is_empty());
        chat.continues = started && matches!(tool_choice, ToolChoice::Auto | ToolChoice::None);
        let options =
            ConverseOptions { tool_choice, parallel_calls, reasoning_tokens, grammar, ..ConverseOptions::default() };
        Ok(Conversation { chat, options, images: images.into_list(), schemas })
    }
}

impl OutputFormat {
    /// The grammar of the format in the field `at`.
    fn grammar(self, at: &str) -> Result<Grammar, ApiError> {
        match (self.r#type.as_str(), self.schema) {
            ("json_schema", Some(schema)) => Ok(Grammar::JsonSchema(closed_schema(schema))),
            ("json_schema", None) => {
                Err(ApiError::param(format!("{at}.schema"), "the type json_schema needs the field schema"))
            }
            (other, _) => {
                let message = format!("{other:?} is not a type of format; use json_schema");
                Err(ApiError::param(format!("{at}.type"), message))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn efforts_are_those_that_templates_know() {
        let effort = |effort: &str| {
            let messages = json!([{"role": "user", "content": "a"}]);
            let prompt = json!({"model": "m", "messages": messages, "output_config": {"effort": effort}});
            let prompt: PromptFields = serde_json::from_value(prompt).expect("fields");
            let thinking = ThinkingFields::default();
            let read = prompt.conversation(thinking, Images::none(), &mut paths(), &mut Vec::new());
            read.map(|read| read.chat.variables["reasoning_effort"].clone())
        };
        for (asked, known) in
            [("low", "low"), ("medium", "medium"), ("high", "high"), ("xhigh", "high"), ("max", "high")]
        {
            assert_eq!(effort(asked).expect("known"), known);
        }
        assert_eq!(effort("huge").expect_err("unknown").param.as_deref(), Some("output_config.effort"));
    }
}
