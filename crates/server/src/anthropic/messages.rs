//! Conversations as Anthropic writes them.

use gristmill_engine::template::{Call, Message, Role};
use serde::Deserialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::content::{Content, placeholder, shortened};
use crate::error::ApiError;
use crate::tools::Tools;

/// A message.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct InputMessage {
    /// `user` or `assistant`.
    role: String,
    content: Content<Block>,
}

/// A block of a content: `text`, `thinking`, `tool_use` or `tool_result`.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
pub(crate) struct Block {
    r#type: Option<String>,
    text: Option<String>,
    thinking: Option<String>,
    /// The id of a `tool_use`.
    id: Option<String>,
    /// The tool of a `tool_use`.
    name: Option<String>,
    /// The arguments of a `tool_use`.
    input: Option<Map<String, Value>>,
    /// The `tool_use` of a `tool_result`.
    tool_use_id: Option<String>,
    /// The text of a `tool_result`, or blocks: a line stands for each that is no text.
    #[schema(no_recursion)]
    content: Option<Content<Block>>,
    /// Whether a `tool_result` says that the tool has failed, which the model is told.
    is_error: Option<bool>,
    /// The tool of a `tool_reference`.
    tool_name: Option<String>,
    /// The data of an image or a document.
    source: Option<Source>,
    /// The title of a document.
    title: Option<String>,
}

/// The data of a block.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
pub(crate) struct Source {
    /// `base64`, `text`, `url` or `file`.
    r#type: Option<String>,
    media_type: Option<String>,
    /// A text, or base64.
    data: Option<String>,
}

/// Claude Code's first block of the system prompt, which changes with each request and would spoil the prefix cache. It
/// says who pays, and nothing to the model.
const BILLING: &str = "x-anthropic-billing-header:";

/// Before the text of a tool that has failed: templates have no place for that.
const FAILED: &str = "Error: ";

/// The messages of a conversation with these tools.
pub(super) fn messages(
    messages: Vec<InputMessage>,
    system: Option<Content<Block>>,
    tools: &Tools,
) -> Result<Vec<Message>, ApiError> {
    if messages.is_empty() {
        return Err(ApiError::param("messages", "messages is empty; give at least one"));
    }
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
            "assistant" => read.push(assistant(content, &at)?),
            "user" => user(content, &at, tools, &mut read)?,
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

/// The blocks of a content, with their types and paths. A text is one block.
fn blocks(content: Content<Block>, at: &str) -> Result<Vec<(String, Block, String)>, ApiError> {
    let blocks = match content {
        Content::Text(text) => {
            let block = Block { text: Some(text), ..Block::default() };
            return Ok(vec![("text".to_owned(), block, at.to_owned())]);
        }
        Content::Parts(blocks) => blocks,
    };
    let block = |(index, mut block): (usize, Block)| {
        let at = format!("{at}[{index}]");
        match block.r#type.take() {
            Some(kind) => Ok((kind, block, at)),
            None => Err(ApiError::param(format!("{at}.type"), "a block needs a type, such as text")),
        }
    };
    blocks.into_iter().enumerate().map(block).collect()
}

fn needed<T>(value: Option<T>, at: &str, field: &str) -> Result<T, ApiError> {
    value.ok_or_else(|| ApiError::param(format!("{at}.{field}"), format!("the block needs the field {field}")))
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

fn assistant(content: Content<Block>, at: &str) -> Result<Message, ApiError> {
    let (mut texts, mut reasoning, mut calls) = (Vec::new(), Vec::new(), Vec::new());
    for (kind, block, at) in blocks(content, at)? {
        match kind.as_str() {
            "text" => texts.push(needed(block.text, &at, "text")?),
            "thinking" => reasoning.push(needed(block.thinking, &at, "thinking")?),
            // Another server's, which only it can read.
            "redacted_thinking" => {}
            "tool_use" => {
                let (id, name) = (needed(block.id, &at, "id")?, needed(block.name, &at, "name")?);
                calls.push(Call { id, name, arguments: block.input.unwrap_or_default() });
            }
            kind => return unsupported(kind, &at),
        }
    }
    let reasoning = (!reasoning.is_empty()).then(|| reasoning.join("\n"));
    Ok(Message { reasoning, calls, ..Message::new(Role::Assistant, texts.join("\n")) })
}

/// Results of tools are messages of their own, before the words of the user.
fn user(content: Content<Block>, at: &str, tools: &Tools, read: &mut Vec<Message>) -> Result<(), ApiError> {
    let blocks = blocks(content, at)?;
    // Claude Code puts the pages of a file that a tool has read beside the tool's result.
    let has_results = blocks.iter().any(|(kind, ..)| kind == "tool_result");
    let mut said = Vec::new();
    for (kind, block, at) in blocks {
        match kind.as_str() {
            "text" => said.push(needed(block.text, &at, "text")?),
            "tool_result" => read.push(result(block, &at, tools)?),
            kind if has_results => said.push(block.stand_in(kind, &at, tools)?),
            kind => return unsupported(kind, &at),
        }
    }
    if !said.is_empty() {
        read.push(Message::new(Role::User, said.join("\n")));
    }
    Ok(())
}

/// The message of a tool's result.
fn result(block: Block, at: &str, tools: &Tools) -> Result<Message, ApiError> {
    let content = block.content.unwrap_or_else(|| Content::Text(String::new()));
    let texts = blocks(content, &format!("{at}.content"))?.into_iter().map(|(kind, block, at)| match kind.as_str() {
        "text" => needed(block.text, &at, "text"),
        kind => block.stand_in(kind, &at, tools),
    });
    let text = texts.collect::<Result<Vec<_>, _>>()?.join("\n");
    let text = if block.is_error == Some(true) { format!("{FAILED}{text}") } else { text };
    let call_id = Some(needed(block.tool_use_id, at, "tool_use_id")?);
    Ok(Message { call_id, ..Message::new(Role::Tool, text) })
}

impl Block {
    /// The text that stands for a block of this type beside results. That of a reference to a tool is the tool's
    /// definition: the list of tools stays as it is, and with it the beginning of the prompt.
    fn stand_in(self, kind: &str, at: &str, tools: &Tools) -> Result<String, ApiError> {
        if kind != "tool_reference" {
            return Ok(self.placeholder(kind));
        }
        let name = needed(self.tool_name, at, "tool_name")?;
        Ok(match tools.get(&name) {
            Some(tool) => format!("You can call this tool now: {}", tool.definition()),
            None => format!("There is no tool {:?}.", shortened(&name)),
        })
    }

    /// The text that stands for a block of this type, which is no text itself. A document may be one all the same.
    fn placeholder(self, kind: &str) -> String {
        let Source { r#type, media_type, data } = self.source.unwrap_or_default();
        match data {
            Some(text) if kind == "document" && r#type.as_deref() == Some("text") => text,
            _ => {
                let [media_type, title] = [&media_type, &self.title].map(|text| text.as_deref().map(shortened));
                placeholder(kind, media_type, title)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gristmill_engine::template::Tool;
    use serde_json::json;

    fn read(messages: Value, system: Value) -> Result<Vec<Message>, ApiError> {
        let (messages, system) = (serde_json::from_value(messages), serde_json::from_value(system));
        let word = Tool { name: "word".to_owned(), is_deferred: true, ..Tool::default() };
        let mut tools = Tools::default();
        tools.push(word, String::new(), String::new()).expect("a tool");
        super::messages(messages.expect("messages"), system.expect("a system prompt"), &tools)
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
        assert_eq!((call.name.as_str(), &call.arguments["place"]), ("weather", &json!("Rome")));
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
            "a:\n[image (image/png): not shown, because this model reads text only]\nrye",
            "Error: no such file",
            "You can call this tool now: {\"name\":\"word\"}\nThere is no tool \"wor\".",
            "[document (a.pdf, application/pdf): not shown, because this model reads text only]\nand?",
        ];
        assert_eq!(texts, expected);
    }

    #[test]
    fn wrong_blocks_are_named_by_their_paths() {
        for (content, param) in [
            (json!([{"type": "image", "source": {}}]), "messages[0].content[0].type"),
            (json!([{"type": "tool_result", "content": "x"}]), "messages[0].content[0].tool_use_id"),
            (json!([{"type": "text", "text": "a"}, {"text": "x"}]), "messages[0].content[1].type"),
            (json!([{"type": "text"}]), "messages[0].content[0].text"),
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
