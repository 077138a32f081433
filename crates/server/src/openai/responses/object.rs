//! The reply.

use std::collections::BTreeMap;

use gristmill_engine::SamplingOptions;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::continued::Continued;
use super::endpoint::{ResponseFields, TextOptions};
use super::items::OutputItem;
use crate::error::ApiError;
use crate::limit::TokenLimit;
use crate::models::ServedModel;
use crate::openai::namespaces::Namespaces;
use crate::openai::tools::ResponseTool;
use crate::openai::usage::ResponseUsage;
use crate::reply::{Choice, Reply, random_digits};
use crate::state::seconds;
use crate::thinking::{Reasoning, ThinkingFields};

/// The reply, which repeats settings of the request.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct ResponseObject {
    id: String,
    /// `response`.
    object: &'static str,
    /// Seconds since 1970.
    created_at: u64,
    /// Seconds since 1970; null unless the reply is completed.
    completed_at: Option<u64>,
    /// `in_progress`, `completed`, `incomplete`, or `failed`.
    status: &'static str,
    error: Option<ResponseFailure>,
    incomplete_details: Option<IncompleteDetails>,
    model: String,
    output: Vec<OutputItem>,
    /// Null before the end.
    usage: Option<ResponseUsage>,
    /// Whether the server keeps it.
    store: bool,
    /// Always false.
    background: bool,
    /// The response that this one continues.
    previous_response_id: Option<String>,
    instructions: Option<String>,
    max_output_tokens: Option<usize>,
    metadata: BTreeMap<String, String>,
    parallel_tool_calls: bool,
    reasoning: Reasoning,
    temperature: f32,
    text: TextOptions,
    tool_choice: Value,
    tools: Vec<ResponseTool>,
    top_logprobs: usize,
    top_p: f32,
    /// Always `disabled`: a prompt that is longer than the context is refused.
    truncation: &'static str,
    user: Option<String>,
}

/// Why a reply failed.
#[derive(Debug, Clone, Serialize, ToSchema)]
struct ResponseFailure {
    /// `server_error`, or the code that a refusal has, such as `context_length_exceeded`.
    code: &'static str,
    message: String,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
struct IncompleteDetails {
    /// `max_output_tokens`: that many were generated, or the context is full.
    reason: &'static str,
}

impl ResponseObject {
    /// Before the first token.
    pub(super) fn new(
        model: &ServedModel,
        fields: &ResponseFields,
        continued: &Continued,
        thinking: &ThinkingFields,
        sampling: &SamplingOptions,
    ) -> ResponseObject {
        let format = fields.text.clone().and_then(|text| text.format).unwrap_or_default();
        // Other tools are ignored.
        let is_called = |tool: &&ResponseTool| ["function", "namespace"].contains(&&*tool.r#type);
        let tools = fields.tools.iter().flatten().filter(is_called);
        ResponseObject {
            id: format!("resp_{}", random_digits()),
            object: "response",
            created_at: seconds(),
            completed_at: None,
            status: "in_progress",
            error: None,
            incomplete_details: None,
            model: model.name().to_owned(),
            output: Vec::new(),
            usage: None,
            store: continued.is_kept(),
            background: false,
            previous_response_id: continued.previous.clone(),
            instructions: fields.instructions.clone(),
            max_output_tokens: fields.max_output_tokens.and_then(TokenLimit::tokens),
            metadata: fields.metadata.clone().unwrap_or_default(),
            parallel_tool_calls: fields.parallel_tool_calls != Some(false),
            reasoning: thinking.reasoning.clone().unwrap_or_default(),
            temperature: sampling.temperature,
            text: TextOptions { format: Some(format) },
            tool_choice: fields.tool_choice.clone().unwrap_or_else(|| "auto".into()),
            tools: tools.cloned().collect(),
            top_logprobs: fields.top_logprobs.unwrap_or(0),
            top_p: sampling.top_p,
            truncation: "disabled",
            user: fields.user.clone(),
        }
    }

    /// The whole reply.
    pub(super) fn end(self, model: &ServedModel, reply: &Reply, namespaces: &Namespaces) -> ResponseObject {
        let cut = reply.choices.iter().any(Choice::is_cut);
        ResponseObject {
            status: if cut { "incomplete" } else { "completed" },
            completed_at: (!cut).then(seconds),
            incomplete_details: cut.then_some(IncompleteDetails { reason: "max_output_tokens" }),
            usage: Some(ResponseUsage::new(model, reply)),
            output: items(model, reply, namespaces),
            ..self
        }
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// The type of the event that ends the reply.
    pub(super) fn last_event(&self) -> &'static str {
        match self.status {
            "failed" => "response.failed",
            "incomplete" => "response.incomplete",
            _ => "response.completed",
        }
    }

    /// A reply that ends with an error.
    pub(super) fn fail(
        self,
        model: &ServedModel,
        reply: &Reply,
        namespaces: &Namespaces,
        error: &ApiError,
    ) -> ResponseObject {
        let code = error.code.unwrap_or("server_error");
        let message = error.message.clone();
        let error = Some(ResponseFailure { code, message });
        ResponseObject { status: "failed", error, output: items(model, reply, namespaces), ..self }
    }
}

fn items(model: &ServedModel, reply: &Reply, namespaces: &Namespaces) -> Vec<OutputItem> {
    reply.choices.iter().flat_map(|choice| &choice.items).map(|item| OutputItem::new(model, item, namespaces)).collect()
}
