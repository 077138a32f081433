//! Calls between marks, as JSON or as tags. Those of Qwen and Hermes: `<tool_call>{"name": …, "arguments":
//! {…}}</tool_call>`, and with Qwen3-Coder `<tool_call><function=NAME>…</function></tool_call>`, where the outer mark
//! may be missing.

use serde_json::{Map, Value as Json};

use super::call::ToolCall;
use super::calls::{Calls, Read};
use super::follow::Follow;
use super::frame::Frame;
use super::function::Function;
use super::input::{Begins, Input};
use super::marked::{Frames, Marked};
use super::scan::{Scan, Scanner};
use super::syntax::{CallBody, CallSyntax, Syntax, THINK, marked};
use super::tags::{self, Tags};

/// The form of Qwen and Hermes, and of models whose template shows none.
pub(super) const SYNTAX: Syntax = Syntax {
    name: "Hermes",
    is_shown_by: |template, _| template.contains(OPEN),
    reasoning: &[THINK],
    answer: None,
    frames: Frames::NONE,
    call: CallSyntax {
        body: CallBody::Json(Frame { call: ["<tool_call>\n", "\n</tool_call>"], ..Frame::PLAIN }),
        is_control: false,
    },
    parser: |syntax, start| {
        let schemas = start.options.schemas.clone();
        Marked::parser(start, syntax.frames, Box::new(Hermes::new(&JSON_OR_TAGS, schemas)))
    },
};

/// The form of Qwen3-Coder.
pub(super) const CODER: Syntax = Syntax {
    name: "Qwen3-Coder",
    is_shown_by: |template, _| template.contains(FUNCTION),
    call: CallSyntax { body: CallBody::Tags(&tags::CODER), is_control: false },
    parser: marked,
    ..SYNTAX
};

pub(super) const OPEN: &str = tags::CODER.open;
const FUNCTION: &str = tags::CODER.function;
/// The tags that are read where a model should write JSON.
const JSON_OR_TAGS: Tags = Tags { is_open_needed: true, ..tags::CODER };

#[derive(Debug)]
enum HermesState {
    /// After the opening mark.
    Open,
    Object(Scanner),
    Function(Box<Function>),
    /// After a call.
    Close,
}

#[derive(Debug)]
pub(super) struct Hermes {
    tags: &'static Tags,
    state: HermesState,
    marks: Vec<&'static str>,
    schemas: Map<String, Json>,
    /// No more text follows.
    is_last: bool,
}

impl Hermes {
    /// The first tag is before JSON, or before other tags.
    pub(super) fn new(tags: &'static Tags, schemas: Map<String, Json>) -> Hermes {
        Hermes { tags, state: HermesState::Close, marks: tags.marks(), schemas, is_last: false }
    }

    /// A call starts after its tag.
    fn function(&self, input: &mut Input) -> HermesState {
        HermesState::Function(Box::new(Function::new(self.tags, input, self.is_last)))
    }

    /// The text ends.
    fn end(&mut self, input: &mut Input, end: fn(&mut Function, &mut Input, &Map<String, Json>) -> Read) -> Read {
        let read = match &mut self.state {
            HermesState::Function(function) => end(function, input, &self.schemas),
            _ => {
                input.advance_to_end();
                if self.is_within_call() { Read::Malformed } else { Read::End }
            }
        };
        if let Read::Call(_) = read {
            self.state = HermesState::Close;
        }
        read
    }

    /// Reads in one state and returns the next, or what was read.
    fn step(&mut self, input: &mut Input) -> Result<HermesState, Read> {
        match &mut self.state {
            HermesState::Open => {
                input.advance_over_space();
                if input.rest().is_empty() {
                    return Err(Read::More);
                }
                match input.begins(&["{", self.tags.function]) {
                    Begins::With(0) => {
                        input.begin_token();
                        Ok(HermesState::Object(Scanner::new()))
                    }
                    Begins::With(_) => {
                        input.advance(self.tags.function.len());
                        Ok(self.function(input))
                    }
                    Begins::Maybe => Err(Read::More),
                    Begins::No => Err(Read::Malformed),
                }
            }
            HermesState::Object(scanner) => Err(match scanner.read(input) {
                Scan::More => Read::More,
                Scan::Invalid => Read::Malformed,
                Scan::End => ToolCall::from_object(input.token()).map_or(Read::Malformed, Read::Call),
            }),
            HermesState::Function(function) => Err(function.read(input, &self.schemas)),
            HermesState::Close => {
                input.advance_over_space();
                let marks = [self.tags.close, self.tags.function];
                match input.begins(&marks[..1 + usize::from(self.tags.several)]) {
                    Begins::With(0) => {
                        input.advance(self.tags.close.len());
                        Err(Read::End)
                    }
                    Begins::With(_) => {
                        input.advance(self.tags.function.len());
                        Ok(self.function(input))
                    }
                    Begins::Maybe => Err(Read::More),
                    Begins::No => Err(Read::End),
                }
            }
        }
    }
}

impl Calls for Hermes {
    fn marks(&self) -> &[&'static str] {
        &self.marks
    }

    fn follow(&self) -> Follow {
        Follow { marks: [&[self.tags.close][..], &self.marks].concat(), separator: Some(','), list_end: None }
    }

    fn begin(&mut self, mark: Option<usize>, input: &mut Input) {
        self.state = match mark {
            Some(1) => self.function(input),
            _ => HermesState::Open,
        };
    }

    fn read(&mut self, input: &mut Input) -> Read {
        loop {
            match self.step(input) {
                Ok(state) => self.state = state,
                Err(Read::Call(call)) => {
                    self.state = HermesState::Close;
                    return Read::Call(call);
                }
                Err(read) => return read,
            }
        }
    }

    fn finish(&mut self, input: &mut Input) -> Read {
        self.is_last = true;
        self.end(input, Function::finish)
    }

    fn cut(&mut self, input: &mut Input) -> Read {
        self.end(input, Function::cut)
    }

    fn is_within_call(&self) -> bool {
        !matches!(self.state, HermesState::Close)
    }
}
