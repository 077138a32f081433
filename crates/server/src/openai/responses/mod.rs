//! `/v1/responses`, without state.

mod input;
mod object;
mod output;
mod stream;

use std::collections::BTreeMap;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use gristmill_engine::Request;
use gristmill_engine::reply::ReplyForm;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use self::input::Input;
use self::object::ResponseObject;
use self::output::Output;
pub(crate) use self::stream::ResponseEvent;
use super::format::{FormatFields, TextFormat};
use super::messages::conversation;
use super::settings::{POLICY, Settings, logprobs};
use super::tools::{ToolForm, Tools, tool_choice};
use crate::access::Tenant;
use crate::body::Object;
use crate::error::{ApiError, ErrorBody};
use crate::fields::{self, Policy};
use crate::generation::{self, Choices};
use crate::state::App;

/// A conversation to be answered. The server keeps neither it nor the reply: a request has all items.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ResponsesRequest {
    #[serde(flatten)]
    settings: Settings,
    #[serde(flatten)]
    format: FormatFields,
    #[serde(flatten)]
    fields: ResponseFields,
}

/// What only requests for a response have.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
struct ResponseFields {
    #[schema(value_type = Input)]
    input: Value,
    /// What the model is told before the conversation.
    instructions: Option<String>,
    /// What the model may call.
    #[schema(value_type = Option<Vec<ResponseTool>>)]
    tools: Option<Vec<Value>>,
    /// `auto`, `none`, `required`, or `{"type": "function", "name": …}`. A call that is asked for follows the schema of its
    /// tool.
    tool_choice: Option<Value>,
    /// Whether a reply may have several calls; true by default.
    parallel_tool_calls: Option<bool>,
    /// The most tokens to generate. Without it: until the context is full.
    #[schema(minimum = 1)]
    max_output_tokens: Option<usize>,
    text: Option<TextFields>,
    reasoning: Option<ReasoningFields>,
    /// With `message.output_text.logprobs`, the log-probability of each token is told. Others are ignored.
    include: Option<Vec<String>>,
    /// Tell those of so many of the likeliest tokens too.
    #[schema(maximum = 20)]
    top_logprobs: Option<usize>,
    /// `disabled`, or `auto`, which is ignored: a prompt that is longer than the context is refused, never cut.
    truncation: Option<String>,
    /// Only false: the server keeps no state.
    background: Option<bool>,
    /// Is a part of the reply.
    metadata: Option<BTreeMap<String, String>>,
    /// Is a part of the reply.
    user: Option<String>,
    /// Variables of the chat template.
    chat_template_kwargs: Option<Map<String, Value>>,
}

/// A tool.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ResponseTool {
    /// `function`; others are left out, and named in the header `x-gristmill-ignored`.
    r#type: String,
    name: String,
    description: Option<String>,
    /// A JSON schema.
    parameters: Option<Value>,
    /// Whether arguments follow the schema; they do in calls that are asked for.
    strict: Option<bool>,
}

#[derive(Debug, Clone, Default, Deserialize, Serialize, ToSchema)]
struct TextFields {
    format: Option<TextFormat>,
}

#[derive(Debug, Clone, Default, Deserialize, Serialize, ToSchema)]
struct ReasoningFields {
    /// For models whose template has it; `none` turns thinking off.
    effort: Option<String>,
}

const POLICY_OF_RESPONSES: Policy = Policy {
    harmless: POLICY.harmless,
    refused: &[
        ("conversation", "this server keeps no state; send the items of the conversation again in input"),
        ("function_call", "use tool_choice"),
        ("functions", "use tools"),
        ("grammar", "use guided_grammar, whose grammars are in Lark"),
        ("max_completion_tokens", "use max_output_tokens"),
        ("max_tokens", "use max_output_tokens"),
        ("messages", "use input"),
        ("previous_response_id", "this server keeps no state; send the items of the conversation again in input"),
        ("prompt", "this server keeps no prompts; send the text in instructions or input"),
        ("reasoning_effort", "use reasoning.effort"),
        ("response_format", "use text.format"),
    ],
};
/// Fields that only tools of OpenAI's and its cache look at.
const HARMLESS: &[&str] = &["max_tool_calls", "prompt_cache_options"];
const LOGPROBS: &str = "message.output_text.logprobs";
/// Fields of chats, and their names here.
const NAMES: [(&str, &str); 5] = [
    ("messages", "input"),
    ("prompt", "input"),
    ("max_tokens", "max_output_tokens"),
    ("response_format", "text.format"),
    ("logprobs", "top_logprobs"),
];

/// Answers a conversation.
#[utoipa::path(
    post,
    path = "/v1/responses",
    request_body = ResponsesRequest,
    responses((status = 200, content((ResponseObject = "application/json"), (crate::stream::StreamEvent = "text/event-stream"))), (status = "4XX", body = ErrorBody), (status = "5XX", body = ErrorBody))
)]
pub(crate) async fn serve(
    State(app): State<App>,
    Extension(Tenant(tenant)): Extension<Tenant>,
    Object(object): Object,
) -> Result<Response, ApiError> {
    let [settings, format] = [fields::names::<Settings>(), fields::names::<FormatFields>()];
    let known = [settings, format, fields::names::<ResponseFields>(), HARMLESS];
    let mut ignored = fields::judge(&object, &known, POLICY_OF_RESPONSES, app.options.strict)?;
    for (field, read) in [("text", fields::names::<TextFields>()), ("reasoning", fields::names::<ReasoningFields>())] {
        ignored.extend(others(&object, field, read));
    }
    let asked = ResponsesRequest {
        settings: fields::read(&object)?,
        format: fields::read(&object)?,
        fields: fields::read(&object)?,
    };
    app.check_model(asked.settings.model.as_deref())?;
    respond(&app, tenant, asked, ignored).await.map_err(|error| error.renamed(&NAMES))
}

async fn respond(
    app: &App,
    tenant: u64,
    asked: ResponsesRequest,
    mut ignored: Vec<String>,
) -> Result<Response, ApiError> {
    let (request, form) = asked.request(app, &mut ignored).await?;
    fields::check_strict(&ignored, app.options.strict)?;
    let object = ResponseObject::new(app, &asked, &request.sampling);
    let output = Output::new(form.parser());
    let mut choices = Choices::start(app, vec![Request { tenant, ..request }], asked.settings.receipt()).await?;
    let header = fields::ignored_header(&ignored).into_iter().collect::<Vec<_>>();
    let mut response = if asked.settings.streams() {
        stream::respond(app, choices, object, output)
    } else {
        let mut output = output;
        while let Some(next) = choices.next().await {
            let (_, piece) = next?;
            output.piece(app, &piece);
        }
        Json(object.end(output, choices.outcome(app))).into_response()
    };
    response.headers_mut().extend(header);
    Ok(response)
}

/// The paths of the fields in an object that are not read.
fn others(object: &Map<String, Value>, field: &str, read: &[&str]) -> Vec<String> {
    let fields = object.get(field).and_then(Value::as_object).into_iter().flatten();
    let others = fields.filter(|(name, value)| !value.is_null() && !read.contains(&name.as_str()));
    others.map(|(name, _)| format!("{field}.{name}")).collect()
}

impl ResponsesRequest {
    /// The request, and how its text is read. Adds what changes nothing to `ignored`.
    async fn request(&self, app: &App, ignored: &mut Vec<String>) -> Result<(Request, ReplyForm), ApiError> {
        let ResponsesRequest { settings, format, fields } = self;
        if settings.choices()? > 1 {
            return Err(ApiError::param("n", "a response is one choice; send several requests"));
        }
        fields.check_state(ignored)?;
        let logprobs = fields.logprobs(ignored)?;
        let text_format = fields.text.clone().and_then(|text| text.format).map(TextFormat::nested).transpose()?;
        let tools = Tools::read(fields.tools.clone().unwrap_or_default(), ToolForm::Flat)?;
        let choice = tool_choice(fields.tool_choice.as_ref().unwrap_or(&Value::Null), ToolForm::Flat)?;
        let grammar = format.clone().grammar(text_format)?;
        let (tools, options) = tools.options(choice, grammar, fields.parallel_tool_calls, ignored);
        let messages = input::messages(&fields.input, fields.instructions.as_deref(), ignored)?;
        let effort = fields.reasoning.as_ref().and_then(|reasoning| reasoning.effort.clone());
        let conversation = conversation(messages, tools, fields.chat_template_kwargs.clone(), effort);
        let (mut request, form) = generation::converse(app, conversation, options).await?;
        settings.apply(&mut request, &app.options.sampling)?;
        (request.max_tokens, request.logprobs) = (fields.max_output_tokens, logprobs);
        Ok((request, form))
    }
}

impl ResponseFields {
    /// Refuses what only a server with state does.
    fn check_state(&self, ignored: &mut Vec<String>) -> Result<(), ApiError> {
        if self.background == Some(true) {
            let message = "this server keeps no state and runs nothing in the background; leave background out, and read \
                           the reply from this request";
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
                    format!("{other:?} is not a truncation; use disabled: a long prompt is refused, never cut");
                Err(ApiError::param("truncation", message))
            }
        }
    }

    /// How many of the likeliest tokens are told beside each token, if at all.
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
