//! The endpoint: its fields, and how they become a request.

use std::collections::BTreeMap;

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use gristmill_engine::{ConverseOptions, Grammar};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::continued::{Continued, PREVIOUS};
use super::input::{ADDITIONAL_TOOLS, InputItem};
use super::object::ResponseObject;
use super::write::ResponseWriter;
use crate::content::Content;
use crate::error::{ApiError, ErrorBody, Paths};
use crate::fields::{Fields, read_at};
use crate::handler;
use crate::images::Images;
use crate::limit::{BudgetFields, TokenLimit};
use crate::models::ServedModel;
use crate::openai::common::{self, CommonFields, logprobs};
use crate::openai::format::{FormatFields, TextFormat};
use crate::openai::namespaces::Namespaces;
use crate::openai::tools::{NamePlace, ResponseTool, ToolsRead};
use crate::policy;
use crate::request::{ApiRequest, Conversation, Input};
use crate::sampling::{SamplingFields, SettingFields};
use crate::state::App;
use crate::stream::StreamEvent;
use crate::tenant::Tenant;
use crate::thinking::ThinkingFields;

/// A conversation to be answered. The server keeps it with its reply, unless `store` is false.
#[derive(Debug, Deserialize, ToSchema)]
#[expect(dead_code, reason = "it describes JSON to clients, and its parts are read one by one")]
pub(crate) struct ResponsesRequest {
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
    fields: ResponseFields,
    #[serde(flatten)]
    state: StateFields,
    #[serde(flatten)]
    thinking: ThinkingFields,
}

/// Fields that only requests for a response have.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct ResponseFields {
    /// A text of the user, or items.
    input: Content<InputItem>,
    /// Instructions to the model before the conversation.
    pub(super) instructions: Option<String>,
    /// Tools that the model may call.
    pub(super) tools: Option<Vec<ResponseTool>>,
    /// `auto`, `none`, `required`, `{"type": "function", "name": …}`, or `{"type": "allowed_tools", "mode": …, "tools":
    /// […]}`. A required call follows the schema of its tool.
    pub(super) tool_choice: Option<Value>,
    /// Whether a reply may have several calls; true by default.
    pub(super) parallel_tool_calls: Option<bool>,
    /// The most tokens to generate. Without it, or with -1: until the context is full.
    #[schema(value_type = Option<i64>, minimum = -1)]
    pub(super) max_output_tokens: Option<TokenLimit>,
    pub(super) text: Option<TextOptions>,
    /// With `message.output_text.logprobs`, the log-probability of each token is returned. Others are ignored.
    include: Option<Vec<String>>,
    /// Also return the log-probabilities of this number of most likely tokens.
    #[schema(maximum = 20)]
    pub(super) top_logprobs: Option<usize>,
    /// `disabled`, or `auto`, which is ignored: a prompt that is longer than the context is refused, never cut.
    truncation: Option<String>,
    /// Only false.
    background: Option<bool>,
    /// Is a part of the reply.
    pub(super) metadata: Option<BTreeMap<String, String>>,
    /// Is a part of the reply.
    pub(super) user: Option<String>,
}

/// Fields of state, which are read one by one.
#[derive(Debug, Deserialize, ToSchema)]
#[expect(dead_code, reason = "it describes JSON to clients")]
struct StateFields {
    /// The response that this one continues: `input` has only the items after it. Instructions and tools are sent again.
    previous_response_id: Option<String>,
    /// Whether the server keeps the response; true by default.
    store: Option<bool>,
}

#[derive(Debug, Clone, Default, Deserialize, Serialize, ToSchema)]
pub(super) struct TextOptions {
    pub(super) format: Option<TextFormat>,
}

const LOGPROBS: &str = "message.output_text.logprobs";

/// Answers a conversation.
#[utoipa::path(
    post,
    path = "/v1/responses",
    request_body = ResponsesRequest,
    responses(
        (status = 200, content((ResponseObject = "application/json"), (StreamEvent = "text/event-stream"))),
        (status = "4XX", body = ErrorBody),
        (status = "5XX", body = ErrorBody)
    )
)]
pub(crate) async fn serve(
    State(app): State<App>,
    Extension(tenant): Extension<Tenant>,
    fields: Fields,
) -> Result<Response, ApiError> {
    let of = tenant.clone();
    handler::serve(app, tenant, fields, move |model, fields| read(model, &of, fields)).await
}

/// What a request of this interface runs.
pub(crate) fn request(model: &ServedModel, tenant: &Tenant, fields: Fields) -> Result<ApiRequest, ApiError> {
    read(model, tenant, fields).map(|(request, _)| request)
}

fn read(model: &ServedModel, tenant: &Tenant, mut fields: Fields) -> Result<(ApiRequest, ResponseWriter), ApiError> {
    let common: CommonFields = fields.read()?;
    let sampling = SamplingFields::read(&mut fields)?;
    let format: FormatFields = fields.read()?;
    let continued = Continued::read(model.app(), tenant, &mut fields)?;
    let own: ResponseFields = fields.read().map_err(|error| continued.renamed(error))?;
    let thinking: ThinkingFields = fields.read()?;
    let budget: BudgetFields = fields.read()?;
    let paths = common::paths(&fields, "input");
    let mut paths = Paths { max_tokens: "max_output_tokens", logprobs: "top_logprobs", ..paths };
    let judged = fields.judge(policy::RESPONSES, model.app().options.strict);
    let judged = judged.map_err(|error| continued.renamed(error))?.into_iter();
    let mut ignored: Vec<String> =
        judged.filter(|path| continued.is_own(path)).map(|path| continued.renamed_path(&path)).collect();
    if common.n()? > 1 {
        return Err(ApiError::param("n", "a response is one choice; send several requests"));
    }
    own.check_state(&mut ignored)?;
    let mut settings = sampling.settings(model)?;
    settings.stop = common.stops()?;
    settings.max_tokens = own.max_output_tokens.and_then(TokenLimit::tokens);
    settings.logprobs = own.logprobs(&mut ignored)?;
    let own_format = own.text.as_ref().and_then(|text| text.format.as_ref());
    let grammar = format.grammar(own_format.map(TextFormat::asked).transpose()?.flatten(), &mut paths)?;
    let sampling = settings.sampling.unwrap_or(model.sampling);
    let object = ResponseObject::new(model, &own, &continued, &thinking, &sampling);
    let reasoning_tokens = budget.tokens().or(thinking.budget());
    let (mut conversation, namespaces) =
        own.conversation(thinking, grammar, &continued, Images::of(model), &mut paths, &mut ignored)?;
    ignored.retain(|path| !path.starts_with(PREVIOUS));
    conversation.options.reasoning_tokens = reasoning_tokens;
    let writer = ResponseWriter::new(model.clone(), object, namespaces, continued);
    let request = common.request(Input::Conversation(Box::new(conversation)), settings, ignored, paths)?;
    Ok((request, writer))
}

impl ResponseFields {
    /// The tools, and those that items add to them, as Codex sends its own. The newest of one name counts.
    fn tools(&mut self, continued: &Continued, ignored: &mut Vec<String>) -> Result<ToolsRead, ApiError> {
        let mut tools = ToolsRead::of_response(self.tools.take().unwrap_or_default(), "tools")?;
        if let Content::Parts(items) = &mut self.input {
            for (index, item) in items.iter_mut().enumerate() {
                if item.r#type.as_deref() == Some(ADDITIONAL_TOOLS) {
                    let at = format!("{}.tools", continued.path(index));
                    let more = item.tools.take().unwrap_or_else(|| json!([]));
                    let more = read_at(more, &at, policy::RESPONSES, ignored)?;
                    tools.extend(ToolsRead::of_response(more, &at)?);
                }
            }
        }
        Ok(tools)
    }

    fn conversation(
        mut self,
        thinking: ThinkingFields,
        grammar: Option<Grammar>,
        continued: &Continued,
        mut images: Images,
        paths: &mut Paths,
        ignored: &mut Vec<String>,
    ) -> Result<(Conversation, Namespaces), ApiError> {
        let tools = self.tools(continued, ignored)?;
        let choice = self.tool_choice.as_ref();
        let chosen = tools.chosen(choice, NamePlace::Flat, grammar.is_some(), paths, ignored)?;
        let messages =
            super::input::messages(self.input, self.instructions, |item| continued.path(item), &mut images, ignored)?;
        let mut chat = thinking.chat(messages)?;
        chat.tools = chosen.tools;
        let parallel_calls = self.parallel_tool_calls != Some(false);
        let options =
            ConverseOptions { tool_choice: chosen.choice, parallel_calls, grammar, ..ConverseOptions::default() };
        let images = images.into_list();
        Ok((Conversation { chat, options, images, schemas: chosen.schemas }, chosen.namespaces))
    }

    /// Refuses what only a server with state does.
    fn check_state(&self, ignored: &mut Vec<String>) -> Result<(), ApiError> {
        if self.background == Some(true) {
            let message = "this server runs nothing in the background; leave background out, and read the reply from this \
                           request";
            return Err(ApiError::param("background", message).with_code("unsupported"));
        }
        match self.truncation.as_deref() {
            None | Some("disabled") => Ok(()),
            Some("auto") => {
                ignored.push("truncation".to_owned());
                Ok(())
            }
            Some(other) => {
                let message =
                    format!("{other:?} is not a truncation; use disabled: a long prompt is refused, never truncated");
                Err(ApiError::param("truncation", message))
            }
        }
    }

    /// Alternatives returned with each token, if log-probabilities are requested.
    fn logprobs(&self, ignored: &mut Vec<String>) -> Result<Option<usize>, ApiError> {
        let mut asked = false;
        for (index, include) in self.include.iter().flatten().enumerate() {
            match include.as_str() {
                LOGPROBS => asked = true,
                other => ignored.push(format!("include[{index}].{other}")),
            }
        }
        logprobs(asked, self.top_logprobs, &format!("include to have {LOGPROBS}"))
    }
}
