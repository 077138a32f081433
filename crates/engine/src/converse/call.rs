//! Calls that a reply must be, or may be: the text that starts a call, and the grammar of the rest, in the form that
//! the model was trained on.

use gristmill_text::grammar::Grammar;
use gristmill_text::reply::{CallBody, Frame, Item, Syntax};
use gristmill_text::template::Tool;
use gristmill_text::tokenizer::Tokenizer;
use serde_json::{Value as Json, json};

use super::lark::{self, Marks, quoted};
use super::{gemma, nested, python, tagged};
use crate::EngineError;

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

/// The text that starts a call of one of these tools after a prompt; `write` writes the name of the only one.
pub(super) fn opening(syntax: &Syntax, prompt: &str, tools: &[Tool], write: impl Fn(&str) -> String) -> String {
    let opening = syntax.opening_of_call(prompt);
    match (between(&syntax.call.body), tools) {
        (Some(between), [tool]) => [opening, write(&tool.name), between].concat(),
        _ => opening,
    }
}

/// The text between a name and its arguments, if only JSON follows.
fn between(body: &CallBody) -> Option<String> {
    if let CallBody::Json(frame) = body { frame.between() } else { None }
}

/// The call of one of these [`callable`] tools, after a prompt.
pub(super) fn required(syntax: &Syntax, prompt: &str, tools: &[Tool], tokenizer: &Tokenizer) -> RequiredCall {
    let opening = opening(syntax, prompt, tools, str::to_owned);
    let grammar = match (&syntax.call.body, tools) {
        (CallBody::Json(Frame { item: Item::Named(_), .. }), [tool]) => Grammar::JsonSchema(lark::parameters(tool)),
        (CallBody::Json(frame), _) if schema(frame, tools).is_some() => {
            Grammar::JsonSchema(schema(frame, tools).unwrap_or_default())
        }
        (body, _) => Grammar::Lark(format!("start: call\n{}", rules(body, tools, &Marks::new(tokenizer)))),
    };
    RequiredCall { opening, grammar }
}

/// The grammar of a reply that is an answer, which follows a grammar behind its opening, or a call of one of these
/// tools, which have the schemas that calls follow.
pub(super) fn answer_or_call(
    (opening, answer): (&str, &Grammar),
    syntax: &Syntax,
    prompt: &str,
    tools: &[Tool],
    tokenizer: &Tokenizer,
) -> Result<Grammar, EngineError> {
    let marks = Marks::new(tokenizer);
    let [answer_opening, call_opening] = [opening, &*syntax.opening_of_call(prompt)].map(|text| marks.terminals(text));
    let answer = answer.expression()?;
    let start = format!("start: {answer_opening} answer\n  | {call_opening} call\nanswer: {answer}\n");
    Ok(Grammar::Lark(start + &rules(&syntax.call.body, tools, &marks)))
}

/// The rule `call` in Lark, and those that it refers to.
fn rules(body: &CallBody, tools: &[Tool], marks: &Marks) -> String {
    let rules = own_rules(body, tools, marks);
    match lark::len_beside_schemas(&rules) {
        0..=MAX_RULES => rules,
        _ => {
            let call = match body {
                CallBody::Json(frame) if frame.is_list => {
                    let call = object("name", "arguments", tools, "/items");
                    json!({"type": "array", "items": call, "minItems": 1, "maxItems": 1})
                }
                _ => object("name", "arguments", tools, ""),
            };
            format!("call: %json {call}\n")
        }
    }
}

/// Bytes of the rules of a call beside their schemas; a grammar has at most 12 KiB. With more, a call is JSON.
const MAX_RULES: usize = 10 << 10;

fn own_rules(body: &CallBody, tools: &[Tool], marks: &Marks) -> String {
    match body {
        CallBody::Tags(tags) => tagged::rules(tags, tools, marks),
        CallBody::Gemma => gemma::rules(tools, marks),
        CallBody::Nested => nested::rules(tools, marks),
        CallBody::Json(Frame { item: Item::Python, .. }) => python::rules(tools),
        CallBody::Json(frame) => match (frame.between(), schema(frame, tools)) {
            (None, Some(schema)) => format!("call: %json {schema}\n"),
            (between, _) => named(&between.unwrap_or_default(), tools, marks),
        },
        _ => String::new(),
    }
}

/// The schema of a call as one value of JSON, unless its name is not in it.
fn schema(frame: &Frame, tools: &[Tool]) -> Option<Json> {
    let place = if frame.is_list { "/items" } else { "" };
    let call = match frame.item {
        Item::Object([name, arguments]) => object(name, arguments, tools, place),
        Item::Keyed => keyed(tools, place),
        _ => return None,
    };
    Some(match frame.is_list {
        true => json!({"type": "array", "items": call, "minItems": 1, "maxItems": 1}),
        false => call,
    })
}

/// The schema of an object with the name and the arguments of a call under these keys; it is at `place` of a schema.
pub(super) fn object(name: &str, arguments: &str, tools: &[Tool], place: &str) -> Json {
    any_of(tools, place, |tool| {
        let path = format!("/properties/{arguments}");
        let fields = |schema: Json| {
            json!({
                "type": "object",
                "properties": {name: {"const": tool.name}, arguments: schema},
                "required": [name, arguments],
                "additionalProperties": false,
            })
        };
        (path, Box::new(fields))
    })
}

/// The schema of an object whose only key is the name of a tool.
fn keyed(tools: &[Tool], place: &str) -> Json {
    any_of(tools, place, |tool| {
        let path = format!("/properties/{}", tool.name.replace('~', "~0").replace('/', "~1"));
        let fields = |schema: Json| {
            json!({
                "type": "object",
                "properties": {&tool.name: schema},
                "required": [tool.name],
                "additionalProperties": false,
            })
        };
        (path, Box::new(fields))
    })
}

/// A function from a tool's parameters to the schema of its call.
type Around<'t> = Box<dyn Fn(Json) -> Json + 't>;

/// The schema of a call of one of these tools. `around` returns where the parameters are in the schema of a call, too.
fn any_of<'t>(tools: &'t [Tool], place: &str, around: impl Fn(&'t Tool) -> (String, Around<'t>)) -> Json {
    let call = |(index, tool): (usize, &'t Tool)| {
        let (path, around) = around(tool);
        let mut schema = lark::parameters(tool);
        move_references(&mut schema, &format!("{place}/anyOf/{index}{path}"));
        around(schema)
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

/// The rule `call` in Lark: a name, a text with marks, and arguments.
fn named(between: &str, tools: &[Tool], marks: &Marks) -> String {
    let calls = |tool: &Tool| format!("{} marks %json {}", quoted(&tool.name), lark::parameters(tool));
    let calls: Vec<String> = tools.iter().map(calls).collect();
    format!("call: {}\nmarks: {}\n", calls.join("\n  | "), marks.terminals(between))
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
        let tools = ["one", "t/w~o"].map(tool);
        for (schema, place, is_keyed) in [
            (object("name", "parameters", &tools, ""), "", false),
            (json!({"items": object("name", "parameters", &tools, "/items")}), "/items", false),
            (keyed(&tools, ""), "", true),
        ] {
            for (index, tool) in tools.iter().enumerate() {
                let call = schema.pointer(&format!("{place}/anyOf/{index}/properties")).expect("a call");
                let parameters = if is_keyed { &call[&tool.name] } else { &call["parameters"] };
                assert!(is_keyed || call["name"]["const"] == *tool.name);
                let target = parameters["properties"]["a"]["$ref"].as_str().expect("a reference");
                assert_eq!(schema.pointer(&target[1..]), Some(&json!({"type": "string"})));
                assert_eq!(parameters["properties"]["const"], json!({"const": {"$ref": "#/$defs/x"}}));
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
        let marks = Marks::of(|mark| (mark == "<|message|>").then_some(7));
        let expected = "call: \"a\" marks %json {}\n  | \"say \\\"b\\\"\" marks %json {}\nmarks: \" \" <[7]>\n";
        assert_eq!(named(" <|message|>", &tools, &marks), expected);
    }
}
