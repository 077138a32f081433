//! Calls of MiniMax M3: `<tool_call>`, then for each call `<invoke name="NAME">`, `<KEY>VALUE</KEY>` for each argument
//! and `</invoke>`, then `</tool_call>`. A list is `<item>VALUE</item>` for each item, and an object
//! `<KEY>VALUE</KEY>` for each field. The token `]<]minimax[>[` precedes every tag, so tags in a text are text.

use std::collections::HashSet;

use serde_json::{Map, Value as Json};

use super::call::ToolCall;
use super::calls::{Calls, Read};
use super::follow::Follow;
use super::input::{Begins, Input};
use super::list::next;
use super::marked::Frames;
use super::scan::{Scan, Scanner};
use super::schema::{self, Place};
use super::syntax::{CallBody, CallSyntax, ReasoningMarks, Syntax, marked};

/// The form of MiniMax M3.
pub(super) const SYNTAX: Syntax = Syntax {
    name: "MiniMax M3",
    is_shown_by: |template, _| template.contains(TOKEN),
    reasoning: &[ReasoningMarks { open: "<mm:think>", close: THOUGHT_END, ending: THOUGHT_END, is_control: true }],
    answer: None,
    frames: FRAMES,
    call: CallSyntax { body: CallBody::Nested, is_control: true },
    parser: marked,
};

/// Before every tag.
const TOKEN: &str = "]<]minimax[>[";
pub(super) const OPEN: &str = "]<]minimax[>[<tool_call>";
const CLOSE: &str = "]<]minimax[>[</tool_call>";
const INVOKE: &str = "]<]minimax[>[<invoke name=\"";
const NAME_END: &str = "\">";
const INVOKE_END: &str = "invoke";
const ITEM: &str = "item";
const THOUGHT_END: &str = "</mm:think>";
/// A reply without reasoning starts with the end of reasoning.
const FRAMES: Frames = Frames { leads: &[THOUGHT_END], within: &[] };

/// How deeply values may nest.
const MAX_DEPTH: usize = 64;
/// Bytes of the longest key.
const MAX_KEY: usize = 256;

#[derive(Debug)]
enum NestedState {
    /// After the opening mark.
    Open,
    Object(Scanner),
    /// At the name of a call.
    Name,
    /// In a call, whose elements that have no end yet are these; the first is the call.
    Elements(Vec<Element>),
    /// After a call.
    Between,
    Ended,
}

/// An argument, a field, an item, or all arguments.
#[derive(Debug, Default)]
struct Element {
    name: String,
    /// The text in it that is not in another one.
    text: String,
    children: Vec<Element>,
}

#[derive(Debug)]
pub(super) struct Nested {
    schemas: Map<String, Json>,
    state: NestedState,
}

impl Nested {
    pub(super) fn new(schemas: Map<String, Json>) -> Nested {
        Nested { schemas, state: NestedState::Ended }
    }

    /// Reads in one state and returns the next, or what was read.
    fn step(&mut self, input: &mut Input) -> Result<NestedState, Read> {
        match &mut self.state {
            NestedState::Open => match next(input, &["{", INVOKE])? {
                Some(0) => {
                    input.return_to(input.offset() - 1);
                    input.begin_token();
                    Ok(NestedState::Object(Scanner::new()))
                }
                Some(_) => Ok(begin_name(input)),
                None => Err(Read::Malformed),
            },
            NestedState::Object(scanner) => Err(match scanner.read(input) {
                Scan::More => Read::More,
                Scan::Invalid => Read::Malformed,
                Scan::End => ToolCall::from_object(input.token()).map_or(Read::Malformed, Read::Call),
            }),
            NestedState::Name => {
                let rest = input.rest();
                let Some(at) = rest.find(['"', '\n']) else {
                    input.advance_to_end();
                    return Err(Read::More);
                };
                input.advance(at);
                match input.begins(&[NAME_END]) {
                    Begins::With(_) => {
                        let call = Element { name: input.token().trim().to_owned(), ..Element::default() };
                        input.advance(NAME_END.len());
                        Ok(NestedState::Elements(vec![call]))
                    }
                    Begins::Maybe => Err(Read::More),
                    Begins::No => Err(Read::Malformed),
                }
            }
            NestedState::Elements(open) => Err(read_elements(open, input, &self.schemas)),
            NestedState::Between => match next(input, &[CLOSE, INVOKE])? {
                Some(1) => Ok(begin_name(input)),
                _ => Ok(NestedState::Ended),
            },
            NestedState::Ended => Err(Read::End),
        }
    }
}

fn begin_name(input: &mut Input) -> NestedState {
    input.begin_token();
    NestedState::Name
}

/// Reads texts and tags up to the end of the call.
fn read_elements(open: &mut Vec<Element>, input: &mut Input, schemas: &Map<String, Json>) -> Read {
    loop {
        let (len, found) = input.find(&[TOKEN]);
        open.last_mut().into_iter().for_each(|element| element.text.push_str(&input.rest()[..len]));
        input.advance(len);
        let Begins::With(_) = found else { return Read::More };
        let tag = &input.rest()[TOKEN.len()..];
        let Some(end) = tag.bytes().position(|byte| matches!(byte, b'>' | b'\n')) else {
            return if tag.len() > "</".len() + MAX_KEY { Read::Malformed } else { Read::More };
        };
        let Some(name) = tag[..end].strip_prefix('<').filter(|_| tag[end..].starts_with('>')) else {
            return Read::Malformed;
        };
        match name.strip_prefix('/') {
            Some(INVOKE_END) if open.len() == 1 => {
                input.advance(TOKEN.len() + end + 1);
                return open.pop().and_then(|call| call.into_call(schemas)).map_or(Read::Malformed, Read::Call);
            }
            Some(name) if open.len() > 1 && open.last().is_some_and(|element| element.name == name) => {
                if let (Some(element), Some(parent)) = (open.pop(), open.last_mut()) {
                    parent.children.push(element);
                }
            }
            Some(_) => return Read::Malformed,
            None if name.is_empty() || name.len() > MAX_KEY || open.len() > MAX_DEPTH => return Read::Malformed,
            None => open.push(Element { name: name.to_owned(), ..Element::default() }),
        }
        input.advance(TOKEN.len() + end + 1);
    }
}

impl Element {
    /// The call whose arguments are the elements in this one.
    fn into_call(self, schemas: &Map<String, Json>) -> Option<ToolCall> {
        let mut arguments = String::new();
        self.write_fields(&Place::of(schemas, &self.name), &mut arguments)?;
        ToolCall::new(&self.name, &arguments)
    }

    /// Adds the value as JSON; `None` if it is no value.
    fn write(&self, place: &Place, json: &mut String) -> Option<()> {
        let types = place.types();
        if self.children.is_empty() {
            json.push_str(&scalar(&types, &self.text));
            return Some(());
        }
        if !types.is_empty() && !["array", "object"].iter().any(|name| types.contains(name)) {
            return None;
        }
        let is_list = self.children.iter().all(|child| child.name == ITEM);
        if !is_list || (types.contains(&"object") && !types.contains(&"array")) {
            return self.write_fields(place, json);
        }
        if !self.text.trim().is_empty() {
            return None;
        }
        let place = place.item();
        for (i, child) in self.children.iter().enumerate() {
            json.push_str(if i > 0 { ", " } else { "[" });
            child.write(&place, json)?;
        }
        json.push(']');
        Some(())
    }

    /// Adds an object of the elements in this one.
    fn write_fields(&self, place: &Place, json: &mut String) -> Option<()> {
        let mut names = HashSet::new();
        if !self.text.trim().is_empty() || !self.children.iter().all(|child| names.insert(&child.name)) {
            return None;
        }
        json.push('{');
        for (i, child) in self.children.iter().enumerate() {
            json.push_str(if i > 0 { ", " } else { "" });
            json.push_str(&Json::from(child.name.as_str()).to_string());
            json.push_str(": ");
            child.write(&place.field(&child.name), json)?;
        }
        json.push('}');
        Some(())
    }
}

/// A value without elements as JSON. If its type is not known, a number, `true`, `false` and `null` are no string.
fn scalar(types: &[&str], text: &str) -> String {
    match types {
        [] => schema::written(&["number", "boolean", "null"], text),
        _ if types.contains(&"string") || !text.trim().is_empty() => schema::written(types, text),
        _ if types.contains(&"array") => "[]".to_owned(),
        _ if types.contains(&"object") => "{}".to_owned(),
        _ => schema::written(types, text),
    }
}

impl Calls for Nested {
    fn marks(&self) -> &[&'static str] {
        &[OPEN]
    }

    fn follow(&self) -> Follow {
        Follow { marks: vec![CLOSE, OPEN], ..Follow::default() }
    }

    fn begin(&mut self, _: Option<usize>, _: &mut Input) {
        self.state = NestedState::Open;
    }

    fn read(&mut self, input: &mut Input) -> Read {
        loop {
            match self.step(input) {
                Ok(state) => self.state = state,
                Err(Read::Call(call)) => {
                    self.state = NestedState::Between;
                    return Read::Call(call);
                }
                Err(read) => return read,
            }
        }
    }

    fn is_within_call(&self) -> bool {
        !matches!(self.state, NestedState::Between | NestedState::Ended)
    }
}
