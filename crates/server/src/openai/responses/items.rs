//! The items of a reply.

use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::models::ServedModel;
use crate::openai::logprobs::TokenLogprob;
use crate::openai::namespaces::Namespaces;
use crate::reply::{Item, ItemKind, ItemState};

/// One item of a reply.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum OutputItem {
    /// The model's reasoning.
    Reasoning {
        id: String,
        /// `in_progress`, `completed`, or `incomplete`.
        status: &'static str,
        /// Always empty.
        summary: Vec<Value>,
        content: Vec<OutputPart>,
    },
    Message {
        id: String,
        /// `in_progress`, `completed`, or `incomplete`.
        status: &'static str,
        /// `assistant`.
        role: &'static str,
        content: Vec<OutputPart>,
    },
    FunctionCall {
        id: String,
        /// `in_progress`, or `completed`.
        status: &'static str,
        /// The name of the call, which its output repeats.
        call_id: String,
        name: String,
        /// The namespace of the function.
        #[serde(skip_serializing_if = "Option::is_none")]
        namespace: Option<String>,
        /// The text of a JSON object.
        arguments: String,
    },
}

/// The text of an item.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum OutputPart {
    ReasoningText {
        text: String,
    },
    OutputText {
        text: String,
        /// Always empty.
        annotations: Vec<Value>,
        /// Log-probabilities of the text's tokens, if the client requests them.
        logprobs: Vec<TokenLogprob>,
    },
}

impl OutputItem {
    /// The item as it is.
    pub(super) fn new(model: &ServedModel, item: &Item, namespaces: &Namespaces) -> OutputItem {
        let status = match item.state {
            ItemState::Growing => "in_progress",
            ItemState::Complete => "completed",
            ItemState::Cut => "incomplete",
        };
        let logprobs = item.logprobs.iter().map(|logprob| TokenLogprob::new(model, logprob)).collect();
        let content = OutputPart::new(&item.kind, item.text.clone(), logprobs).into_iter().collect();
        OutputItem::of(item, namespaces, status, content, item.text.clone())
    }

    /// The item before its first part and text.
    pub(super) fn started(item: &Item, namespaces: &Namespaces) -> OutputItem {
        OutputItem::of(item, namespaces, "in_progress", Vec::new(), String::new())
    }

    fn of(
        item: &Item,
        namespaces: &Namespaces,
        status: &'static str,
        content: Vec<OutputPart>,
        arguments: String,
    ) -> OutputItem {
        let id = item_id(item);
        match &item.kind {
            ItemKind::Reasoning => OutputItem::Reasoning { id, status, summary: Vec::new(), content },
            ItemKind::Text => OutputItem::Message { id, status, role: "assistant", content },
            ItemKind::Call(name) => {
                let (call_id, (namespace, name)) = (format!("call_{}", item.id), namespaces.split(name));
                OutputItem::FunctionCall { id, status, call_id, name, namespace, arguments }
            }
        }
    }

    /// The part with the text; a call has none.
    pub(super) fn part(&self) -> Option<&OutputPart> {
        match self {
            OutputItem::Reasoning { content, .. } | OutputItem::Message { content, .. } => content.first(),
            OutputItem::FunctionCall { .. } => None,
        }
    }
}

impl OutputPart {
    fn new(kind: &ItemKind, text: String, logprobs: Vec<TokenLogprob>) -> Option<OutputPart> {
        match kind {
            ItemKind::Reasoning => Some(OutputPart::ReasoningText { text }),
            ItemKind::Text => Some(OutputPart::OutputText { text, annotations: Vec::new(), logprobs }),
            ItemKind::Call(_) => None,
        }
    }

    /// The part of an item of this kind, before its text; a call has none.
    pub(super) fn started(kind: &ItemKind) -> Option<OutputPart> {
        OutputPart::new(kind, String::new(), Vec::new())
    }
}

/// The id of an item.
pub(super) fn item_id(item: &Item) -> String {
    let prefix = match item.kind {
        ItemKind::Reasoning => "rs",
        ItemKind::Text => "msg",
        ItemKind::Call(_) => "fc",
    };
    format!("{prefix}_{}", item.id)
}
