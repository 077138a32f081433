//! Items of a conversation, which become messages.

use std::collections::HashSet;
use std::mem;

use gristmill_engine::template::{Call, Message, Role};
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::others::{self, OtherCall};
use crate::content::Content;
use crate::error::ApiError;
use crate::fields::read_at;
use crate::images::{Images, Said};
use crate::openai::content::{ContentPart, result, said, text};
use crate::openai::messages::arguments_of;
use crate::openai::namespaces::qualified;
use crate::policy;

/// One item. An item with a role may leave its type out.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct InputItem {
    /// `message`, `function_call`, `function_call_output`, or `reasoning`. Calls and outputs of another server's tools,
    /// such as `web_search_call` and `custom_tool_call_output`, are calls and results too.
    pub(super) r#type: Option<String>,
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
    pub(super) name: Option<String>,
    /// The namespace of the function.
    pub(super) namespace: Option<String>,
    /// The MCP server of a call.
    pub(super) server_label: Option<String>,
    /// The arguments of a call: the text of a JSON object. A template prints other text as it is.
    #[schema(value_type = Option<String>)]
    pub(super) arguments: Option<Value>,
    /// A call's output: a text, or parts `input_text`. A line stands for each part of another type.
    pub(super) output: Option<Value>,
    /// The functions of `additional_tools`, which are called like those of `tools`. Other items' are not read.
    pub(super) tools: Option<Value>,
    /// What a shell, a search or a computer was asked to do.
    pub(super) action: Option<Value>,
    /// The change of an `apply_patch_call`.
    pub(super) operation: Option<Value>,
    /// The text of a `custom_tool_call`.
    pub(super) input: Option<Value>,
    /// The code of a `code_interpreter_call`.
    pub(super) code: Option<Value>,
    /// What that code has printed.
    pub(super) outputs: Option<Value>,
    /// The queries of a `file_search_call`.
    pub(super) queries: Option<Value>,
    /// What they have found.
    pub(super) results: Option<Value>,
    /// What a program returned.
    pub(super) result: Option<Value>,
    /// The prompt of an image.
    pub(super) revised_prompt: Option<Value>,
    /// Why a call has failed.
    pub(super) error: Option<Value>,
}

/// How the ids of reasoning start.
const REASONING: &str = "rs_";
/// What stands for an item that another server keeps.
const NOT_KEPT: &str = "[item: not in this conversation, because another server keeps it]";
/// What stands for a summary of the conversation that another server has encrypted.
const UNREADABLE: &str = "[summary of the conversation so far: not shown, because only the server that wrote it can \
                          read it]";

/// An item with tools.
pub(super) const ADDITIONAL_TOOLS: &str = "additional_tools";

/// The types of parts with the text of a message or of an output.
const TEXT: [&str; 3] = ["input_text", "output_text", "text"];

/// The assistant's items between those of others. They become one message, and the results that another server put
/// next to its calls.
#[derive(Debug, Default)]
struct Turn {
    reasoning: Vec<String>,
    texts: Vec<String>,
    calls: Vec<Call>,
    results: Vec<Message>,
}

impl Turn {
    /// Whether each call has its result.
    fn is_answered(&self) -> bool {
        !self.results.is_empty() && self.results.len() == self.calls.len()
    }
}

/// The messages so far.
#[derive(Debug)]
struct Messages<'i> {
    messages: Vec<Message>,
    images: &'i mut Images,
    turn: Turn,
    /// The ids of calls.
    called: HashSet<String>,
    /// Whether some items are missing, and with them calls.
    has_gaps: bool,
}

/// The messages of a conversation, which starts with the instructions. `path`: that of an item in the request. Adds the paths of fields that change nothing to
/// `ignored`.
pub(super) fn messages(
    input: Content<InputItem>,
    instructions: Option<String>,
    path: impl Fn(usize) -> String,
    images: &mut Images,
    ignored: &mut Vec<String>,
) -> Result<Vec<Message>, ApiError> {
    let (called, turn) = (HashSet::new(), Turn::default());
    let mut messages = Messages { messages: Vec::new(), images, turn, called, has_gaps: false };
    if let Some(instructions) = instructions {
        messages.system(instructions);
    }
    match input {
        Content::Text(text) => messages.push(Message::new(Role::User, text)),
        Content::Parts(items) if items.is_empty() => {
            return Err(ApiError::param("input", "input is empty; send at least one item"));
        }
        Content::Parts(items) => {
            for (index, item) in items.into_iter().enumerate() {
                messages.item(item, &path(index), ignored)?;
            }
        }
    }
    messages.end_turn();
    Ok(messages.messages)
}

impl Messages<'_> {
    fn item(&mut self, mut item: InputItem, at: &str, ignored: &mut Vec<String>) -> Result<(), ApiError> {
        let kind = item.r#type.take();
        match (kind.as_deref(), item.role.as_deref()) {
            (Some("message") | None, Some(_)) => self.message(item, at),
            (Some("message"), None) => Err(ApiError::param(format!("{at}.role"), "a message needs a role")),
            (Some("function_call"), _) => self.call(item, at),
            (Some("function_call_output"), _) => self.output(item, at, ignored),
            (Some("reasoning"), _) => {
                ignored.extend(item.encrypted_content.as_ref().map(|_| format!("{at}.encrypted_content")));
                self.reasoning(item, at)
            }
            (Some("item_reference"), _) => self.reference(&item, at, ignored),
            (None, None) if item.id.is_some() => self.reference(&item, at, ignored),
            (None, None) => Err(ApiError::param(format!("{at}.type"), "an item needs a type, such as message")),
            // Its functions are among the tools already.
            (Some(ADDITIONAL_TOOLS), _) => Ok(()),
            (Some(kind), _) if others::NOTES.contains(&kind) => {
                ignored.push(format!("{at}.{kind}"));
                Ok(())
            }
            (Some(kind), _) if others::COMPACTIONS.contains(&kind) => {
                ignored.push(format!("{at}.{kind}"));
                self.push(Message::new(Role::User, UNREADABLE.to_owned()));
                Ok(())
            }
            (Some(kind), _) if others::OUTPUTS.contains(&kind) => {
                let id = item.call_id.take().or(item.id.take());
                let said = match others::screenshot(&item).filter(|_| self.images.are_read()) {
                    Some(address) => {
                        self.images.url(format!("{at}.output.image_url"), address.to_owned(), None)?;
                        let mut said = Said::default();
                        said.image();
                        said
                    }
                    None => others::output(&item).into(),
                };
                self.push(Message { call_id: id, ..said.message(Role::Tool) });
                Ok(())
            }
            (Some(kind), _) => match others::call(kind, &mut item, at)? {
                Some(call) => self.other_call(call, item, at),
                None => {
                    let message = format!("items of type {kind:?} are not supported; leave them out");
                    Err(ApiError::param(format!("{at}.type"), message).with_code("unsupported"))
                }
            },
        }
    }

    /// An item that another server stores. Its content is lost, but the later items can still be answered.
    fn reference(&mut self, item: &InputItem, at: &str, ignored: &mut Vec<String>) -> Result<(), ApiError> {
        ignored.push(format!("{at}.item_reference"));
        self.has_gaps = true;
        if !item.id.as_deref().is_some_and(|id| id.starts_with(REASONING)) {
            self.continue_turn();
            self.turn.texts.push(NOT_KEPT.to_owned());
        }
        Ok(())
    }

    /// A call of another server's tool, and its result if it is in the same item.
    fn other_call(&mut self, call: OtherCall, item: InputItem, at: &str) -> Result<(), ApiError> {
        let OtherCall { name, arguments, result } = call;
        if self.turn.is_answered() {
            self.end_turn();
        }
        let id = needed(item.call_id.or(item.id), at, "call_id")?;
        self.called.insert(id.clone());
        self.turn.calls.push(Call { id: id.clone(), name, arguments });
        let result = result.map(|text| Message { call_id: Some(id), ..Message::new(Role::Tool, text) });
        self.turn.results.extend(result);
        Ok(())
    }

    fn message(&mut self, item: InputItem, at: &str) -> Result<(), ApiError> {
        let content = needed(item.content, at, "content")?;
        let path = format!("{at}.content");
        let role = item.role.as_deref().unwrap_or_default();
        if role == "user" {
            let said = said(content, &TEXT, &path, self.images)?;
            self.push(said.message(Role::User));
            return Ok(());
        }
        let text = text(content, &TEXT, &path)?;
        match role {
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
        let arguments = arguments_of(Some(arguments), &format!("{at}.arguments"))?;
        if self.turn.is_answered() {
            self.end_turn();
        }
        self.called.insert(id.clone());
        self.turn.calls.push(Call { id, name, arguments });
        Ok(())
    }

    fn output(&mut self, item: InputItem, at: &str, ignored: &mut Vec<String>) -> Result<(), ApiError> {
        let id = needed(item.call_id, at, "call_id")?;
        if !self.called.contains(&id) && !self.has_gaps {
            let message = format!(
                "no function_call before this item has the call_id {id:?}; this server keeps no state: send the call \
                 again"
            );
            return Err(ApiError::param(format!("{at}.call_id"), message));
        }
        let output = needed(item.output, at, "output")?;
        let at = format!("{at}.output");
        let output = result(content(output, &at, ignored)?, &TEXT, &at, self.images)?;
        self.push(Message { call_id: Some(id), ..output.message(Role::Tool) });
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

    /// Starts a new turn after a text without calls, and after calls that have their results. Items after other calls
    /// belong to the same turn, because outputs must follow calls.
    fn continue_turn(&mut self) {
        if self.turn.is_answered() || !self.turn.texts.is_empty() && self.turn.calls.is_empty() {
            self.end_turn();
        }
    }

    /// Makes the turn of the assistant a message, if there is one.
    fn end_turn(&mut self) {
        let Turn { reasoning, texts, calls, results } = mem::take(&mut self.turn);
        if reasoning.is_empty() && texts.is_empty() && calls.is_empty() {
            return;
        }
        let reasoning = (!reasoning.is_empty()).then(|| reasoning.join("\n"));
        self.messages.push(Message { reasoning, calls, ..Message::new(Role::Assistant, texts.join("\n")) });
        self.messages.extend(results);
    }
}

/// The content of an output.
fn content(output: Value, at: &str, ignored: &mut Vec<String>) -> Result<Content<ContentPart>, ApiError> {
    read_at(output, at, policy::RESPONSES, ignored)
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
        messages(
            fields.read::<Sample>()?.input,
            Some("be brief".to_owned()),
            |item| format!("input[{item}]"),
            &mut Images::none(),
            ignored,
        )
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
        assert_eq!((calls[0].id.as_str(), calls[0].arguments.get("place")), ("c1", Some(&json!("Rome"))));
        assert_eq!((calls[1].name.as_str(), calls[1].arguments.is_empty()), ("clock", true));
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
        // Later system messages keep their positions. Reasoning without a text is dropped.
        let user = json!({"role": "user", "content": "x"});
        let later = json!({"role": "system", "content": "y"});
        let found = converted(json!([user, later, {"type": "reasoning", "summary": []}, later]));
        assert_eq!(outline(&found), [("user", "x"), ("system", "y"), ("system", "y")]);
    }

    /// Items that another server has written: what is words is read, and the rest has a line.
    #[test]
    fn items_of_other_servers() {
        let mut ignored = Vec::new();
        let call = |kind: &str, more: Value| {
            let mut item = json!({"type": kind, "id": "i", "status": "completed"});
            item.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
            item
        };
        let input = json!([
            {"type": "message", "role": "user", "content": "look"},
            {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}]},
            call("web_search_call", json!({"action": {"type": "search", "query": "rye"}})),
            call("code_interpreter_call", json!({"code": "1+1", "outputs": [{"type": "logs", "logs": "2"}]})),
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "two"}]},
            call("mcp_list_tools", json!({"server_label": "mill", "tools": [{"name": "word", "input_schema": {}}]})),
            call("mcp_call", json!({"server_label": "mill", "name": "word", "arguments": "{\"a\":1}", "output": "quern"})),
            call("image_generation_call", json!({"result": "iVBO", "revised_prompt": "a mill"})),
            call("custom_tool_call", json!({"call_id": "c1", "name": "apply_patch", "input": "*** Begin"})),
            {"type": "custom_tool_call_output", "call_id": "c1", "output": "Done"},
            call("local_shell_call", json!({"call_id": "c2", "action": {"type": "exec", "command": ["ls"]}})),
            {"type": "function_call_output", "call_id": "c2", "output": "a.txt"},
            call("shell_call", json!({"call_id": "c3", "action": {"commands": ["pwd"]}})),
            {"type": "shell_call_output", "call_id": "c3", "output": [
                {"stdout": "/", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]},
            call("computer_call", json!({"call_id": "c4", "action": {"type": "screenshot"}})),
            {"type": "computer_call_output", "call_id": "c4",
             "output": {"type": "computer_screenshot", "image_url": "data:image/png;base64,AA"}},
            {"type": "compaction", "encrypted_content": "x"},
            {"type": "item_reference", "id": "rs_2"},
            {"type": "item_reference", "id": "msg_2"},
            {"type": "function_call_output", "call_id": "lost", "output": "5"},
        ]);
        let found = read(input, &mut ignored).expect("a conversation").split_off(1);
        let unseen = |what: &str| format!("[{what}: not shown, because this model cannot read it]");
        let (results, image, screen) = (unseen("results"), unseen("image"), unseen("computer_screenshot"));
        let expected = [
            ("user", "look"),
            ("assistant", ""),
            ("tool", results.as_str()),
            ("assistant", ""),
            ("tool", "2"),
            ("assistant", "two"),
            ("tool", "quern"),
            ("assistant", ""),
            ("tool", image.as_str()),
            ("assistant", ""),
            ("tool", "Done"),
            ("assistant", ""),
            ("tool", "a.txt"),
            ("assistant", ""),
            ("tool", "/\nexit code 0"),
            ("assistant", ""),
            ("tool", screen.as_str()),
            ("user", UNREADABLE),
            ("assistant", NOT_KEPT),
            ("tool", "5"),
        ];
        assert_eq!(outline(&found), expected);
        let calls: Vec<(&str, String)> = found
            .iter()
            .flat_map(|message| &message.calls)
            .map(|call| (call.name.as_str(), serde_json::to_string(&call.arguments).expect("JSON")))
            .collect();
        let expected = [
            ("web_search", json!({"type": "search", "query": "rye"})),
            ("code_interpreter", json!({"code": "1+1"})),
            ("mill__word", json!({"a": 1})),
            ("image_generation", json!({"prompt": "a mill"})),
            ("apply_patch", json!({"input": "*** Begin"})),
            ("local_shell", json!({"type": "exec", "command": ["ls"]})),
            ("shell", json!({"commands": ["pwd"]})),
            ("computer", json!({"type": "screenshot"})),
        ];
        assert_eq!(calls, expected.map(|(name, arguments)| (name, arguments.to_string())));
        let expected =
            ["input[5].mcp_list_tools", "input[16].compaction", "input[17].item_reference", "input[18].item_reference"];
        assert_eq!(ignored, expected);
        // A result follows the message with its call, also where the client has answered another call of it.
        let function = json!({"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"});
        let output = json!({"type": "function_call_output", "call_id": "c", "output": "1"});
        let found = converted(json!([function, call("web_search_call", json!({})), output]));
        assert_eq!(outline(&found), [("assistant", ""), ("tool", results.as_str()), ("tool", "1")]);
        assert_eq!(found[0].calls.len(), 2);
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
            (user(json!({"type": "input_image", "image_url": "x"})), "input[0].content[1].image_url"),
            (user(json!({"type": "input_file", "file_id": "x"})), "input[0].content[1].type"),
            (user(json!({"type": "input_audio"})), "input[0].content[1].type"),
            (user(json!({"type": "input_text"})), "input[0].content[1].text"),
            (user(json!({"text": "x"})), "input[0].content[1].type"),
            (json!([{"type": "reasoning", "content": [{"type": "input_image"}]}]), "input[0].content[0].type"),
            (json!([{"type": "function_call", "name": "f", "arguments": "{}"}]), "input[0].call_id"),
            (json!([{"type": "function_call", "call_id": "c", "arguments": "{}"}]), "input[0].name"),
            (call(json!([1])), "input[0].arguments"),
            (call(json!(5)), "input[0].arguments"),
            (json!([output]), "input[0].call_id"),
            (json!([{"type": "hologram_call", "id": "h_1"}]), "input[0].type"),
            (json!([{"type": "custom_tool_call", "name": "f"}]), "input[0].call_id"),
            (json!([{"type": "mcp_call", "id": "m", "name": "f", "arguments": 1}]), "input[0].arguments"),
            (json!([{"type": "function_call_output", "call_id": "c", "output": 5}]), "input[0].call_id"),
        ] {
            assert_eq!(refused(input.clone())["param"], param, "{input}");
        }
        let message = refused(json!([{"type": "hologram_call"}]))["message"].clone();
        assert!(message.as_str().is_some_and(|message| message.contains("hologram_call")), "{message}");
    }
}
