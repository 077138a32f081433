//! Calls of Gemma 4: `<|tool_call>call:NAME{KEY:VALUE, …}<tool_call|>`. Strings are between `<|"|>`, keys bare or
//! between the same; numbers, lists and objects are as in JSON. Strings and keys of JSON are read too.

use super::call::ToolCall;
use super::calls::{Calls, Read};
use super::follow::Follow;
use super::input::{Begins, Input};
use super::literals::{self, LiteralScanner};
use super::marked::Frames;
use super::scan::{Scan, Scanner};
use super::syntax::{CallBody, CallSyntax, ReasoningMarks, Syntax, marked};

/// The form of Gemma 4.
pub(super) const SYNTAX: Syntax = Syntax {
    name: "Gemma 4",
    is_shown_by: |template, _| template.contains(OPEN),
    reasoning: &[ReasoningMarks {
        open: "<|channel>thought",
        close: "<channel|>",
        ending: "\n<channel|>",
        is_control: true,
    }],
    answer: None,
    frames: Frames::NONE,
    call: CallSyntax { body: CallBody::Gemma, is_control: true },
    parser: marked,
};

pub(super) const OPEN: &str = "<|tool_call>";
const CLOSE: &str = "<tool_call|>";
/// Before a name.
const CALL: &str = "call:";

#[derive(Debug)]
enum Gemma4State {
    /// After the opening mark.
    Open,
    /// A call as an object with its name.
    Object(Scanner),
    Name,
    /// The name, and its arguments.
    Arguments(String, LiteralScanner),
    /// After a call.
    Close,
}

#[derive(Debug)]
pub(super) struct Gemma4 {
    state: Gemma4State,
}

impl Gemma4 {
    pub(super) fn new() -> Gemma4 {
        Gemma4 { state: Gemma4State::Close }
    }

    /// Reads in one state and returns the next, or what was read.
    fn step(&mut self, input: &mut Input) -> Result<Gemma4State, Read> {
        match &mut self.state {
            Gemma4State::Open => {
                input.advance_over_space();
                match input.begins(&["{", CALL]) {
                    Begins::With(0) => {
                        input.begin_token();
                        Ok(Gemma4State::Object(Scanner::new()))
                    }
                    Begins::With(_) => {
                        input.advance(CALL.len());
                        input.begin_token();
                        Ok(Gemma4State::Name)
                    }
                    Begins::Maybe => Err(Read::More),
                    Begins::No => Err(Read::Malformed),
                }
            }
            Gemma4State::Object(scanner) => Err(match scanner.read(input) {
                Scan::More => Read::More,
                Scan::Invalid => Read::Malformed,
                Scan::End => ToolCall::from_object(input.token()).map_or(Read::Malformed, Read::Call),
            }),
            Gemma4State::Name => match input.rest().find(['{', '}', '<', '\n']) {
                None => {
                    input.advance_to_end();
                    Err(Read::More)
                }
                Some(at) => {
                    input.advance(at);
                    if !input.rest().starts_with('{') {
                        return Err(Read::Malformed);
                    }
                    let name = input.token().trim().to_owned();
                    input.begin_token();
                    Ok(Gemma4State::Arguments(name, LiteralScanner::default()))
                }
            },
            Gemma4State::Arguments(name, scanner) => Err(match scanner.read(input) {
                Scan::More => Read::More,
                Scan::Invalid => Read::Malformed,
                Scan::End => literals::json(input.token())
                    .and_then(|arguments| ToolCall::new(name, &arguments))
                    .map_or(Read::Malformed, Read::Call),
            }),
            Gemma4State::Close => {
                input.advance_over_space();
                match input.begins(&[CLOSE]) {
                    Begins::With(_) => {
                        input.advance(CLOSE.len());
                        Err(Read::End)
                    }
                    Begins::Maybe => Err(Read::More),
                    Begins::No => Err(Read::End),
                }
            }
        }
    }
}

impl Calls for Gemma4 {
    fn marks(&self) -> &[&'static str] {
        &[OPEN]
    }

    fn follow(&self) -> Follow {
        Follow { marks: vec![CLOSE, OPEN], ..Follow::default() }
    }

    fn begin(&mut self, _: Option<usize>, _: &mut Input) {
        self.state = Gemma4State::Open;
    }

    fn read(&mut self, input: &mut Input) -> Read {
        loop {
            match self.step(input) {
                Ok(state) => self.state = state,
                Err(Read::Call(call)) => {
                    self.state = Gemma4State::Close;
                    return Read::Call(call);
                }
                Err(read) => return read,
            }
        }
    }

    fn is_within_call(&self) -> bool {
        !matches!(self.state, Gemma4State::Close)
    }
}
