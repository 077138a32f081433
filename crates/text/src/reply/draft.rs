//! Calls within reasoning. A model may start a call without ending its reasoning, or end it after the call: then the
//! call is the last of the reply. If anything else follows, the model only thought about a call.

use super::call::ToolCall;
use super::calls::{Calls, Follows, Read};
use super::input::{Begins, Input};
use super::names::Names;

#[derive(Debug, Clone, Copy)]
enum DraftState {
    Calls,
    /// After calls.
    After,
    /// After the end of reasoning, which followed calls.
    Closed,
}

/// Calls that are held until the reply ends.
#[derive(Debug)]
pub(super) struct Draft {
    state: DraftState,
    /// The end of reasoning, and the marks of calls.
    marks: Vec<&'static str>,
    held: Vec<ToolCall>,
}

/// The outcome of reading.
#[derive(Debug)]
pub(super) enum Drafted {
    More,
    /// The reply ends with these calls.
    Calls(Vec<ToolCall>),
    /// What is read is reasoning, and continues.
    Reasoning,
    /// What is read is reasoning up to the input's token, at which the reasoning ends; the answer is not read.
    Closed,
}

impl Draft {
    /// For calls with these marks, in reasoning with this end.
    pub(super) fn new(close: &'static str, calls: &[&'static str]) -> Draft {
        Draft { state: DraftState::After, marks: [&[close], calls].concat(), held: Vec::new() }
    }

    /// The end of reasoning, and the marks of calls.
    pub(super) fn marks(&self) -> &[&'static str] {
        &self.marks
    }

    /// Calls start with the mark of this index.
    pub(super) fn begin(&mut self, mark: usize, calls: &mut dyn Calls, input: &mut Input) {
        self.held.clear();
        self.next(mark, calls, input);
    }

    fn next(&mut self, mark: usize, calls: &mut dyn Calls, input: &mut Input) {
        input.advance(self.marks[mark].len());
        calls.begin(Some(mark - 1), input);
        self.state = DraftState::Calls;
    }

    /// Reads on. Only calls of known tools count, if any are known.
    pub(super) fn read(
        &mut self,
        calls: &mut dyn Calls,
        names: &Names,
        input: &mut Input,
        follows: Follows,
    ) -> Drafted {
        loop {
            match self.state {
                DraftState::Calls => match calls.read_before(follows, input) {
                    Read::More => return Drafted::More,
                    Read::Call(call) if names.know(&call) => self.held.push(call),
                    Read::End => self.state = DraftState::After,
                    Read::Call(_) | Read::Malformed => return Drafted::Reasoning,
                },
                DraftState::After => {
                    input.advance_over_space();
                    match input.begins(&self.marks) {
                        _ if input.rest().is_empty() => return self.ended(follows),
                        Begins::With(0) => {
                            input.begin_token();
                            input.advance(self.marks[0].len());
                            self.state = DraftState::Closed;
                        }
                        Begins::With(mark) => self.next(mark, calls, input),
                        Begins::Maybe if follows == Follows::More => return Drafted::More,
                        Begins::Maybe | Begins::No => return Drafted::Reasoning,
                    }
                }
                DraftState::Closed => {
                    input.advance_over_space();
                    return if input.rest().is_empty() { self.ended(follows) } else { Drafted::Closed };
                }
            }
        }
    }

    /// Only calls are read since the first.
    fn ended(&mut self, follows: Follows) -> Drafted {
        match (follows, self.state) {
            (Follows::More, _) => Drafted::More,
            (Follows::Cut, DraftState::Closed) => Drafted::Closed,
            (Follows::Cut, _) => Drafted::Reasoning,
            (Follows::End, _) => Drafted::Calls(std::mem::take(&mut self.held)),
        }
    }
}
