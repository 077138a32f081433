//! The endpoint: its fields, and how they become a request.

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use gristmill_engine::{ConverseOptions, Grammar};
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::write::{ChatCompletion, ChatWriter};
use crate::error::{ApiError, ErrorBody, Paths};
use crate::fields::Fields;
use crate::handler;
use crate::images::Images;
use crate::limit::{BudgetFields, TokenLimit};
use crate::models::ServedModel;
use crate::openai::common::{self, CommonFields, logprobs};
use crate::openai::format::{FormatFields, ResponseFormat};
use crate::openai::messages::{ChatMessage, messages};
use crate::openai::template;
use crate::openai::tools::{ChatTool, NamePlace, ToolsRead};
use crate::openai::traces::TraceFields;
use crate::policy;
use crate::request::{ApiRequest, Conversation, Input};
use crate::sampling::{SamplingFields, SettingFields};
use crate::state::App;
use crate::stream::StreamEvent;
use crate::tenant::Tenant;
use crate::thinking::ThinkingFields;

/// A conversation to be answered.
#[derive(Debug, Deserialize, ToSchema)]
#[expect(dead_code, reason = "it describes JSON to clients, and its parts are read one by one")]
pub(crate) struct ChatRequest {
    #[serde(flatten)]
    common: CommonFields,
    #[serde(flatten)]
    settings: SettingFields,
    #[serde(flatten)]
    sampling: SamplingFields,
    #[serde(flatten)]
    format: FormatFields,
    #[serde(flatten)]
    budget: BudgetFields,
    #[serde(flatten)]
    chat: ChatFields,
    #[serde(flatten)]
    thinking: ThinkingFields,
    #[serde(flatten)]
    traces: TraceFields,
}

/// Fields that only requests for a chat have.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct ChatFields {
    messages: Vec<ChatMessage>,
    /// Tools that the model may call.
    tools: Option<Vec<ChatTool>>,
    /// `auto`, `none`, `required` (or `any`), `{"type": "function", "function": {"name": …}}`, or `{"type":
    /// "allowed_tools", "allowed_tools": {"mode": …, "tools": […]}}`. A required call follows the schema of its tool.
    tool_choice: Option<Value>,
    /// Whether a reply may have several calls; true by default.
    parallel_tool_calls: Option<bool>,
    /// The most tokens to generate. Without it, or with -1: until the context is full.
    #[serde(alias = "max_completion_tokens", alias = "n_predict")]
    #[schema(value_type = Option<i64>, minimum = -1)]
    max_tokens: Option<TokenLimit>,
    response_format: Option<ResponseFormat>,
    /// Return the log-probability of each token.
    logprobs: Option<bool>,
    /// Also return the log-probabilities of this number of most likely tokens.
    #[schema(maximum = 20)]
    top_logprobs: Option<usize>,
    /// A chat template (Jinja) in place of the model's, if the server was started with `--allow-chat-template`.
    chat_template: Option<String>,
    /// Whether the last message, an assistant's, is continued instead of answered.
    continue_final_message: Option<bool>,
    /// Whether a reply is started, which only a message that is continued can do without.
    add_generation_prompt: Option<bool>,
}

/// Answers a conversation.
#[utoipa::path(
    post,
    path = "/v1/chat/completions",
    request_body = ChatRequest,
    responses(
        (status = 200, content((ChatCompletion = "application/json"), (StreamEvent = "text/event-stream"))),
        (status = "4XX", body = ErrorBody),
        (status = "5XX", body = ErrorBody)
    )
)]
pub(crate) async fn serve(
    State(app): State<App>,
    Extension(tenant): Extension<Tenant>,
    fields: Fields,
) -> Result<Response, ApiError> {
    handler::serve(app, tenant, fields, read).await
}

/// The conversation of a request, and the paths of fields that change nothing. Other endpoints show the prompt that
/// this endpoint builds from it.
pub(crate) fn conversation_of(
    model: &ServedModel,
    fields: Fields,
) -> Result<(Conversation, Vec<String>, Paths), ApiError> {
    let ApiRequest { input, ignored, paths, .. } = request(model, fields)?;
    match input {
        Input::Conversation(conversation) => Ok((*conversation, ignored, paths)),
        Input::Texts { .. } => Err(ApiError::param("messages", "messages is missing")),
    }
}

/// What a request of this interface runs.
pub(crate) fn request(model: &ServedModel, fields: Fields) -> Result<ApiRequest, ApiError> {
    read(model, fields).map(|(request, _)| request)
}

fn read(model: &ServedModel, mut fields: Fields) -> Result<(ApiRequest, ChatWriter), ApiError> {
    let common: CommonFields = fields.read()?;
    let sampling = SamplingFields::read(&mut fields)?;
    let format: FormatFields = fields.read()?;
    let mut chat: ChatFields = fields.read()?;
    let budget: BudgetFields = fields.read()?;
    let template = template::allowed(model, chat.chat_template.take())?;
    let thinking: ThinkingFields = fields.read()?;
    let traces: TraceFields = fields.read()?;
    let mut paths = common::paths(&fields, "messages");
    let mut ignored = fields.judge(policy::CHATS, model.app().options.strict)?;
    let mut settings = sampling.settings(model)?;
    settings.stop = common.stops()?;
    settings.max_tokens = chat.max_tokens.and_then(TokenLimit::tokens);
    settings.logprobs = logprobs(chat.logprobs == Some(true), chat.top_logprobs, "logprobs to be true")?;
    settings.routing = traces.asked(model)?;
    let own_format = chat.response_format.clone().map(ResponseFormat::asked).transpose()?.flatten();
    let grammar = format.grammar(own_format, &mut paths)?;
    let reasoning_tokens = budget.tokens().or(thinking.budget());
    let images = Images::of(model);
    let mut conversation = chat.conversation(thinking, grammar, images, &mut paths, &mut ignored)?;
    conversation.options.reasoning_tokens = reasoning_tokens;
    conversation.chat.template = template;
    let request = common.request(Input::Conversation(Box::new(conversation)), settings, ignored, paths)?;
    Ok((request, ChatWriter::new(model.clone(), common.streamed_usage(), traces.token_ids())))
}

impl ChatFields {
    fn conversation(
        self,
        thinking: ThinkingFields,
        grammar: Option<Grammar>,
        mut images: Images,
        paths: &mut Paths,
        ignored: &mut Vec<String>,
    ) -> Result<Conversation, ApiError> {
        let tools = ToolsRead::of_chat(self.tools.unwrap_or_default())?;
        let choice = self.tool_choice.as_ref();
        let chosen = tools.chosen(choice, NamePlace::Nested, grammar.is_some(), paths, ignored)?;
        let is_prefix = self.messages.last().is_some_and(ChatMessage::is_prefix);
        let continues = self.continue_final_message.unwrap_or(is_prefix);
        if self.add_generation_prompt == Some(continues) {
            let message = "a reply is started, or the last message continued: one of this field and continue_final_message is true";
            return Err(ApiError::param("add_generation_prompt", message));
        }
        let mut chat = thinking.chat(messages(self.messages, &mut images)?)?;
        chat.continues = continues;
        chat.tools = chosen.tools;
        let parallel_calls = self.parallel_tool_calls != Some(false);
        let options =
            ConverseOptions { tool_choice: chosen.choice, parallel_calls, grammar, ..ConverseOptions::default() };
        Ok(Conversation { chat, options, images: images.into_list(), schemas: chosen.schemas })
    }
}
