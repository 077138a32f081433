//! Items of a conversation, in the form of chats.

use std::collections::HashSet;

use gristmill_engine::template::Message;
use serde::Serialize;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use crate::error::ApiError;
use crate::openai::messages::from_openai;

/// A text of the user, or items.
#[derive(Debug, Serialize, ToSchema)]
#[expect(dead_code, reason = "it describes JSON to clients, and is never made")]
#[serde(untagged)]
pub(super) enum Input {
    Text(String),
    Items(Vec<InputItem>),
}

/// One item. An item with a role may leave its type out.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct InputItem {
    /// `message`, `function_call`, `function_call_output`, or `reasoning`.
    r#type: Option<String>,
    /// Of a message: `system`, `developer`, `user`, or `assistant`.
    role: Option<String>,
    /// Of a message: a text, or parts `input_text` and `output_text`. Of reasoning: parts `reasoning_text`.
    content: Option<Value>,
    /// Of reasoning: parts `summary_text`, which stand for a content that is missing.
    summary: Option<Value>,
    /// Of a call and of its output.
    call_id: Option<String>,
    /// Of a call: the function.
    name: Option<String>,
    /// Of a call: the text of a JSON object.
    arguments: Option<String>,
    /// Of a call's output: a text, or parts `input_text`.
    output: Option<Value>,
}

/// What a turn of the assistant has: it becomes one message.
#[derive(Debug, Default)]
struct Turn {
    reasoning: Vec<String>,
    said: Vec<String>,
    calls: Vec<Value>,
}

/// The messages so far.
#[derive(Debug, Default)]
struct Conversation {
    messages: Vec<Value>,
    turn: Turn,
    /// The ids of calls.
    called: HashSet<String>,
}

/// The messages of a conversation, which begins with the instructions. Adds the paths of fields that change nothing to
/// `ignored`.
pub(super) fn messages(
    input: &Value,
    instructions: Option<&str>,
    ignored: &mut Vec<String>,
) -> Result<Vec<Message>, ApiError> {
    let mut conversation = Conversation::default();
    if let Some(instructions) = instructions {
        conversation.system(instructions.to_owned());
    }
    match input {
        Value::String(text) => conversation.message("user", text.clone()),
        Value::Array(items) if !items.is_empty() => {
            for (index, item) in items.iter().enumerate() {
                conversation.item(item, &format!("input[{index}]"), ignored)?;
            }
        }
        Value::Array(_) => return Err(ApiError::param("input", "input is empty; give at least one item")),
        _ => return Err(ApiError::param("input", "input is a text or a list of items")),
    }
    conversation.end_turn();
    from_openai(&conversation.messages).map_err(|error| error.renamed(&[("messages", "input")]))
}

impl Conversation {
    fn item(&mut self, item: &Value, at: &str, ignored: &mut Vec<String>) -> Result<(), ApiError> {
        match (item["type"].as_str(), item["role"].as_str()) {
            (Some("message"), Some(role)) | (None, Some(role)) => self.role(role, &item["content"], at),
            (Some("message"), None) => Err(ApiError::param(format!("{at}.role"), "a message needs a role")),
            (Some("function_call"), _) => self.call(item, at),
            (Some("function_call_output"), _) => self.output(item, at),
            (Some("reasoning"), _) => {
                if !item["encrypted_content"].is_null() {
                    ignored.push(format!("{at}.encrypted_content"));
                }
                self.reasoning(item, at)
            }
            (Some("item_reference"), _) => Err(reference(at)),
            (None, None) if item["id"].is_string() => Err(reference(at)),
            (None, None) => Err(ApiError::param(format!("{at}.type"), "an item needs a type, such as message")),
            (Some(kind), _) => {
                let sentence = format!("items of type {kind:?} are not supported; leave them out");
                Err(ApiError::param(format!("{at}.type"), sentence).with_code("unsupported"))
            }
        }
    }

    fn role(&mut self, role: &str, content: &Value, at: &str) -> Result<(), ApiError> {
        let text = || texts(content, &["input_text", "output_text", "text"], &format!("{at}.content"));
        match role {
            "user" => self.message("user", text()?),
            "system" | "developer" => self.system(text()?),
            "assistant" => {
                // What follows calls within a turn is a part of it: outputs have to follow calls.
                if !self.turn.said.is_empty() && self.turn.calls.is_empty() {
                    self.end_turn();
                }
                self.turn.said.push(text()?);
            }
            _ => {
                let sentence = format!("{role:?} is not a role; use user, assistant, system or developer");
                return Err(ApiError::param(format!("{at}.role"), sentence));
            }
        }
        Ok(())
    }

    fn message(&mut self, role: &str, text: String) {
        self.end_turn();
        self.messages.push(json!({"role": role, "content": text}));
    }

    /// Joins the first messages of the system: many templates write only one.
    fn system(&mut self, text: String) {
        self.end_turn();
        match self.messages.as_mut_slice() {
            [first] if first["role"] == "system" => {
                let joined = format!("{}\n\n{text}", first["content"].as_str().unwrap_or_default());
                first["content"] = joined.into();
            }
            _ => self.message("system", text),
        }
    }

    fn call(&mut self, item: &Value, at: &str) -> Result<(), ApiError> {
        let (id, name) = (text(item, "call_id", at)?, text(item, "name", at)?);
        let arguments = match text(item, "arguments", at)?.trim() {
            "" => Ok(Map::new()),
            arguments => serde_json::from_str(arguments),
        };
        let arguments: Map<String, Value> = arguments.map_err(|error| {
            let sentence = format!("the arguments of a call are the text of a JSON object: {error}");
            ApiError::param(format!("{at}.arguments"), sentence)
        })?;
        self.called.insert(id.to_owned());
        let function = json!({"name": name, "arguments": arguments});
        self.turn.calls.push(json!({"id": id, "type": "function", "function": function}));
        Ok(())
    }

    fn output(&mut self, item: &Value, at: &str) -> Result<(), ApiError> {
        let id = text(item, "call_id", at)?;
        if !self.called.contains(id) {
            let sentence = format!(
                "no function_call before this item has the call_id {id:?}; this server keeps no state: send the call again"
            );
            return Err(ApiError::param(format!("{at}.call_id"), sentence));
        }
        let output = texts(&item["output"], &["input_text", "output_text", "text"], &format!("{at}.output"))?;
        self.end_turn();
        self.messages.push(json!({"role": "tool", "tool_call_id": id, "content": output}));
        Ok(())
    }

    fn reasoning(&mut self, item: &Value, at: &str) -> Result<(), ApiError> {
        let text = |field: &str, kinds: &[&str]| match &item[field] {
            Value::Null => Ok(String::new()),
            parts => texts(parts, kinds, &format!("{at}.{field}")),
        };
        let reasoning = text("content", &["reasoning_text", "text"])?;
        let reasoning = if reasoning.is_empty() { text("summary", &["summary_text"])? } else { reasoning };
        if !reasoning.is_empty() {
            if !self.turn.said.is_empty() && self.turn.calls.is_empty() {
                self.end_turn();
            }
            self.turn.reasoning.push(reasoning);
        }
        Ok(())
    }

    /// Makes the turn of the assistant a message, if there is one.
    fn end_turn(&mut self) {
        let Turn { reasoning, said, calls } = std::mem::take(&mut self.turn);
        if reasoning.is_empty() && said.is_empty() && calls.is_empty() {
            return;
        }
        let mut message = json!({"role": "assistant", "content": said.join("\n"), "tool_calls": calls});
        if !reasoning.is_empty() {
            message["reasoning_content"] = reasoning.join("\n").into();
        }
        self.messages.push(message);
    }
}

fn reference(at: &str) -> ApiError {
    let message = "this server keeps no state; send the item itself instead of a reference to it";
    ApiError::param(at, message).with_code("unsupported")
}

fn text<'a>(item: &'a Value, field: &str, at: &str) -> Result<&'a str, ApiError> {
    let missing = || ApiError::param(format!("{at}.{field}"), format!("the item needs the text {field}"));
    item[field].as_str().ok_or_else(missing)
}

/// A text, or parts of these types, which are joined by line ends.
fn texts(content: &Value, kinds: &[&str], at: &str) -> Result<String, ApiError> {
    let parts = match content {
        Value::String(text) => return Ok(text.clone()),
        Value::Array(parts) => parts,
        _ => return Err(ApiError::param(at, "a text or a list of parts is needed")),
    };
    let part = |(index, part): (usize, &Value)| {
        let at = format!("{at}[{index}]");
        match part["type"].as_str() {
            Some(kind) if kinds.contains(&kind) => text(part, "text", &at).map(str::to_owned),
            // Another server's.
            Some("refusal") => text(part, "refusal", &at).map(str::to_owned),
            Some(kind) => {
                let sentence = format!("parts of type {kind:?} are not supported here; use {}", kinds.join(" or "));
                Err(ApiError::param(format!("{at}.type"), sentence).with_code("unsupported"))
            }
            None => Err(ApiError::param(format!("{at}.type"), format!("a part needs a type, such as {}", kinds[0]))),
        }
    };
    Ok(parts.iter().enumerate().map(part).collect::<Result<Vec<_>, _>>()?.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn converted(input: Value) -> Vec<Message> {
        messages(&input, None, &mut Vec::new()).expect("a conversation")
    }

    fn outline(messages: &[Message]) -> Vec<(&str, &str)> {
        messages.iter().map(|message| (message.role.name(), message.text.as_str())).collect()
    }

    #[test]
    fn a_conversation_with_a_call() {
        let mut ignored = Vec::new();
        let input = json!([
            {"role": "developer", "content": "be kind"},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "weather?"},
                                                            {"type": "input_text", "text": "in Rome"}]},
            {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}],
             "encrypted_content": null},
            {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "weather", "arguments": "{\"place\":\"Rome\"}",
             "status": "completed"},
            {"type": "function_call", "call_id": "c2", "name": "clock", "arguments": ""},
            {"type": "function_call_output", "call_id": "c2", "output": "noon"},
            {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "sun"}]},
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "short"}], "encrypted_content": "x"},
            {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [
                {"type": "output_text", "text": "sun at noon", "annotations": [], "logprobs": []}]},
            {"role": "user", "content": "thanks"},
        ]);
        let found = messages(&input, Some("be brief"), &mut ignored).expect("a conversation");
        let expected = [
            ("system", "be brief\n\nbe kind"),
            ("user", "weather?\nin Rome"),
            ("assistant", ""),
            ("tool", "noon"),
            ("tool", "sun"),
            ("assistant", "sun at noon"),
            ("user", "thanks"),
        ];
        assert_eq!(outline(&found), expected);
        assert_eq!(ignored, ["input[7].encrypted_content"]);
        let calls = &found[2].calls;
        assert_eq!((&*calls[0].id, &calls[0].arguments["place"]), ("c1", &json!("Rome")));
        assert_eq!((&*calls[1].name, calls[1].arguments.len()), ("clock", 0));
        assert_eq!((found[3].call_id.as_deref(), found[4].call_id.as_deref()), (Some("c2"), Some("c1")));
        assert_eq!((found[2].reasoning.as_deref(), found[5].reasoning.as_deref()), (Some("hm"), Some("short")));
    }

    #[test]
    fn turns_of_the_assistant() {
        assert_eq!(outline(&converted(json!("hi"))), [("user", "hi")]);
        let said = |text: &str| json!({"role": "assistant", "content": text});
        let call = json!({"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"});
        let output = json!({"type": "function_call_output", "call_id": "c", "output": "1"});
        let found = converted(json!([said("a"), call, said("b"), output, said("c"), said("d")]));
        assert_eq!(outline(&found), [("assistant", "a\nb"), ("tool", "1"), ("assistant", "c"), ("assistant", "d")]);
        assert_eq!(found[0].calls.len(), 1);
        // Later messages of the system keep their places, and reasoning without a text is nothing.
        let user = json!({"role": "user", "content": "x"});
        let later = json!({"role": "system", "content": "y"});
        let found = converted(json!([user, later, {"type": "reasoning", "summary": []}, later]));
        assert_eq!(outline(&found), [("user", "x"), ("system", "y"), ("system", "y")]);
    }

    #[test]
    fn wrong_items_are_named_by_their_paths() {
        let refused = |input: Value| {
            let error = messages(&input, None, &mut Vec::new()).expect_err("refused");
            serde_json::to_value(error.body()).expect("JSON")["error"].clone()
        };
        let user = |part: Value| json!([{"role": "user", "content": [{"type": "input_text", "text": "a"}, part]}]);
        let call =
            |arguments: Value| json!([{"type": "function_call", "call_id": "c", "name": "f", "arguments": arguments}]);
        let output = json!({"type": "function_call_output", "call_id": "c", "output": "1"});
        for (input, param) in [
            (json!(null), "input"),
            (json!(5), "input"),
            (json!([]), "input"),
            (json!(["x"]), "input[0].type"),
            (json!([{"role": "judge", "content": "x"}]), "input[0].role"),
            (json!([{"type": "message", "content": "x"}]), "input[0].role"),
            (json!([{"role": "user"}]), "input[0].content"),
            (user(json!({"type": "input_image", "image_url": "x"})), "input[0].content[1].type"),
            (user(json!({"type": "input_file", "file_id": "x"})), "input[0].content[1].type"),
            (user(json!({"type": "input_audio"})), "input[0].content[1].type"),
            (user(json!({"type": "input_text"})), "input[0].content[1].text"),
            (user(json!({"text": "x"})), "input[0].content[1].type"),
            (json!([{"type": "reasoning", "content": [{"type": "input_image"}]}]), "input[0].content[0].type"),
            (json!([{"type": "function_call", "name": "f", "arguments": "{}"}]), "input[0].call_id"),
            (json!([{"type": "function_call", "call_id": "c", "arguments": "{}"}]), "input[0].name"),
            (call(json!("[1]")), "input[0].arguments"),
            (call(json!({})), "input[0].arguments"),
            (json!([output]), "input[0].call_id"),
            (json!([{"type": "item_reference", "id": "msg_1"}]), "input[0]"),
            (json!([{"id": "msg_1"}]), "input[0]"),
            (json!([{"type": "web_search_call", "id": "ws_1"}]), "input[0].type"),
        ] {
            assert_eq!(refused(input.clone())["param"], param, "{input}");
        }
        assert!(refused(json!([{"id": "x"}]))["message"].as_str().is_some_and(|message| message.contains("no state")));
    }
}
