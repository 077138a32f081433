//! Items of a conversation, which become messages.

use std::collections::HashSet;
use std::mem;

use gristmill_engine::template::{Call, Message, Role};
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::content::Content;
use crate::error::ApiError;
use crate::openai::content::{ContentPart, result_text, text};
use crate::openai::messages::object;
use crate::openai::namespaces::qualified;

/// One item. An item with a role may leave its type out.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct InputItem {
    /// `message`, `function_call`, `function_call_output`, or `reasoning`.
    r#type: Option<String>,
    id: Option<String>,
    /// The author of a message: `system`, `developer`, `user`, or `assistant`.
    role: Option<String>,
    /// A message's text, or parts `input_text` and `output_text`; the parts `reasoning_text` of reasoning.
    content: Option<Content<ContentPart>>,
    /// Parts `summary_text` of reasoning, which stand for a content that is missing.
    summary: Option<Content<ContentPart>>,
    /// Ignored: another server's reasoning, which only that server can read.
    encrypted_content: Option<String>,
    /// The id of a call, which its output repeats.
    call_id: Option<String>,
    /// The function of a call.
    name: Option<String>,
    /// The namespace of the function.
    namespace: Option<String>,
    /// The arguments of a call: the text of a JSON object.
    #[schema(value_type = Option<String>)]
    arguments: Option<Value>,
    /// A call's output: a text, or parts `input_text`. A line stands for each part of another type.
    output: Option<Content<ContentPart>>,
}

/// The types of parts with the text of a message or of an output.
const TEXT: [&str; 3] = ["input_text", "output_text", "text"];

/// The assistant's items between those of others. They become one message.
#[derive(Debug, Default)]
struct Turn {
    reasoning: Vec<String>,
    texts: Vec<String>,
    calls: Vec<Call>,
}

/// The messages so far.
#[derive(Debug, Default)]
struct Messages {
    messages: Vec<Message>,
    turn: Turn,
    /// The ids of calls.
    called: HashSet<String>,
}

/// The messages of a conversation, which begins with the instructions. Adds the paths of fields that change nothing to
/// `ignored`.
pub(super) fn messages(
    input: Content<InputItem>,
    instructions: Option<String>,
    ignored: &mut Vec<String>,
) -> Result<Vec<Message>, ApiError> {
    let mut messages = Messages::default();
    if let Some(instructions) = instructions {
        messages.system(instructions);
    }
    match input {
        Content::Text(text) => messages.push(Message::new(Role::User, text)),
        Content::Parts(items) if items.is_empty() => {
            return Err(ApiError::param("input", "input is empty; give at least one item"));
        }
        Content::Parts(items) => {
            for (index, item) in items.into_iter().enumerate() {
                messages.item(item, &format!("input[{index}]"), ignored)?;
            }
        }
    }
    messages.end_turn();
    Ok(messages.messages)
}

impl Messages {
    fn item(&mut self, item: InputItem, at: &str, ignored: &mut Vec<String>) -> Result<(), ApiError> {
        match (item.r#type.as_deref(), item.role.as_deref()) {
            (Some("message") | None, Some(_)) => self.message(item, at),
            (Some("message"), None) => Err(ApiError::param(format!("{at}.role"), "a message needs a role")),
            (Some("function_call"), _) => self.call(item, at),
            (Some("function_call_output"), _) => self.output(item, at),
            (Some("reasoning"), _) => {
                ignored.extend(item.encrypted_content.as_ref().map(|_| format!("{at}.encrypted_content")));
                self.reasoning(item, at)
            }
            // Another server's search. A function that it found is called if it is in `tools`.
            (Some(kind @ ("tool_search_call" | "tool_search_output")), _) => {
                ignored.push(format!("{at}.{kind}"));
                Ok(())
            }
            (Some("item_reference"), _) => Err(reference(at)),
            (None, None) if item.id.is_some() => Err(reference(at)),
            (None, None) => Err(ApiError::param(format!("{at}.type"), "an item needs a type, such as message")),
            (Some(other), _) => {
                let message = format!("items of type {other:?} are not supported; leave them out");
                Err(ApiError::param(format!("{at}.type"), message).with_code("unsupported"))
            }
        }
    }

    fn message(&mut self, item: InputItem, at: &str) -> Result<(), ApiError> {
        let text = text(needed(item.content, at, "content")?, &TEXT, &format!("{at}.content"))?;
        match item.role.as_deref().unwrap_or_default() {
            "user" => self.push(Message::new(Role::User, text)),
            "system" | "developer" => self.system(text),
            "assistant" => {
                self.continue_turn();
                self.turn.texts.push(text);
            }
            other => {
                let message = format!("{other:?} is not a role; use user, assistant, system or developer");
                return Err(ApiError::param(format!("{at}.role"), message));
            }
        }
        Ok(())
    }

    fn push(&mut self, message: Message) {
        self.end_turn();
        self.messages.push(message);
    }

    /// Joins the first messages of the system: many templates write only one.
    fn system(&mut self, text: String) {
        self.end_turn();
        match self.messages.as_mut_slice() {
            [first] if first.role == Role::System => first.text = format!("{}\n\n{text}", first.text),
            _ => self.messages.push(Message::new(Role::System, text)),
        }
    }

    fn call(&mut self, item: InputItem, at: &str) -> Result<(), ApiError> {
        let (id, name) = (needed(item.call_id, at, "call_id")?, needed(item.name, at, "name")?);
        let name = qualified(item.namespace.as_deref(), &name);
        let arguments = needed(item.arguments, at, "arguments")?;
        let arguments = object(Some(arguments), &format!("{at}.arguments"))?;
        self.called.insert(id.clone());
        self.turn.calls.push(Call { id, name, arguments });
        Ok(())
    }

    fn output(&mut self, item: InputItem, at: &str) -> Result<(), ApiError> {
        let id = needed(item.call_id, at, "call_id")?;
        if !self.called.contains(&id) {
            let message = format!(
                "no function_call before this item has the call_id {id:?}; this server keeps no state: send the call \
                 again"
            );
            return Err(ApiError::param(format!("{at}.call_id"), message));
        }
        let output = result_text(needed(item.output, at, "output")?, &TEXT, &format!("{at}.output"))?;
        self.push(Message { call_id: Some(id), ..Message::new(Role::Tool, output) });
        Ok(())
    }

    fn reasoning(&mut self, item: InputItem, at: &str) -> Result<(), ApiError> {
        let read = |parts: Option<Content<ContentPart>>, field: &str, types: &[&str]| match parts {
            None => Ok(String::new()),
            Some(parts) => text(parts, types, &format!("{at}.{field}")),
        };
        let content = read(item.content, "content", &["reasoning_text", "text"])?;
        let summary = read(item.summary, "summary", &["summary_text"])?;
        let reasoning = if content.is_empty() { summary } else { content };
        if !reasoning.is_empty() {
            self.continue_turn();
            self.turn.reasoning.push(reasoning);
        }
        Ok(())
    }

    /// Begins another turn after a text without calls. What follows calls within a turn is a part of it, because
    /// outputs have to follow calls.
    fn continue_turn(&mut self) {
        if !self.turn.texts.is_empty() && self.turn.calls.is_empty() {
            self.end_turn();
        }
    }

    /// Makes the turn of the assistant a message, if there is one.
    fn end_turn(&mut self) {
        let Turn { reasoning, texts, calls } = mem::take(&mut self.turn);
        if reasoning.is_empty() && texts.is_empty() && calls.is_empty() {
            return;
        }
        let reasoning = (!reasoning.is_empty()).then(|| reasoning.join("\n"));
        self.messages.push(Message { reasoning, calls, ..Message::new(Role::Assistant, texts.join("\n")) });
    }
}

fn reference(at: &str) -> ApiError {
    let message = "this server keeps no state; send the item itself instead of a reference to it";
    ApiError::param(at, message).with_code("unsupported")
}

fn needed<T>(value: Option<T>, at: &str, field: &str) -> Result<T, ApiError> {
    value.ok_or_else(|| ApiError::param(format!("{at}.{field}"), format!("the item needs the field {field}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::Fields;
    use serde_json::{Map, json};

    #[derive(Deserialize)]
    struct Sample {
        input: Content<InputItem>,
    }

    fn read(input: Value, ignored: &mut Vec<String>) -> Result<Vec<Message>, ApiError> {
        let mut fields = Fields::new(Map::from_iter([("input".to_owned(), input)]));
        messages(fields.read::<Sample>()?.input, Some("be brief".to_owned()), ignored)
    }

    fn converted(input: Value) -> Vec<Message> {
        read(input, &mut Vec::new()).expect("a conversation").split_off(1)
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
            {"type": "tool_search_call", "call_id": "c3", "execution": "client", "arguments": {"query": "rye"}},
            {"type": "tool_search_output", "call_id": "c3", "execution": "client", "status": "completed", "tools": []},
            {"role": "user", "content": "thanks"},
        ]);
        let found = read(input, &mut ignored).expect("a conversation");
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
        let searches = ["input[9].tool_search_call", "input[10].tool_search_output"];
        assert_eq!(ignored, ["input[7].encrypted_content", searches[0], searches[1]]);
        let calls = &found[2].calls;
        assert_eq!((calls[0].id.as_str(), &calls[0].arguments["place"]), ("c1", &json!("Rome")));
        assert_eq!((calls[1].name.as_str(), calls[1].arguments.len()), ("clock", 0));
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
            let error = read(input, &mut Vec::new()).expect_err("refused");
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
            (json!(["x"]), "input[0]"),
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
            (call(json!(5)), "input[0].arguments"),
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
