//! Conversations as Anthropic writes them.

use std::collections::HashSet;
use std::mem;

use gristmill_engine::template::{Call, Message, Role};
use serde::Deserialize;
use utoipa::ToSchema;

use super::blocks::{Block, FAILED, IMAGE, blocks, needed, said};
use crate::content::Content;
use crate::error::ApiError;
use crate::images::{Images, Said};
use crate::tools::Tools;

/// A message.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct InputMessage {
    /// `user` or `assistant`.
    role: String,
    content: Content<Block>,
}

/// Calls of tools that another server ran.
const SERVER_CALLS: [&str; 2] = ["server_tool_use", "mcp_tool_use"];
/// The results of such calls, which stand next to them in a message of the assistant.
const SERVER_RESULTS: [&str; 8] = [
    "advisor_tool_result",
    "bash_code_execution_tool_result",
    "code_execution_tool_result",
    "mcp_tool_result",
    "text_editor_code_execution_tool_result",
    "tool_search_tool_result",
    "web_fetch_tool_result",
    "web_search_tool_result",
];
/// Blocks of another server that only it can read, or that contain nothing for a model.
const SERVER_NOTES: [&str; 3] = ["fallback", "mcp_tool_listing", "redacted_thinking"];
/// The result of such a call that the conversation lacks.
const NO_RESULT: &str = "[result: not in this conversation]";
/// Blocks of the user that may be words.
const SOURCES: [&str; 2] = ["document", "search_result"];

/// Claude Code's first block of the system prompt, which changes with each request and would prevent prefix cache hits.
/// It identifies the account, and contains nothing for the model.
const BILLING: &str = "x-anthropic-billing-header:";

/// The messages of a conversation with these tools.
pub(super) fn messages(
    messages: Vec<InputMessage>,
    system: Option<Content<Block>>,
    tools: &Tools,
    images: &mut Images,
) -> Result<Vec<Message>, ApiError> {
    if messages.is_empty() {
        return Err(ApiError::param("messages", "messages is empty; send at least one"));
    }
    let answered = answered(&messages);
    let mut read = Vec::new();
    if let Some(system) = system {
        let mut texts = texts(system, "system")?;
        texts.retain(|text| !text.starts_with(BILLING));
        if !texts.is_empty() {
            read.push(Message::new(Role::System, texts.join("\n")));
        }
    }
    for (index, InputMessage { role, content }) in messages.into_iter().enumerate() {
        let at = format!("messages[{index}].content");
        match role.as_str() {
            "assistant" => assistant(content, &at, (tools, &answered), images, &mut read)?,
            "user" => user(content, &at, tools, images, &mut read)?,
            // Claude Code sends such messages in the middle of a conversation.
            "system" => read.push(Message::new(Role::System, texts(content, &at)?.join("\n"))),
            other => {
                let message = format!("{other:?} is not a role; use user or assistant");
                return Err(ApiError::param(format!("messages[{index}].role"), message));
            }
        }
    }
    Ok(read)
}

/// The ids of calls that have results.
fn answered(messages: &[InputMessage]) -> HashSet<String> {
    let blocks = messages.iter().filter_map(|message| match &message.content {
        Content::Parts(blocks) => Some(blocks),
        Content::Text(_) => None,
    });
    blocks.flatten().filter_map(|block| block.tool_use_id.clone()).collect()
}

fn unsupported<T>(kind: &str, at: &str) -> Result<T, ApiError> {
    let message = format!("blocks of type {kind:?} are not supported here");
    Err(ApiError::param(format!("{at}.type"), message).with_code("unsupported"))
}

/// The texts of a content that has nothing else.
fn texts(content: Content<Block>, at: &str) -> Result<Vec<String>, ApiError> {
    let texts = blocks(content, at)?.into_iter().map(|(kind, block, at)| match kind.as_str() {
        "text" => needed(block.text, &at, "text"),
        kind => unsupported(kind, &at),
    });
    texts.collect()
}

/// The assistant's texts and calls, and the results of the calls that another server ran. What follows such results is
/// a message of its own, because results follow the message with their calls.
#[derive(Debug, Default)]
struct Turn {
    texts: Vec<String>,
    reasoning: Vec<String>,
    calls: Vec<Call>,
    results: Vec<Message>,
}

impl Turn {
    fn end(&mut self, read: &mut Vec<Message>) {
        let Turn { texts, reasoning, calls, results } = mem::take(self);
        let is_empty = texts.is_empty() && reasoning.is_empty() && calls.is_empty();
        if !is_empty || results.is_empty() {
            let reasoning = (!reasoning.is_empty()).then(|| reasoning.join("\n"));
            read.push(Message { reasoning, calls, ..Message::new(Role::Assistant, texts.join("\n")) });
        }
        read.extend(results);
    }
}

/// A message of the assistant, with these tools and ids of calls that have results.
fn assistant(
    content: Content<Block>,
    at: &str,
    (tools, answered): (&Tools, &HashSet<String>),
    images: &mut Images,
    read: &mut Vec<Message>,
) -> Result<(), ApiError> {
    let mut turn = Turn::default();
    for (kind, block, at) in blocks(content, at)? {
        let is_result = SERVER_RESULTS.contains(&kind.as_str());
        if !is_result && !turn.results.is_empty() {
            turn.end(read);
        }
        match kind.as_str() {
            "text" => turn.texts.push(needed(block.text, &at, "text")?),
            "thinking" => turn.reasoning.push(needed(block.thinking, &at, "thinking")?),
            // The summary of what came before, unless another server failed to write it.
            "compaction" => turn.texts.extend(block.words(&at, tools)?),
            kind if kind == "tool_use" || SERVER_CALLS.contains(&kind) => {
                let (id, name) = (needed(block.id, &at, "id")?, needed(block.name, &at, "name")?);
                // Some templates want a result of each call.
                if kind != "tool_use" && !answered.contains(&id) {
                    turn.results.push(tool_message(id.clone(), NO_RESULT.to_owned()));
                }
                turn.calls.push(Call { id, name, arguments: block.input.unwrap_or_default().into() });
            }
            _ if is_result => turn.results.push(result(block, &at, tools, images)?),
            "container_upload" => turn.texts.push(block.placeholder(&kind)),
            kind if SERVER_NOTES.contains(&kind) => {}
            kind => return unsupported(kind, &at),
        }
    }
    turn.end(read);
    Ok(())
}

/// Results of tools are messages of their own, before the words of the user.
fn user(
    content: Content<Block>,
    at: &str,
    tools: &Tools,
    images: &mut Images,
    read: &mut Vec<Message>,
) -> Result<(), ApiError> {
    let is_result = |kind: &str| kind == "tool_result" || SERVER_RESULTS.contains(&kind);
    let blocks = blocks(content, at)?;
    if blocks.is_empty() {
        read.push(Message::new(Role::User, String::new()));
    }
    // Claude Code puts the pages of a file that a tool has read next to the tool's result.
    let (results, words): (Vec<_>, Vec<_>) = blocks.into_iter().partition(|(kind, ..)| is_result(kind));
    let has_results = !results.is_empty();
    for (_, block, at) in results {
        read.push(result(block, &at, tools, images)?);
    }
    if words.is_empty() {
        return Ok(());
    }
    let mut said = Said::default();
    for (kind, block, at) in words {
        match kind.as_str() {
            "text" => said.push(&needed(block.text, &at, "text")?),
            IMAGE if images.are_read() || !has_results => {
                block.image(&at, images)?;
                said.image();
            }
            kind if has_results => said.push(&block.part(kind, &at, tools)?),
            "container_upload" => said.push(&block.placeholder(&kind)),
            kind if SOURCES.contains(&kind) => match block.words(&at, tools)? {
                Some(words) => said.push(&words),
                None => return unsupported(kind, &at),
            },
            kind => return unsupported(kind, &at),
        }
    }
    read.push(said.message(Role::User));
    Ok(())
}

/// The message of a tool's result.
fn result(block: Block, at: &str, tools: &Tools, images: &mut Images) -> Result<Message, ApiError> {
    let content = block.content.map_or_else(|| Content::Text(String::new()), |content| content.0);
    let mut said = said(content, &format!("{at}.content"), tools, images)?;
    if block.is_error == Some(true) {
        said.prefix(FAILED);
    }
    Ok(Message { call_id: Some(needed(block.tool_use_id, at, "tool_use_id")?), ..said.message(Role::Tool) })
}

fn tool_message(call: String, text: String) -> Message {
    Message { call_id: Some(call), ..Message::new(Role::Tool, text) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::SchemaField;
    use gristmill_engine::template::Tool;
    use serde_json::{Value, json};

    fn read(messages: Value, system: Value) -> Result<Vec<Message>, ApiError> {
        let (messages, system) = (serde_json::from_value(messages), serde_json::from_value(system));
        let word = Tool { name: "word".to_owned(), is_deferred: true, ..Tool::default() };
        let mut tools = Tools::default();
        let schema = SchemaField { path: String::new(), is_strict: false };
        tools.push(word, String::new(), schema).expect("a tool");
        super::messages(messages.expect("messages"), system.expect("a system prompt"), &tools, &mut Images::none())
    }

    #[test]
    fn a_conversation_with_tools() {
        let system = json!([{"type": "text", "text": "x-anthropic-billing-header: cc_version=1; cch=5"},
                            {"type": "text", "text": "be brief", "cache_control": {"type": "ephemeral"}}]);
        let messages = json!([
            {"role": "user", "content": "weather?"},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "hm", "signature": "x"},
                {"type": "text", "text": "I look"},
                {"type": "tool_use", "id": "t1", "name": "weather", "input": {"place": "Rome"}}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "sun"}]},
                {"type": "text", "text": "and now?"}]},
        ]);
        let read = read(messages, system).expect("a conversation");
        let outline: Vec<(&str, &str)> = read.iter().map(|read| (read.role.name(), read.text.as_str())).collect();
        let expected = [
            ("system", "be brief"),
            ("user", "weather?"),
            ("assistant", "I look"),
            ("tool", "sun"),
            ("user", "and now?"),
        ];
        assert_eq!(outline, expected);
        let call = &read[2].calls[0];
        assert_eq!((call.name.as_str(), call.arguments.get("place")), ("weather", Some(&json!("Rome"))));
        assert_eq!((read[2].reasoning.as_deref(), read[3].call_id.as_deref()), (Some("hm"), Some("t1")));
    }

    /// A tool returns what it returns. What the user sends is refused where it cannot be read.
    #[test]
    fn results_that_are_no_text() {
        let image = json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBO"}});
        let page = json!({"type": "document", "title": "a.pdf", "source": {"type": "base64", "data": "JVBE",
                          "media_type": "application/pdf"}});
        let text = json!({"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "rye"}});
        let messages = json!([{"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "a:"}, image, text]},
            {"type": "tool_result", "tool_use_id": "t2", "is_error": true, "content": "no such file"},
            {"type": "tool_result", "tool_use_id": "t3", "is_error": false, "content": [
                {"type": "tool_reference", "tool_name": "word"}, {"type": "tool_reference", "tool_name": "wor"}]},
            page, {"type": "text", "text": "and?"}]}]);
        let read = read(messages, Value::Null).expect("a conversation");
        let texts: Vec<&str> = read.iter().map(|read| read.text.as_str()).collect();
        let expected = [
            "a:\n[image (image/png): not shown, because this model cannot read it]\nrye",
            "Error: no such file",
            "You can call this tool now: {\"name\":\"word\"}\nThere is no tool \"wor\".",
            "[document (a.pdf, application/pdf): not shown, because this model cannot read it]\nand?",
        ];
        assert_eq!(texts, expected);
    }

    /// Blocks that another server has written: what is words is read, and the rest has a line.
    #[test]
    fn blocks_of_other_servers() {
        let used = |id: &str, name: &str, input: Value| json!({"type": "server_tool_use", "id": id, "name": name, "input": input});
        let result = |kind: &str, id: &str, content: Value| json!({"type": format!("{kind}_tool_result"), "tool_use_id": id, "content": content});
        let page =
            json!({"type": "web_search_result", "title": "Rye", "url": "https://a.example", "encrypted_content": "x"});
        let ran = json!({"type": "bash_code_execution_result", "stdout": "2", "stderr": "", "return_code": 0,
                         "content": [{"type": "bash_code_execution_output", "file_id": "file_1"}]});
        let fetched = json!({"type": "web_fetch_result", "url": "https://b.example", "retrieved_at": null, "content":
            {"type": "document", "title": "B", "source": {"type": "text", "media_type": "text/plain", "data": "barley"}}});
        let found = json!({"type": "tool_search_tool_search_result", "tool_references": [
            {"type": "tool_reference", "tool_name": "word"}]});
        let messages = json!([
            {"role": "user", "content": [
                {"type": "search_result", "source": "https://c.example", "title": "C", "content": [{"type": "text", "text": "oats"}]},
                {"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": "wheat"}]}},
                {"type": "container_upload", "file_id": "file_2"}, {"type": "text", "text": "look"}]},
            {"role": "assistant", "content": [
                {"type": "redacted_thinking", "data": "x"}, {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "text", "text": "I search."}, used("s1", "web_search", json!({"query": "rye"})),
                result("web_search", "s1", json!([page])),
                used("s2", "bash_code_execution", json!({"command": "echo 2"})), result("bash_code_execution", "s2", ran),
                used("s3", "web_fetch", json!({})), used("s4", "web_fetch", json!({})), result("web_fetch", "s3", fetched),
                result("web_fetch", "s4", json!({"type": "web_fetch_tool_result_error", "error_code": "unavailable"})),
                {"type": "text", "text": "Two."}, {"type": "fallback", "from": {"model": "a"}, "to": {"model": "b"}},
                {"type": "mcp_tool_use", "id": "m1", "name": "mill", "server_name": "s", "input": {"a": 1}},
                {"type": "mcp_tool_result", "tool_use_id": "m1", "is_error": true, "content": [{"type": "text", "text": "no"}]},
                used("s5", "tool_search_tool_regex", json!({"pattern": "w"})), result("tool_search", "s5", found),
                used("s6", "web_search", json!({})), {"type": "text", "text": "Wait."}]},
            {"role": "user", "content": "go on"},
            {"role": "assistant", "content": [{"type": "compaction", "content": "All is said."}]},
        ]);
        let read = read(messages, Value::Null).expect("a conversation");
        let outline: Vec<(&str, &str)> = read.iter().map(|read| (read.role.name(), read.text.as_str())).collect();
        let unseen = |what: &str| format!("[{what}: not shown, because this model cannot read it]");
        let upload = format!("C\nhttps://c.example\noats\nwheat\n{}\nlook", unseen("container_upload (file_2)"));
        let ran = format!("{}\n2\nexit code 0", unseen("bash_code_execution_output (file_1)"));
        let expected = [
            ("user", upload.as_str()),
            ("assistant", "I search."),
            ("tool", "Rye\nhttps://a.example"),
            ("assistant", ""),
            ("tool", ran.as_str()),
            ("assistant", ""),
            ("tool", "https://b.example\nB\nbarley"),
            ("tool", "Error: unavailable"),
            ("assistant", "Two."),
            ("tool", "Error: no"),
            ("assistant", ""),
            ("tool", "You can call this tool now: {\"name\":\"word\"}"),
            ("assistant", ""),
            ("tool", NO_RESULT),
            ("assistant", "Wait."),
            ("user", "go on"),
            ("assistant", "All is said."),
        ];
        assert_eq!(outline, expected);
        let calls: Vec<&str> = read.iter().flat_map(|read| &read.calls).map(|call| call.id.as_str()).collect();
        assert_eq!(calls, ["s1", "s2", "s3", "s4", "m1", "s5", "s6"]);
        let results: Vec<&str> = read.iter().filter_map(|read| read.call_id.as_deref()).collect();
        assert_eq!(results, calls);
        assert_eq!(read[1].reasoning.as_deref(), Some("hm"));
    }

    /// A turn that another server has paused continues in the next message.
    #[test]
    fn a_result_in_the_next_message() {
        let messages = json!([
            {"role": "user", "content": "look"},
            {"role": "assistant", "content": [{"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}]},
            {"role": "assistant", "content": [
                {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []}, {"type": "text", "text": "No."}]},
        ]);
        let read = read(messages, Value::Null).expect("a conversation");
        let outline: Vec<(&str, &str)> = read.iter().map(|read| (read.role.name(), read.text.as_str())).collect();
        assert_eq!(outline, [("user", "look"), ("assistant", ""), ("tool", ""), ("assistant", "No.")]);
    }

    #[test]
    fn wrong_blocks_are_named_by_their_paths() {
        for (content, param) in [
            (json!([{"type": "image", "source": {}}]), "messages[0].content[0].source.type"),
            (json!([{"type": "tool_result", "content": "x"}]), "messages[0].content[0].tool_use_id"),
            (json!([{"type": "text", "text": "a"}, {"text": "x"}]), "messages[0].content[1].type"),
            (json!([{"type": "text"}]), "messages[0].content[0].text"),
            (json!([{"type": "hologram", "text": "x"}]), "messages[0].content[0].type"),
            (json!([{"type": "document", "source": {"type": "url", "url": "x"}}]), "messages[0].content[0].type"),
            (json!([{"type": "server_tool_use", "id": "s", "name": "x"}]), "messages[0].content[0].type"),
            (
                json!([{"type": "tool_result", "tool_use_id": "t", "content": [{"type": "tool_reference"}]}]),
                "messages[0].content[0].content[0].tool_name",
            ),
        ] {
            let refused = read(json!([{"role": "user", "content": content}]), Value::Null).expect_err("refused");
            assert_eq!(refused.param.as_deref(), Some(param));
        }
    }
}
