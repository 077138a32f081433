//! Calls of LFM2: `<|tool_call_start|>[NAME(KEY=VALUE, …), …]<|tool_call_end|>`, a list of calls of Python with
//! literals. A list of JSON objects is read too.

use super::calls::{Calls, Read};
use super::input::Input;
use super::list::{List, next};
use super::marked::Marked;
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
    List(List),
    /// After the list.
    Close,
    Ended,
}

#[derive(Debug)]
struct Lfm2 {
    state: State,
}

impl Calls for Lfm2 {
    fn marks(&self) -> &[&'static str] {
        &[OPEN]
    }

    fn begin(&mut self, _: Option<usize>, _: &mut Input) {
        self.state = State::List(List::Open);
    }

    fn read(&mut self, input: &mut Input) -> Read {
        if let State::List(list) = &mut self.state {
            match list.read(input) {
                Read::End => self.state = State::Close,
                read => return read,
            }
        }
        if let State::Close = self.state {
            if let Err(more) = next(input, &[CLOSE]) {
                return more;
            }
            self.state = State::Ended;
        }
        Read::End
    }

    fn is_within_call(&self) -> bool {
        matches!(&self.state, State::List(list) if list.is_within_call())
    }
}
