//! Calls that a reply must be, or may be: the text that starts a call, and the grammar of the rest, in the form that
//! the model was trained on.

use gristmill_text::grammar::Grammar;
use gristmill_text::reply::{CallBody, CallSyntax};
use gristmill_text::template::Tool;
use gristmill_text::tokenizer::Tokenizer;
use serde_json::{Value as Json, json};

use super::super::EngineError;

/// A call that a reply must be.
#[derive(Debug, PartialEq)]
pub(super) struct RequiredCall {
    /// The start of the reply, which the prompt ends with.
    pub(super) opening: String,
    /// The grammar of the rest.
    pub(super) grammar: Grammar,
}

/// The tools of which one has to be called: those with these names, or all.
pub(super) fn callable(mut tools: Vec<Tool>, names: Option<&[String]>) -> Result<Vec<Tool>, EngineError> {
    let unknown = names.unwrap_or_default().iter().find(|name| tools.iter().all(|tool| tool.name != **name));
    if let Some(name) = unknown {
        return Err(EngineError::UnknownTool(name.clone()));
    }
    tools.retain(|tool| names.is_none_or(|names| names.contains(&tool.name)));
    if tools.is_empty() { Err(EngineError::NoTools) } else { Ok(tools) }
}

/// The text that starts a call of one of these tools; `write` writes the name of the only one.
pub(super) fn opening(syntax: &CallSyntax, tools: &[Tool], write: impl Fn(&str) -> String) -> String {
    match (&syntax.body, tools) {
        (CallBody::Named(marks), [tool]) => [syntax.opening, &write(&tool.name), &marks.concat()].concat(),
        _ => syntax.opening.to_owned(),
    }
}

/// The call of one of these [`callable`] tools.
pub(super) fn required(syntax: &CallSyntax, tools: &[Tool], tokenizer: &Tokenizer) -> RequiredCall {
    let opening = opening(syntax, tools, str::to_owned);
    match (&syntax.body, tools) {
        (CallBody::Object(arguments), _) => {
            RequiredCall { opening, grammar: Grammar::JsonSchema(object(arguments, tools, "")) }
        }
        (CallBody::List(arguments), _) => {
            RequiredCall { opening, grammar: Grammar::JsonSchema(list(arguments, tools)) }
        }
        (CallBody::Named(_), [tool]) => RequiredCall { opening, grammar: Grammar::JsonSchema(parameters(tool)) },
        (CallBody::Named(marks), _) => {
            let rules = format!("start: call\n{}", named(marks, tools, control(tokenizer)));
            RequiredCall { opening, grammar: Grammar::Lark(rules) }
        }
    }
}

/// The grammar of a reply that is an answer, which follows a grammar behind its opening, or a call of one of these
/// tools, which have the schemas that calls follow.
pub(super) fn answer_or_call(
    (opening, answer): (&str, &Grammar),
    syntax: &CallSyntax,
    tools: &[Tool],
    tokenizer: &Tokenizer,
) -> Result<Grammar, EngineError> {
    let control = control(tokenizer);
    let call = match &syntax.body {
        CallBody::Object(arguments) => format!("call: %json {}\n", object(arguments, tools, "")),
        CallBody::List(arguments) => format!("call: %json {}\n", list(arguments, tools)),
        CallBody::Named(marks) => named(marks, tools, &control),
    };
    let [answer_opening, call_opening] = [opening, syntax.opening].map(|text| terminals(text, &control));
    let answer = answer.expression()?;
    let start = format!("start: {answer_opening} answer\n  | {call_opening} call\nanswer: {answer}\n");
    Ok(Grammar::Lark(start + &call))
}

/// Returns the control token of a mark that is one.
fn control(tokenizer: &Tokenizer) -> impl Fn(&str) -> Option<u32> {
    |mark| tokenizer.tokens_of_bytes(mark.as_bytes()).find(|&id| tokenizer.is_special(id))
}

const BRACKETS: [char; 4] = ['<', '>', '[', ']'];
/// Brackets of the control token with most of them.
const MAX_BRACKETS: usize = 6;

/// A text in Lark, in which marks may be control tokens.
fn terminals(text: &str, control: impl Fn(&str) -> Option<u32>) -> String {
    let mut terminals = Vec::new();
    let (mut rest, mut plain) = (text, 0);
    // A control token starts and ends with a bracket, and can have others, as that of MiniMax M3 has.
    while let Some(open) = rest[plain..].find(BRACKETS).map(|at| plain + at) {
        let closes = rest[open..].match_indices(BRACKETS).map(|(at, _)| open + at + 1).take(MAX_BRACKETS);
        match closes.filter_map(|close| Some((close, control(&rest[open..close])?))).last() {
            Some((close, id)) => {
                terminals.extend((open > 0).then(|| quoted(&rest[..open])));
                terminals.push(token(id));
                (rest, plain) = (&rest[close..], 0);
            }
            None => plain = open + 1,
        }
    }
    terminals.extend((!rest.is_empty()).then(|| quoted(rest)));
    terminals.join(" ")
}

fn quoted(text: &str) -> String {
    Json::from(text).to_string()
}

fn token(id: u32) -> String {
    format!("<[{id}]>")
}

fn parameters(tool: &Tool) -> Json {
    tool.parameters.clone().unwrap_or_default()
}

/// The schema of a list with one call.
fn list(arguments: &str, tools: &[Tool]) -> Json {
    json!({"type": "array", "items": object(arguments, tools, "/items"), "minItems": 1, "maxItems": 1})
}

/// The schema of an object with the name and the arguments of a call; it is at `place` of a schema.
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

/// The rule `call` in Lark: a name, marks and arguments. `control` gives the control token of a mark that is one.
fn named(marks: &[&str], tools: &[Tool], control: impl Fn(&str) -> Option<u32>) -> String {
    let mark = |mark: &&str| control(mark).map_or_else(|| quoted(mark), token);
    let marks = marks.iter().map(mark).collect::<Vec<_>>().join(" ");
    let calls = |tool: &Tool| format!("{} marks %json {}", quoted(&tool.name), parameters(tool));
    let calls: Vec<String> = tools.iter().map(calls).collect();
    format!("call: {}\nmarks: {marks}\n", calls.join("\n  | "))
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
        let tools = ["one", "two"].map(tool);
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
            }
        }
    }

    #[test]
    fn tools_that_can_be_called() {
        let tools = || vec![tool("one"), tool("two")];
        let among = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
            callable(tools(), Some(&names))
        };
        assert_eq!(among(&["two"]).expect("one tool").len(), 1);
        assert!(matches!(among(&["two", "three"]), Err(EngineError::UnknownTool(name)) if name == "three"));
        assert!(matches!(among(&[]), Err(EngineError::NoTools)));
        assert_eq!(callable(tools(), None).expect("two tools").len(), 2);
        assert!(matches!(callable(Vec::new(), None), Err(EngineError::NoTools)));
    }

    #[test]
    fn names_and_control_tokens() {
        let tools = ["a", "say \"b\""].map(|name| Tool { parameters: Some(json!({})), ..tool(name) });
        let control = |mark: &str| match mark {
            "<|message|>" => Some(7),
            "]<]minimax[>[" => Some(8),
            _ => None,
        };
        let expected = "call: \"a\" marks %json {}\n  | \"say \\\"b\\\"\" marks %json {}\nmarks: \" \" <[7]>\n";
        assert_eq!(named(&[" ", "<|message|>"], &tools, control), expected);
        for (text, expected) in [
            ("<|message|>", "<[7]>"),
            ("<|x|>a<|message|>to=\"", "\"<|x|>a\" <[7]> \"to=\\\"\""),
            ("<tool_call>\n", "\"<tool_call>\\n\""),
            ("]<]minimax[>[<tool_call>\n", "<[8]> \"<tool_call>\\n\""),
            ("", ""),
        ] {
            assert_eq!(terminals(text, control), expected);
        }
    }
}
