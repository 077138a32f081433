//! The variables of a template, in the names and forms that published templates read: those of OpenAI's chat interface,
//! with differences that are noted here.

use std::collections::HashMap;

use minijinja::Value;
use serde_json::{Map, Value as Json, json};

use super::RenderOptions;
use super::draft::Draft;
use super::message::{Call, Message, Role, Tool};
use super::thinking;

/// A mark of gpt-oss. Its template reads `thinking`, and refuses a call with both reasoning and text.
const REFUSES_BOTH: &str = "<|channel|>";

/// The variables of a rendering of this template.
pub(super) fn context(source: &str, draft: &Draft, options: &RenderOptions) -> Value {
    let Draft { chat, tools_are_a_list, texts_are_parts, .. } = draft;
    let tools = match chat.tools.as_slice() {
        // Defined, and nothing, as in transformers.
        [] if !tools_are_a_list => Json::Null,
        tools => tools.iter().map(tool).collect(),
    };
    let mut variables = Map::new();
    let mut messages = messages(&chat.messages, source.contains(REFUSES_BOTH));
    let images: &[char] = if options.images_are_text { &[] } else { &options.images };
    for message in &mut messages {
        let has_images = |text: &str| text.contains(images);
        if *texts_are_parts || (!images.is_empty() && message["content"].as_str().is_some_and(has_images)) {
            make_parts(message, images);
        }
    }
    variables.insert("messages".to_owned(), messages.into());
    variables.insert("tools".to_owned(), tools);
    variables.insert("add_generation_prompt".to_owned(), options.add_generation_prompt.into());
    let mut set = |name: &str, value: Option<Json>| value.map(|value| variables.insert(name.to_owned(), value));
    set("bos_token", options.bos_token.clone().map(Json::from));
    set("eos_token", options.eos_token.clone().map(Json::from));
    let switch = chat.thinking.map(|on| thinking::switch(source, on)).unwrap_or_default();
    variables.extend(switch.into_iter().map(|(name, value)| (name.to_owned(), value)));
    variables.extend(chat.variables.clone());
    variables.iter().map(|(name, value)| (name.as_str(), Value::from_serialize(value))).collect()
}

/// Makes a message's text a list of parts: the texts between these images, and the images.
fn make_parts(message: &mut Json, images: &[char]) {
    let content = message["content"].take();
    let text = content.as_str().unwrap_or_default();
    let part = |text: &str| json!({"type": "text", "text": text});
    if !text.contains(images) {
        message["content"] = json!([part(text)]);
        return;
    }
    let mut parts = Vec::new();
    for (index, text) in text.split(images).enumerate() {
        parts.extend((index > 0).then(|| json!({"type": "image"})));
        parts.extend((!text.is_empty()).then(|| part(text)));
    }
    message["content"] = parts.into();
}

fn messages(messages: &[Message], refuses_both: bool) -> Vec<Json> {
    // The names of the tools by the ids of the latest calls.
    let mut called = HashMap::new();
    let message = |from: &Message| {
        called.extend(from.calls.iter().map(|call| (call.id.clone(), call.name.clone())));
        let name = || called.get(from.call_id.as_ref()?).filter(|_| from.role == Role::Tool).cloned();
        message(from, from.name.clone().or_else(name), refuses_both)
    };
    messages.iter().map(message).collect()
}

fn message(from: &Message, name: Option<String>, refuses_both: bool) -> Json {
    let mut fields = Map::new();
    fields.insert("role".to_owned(), from.role.name().into());
    fields.insert("content".to_owned(), from.text.as_str().into());
    let mut set = |name: &str, value: Option<Json>| value.map(|value| fields.insert(name.to_owned(), value));
    set("name", name.map(Json::from));
    set("tool_call_id", from.call_id.clone().map(Json::from));
    let has_calls = !from.calls.is_empty();
    set("tool_calls", has_calls.then(|| from.calls.iter().map(call).collect()));
    let thinking = from.reasoning.clone().filter(|_| !(refuses_both && has_calls && !from.text.is_empty()));
    set("thinking", thinking.map(Json::from));
    set("reasoning_content", from.reasoning.clone().map(Json::from));
    fields.into()
}

/// A call, whose arguments are an object, where OpenAI writes its text; or the text of arguments that are no object.
fn call(call: &Call) -> Json {
    let function = json!({"name": call.name, "arguments": call.arguments});
    match call.id.as_str() {
        "" => json!({"type": "function", "function": function}),
        id => json!({"id": id, "type": "function", "function": function}),
    }
}

fn tool(tool: &Tool) -> Json {
    json!({"type": "function", "function": tool.definition()})
}
