//! Calls of Llama 4, as the whole reply, between `<|python_start|>` and `<|python_end|>`, or after the latter: one or
//! several of `{"name": …, "parameters": {…}}`, or a list of calls of Python with literals.

use serde_json::{Map, Value as Json};

use super::call::ToolCall;
use super::calls::{Calls, Read};
use super::follow::Follow;
use super::frame::Item;
use super::input::Input;
use super::list::{List, follows, next};
use super::llama;
use super::marked::Marked;
use super::scan::{Scan, Scanner};
use super::syntax::Syntax;

/// The form of Llama 4.
pub(super) const SYNTAX: Syntax = Syntax {
    name: "Llama 4",
    is_shown_by: |template, _| template.contains(START),
    parser: |syntax, start| {
        let schemas = start.options.schemas.clone();
        let calls = Llama4 { state: Llama4State::Ended, marked: false, schemas };
        Marked::parser(start, syntax.frames, Box::new(calls))
    },
    ..llama::SYNTAX
};

const START: &str = "<|python_start|>";
const END: &str = "<|python_end|>";

#[derive(Debug)]
enum Llama4State {
    /// Before the first call.
    Start,
    Object(Scanner),
    List(List),
    /// After an object.
    Between,
    /// After `;`.
    Separated,
    /// After the list.
    Close,
    Ended,
}

#[derive(Debug)]
struct Llama4 {
    state: Llama4State,
    /// The calls follow a mark.
    marked: bool,
    schemas: Map<String, Json>,
}

impl Llama4 {
    /// A call without a mark must be of a known tool if tools are known, because a reply may be JSON of another kind.
    fn known(&self, call: Option<ToolCall>) -> Read {
        let is_known =
            |call: &ToolCall| self.marked || self.schemas.is_empty() || self.schemas.contains_key(&call.name);
        call.filter(is_known).map_or(Read::Malformed, Read::Call)
    }

    fn object(&self, text: &str) -> Option<ToolCall> {
        if self.marked { ToolCall::from_object(text) } else { ToolCall::from_unmarked_object(text) }
    }

    /// Reads in one state and returns the next, or the outcome.
    fn step(&mut self, input: &mut Input) -> Result<Llama4State, Read> {
        match &mut self.state {
            Llama4State::Start => match follows(input, &["{", "[", END])? {
                Some(0) => Ok(object(input)),
                Some(1) => Ok(Llama4State::List(List::Open)),
                Some(_) if self.marked => {
                    input.advance(END.len());
                    Ok(Llama4State::Start)
                }
                _ => Err(Read::Malformed),
            },
            Llama4State::Object(scanner) => Err(match scanner.read(input) {
                Scan::More => Read::More,
                Scan::Invalid => Read::Malformed,
                Scan::End => self.known(self.object(input.token())),
            }),
            Llama4State::List(list) => match list.read(input, &Item::OBJECT) {
                Read::Call(call) => Err(self.known(Some(call))),
                Read::End => Ok(Llama4State::Close),
                read => Err(read),
            },
            Llama4State::Between => match follows(input, &["{", ";", END])? {
                Some(0) => Ok(object(input)),
                Some(1) => {
                    input.advance(1);
                    Ok(Llama4State::Separated)
                }
                _ => Ok(Llama4State::Close),
            },
            Llama4State::Separated => match follows(input, &["{"])? {
                Some(_) => Ok(object(input)),
                None => Err(Read::Malformed),
            },
            Llama4State::Close => {
                next(input, &[END])?;
                Ok(Llama4State::Ended)
            }
            Llama4State::Ended => Err(Read::End),
        }
    }
}

/// An object starts here.
fn object(input: &mut Input) -> Llama4State {
    input.begin_token();
    Llama4State::Object(Scanner::new())
}

impl Calls for Llama4 {
    fn marks(&self) -> &[&'static str] {
        &[START, END]
    }

    fn unmarked(&self) -> &[char] {
        &['{', '[']
    }

    fn follow(&self) -> Follow {
        match self.state {
            Llama4State::List(_) => Follow { marks: vec![START, END], separator: Some(','), list_end: Some(']') },
            _ => Follow { marks: vec![START, END, "{"], separator: Some(';'), list_end: None },
        }
    }

    fn begin(&mut self, mark: Option<usize>, _: &mut Input) {
        self.marked = mark.is_some();
        self.state = Llama4State::Start;
    }

    fn read(&mut self, input: &mut Input) -> Read {
        loop {
            match self.step(input) {
                Ok(state) => self.state = state,
                Err(Read::Call(call)) => {
                    if let Llama4State::Object(_) = self.state {
                        self.state = Llama4State::Between;
                    }
                    return Read::Call(call);
                }
                Err(read) => return read,
            }
        }
    }

    fn is_within_call(&self) -> bool {
        match &self.state {
            Llama4State::Start | Llama4State::Object(_) => true,
            Llama4State::List(list) => list.is_within_call(),
            _ => false,
        }
    }
}
