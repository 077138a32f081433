//! Required calls: the text that begins a call, and the grammar of the rest, in the form that the model was trained on.

use gristmill_text::grammar::{Grammar, GrammarError, check_schema, closed_schema};
use gristmill_text::reply::{CallBody, CallSyntax};
use gristmill_text::template::Tool;
use gristmill_text::tokenizer::Tokenizer;
use serde_json::{Value as Json, json};

use super::super::EngineError;

/// A call that a reply must be.
#[derive(Debug, PartialEq)]
pub(super) struct RequiredCall {
    /// The beginning of the reply, which the prompt ends with.
    pub(super) opening: String,
    /// The grammar of the rest.
    pub(super) grammar: Grammar,
}

/// The tools of which one has to be called: those with these names, or all.
pub(super) fn callable(tools: &[Tool], names: Option<&[String]>) -> Result<Vec<Tool>, EngineError> {
    let unknown = names.unwrap_or_default().iter().find(|name| tools.iter().all(|tool| tool.name != **name));
    if let Some(name) = unknown {
        return Err(EngineError::UnknownTool(name.clone()));
    }
    let mut callable = Vec::new();
    for (index, tool) in tools.iter().enumerate() {
        if names.is_some_and(|names| !names.contains(&tool.name)) {
            continue;
        }
        let parameters = closed_schema(tool.parameters.clone().unwrap_or_else(|| json!({"type": "object"})));
        check_schema(&parameters).map_err(|error| match error {
            GrammarError::Schema { path, problem } => {
                EngineError::ToolSchema { index, tool: tool.name.clone(), path, problem }
            }
            error => error.into(),
        })?;
        callable.push(Tool { parameters: Some(parameters), ..tool.clone() });
    }
    if callable.is_empty() { Err(EngineError::NoTools) } else { Ok(callable) }
}

/// The call of one of these [`callable`] tools.
pub(super) fn required(syntax: &CallSyntax, tools: &[Tool], tokenizer: &Tokenizer) -> RequiredCall {
    let opening = syntax.opening;
    match (&syntax.body, tools) {
        (CallBody::Object(arguments), _) => {
            RequiredCall { opening: opening.to_owned(), grammar: Grammar::JsonSchema(object(arguments, tools, "")) }
        }
        (CallBody::List(arguments), _) => {
            let items = object(arguments, tools, "/items");
            let list = json!({"type": "array", "items": items, "minItems": 1, "maxItems": 1});
            RequiredCall { opening: opening.to_owned(), grammar: Grammar::JsonSchema(list) }
        }
        (CallBody::Named(marks), [tool]) => {
            let opening = [opening, &tool.name, &marks.concat()].concat();
            RequiredCall { opening, grammar: Grammar::JsonSchema(parameters(tool)) }
        }
        (CallBody::Named(marks), _) => {
            let control = |mark: &str| tokenizer.tokens_of_bytes(mark.as_bytes()).find(|&id| tokenizer.is_special(id));
            RequiredCall { opening: opening.to_owned(), grammar: Grammar::Lark(named(marks, tools, control)) }
        }
    }
}

fn parameters(tool: &Tool) -> Json {
    tool.parameters.clone().unwrap_or_default()
}

/// The schema of an object with the name and the arguments of a call; it stands at `place` of a schema.
fn object(arguments: &str, tools: &[Tool], place: &str) -> Json {
    let call = |(index, tool): (usize, &Tool)| {
        let mut schema = parameters(tool);
        move_references(&mut schema, &format!("{place}/anyOf/{index}/properties/{arguments}"));
        json!({
            "type": "object",
            "properties": {"name": {"const": tool.name}, arguments: schema},
            "required": ["name", arguments],
            "additionalProperties": false,
        })
    };
    json!({"anyOf": tools.iter().enumerate().map(call).collect::<Vec<_>>()})
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

/// The grammar of a name, marks and arguments, in Lark. `control` gives the control token of a mark that is one.
fn named(marks: &[&str], tools: &[Tool], control: impl Fn(&str) -> Option<u32>) -> String {
    let quoted = |text: &str| Json::from(text).to_string();
    let mark = |mark: &&str| control(mark).map_or_else(|| quoted(mark), |id| format!("<[{id}]>"));
    let marks = marks.iter().map(mark).collect::<Vec<_>>().join(" ");
    let calls = |tool: &Tool| format!("{} marks %json {}", quoted(&tool.name), parameters(tool));
    let calls: Vec<String> = tools.iter().map(calls).collect();
    format!("start: {}\nmarks: {marks}\n", calls.join("\n  | "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(name: &str) -> Tool {
        let parameters = json!({
            "properties": {"a": {"$ref": "#/$defs/x"}, "const": {"const": {"$ref": "#/$defs/x"}}},
            "$defs": {"x": {"type": "string"}},
        });
        Tool { name: name.to_owned(), parameters: Some(parameters), ..Tool::default() }
    }

    #[test]
    fn references_move_with_their_schema() {
        let tools = callable(&[tool("one"), tool("two")], None).expect("two tools");
        for (schema, place) in [
            (object("parameters", &tools, ""), ""),
            (json!({"items": object("parameters", &tools, "/items")}), "/items"),
        ] {
            for (index, name) in ["one", "two"].into_iter().enumerate() {
                let call = schema.pointer(&format!("{place}/anyOf/{index}/properties")).expect("a call");
                assert_eq!(call["name"]["const"], name);
                let target = call["parameters"]["properties"]["a"]["$ref"].as_str().expect("a reference");
                assert_eq!(schema.pointer(&target[1..]), Some(&json!({"type": "string"})));
                assert_eq!(call["parameters"]["properties"]["const"], json!({"const": {"$ref": "#/$defs/x"}}));
                assert_eq!(call["parameters"]["additionalProperties"], false);
            }
        }
    }

    #[test]
    fn tools_that_can_be_called() {
        let tools = [tool("one"), tool("two")];
        let among = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
            callable(&tools, Some(&names))
        };
        assert_eq!(among(&["two"]).expect("one tool").len(), 1);
        assert!(matches!(among(&["two", "three"]), Err(EngineError::UnknownTool(name)) if name == "three"));
        assert!(matches!(among(&[]), Err(EngineError::NoTools)));
        assert!(matches!(callable(&[], None), Err(EngineError::NoTools)));
        let parameters = Some(json!({"type": "object", "properties": {"a": {"contains": {}}}}));
        let bad = [tool("one"), Tool { parameters, ..tool("bad") }];
        let Err(EngineError::ToolSchema { index, tool, path, .. }) = callable(&bad, None) else { panic!("refused") };
        assert_eq!((index, &*tool, &*path), (1, "bad", "/properties/a/contains"));
    }

    #[test]
    fn names_and_control_tokens() {
        let tools = ["a", "say \"b\""].map(|name| Tool { parameters: Some(json!({})), ..tool(name) });
        let control = |mark: &str| (mark == "<|message|>").then_some(7);
        let expected = "start: \"a\" marks %json {}\n  | \"say \\\"b\\\"\" marks %json {}\nmarks: \" \" <[7]>\n";
        assert_eq!(named(&[" ", "<|message|>"], &tools, control), expected);
    }
}
