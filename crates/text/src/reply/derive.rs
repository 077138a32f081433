//! The form of calls, derived from what a template writes of them: words that no template has show where names, keys and
//! values are, and what is between them are marks.

use std::collections::BTreeSet;
use std::sync::Mutex;

use serde_json::{Map, Value as Json};

use super::frame::{Frame, Item, Named};
use super::marked::Frames;
use super::syntax::{CallBody, CallSyntax, ReasoningMarks, Syntax, marked};
use super::tags::{Lines, Tags};

/// What a template writes from the start of a reply to the end of the turn.
#[derive(Debug)]
pub(crate) struct Samples<'t> {
    /// A call of the first tool, with the first key and value.
    pub(crate) one: String,
    /// The same with both keys and values.
    pub(crate) two_arguments: Option<String>,
    /// Calls of both tools, each with the first key and value.
    pub(crate) two_calls: Option<String>,
    /// What follows an answer.
    pub(crate) turn_end: &'t str,
}

/// The words in the samples.
#[derive(Debug)]
pub(crate) struct Words {
    pub(crate) tools: [&'static str; 2],
    pub(crate) keys: [&'static str; 2],
    pub(crate) values: [&'static str; 2],
}

/// Bytes of the longest mark.
const MAX_MARK: usize = 100;
/// The most forms that a process derives, and the most marks: they are kept, so that the parsers of running replies can
/// refer to them.
const MAX_DERIVED: usize = 64;
const MAX_MARKS: usize = 16 * MAX_DERIVED;

static DERIVED: Mutex<Vec<&'static Syntax>> = Mutex::new(Vec::new());
static MARKS: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());

/// How calls are written, before it is kept.
#[derive(Debug, PartialEq)]
enum Found {
    Json(Frame),
    Tags(Tags),
}

impl Found {
    fn is(&self, body: &CallBody) -> bool {
        match (self, body) {
            (Found::Json(frame), CallBody::Json(other)) => frame == other,
            (Found::Tags(tags), CallBody::Tags(other)) => tags == *other,
            _ => false,
        }
    }
}

/// The form that the samples show, with these marks of reasoning; `None` if none can be derived, or if too many are.
pub(crate) fn derived(samples: &Samples, words: &Words, reasoning: ReasoningMarks) -> Option<&'static Syntax> {
    let found = json_form(samples, words, reasoning).or_else(|| tag_form(samples, words, reasoning))?;
    let mut derived = DERIVED.lock().ok()?;
    let is_same = |known: &&&'static Syntax| found.is(&known.call.body) && known.reasoning == [reasoning];
    if let Some(known) = derived.iter().find(is_same) {
        return Some(known);
    }
    if derived.len() == MAX_DERIVED {
        return None;
    }
    let body = match found {
        Found::Json(frame) => CallBody::Json(frame),
        Found::Tags(tags) => CallBody::Tags(Box::leak(Box::new(tags))),
    };
    let syntax: &'static Syntax = Box::leak(Box::new(Syntax {
        name: DERIVED_NAME,
        is_shown_by: |_, _| false,
        reasoning: Box::leak(Box::new([reasoning])),
        answer: None,
        frames: Frames::NONE,
        // Its marks can be control tokens.
        call: CallSyntax { body, is_control: true },
        parser: marked,
    }));
    derived.push(syntax);
    Some(syntax)
}

/// The name of all derived forms.
const DERIVED_NAME: &str = "derived";

impl Syntax {
    /// Whether the form is derived from a template. Other forms are built in.
    pub fn is_derived(&self) -> bool {
        self.name == DERIVED_NAME
    }
}

fn after_reasoning(text: &str, reasoning: ReasoningMarks) -> &str {
    text.rsplit_once(reasoning.close).map_or(text, |(_, after)| after)
}

/// A mark that a form keeps; `None` if it is too long, if it has words, or if too many are kept.
fn mark(text: &str) -> Option<&'static str> {
    if text.len() > MAX_MARK || text.contains("q7") {
        return None;
    }
    let mut marks = MARKS.lock().ok()?;
    if let Some(known) = marks.get(text) {
        return Some(known);
    }
    if marks.len() == MAX_MARKS {
        return None;
    }
    let mark: &'static str = Box::leak(text.to_owned().into_boxed_str());
    marks.insert(mark);
    Some(mark)
}

/// A call in a text: what is before and after it, and what is between its name and its arguments.
struct JsonCall<'t> {
    before: &'t str,
    item: JsonItem<'t>,
    after: &'t str,
}

enum JsonItem<'t> {
    Object([&'static str; 2]),
    Keyed,
    Named(&'t str),
}

/// The call of this tool in a text, whose arguments are a JSON object.
fn json_call<'t>(text: &'t str, tool: &str, words: &Words) -> Option<JsonCall<'t>> {
    let name = text.find(tool)?;
    let arguments = Json::from(Map::from_iter([(words.keys[0].to_owned(), words.values[0].into())]));
    // The smallest object around the name.
    let around = text[..name].rfind('{').and_then(|at| Some((at, object(&text[at..])?)));
    if let Some((at, (value, len))) = around {
        let fields = value.as_object()?;
        let key = |of: &Json| fields.iter().find(|(_, value)| *value == of).map(|(key, _)| key.as_str());
        let item = match (key(&tool.into()), key(&arguments)) {
            (None, Some(key)) if key == tool && fields.len() == 1 => JsonItem::Keyed,
            (Some("name"), Some("arguments")) => JsonItem::Object(["name", "arguments"]),
            (Some("name"), Some("parameters")) => JsonItem::Object(["name", "parameters"]),
            (Some("tool_name"), Some("parameters")) => JsonItem::Object(["tool_name", "parameters"]),
            _ => return None,
        };
        return Some(JsonCall { before: &text[..at], item, after: &text[at + len..] });
    }
    let behind = name + tool.len();
    let at = behind + text[behind..].find('{')?;
    let (value, len) = object(&text[at..])?;
    let item = JsonItem::Named(&text[behind..at]);
    (value == arguments).then_some(JsonCall { before: &text[..name], item, after: &text[at + len..] })
}

/// The JSON object at the start of a text, and its length.
fn object(text: &str) -> Option<(Json, usize)> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<Json>();
    let value = values.next()?.ok()?;
    Some((value, values.byte_offset()))
}

/// Marks around calls: of all, and of each.
struct Around<'t> {
    section: [&'t str; 2],
    call: [&'t str; 2],
}

/// Splits what is before the first call and after the last by what is between two calls.
fn around<'t>(before: &'t str, after: &'t str, between: Option<&str>) -> Around<'t> {
    let Some(between) = between.map(str::trim).filter(|between| !between.is_empty()) else {
        return Around { section: [before, after], call: ["", ""] };
    };
    // A mark is not split.
    let is_start = |text: &str| text.trim().is_empty() || text.trim_start().starts_with(['<', '[']);
    let starts = (0..=before.len()).filter(|&at| before.is_char_boundary(at) && (at == 0 || is_start(&before[at..])));
    let open = starts.into_iter().find(|&at| between.ends_with(before[at..].trim()));
    let (section, call) = before.split_at(open.unwrap_or(before.len()));
    let ends = (0..=after.len()).rev().filter(|&at| after.is_char_boundary(at) && is_start(&after[at..]));
    let end = ends.into_iter().find(|&at| between.starts_with(after[..at].trim()));
    let (call_end, section_end) = after.split_at(end.unwrap_or(0));
    Around { section: [section, section_end], call: [call, call_end] }
}

/// A form whose arguments are JSON.
fn json_form(samples: &Samples, words: &Words, reasoning: ReasoningMarks) -> Option<Found> {
    let one = json_call(after_reasoning(&samples.one, reasoning), words.tools[0], words)?;
    let (before, after) = (one.before.trim_start(), without_end(one.after, samples.turn_end));
    let is_list = before.trim_end().ends_with('[') && after.trim_start().starts_with(']');
    if is_list {
        let section = [before.trim_end().strip_suffix('[')?, after.trim_start().strip_prefix(']')?];
        let item = item(&one.item, "")?;
        let is_item = !matches!(item, Item::Named(_)) && !section[0].trim().is_empty();
        let section = [mark(section[0])?, mark(section[1].trim())?];
        return is_item.then_some(Found::Json(Frame { section, is_list, call: ["", ""], item }));
    }
    let two = samples.two_calls.as_deref().map(|two| after_reasoning(two, reasoning)).and_then(|two| {
        let first = json_call(two, words.tools[0], words)?;
        let second = json_call(first.after, words.tools[1], words)?;
        Some(second.before)
    });
    let marks = match two {
        Some(between) => around(before, after, Some(between)),
        None => Around { section: ["", ""], call: [before, after] },
    };
    if [marks.section[0], marks.call[0]].concat().trim().is_empty() {
        return None;
    }
    // A mark has a bracket or a bar, which no content starts with by chance.
    let first = if marks.section[0].trim().is_empty() { marks.call[0] } else { marks.section[0] };
    if !first.contains(['<', '[', '|', '｜', '>']) {
        return None;
    }
    Some(Found::Json(Frame {
        section: [mark(marks.section[0])?, mark(marks.section[1])?],
        is_list: false,
        call: [mark(marks.call[0])?, mark(marks.call[1])?],
        item: item(&one.item, "")?,
    }))
}

fn item(found: &JsonItem, after: &'static str) -> Option<Item> {
    Some(match found {
        JsonItem::Object(keys) => Item::Object(*keys),
        JsonItem::Keyed => Item::Keyed,
        JsonItem::Named(between) => Item::Named(Named { between: mark(between)?, after, ..Named::PLAIN }),
    })
}

/// A text without what ends a turn.
fn without_end<'t>(text: &'t str, turn_end: &str) -> &'t str {
    let text = text.trim_end();
    let mut end = turn_end.trim();
    // A template may write only a part of it after a call.
    while !end.is_empty() {
        if let Some(rest) = text.strip_suffix(end) {
            return rest;
        }
        end = end.char_indices().nth(1).map_or("", |(at, _)| &end[at..]);
        if !end.starts_with(['<', '[']) {
            end = end.find(['<', '[']).map_or("", |at| &end[at..]);
        }
    }
    text
}

/// A form whose values are between tags.
fn tag_form(samples: &Samples, words: &Words, reasoning: ReasoningMarks) -> Option<Found> {
    let text = after_reasoning(samples.two_arguments.as_deref()?, reasoning);
    let [tool, key, value, next_key, next_value] =
        [words.tools[0], words.keys[0], words.values[0], words.keys[1], words.values[1]];
    let (before, rest) = text.split_once(tool)?;
    let (to_key, rest) = rest.split_once(key)?;
    let (to_value, rest) = rest.split_once(value)?;
    let (to_next, rest) = rest.split_once(next_key)?;
    let after = without_end(rest.split_once(next_value)?.1, samples.turn_end);
    // The tag of a key follows the name, and a value.
    let key_tag = common_end(to_key.trim_end(), to_next.trim_end());
    let key_tag = &key_tag[key_tag.find('<')?..];
    let (name_end, value_end) = (to_key.trim_end().strip_suffix(key_tag)?, to_next.trim_end().strip_suffix(key_tag)?);
    let end = after.trim_start().strip_prefix(value_end.trim())?.trim();
    // Line ends around a value belong to its tags.
    let lines = match (to_value.ends_with('\n'), to_next.starts_with('\n')) {
        (true, true) => Lines::Always,
        (false, false) => Lines::Never,
        _ => return None,
    };
    let (key_end, value_tag) = match to_value.trim().split_once('<') {
        Some((key_end, value_tag)) => (key_end.trim(), format!("<{value_tag}")),
        None => (to_value.trim(), String::new()),
    };
    let (key_end, value_tag) = match key_end.is_empty() {
        true => {
            let at = value_tag.find('>')? + 1;
            (value_tag[..at].to_owned(), value_tag[at..].trim().to_owned())
        }
        false => (key_end.to_owned(), value_tag),
    };
    let two = after_reasoning(samples.two_calls.as_deref()?, reasoning);
    let between = two.split_once(words.values[0])?.1.split_once(words.tools[1])?.0;
    let between = between.trim_start().strip_prefix(value_end.trim())?;
    let Around { section, call } = around(before.trim_start(), end, Some(between));
    let ([open, close], [function, call_end]) = (section.map(str::trim), call.map(str::trim));
    let is_named = [open, function].concat().contains('<') && !value_end.trim().is_empty() && !key_end.is_empty();
    if !is_named {
        return None;
    }
    let name_end = name_end.trim();
    let tags = Tags {
        open: mark(if open.is_empty() { function } else { open })?,
        function: mark(if open.is_empty() { "" } else { function })?,
        name_end: if name_end.is_empty() { None } else { Some(mark(name_end)?) },
        end: mark(if call_end.is_empty() { close } else { call_end })?,
        close: mark(if close.is_empty() { call_end } else { close })?,
        key: mark(key_tag)?,
        key_end: mark(&key_end)?,
        value: mark(&value_tag)?,
        value_end: mark(value_end.trim())?,
        lines,
        several: !open.is_empty(),
        ..Tags::PLAIN
    };
    (!tags.end.is_empty()).then_some(Found::Tags(tags))
}

/// The longest text with which both end.
fn common_end<'t>(one: &'t str, other: &str) -> &'t str {
    let same = one.chars().rev().zip(other.chars().rev()).take_while(|(a, b)| a == b);
    &one[one.len() - same.map(|(c, _)| c.len_utf8()).sum::<usize>()..]
}
