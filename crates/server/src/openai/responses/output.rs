//! The items of a reply, while it is generated.

use std::mem;

use gristmill_engine::engine::{FinishReason, Piece};
use gristmill_engine::reply::{Reply, ReplyEvent, ToolCall};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::generation;
use crate::generation::{call_id, item_id};
use crate::openai::logprobs::TokenLogprob;
use crate::state::App;

/// One item of a reply.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum OutputItem {
    /// What the model thought.
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
        /// Of the text's tokens, if the request asks for them.
        logprobs: Vec<TokenLogprob>,
    },
}

impl OutputItem {
    fn reasoning() -> OutputItem {
        let content = vec![OutputPart::ReasoningText { text: String::new() }];
        OutputItem::Reasoning { id: item_id("rs"), status: "in_progress", summary: Vec::new(), content }
    }

    fn message() -> OutputItem {
        let part = OutputPart::OutputText { text: String::new(), annotations: Vec::new(), logprobs: Vec::new() };
        OutputItem::Message { id: item_id("msg"), status: "in_progress", role: "assistant", content: vec![part] }
    }

    fn call(name: String) -> OutputItem {
        let (id, call_id) = (item_id("fc"), call_id());
        OutputItem::FunctionCall { id, status: "in_progress", call_id, name, arguments: String::new() }
    }

    pub(super) fn id(&self) -> &str {
        match self {
            OutputItem::Reasoning { id, .. } | OutputItem::Message { id, .. } | OutputItem::FunctionCall { id, .. } => {
                id
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

    /// The item before its first part and text.
    pub(super) fn begun(&self) -> OutputItem {
        let mut begun = self.clone();
        begun.set_status("in_progress");
        match &mut begun {
            OutputItem::Reasoning { content, .. } | OutputItem::Message { content, .. } => content.clear(),
            OutputItem::FunctionCall { arguments, .. } => arguments.clear(),
        }
        begun
    }

    fn set_status(&mut self, new: &'static str) {
        match self {
            OutputItem::Reasoning { status, .. }
            | OutputItem::Message { status, .. }
            | OutputItem::FunctionCall { status, .. } => *status = new,
        }
    }

    fn grow(&mut self, new: &str, new_logprobs: &[TokenLogprob]) {
        match self {
            OutputItem::Reasoning { content, .. } | OutputItem::Message { content, .. } => match content.first_mut() {
                Some(OutputPart::ReasoningText { text }) => text.push_str(new),
                Some(OutputPart::OutputText { text, logprobs, .. }) => {
                    text.push_str(new);
                    logprobs.extend_from_slice(new_logprobs);
                }
                None => {}
            },
            OutputItem::FunctionCall { arguments, .. } => arguments.push_str(new),
        }
    }
}

impl OutputPart {
    /// The part before its text.
    pub(super) fn begun(&self) -> OutputPart {
        match self {
            OutputPart::ReasoningText { .. } => OutputPart::ReasoningText { text: String::new() },
            OutputPart::OutputText { .. } => {
                OutputPart::OutputText { text: String::new(), annotations: Vec::new(), logprobs: Vec::new() }
            }
        }
    }
}

/// What a piece did to the item of a number.
#[derive(Debug)]
pub(super) enum Change {
    Added(usize),
    /// A text was appended, whose tokens have these log-probabilities.
    Grown(usize, String, Vec<TokenLogprob>),
    Done(usize),
}

/// The items so far.
#[derive(Debug)]
pub(super) struct Output {
    pub(super) items: Vec<OutputItem>,
    /// Tokens of reasoning, and of the marks around it.
    pub(super) reasoning_tokens: usize,
    reader: Reply,
    /// Whether the last item grows.
    is_open: bool,
    /// Of tokens whose text is held.
    logprobs: Vec<TokenLogprob>,
}

impl Output {
    pub(super) fn new(reader: Reply) -> Output {
        Output { items: Vec::new(), reasoning_tokens: 0, reader, is_open: false, logprobs: Vec::new() }
    }

    pub(super) fn piece(&mut self, app: &App, piece: &Piece) -> Vec<Change> {
        let logprob = piece.logprob.as_ref().map(|logprob| TokenLogprob::new(app, logprob));
        self.token(&piece.text, logprob, piece.finish.map(|finish| finish.reason))
    }

    /// Takes the text that one token added, and the reason if it is the last.
    fn token(&mut self, text: &str, logprob: Option<TokenLogprob>, end: Option<FinishReason>) -> Vec<Change> {
        let was_reasoning = self.reader.is_reasoning();
        let events = generation::events(&mut self.reader, text, end.is_some());
        if was_reasoning || self.reader.is_reasoning() {
            self.reasoning_tokens += 1;
            self.logprobs.clear();
        } else {
            self.logprobs.extend(logprob);
        }
        let mut changes = Vec::new();
        for event in events {
            match event {
                ReplyEvent::Reasoning(text) => self.reasoning(text, &mut changes),
                ReplyEvent::Content(text) => self.content(text, &mut changes),
                ReplyEvent::ToolCall(call) => self.call(call, &mut changes),
            }
        }
        if let Some(reason) = end {
            if self.items.is_empty() {
                self.begin(OutputItem::message(), &mut changes);
            }
            self.close(if reason == FinishReason::Length { "incomplete" } else { "completed" }, &mut changes);
        }
        changes
    }

    /// Ends the item that grows, before the text ends.
    pub(super) fn cut(&mut self) {
        self.close("incomplete", &mut Vec::new());
    }

    fn reasoning(&mut self, text: String, changes: &mut Vec<Change>) {
        if !matches!(self.open(), Some(OutputItem::Reasoning { .. })) {
            self.begin(OutputItem::reasoning(), changes);
        }
        self.grow(text, Vec::new(), changes);
    }

    fn content(&mut self, text: String, changes: &mut Vec<Change>) {
        if !matches!(self.open(), Some(OutputItem::Message { .. })) {
            self.begin(OutputItem::message(), changes);
        }
        let logprobs = mem::take(&mut self.logprobs);
        self.grow(text, logprobs, changes);
    }

    fn call(&mut self, call: ToolCall, changes: &mut Vec<Change>) {
        self.logprobs.clear();
        self.begin(OutputItem::call(call.name), changes);
        self.grow(call.arguments, Vec::new(), changes);
        // The next call is an item of its own.
        self.close("completed", changes);
    }

    /// The item that grows.
    fn open(&self) -> Option<&OutputItem> {
        self.items.last().filter(|_| self.is_open)
    }

    fn begin(&mut self, item: OutputItem, changes: &mut Vec<Change>) {
        self.close("completed", changes);
        changes.push(Change::Added(self.items.len()));
        self.items.push(item);
        self.is_open = true;
    }

    fn grow(&mut self, text: String, logprobs: Vec<TokenLogprob>, changes: &mut Vec<Change>) {
        if let Some(item) = self.items.last_mut() {
            item.grow(&text, &logprobs);
            changes.push(Change::Grown(self.items.len() - 1, text, logprobs));
        }
    }

    fn close(&mut self, status: &'static str, changes: &mut Vec<Change>) {
        if mem::take(&mut self.is_open)
            && let Some(item) = self.items.last_mut()
        {
            item.set_status(status);
            changes.push(Change::Done(self.items.len() - 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gristmill_engine::reply::ReplyOptions;
    use gristmill_engine::template::Tool;
    use serde_json::json;

    /// The items and the number of tokens of reasoning, of texts that are a token each.
    fn written(tokens: &[&str], end: FinishReason) -> (Value, usize, Vec<String>) {
        let tools = [Tool { name: "f".into(), ..Tool::default() }];
        let reply = Reply::new(None, "<|im_start|>assistant\n", ReplyOptions::for_tools(&tools));
        let mut output = Output::new(reply);
        let mut changes = Vec::new();
        for (index, token) in tokens.iter().enumerate() {
            changes.extend(output.token(token, None, (index + 1 == tokens.len()).then_some(end)));
        }
        let changes = changes.into_iter().map(|change| match change {
            Change::Added(item) => format!("+{item}"),
            Change::Grown(item, text, _) => format!("{item}{text}"),
            Change::Done(item) => format!("-{item}"),
        });
        let changes = changes.collect();
        (serde_json::to_value(&output.items).expect("JSON"), output.reasoning_tokens, changes)
    }

    #[test]
    fn reasoning_content_and_calls() {
        let call = "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}}</tool_call>";
        let tokens = ["<think>", "\n", "h", "m", "</think>", "\n\n", "ye", "s", call, call, ""];
        let (items, reasoning, changes) = written(&tokens, FinishReason::End);
        let kinds: Vec<&str> = items.as_array().expect("a list").iter().filter_map(|i| i["type"].as_str()).collect();
        assert_eq!(kinds, ["reasoning", "message", "function_call", "function_call"]);
        assert_eq!(items[0]["content"][0]["text"].as_str().map(str::trim), Some("hm"));
        assert_eq!(
            items[1]["content"][0],
            json!({"type": "output_text", "text": "yes", "annotations": [], "logprobs": []})
        );
        assert_eq!((&items[2]["name"], &items[2]["arguments"]), (&json!("f"), &json!("{\"a\": 1}")));
        assert_ne!((&items[2]["id"], &items[2]["call_id"]), (&items[3]["id"], &items[3]["call_id"]));
        assert_eq!(reasoning, 5);
        let ends: Vec<&String> = changes.iter().filter(|change| change.starts_with(['+', '-'])).collect();
        assert_eq!(ends, ["+0", "-0", "+1", "-1", "+2", "-2", "+3", "-3"]);
        assert!(items.as_array().expect("a list").iter().all(|item| item["status"] == "completed"));
    }

    #[test]
    fn replies_that_are_cut_or_empty() {
        let (items, reasoning, changes) = written(&["<think>", "h", "m"], FinishReason::Length);
        assert_eq!((&items[0]["type"], &items[0]["status"], reasoning), (&json!("reasoning"), &json!("incomplete"), 3));
        assert_eq!(changes.last().map(String::as_str), Some("-0"));
        let (items, reasoning, changes) = written(&["x", "y"], FinishReason::Length);
        assert_eq!((&items[0]["type"], &items[0]["status"], reasoning), (&json!("message"), &json!("incomplete"), 0));
        assert_eq!(changes, ["+0", "0x", "0y", "-0"]);
        let (items, _, changes) = written(&[""], FinishReason::End);
        assert_eq!((&items[0]["content"][0]["text"], changes.len()), (&json!(""), 2));
        // A call that was cut is content.
        let (items, ..) = written(&["<tool_call>{\"name\": \"f\", "], FinishReason::Length);
        assert_eq!((items.as_array().map(Vec::len), &items[0]["type"]), (Some(1), &json!("message")));
    }
}
