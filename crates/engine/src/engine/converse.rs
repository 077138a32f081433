//! Conversations: from messages and tools to a request, and to the form in which its reply is parsed.

use serde_json::{Value as Json, json};

use super::{Engine, EngineError, Grammar, Prompt, Request, closed_schema};
use crate::reply::{ReplyForm, ReplyOptions};
use crate::template::{Chat, Tool};

/// What the reply to a conversation may be.
#[derive(Debug, Clone, PartialEq)]
pub struct ConverseOptions {
    /// Whether the reply may or must call tools.
    pub tool_choice: ToolChoice,
    /// Whether the reply may have several calls. Otherwise the first call is given and further ones are dropped.
    pub parallel_calls: bool,
    /// What the reply must be. The grammar holds from the first token on, so the model does not reason and calls no tool.
    pub grammar: Option<Grammar>,
}

impl Default for ConverseOptions {
    fn default() -> ConverseOptions {
        ConverseOptions { tool_choice: ToolChoice::Auto, parallel_calls: true, grammar: None }
    }
}

/// Whether a reply may or must call tools.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ToolChoice {
    /// The model chooses.
    #[default]
    Auto,
    /// The model is not told of the tools, and what looks like a call is content.
    None,
    /// The reply is a call of any of the tools, with arguments of its schema.
    Required,
    /// The reply is a call of one of the tools with these names, with arguments of its schema.
    Among(Vec<String>),
}

impl Engine {
    /// The request for the reply to a conversation, and the form in which the reply is parsed. The request has default
    /// sampling and no limit but the context; several requests may be made of it, each with a parser of its own.
    ///
    /// # Errors
    /// As [`render`](Self::render). [`EngineError::NoTools`] and [`EngineError::UnknownTool`] if a call is required that no
    /// tool can have, [`EngineError::CallAndGrammar`] if a call and a grammar are both required.
    pub fn converse(&self, mut chat: Chat, options: ConverseOptions) -> Result<(Request, ReplyForm), EngineError> {
        let ConverseOptions { tool_choice, parallel_calls, grammar } = options;
        let call = match tool_choice {
            ToolChoice::Auto => None,
            ToolChoice::None => {
                chat.tools.clear();
                None
            }
            ToolChoice::Required => Some(call_schema(&chat.tools, None)?),
            ToolChoice::Among(names) => Some(call_schema(&chat.tools, Some(&names))?),
        };
        if call.is_some() && grammar.is_some() {
            return Err(EngineError::CallAndGrammar);
        }
        if call.is_some() || grammar.is_some() {
            chat.thinking = Some(false);
        }
        let template = self.model.template().unwrap_or_default();
        let mut prompt = self.render(&chat)?;
        let options = ReplyOptions { parallel_calls, ..ReplyOptions::for_tools(&chat.tools) };
        let form = match (&call, &grammar) {
            (None, None) => ReplyForm::new(template, &prompt, options),
            (Some(_), _) => {
                prompt.push_str(ReplyForm::answer_opening(&prompt));
                prompt.push_str(ReplyForm::call_opening(template));
                ReplyForm::one_call()
            }
            (None, Some(_)) => {
                prompt.push_str(ReplyForm::answer_opening(&prompt));
                ReplyForm::plain()
            }
        };
        let mut request = Request::new(Prompt::Rendered(prompt));
        request.grammar = grammar.or(call.map(Grammar::JsonSchema));
        request.control_tokens = form.marks_are_control_tokens();
        Ok((request, form))
    }
}

/// The schema of one call of one of the tools.
fn call_schema(tools: &[Tool], names: Option<&[String]>) -> Result<Json, EngineError> {
    let unknown = names.unwrap_or_default().iter().find(|name| tools.iter().all(|tool| tool.name != **name));
    if let Some(name) = unknown {
        return Err(EngineError::UnknownTool(name.clone()));
    }
    let mut calls = Vec::new();
    for tool in tools.iter().filter(|tool| names.is_none_or(|names| names.contains(&tool.name))) {
        let mut arguments = tool.parameters.clone().unwrap_or_else(|| json!({"type": "object"}));
        move_references(&mut arguments, &format!("/anyOf/{}/properties/arguments", calls.len()));
        calls.push(json!({
            "type": "object",
            "properties": {"name": {"const": tool.name}, "arguments": closed_schema(arguments)},
            "required": ["name", "arguments"],
            "additionalProperties": false,
        }));
    }
    if calls.is_empty() { Err(EngineError::NoTools) } else { Ok(json!({"anyOf": calls})) }
}

/// References of a schema that is put at another place.
fn move_references(schema: &mut Json, place: &str) {
    match schema {
        Json::Object(fields) => {
            for (name, value) in fields {
                match (name.as_str(), value) {
                    ("$ref", Json::String(target)) if target.starts_with('#') => target.insert_str(1, place),
                    ("properties" | "patternProperties" | "$defs" | "definitions", Json::Object(schemas)) => {
                        schemas.values_mut().for_each(|schema| move_references(schema, place));
                    }
                    // These are values, whatever they look like.
                    ("const" | "enum" | "default" | "examples", _) => {}
                    (_, value) => move_references(value, place),
                }
            }
        }
        Json::Array(values) => values.iter_mut().for_each(|value| move_references(value, place)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemas_of_calls() {
        let tool = |name: &str| {
            let parameters = json!({
                "properties": {"a": {"$ref": "#/$defs/x"}, "const": {"const": {"$ref": "#/$defs/x"}}},
                "$defs": {"x": {"type": "string"}},
            });
            Tool { name: name.to_owned(), parameters: Some(parameters), ..Tool::default() }
        };
        let tools = [tool("one"), tool("two")];
        let schema = call_schema(&tools, None).expect("two tools");
        for (index, name) in ["one", "two"].into_iter().enumerate() {
            let call = &schema["anyOf"][index]["properties"];
            assert_eq!(call["name"]["const"], name);
            let target = call["arguments"]["properties"]["a"]["$ref"].as_str().expect("a reference");
            assert_eq!(schema.pointer(&target[1..]), Some(&json!({"type": "string"})));
            assert_eq!(call["arguments"]["properties"]["const"], json!({"const": {"$ref": "#/$defs/x"}}));
            assert_eq!(call["arguments"]["additionalProperties"], false);
        }
        let among =
            |names: &[&str]| call_schema(&tools, Some(&names.iter().map(|&n| n.to_owned()).collect::<Vec<_>>()));
        assert_eq!(among(&["two"]).expect("one tool")["anyOf"].as_array().map(Vec::len), Some(1));
        assert!(matches!(among(&["two", "three"]), Err(EngineError::UnknownTool(name)) if name == "three"));
        assert!(matches!(among(&[]), Err(EngineError::NoTools)));
        assert!(matches!(call_schema(&[], None), Err(EngineError::NoTools)));
    }
}
