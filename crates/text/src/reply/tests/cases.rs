//! Generated replies of each form, and the search in them.

use crate::template::Tool;
use serde_json::Value as Json;

use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{RngSeed, TestRunner};

use super::written::{Call, FORMS, Form, Messages, Part};
use super::*;

const NAMES: [&str; 3] = ["write_file", "now", "mcp.find-all"];
const KEYS: [&str; 5] = ["path", "content", "count", "items", "größe"];
const TYPES: [&str; 6] = ["string", "integer", "number", "boolean", "array", "object"];
/// What values have besides the marks of their form.
const TEXTS: [&str; 16] =
    ["a", "/data/a.md", "5", "true", "null", "{\"a\": 1}", "[", "\"", "'", "\\", "\\n", "\n", " ", "ö😀", "<", "}"];

/// A reply, and the tools that it was written for.
#[derive(Debug, Clone)]
pub(super) struct Case {
    pub(super) form: usize,
    pub(super) tools: Vec<Tool>,
    pub(super) calls: Vec<Call>,
    pub(super) reasoning: Option<String>,
    /// Before the calls, and after them.
    pub(super) content: [String; 2],
}

impl Case {
    pub(super) fn form(&self) -> &'static Form {
        &FORMS[self.form]
    }

    pub(super) fn parts(&self) -> Vec<Part> {
        let mut parts = Vec::new();
        (self.form().write)(&mut parts, &self.calls);
        parts.retain(|part| !part.text().is_empty());
        parts
    }

    /// Whether the form writes messages.
    pub(super) fn has_messages(&self) -> bool {
        self.form().messages().is_some()
    }

    /// Whether values are written without quotes, so that the schema gives their types.
    pub(super) fn is_tagged(&self) -> bool {
        [CODER, SEED, GLM, MINIMAX, M3, HY3, MUSE].contains(&self.form().template)
    }

    /// The reasoning, without its end if `is_open`.
    pub(super) fn thought(&self, is_open: bool) -> String {
        let marks = self.form().messages().map(|messages| messages.thought.into()).or(self.form().think);
        let marks = marks.expect("marks of reasoning");
        let close = if is_open { "" } else { marks.1 };
        self.reasoning.as_ref().map(|reasoning| format!("{}{reasoning}{close}", marks.0)).unwrap_or_default()
    }

    /// What is before the calls, and after them.
    pub(super) fn around(&self) -> [String; 2] {
        let [before, after] = &self.content;
        // A call without a mark must start the reply.
        let before = if self.is_unmarked() { "" } else { before };
        let thought = self.thought(false);
        let Some(Messages { answer, between, .. }) = self.form().messages() else {
            let before =
                [&*thought, before].iter().filter(|text| !text.is_empty()).map(|text| format!("{text}\n\n")).collect();
            return [before, if after.is_empty() { String::new() } else { format!("\n{after}") }];
        };
        let said = |text: &str| if text.is_empty() { String::new() } else { [answer[0], text, answer[1]].concat() };
        let before = if before.is_empty() { thought } else { [&*thought, &said(before), between].concat() };
        let after = if after.is_empty() { String::new() } else { [between, &said(after)].concat() };
        [before, after]
    }

    /// The content as it is meant.
    pub(super) fn said(&self) -> String {
        let before = if self.is_unmarked() { "" } else { &*self.content[0] };
        let both = [before, &self.content[1]].map(str::to_owned);
        both.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n")
    }

    pub(super) fn is_unmarked(&self) -> bool {
        self.parts().first().is_some_and(|part| part.text() == "{")
    }

    pub(super) fn reply(&self) -> Reply {
        Reply::new(Some(self.form().template), "", ReplyOptions::for_tools(&self.tools))
    }

    pub(super) fn parse(&self, text: &str, is_cut: bool) -> ParsedReply {
        let mut reply = self.reply();
        let mut events = reply.push(text);
        events.extend(if is_cut { reply.cut() } else { reply.finish() });
        ParsedReply::joined(events)
    }
}

pub(super) fn meant(call: &ToolCall) -> Call {
    (call.name.clone(), serde_json::from_str(&call.arguments).expect("an object"))
}

/// A value without white space around its strings, which belongs to marks or to values as a model likes.
pub(super) fn trimmed(value: &Json) -> Json {
    match value {
        Json::String(text) => Json::from(text.trim()),
        Json::Array(items) => items.iter().map(trimmed).collect(),
        Json::Object(items) => items.iter().map(|(key, item)| (key.trim().to_owned(), trimmed(item))).collect(),
        scalar => scalar.clone(),
    }
}

fn strings(marks: &'static [&'static str]) -> impl Strategy<Value = String> {
    let part = prop_oneof![2 => select(&TEXTS[..]), 1 => select(marks)];
    prop::collection::vec(part, 0..6).prop_map(|parts| {
        let text = parts.concat();
        // If its first quote is doubled, a value that starts with the end of its call ends it.
        let text = if text.trim_start().starts_with(['}', ']', ')']) { format!("x{text}") } else { text };
        // The end of a value twice may be a fault.
        if marks.iter().any(|mark| text.trim_end().ends_with(mark)) { text + "." } else { text }
    })
}

fn values(kind: &'static str, marks: &'static [&'static str]) -> BoxedStrategy<Json> {
    let string = strings(marks).prop_map(Json::from);
    match kind {
        "string" => string.boxed(),
        "integer" => any::<i32>().prop_map(Json::from).boxed(),
        "number" => (-1000..1000i32).prop_map(|n| Json::from(f64::from(n) / 8.0)).boxed(),
        "boolean" => any::<bool>().prop_map(Json::from).boxed(),
        "array" => prop::collection::vec(prop_oneof![string, Just(Json::Null), Just(json!(7))], 0..3)
            .prop_map(Json::from)
            .boxed(),
        _ => prop::collection::vec((select(&KEYS[..]), string), 0..3)
            .prop_map(|items| Json::from_iter(items.into_iter().map(|(key, value)| (key.to_owned(), value))))
            .boxed(),
    }
}

/// The parameters of a tool: names, types, and whether they are required.
type Parameters = Vec<(&'static str, &'static str, bool)>;

fn parameters(all_required: bool) -> impl Strategy<Value = Parameters> {
    prop::collection::vec((select(&TYPES[..]), any::<bool>()), KEYS.len()).prop_map(move |types| {
        let parameters = KEYS.into_iter().zip(types);
        parameters.map(|(key, (kind, required))| (key, kind, required || all_required)).collect()
    })
}

fn tool(name: &str, parameters: &Parameters) -> Tool {
    let string = json!({"type": "string"});
    let schema = |kind| json!({"type": kind, "items": string, "additionalProperties": string});
    let properties = Json::from_iter(parameters.iter().map(|(key, kind, _)| (key.to_string(), schema(kind))));
    let required: Vec<&str> = parameters.iter().filter(|(.., required)| *required).map(|(key, ..)| *key).collect();
    let parameters = Some(json!({"type": "object", "properties": properties, "required": required}));
    Tool { name: name.to_owned(), parameters, ..Tool::default() }
}

fn calls(tools: Vec<Parameters>, marks: &'static [&'static str]) -> impl Strategy<Value = Vec<Call>> {
    let call = (0..tools.len()).prop_flat_map(move |index| {
        let value = |&(key, kind, required): &(&'static str, &'static str, bool)| {
            let given = if required { Just(true).boxed() } else { any::<bool>().boxed() };
            (given, values(kind, marks)).prop_map(move |(given, value)| given.then(|| (key.to_owned(), value)))
        };
        let arguments: Vec<_> = tools[index].iter().map(value).collect();
        arguments.prop_map(move |items| (NAMES[index].to_owned(), items.into_iter().flatten().collect()))
    });
    prop::collection::vec(call, 1..4)
}

/// The call with strings as the items of its lists, as the schema has them: their types are nowhere in the text.
fn of_strings((name, mut arguments): Call) -> Call {
    let items = arguments.iter_mut().filter_map(|(_, value)| value.as_array_mut()).flatten();
    items.filter(|item| !item.is_string()).for_each(|item| *item = Json::from(item.to_string()));
    (name, arguments)
}

/// Where all parameters are required, the schema shows a parameter whose beginning is damaged.
pub(super) fn cases(all_required: bool) -> impl Strategy<Value = Case> {
    let tools = prop::collection::vec(parameters(all_required), NAMES.len());
    (0..FORMS.len(), tools).prop_flat_map(|(form, parameters)| {
        let tools: Vec<Tool> = NAMES.iter().zip(&parameters).map(|(name, parameters)| tool(name, parameters)).collect();
        let reasoning = prop::option::of(select(&["I think.", "a\n< b\n", "\nTwo\n\n"][..]));
        let content = select(&["", "I look.", "Two  words\nand < lines"][..]);
        let content = [content.clone(), content];
        (calls(parameters, FORMS[form].marks), reasoning, content).prop_map(move |(calls, reasoning, content)| Case {
            form,
            tools: tools.clone(),
            calls: if FORMS[form].template == M3 { calls.into_iter().map(of_strings).collect() } else { calls },
            reasoning: reasoning.map(str::to_owned),
            content: content.map(str::to_owned),
        })
    })
}

pub(super) fn text(parts: &[Part]) -> String {
    parts.iter().map(Part::text).collect()
}

/// Few cases, the same each time: a search of many finds replies that nothing decides.
pub(super) fn few() -> ProptestConfig {
    ProptestConfig { cases: 300, rng_seed: RngSeed::Fixed(1), failure_persistence: None, ..ProptestConfig::default() }
}

/// Many cases of a fresh seed, which is printed.
pub(super) fn many() -> ProptestConfig {
    let seed = gristmill_suite::testing::seed_of_test();
    ProptestConfig { cases: 3000, rng_seed: RngSeed::Fixed(seed), ..few() }
}

pub(super) fn run<S: Strategy>(
    config: ProptestConfig,
    inputs: &S,
    check: impl Fn(S::Value) -> Result<(), TestCaseError>,
) {
    if let Err(error) = TestRunner::new(config).run(inputs, check) {
        panic!("{error}");
    }
}
