//! Calls of LFM2: `<|tool_call_start|>[NAME(KEY=VALUE, …), …]<|tool_call_end|>`, a list of calls of Python with
//! literals. A list of JSON objects is read too.

use super::call::ToolCall;
use super::calls::{Calls, Read};
use super::input::{Begins, Input};
use super::marked::Marked;
use super::python::{self, CallScanner};
use super::scan::{Scan, Scanner};
use super::syntax::{CallBody, CallSyntax, Syntax, THINK};

/// The form of LFM2. A required call is JSON, which can be held to a schema.
pub(super) const SYNTAX: Syntax = Syntax {
    name: "LFM2",
    is_shown_by: |template, _| SHOWN.iter().any(|mark| template.contains(mark)),
    reasoning: &[THINK],
    answer: None,
    call: CallSyntax { opening: OPEN, body: CallBody::List("arguments"), is_control: true },
    parser: |start| Marked::parser(start, Lfm2 { state: State::Ended }),
};

/// The mark of a call, and the beginnings of lists of tools: the template of LFM2.5 Instruct shows no call.
const SHOWN: [&str; 3] = [OPEN, "<|tool_list_start|>", "List of tools: ["];

const OPEN: &str = "<|tool_call_start|>";
const CLOSE: &str = "<|tool_call_end|>";

#[derive(Debug)]
enum State {
    /// After the opening mark.
    Open,
    /// At an item of the list.
    Item,
    Object(Scanner),
    Python(CallScanner),
    /// After an item of the list.
    Between,
    /// After the list.
    Close,
    Ended,
}

#[derive(Debug)]
struct Lfm2 {
    state: State,
}

impl Lfm2 {
    /// Reads in one state and returns the next, or what was read.
    fn step(&mut self, input: &mut Input) -> Result<State, Read> {
        let call = |scan, call: &dyn Fn() -> Option<ToolCall>| match scan {
            Scan::More => Read::More,
            Scan::Invalid => Read::Malformed,
            Scan::End => call().map_or(Read::Malformed, Read::Call),
        };
        match &mut self.state {
            State::Open => match next(input, &["["])? {
                Some(_) => Ok(State::Item),
                None => Err(Read::Malformed),
            },
            State::Item => {
                input.advance_over_space();
                let Some(first) = input.rest().chars().next() else { return Err(Read::More) };
                input.begin_token();
                Ok(if first == '{' { State::Object(Scanner::new()) } else { State::Python(CallScanner::default()) })
            }
            State::Object(scanner) => {
                let scan = scanner.read(input);
                Err(call(scan, &|| ToolCall::from_object(input.token())))
            }
            State::Python(scanner) => {
                let scan = scanner.read(input);
                Err(call(scan, &|| {
                    let (name, arguments) = python::call(input.token())?;
                    ToolCall::new(name, &arguments)
                }))
            }
            State::Between => match next(input, &[",", "]"])? {
                Some(0) => Ok(State::Item),
                Some(_) => Ok(State::Close),
                None => Err(Read::Malformed),
            },
            State::Close => {
                next(input, &[CLOSE])?;
                Err(Read::End)
            }
            State::Ended => Err(Read::End),
        }
    }
}

/// Reads white space and one of these marks; which, or `None` if none of them follows.
fn next(input: &mut Input, marks: &[&str]) -> Result<Option<usize>, Read> {
    input.advance_over_space();
    match input.begins(marks) {
        Begins::With(mark) => {
            input.advance(marks[mark].len());
            Ok(Some(mark))
        }
        Begins::Maybe => Err(Read::More),
        Begins::No => Ok(None),
    }
}

impl Calls for Lfm2 {
    fn marks(&self) -> &[&'static str] {
        &[OPEN]
    }

    fn begin(&mut self, _: Option<usize>, _: &mut Input) {
        self.state = State::Open;
    }

    fn read(&mut self, input: &mut Input) -> Read {
        loop {
            match self.step(input) {
                Ok(state) => self.state = state,
                Err(Read::Call(call)) => {
                    self.state = State::Between;
                    return Read::Call(call);
                }
                Err(read) => return read,
            }
        }
    }

    fn is_within_call(&self) -> bool {
        !matches!(self.state, State::Between | State::Close | State::Ended)
    }
}
