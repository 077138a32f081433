//! Replies whose reasoning and calls stand between marks within the text: all forms but Harmony.

use super::calls::{Calls, Read};
use super::input::{Begins, Input};
use super::output::Output;
use super::syntax::{Parser, ReasoningMarks, Start};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Only white space so far.
    Start,
    Reasoning,
    /// White space is dropped here.
    AfterReasoning,
    /// At the first character of the answer.
    Answer,
    Content,
    Calls,
    /// White space is dropped here.
    AfterCalls,
}

/// The parser.
#[derive(Debug)]
pub(super) struct Marked {
    state: State,
    reasoning: ReasoningMarks,
    /// `None` if calls are content.
    calls: Option<Box<dyn Calls>>,
    /// Marks that end content: first those that are no part of it, then those of calls.
    marks: Vec<&'static str>,
    frames: usize,
}

impl Marked {
    /// For a reply with calls of a form.
    pub(super) fn parser(start: Start, calls: impl Calls + 'static) -> Box<dyn Parser> {
        Marked::framed(start, &[], calls)
    }

    /// For one whose content these marks surround, which are no part of it.
    pub(super) fn framed(start: Start, frames: &[&'static str], calls: impl Calls + 'static) -> Box<dyn Parser> {
        let Start { prompt_end, reasoning, options } = start;
        let state = if prompt_end.trim_end().ends_with(reasoning.open) { State::Reasoning } else { State::Start };
        let calls: Option<Box<dyn Calls>> = if options.tools { Some(Box::new(calls)) } else { None };
        let marks = [frames, calls.as_ref().map_or(&[], |calls| calls.marks())].concat();
        Box::new(Marked { state, reasoning, calls, marks, frames: frames.len() })
    }

    fn read_start(&self, input: &mut Input) -> State {
        input.advance_over_space();
        match input.begins(&[self.reasoning.open]) {
            Begins::With(_) => {
                input.advance(self.reasoning.open.len());
                input.discard();
                State::Reasoning
            }
            Begins::Maybe => State::Start,
            Begins::No => State::Answer,
        }
    }

    fn read_reasoning(&self, input: &mut Input, output: &mut Output) -> State {
        let ends = input.advance_to(self.reasoning.close);
        output.reasoning(input.take());
        if !ends {
            return State::Reasoning;
        }
        input.advance(self.reasoning.close.len());
        input.discard();
        State::AfterReasoning
    }

    fn read_answer(&mut self, input: &mut Input) -> State {
        match &mut self.calls {
            Some(calls) if input.rest().starts_with(calls.unmarked()) => {
                calls.begin(None, input);
                State::Calls
            }
            _ => State::Content,
        }
    }

    /// Reads content up to a mark. White space is held, because it is dropped before a mark.
    fn read_content(&mut self, input: &mut Input, output: &mut Output) -> State {
        if self.marks.is_empty() {
            input.advance_to_end();
            output.content(input.take());
            return State::Content;
        }
        loop {
            let (len, found) = input.find(&self.marks);
            let text = input.rest()[..len].trim_end().len();
            if text > 0 {
                input.advance(text);
                output.content(input.take());
            }
            input.advance(len - text);
            let Begins::With(mark) = found else { return State::Content };
            input.advance(self.marks[mark].len());
            if let (Some(calls), Some(mark)) = (&mut self.calls, mark.checked_sub(self.frames)) {
                calls.begin(Some(mark), input);
                return State::Calls;
            }
            input.discard();
        }
    }

    /// Reads calls. Returns the next state; `None` after a call.
    fn read_calls(&mut self, input: &mut Input, output: &mut Output) -> Option<State> {
        let read = self.calls.as_mut().map_or(Read::End, |calls| calls.read(input));
        Some(match read {
            Read::More => State::Calls,
            Read::Call(call) => {
                input.discard();
                output.call(call);
                return None;
            }
            Read::End => {
                input.discard();
                State::AfterCalls
            }
            Read::Malformed => {
                output.content(input.take());
                State::Content
            }
        })
    }
}

impl Parser for Marked {
    fn step(&mut self, input: &mut Input, output: &mut Output) -> bool {
        let before = self.state;
        self.state = match self.state {
            State::Start => self.read_start(input),
            State::Reasoning => self.read_reasoning(input, output),
            State::AfterReasoning => skip_space(input, before, State::Answer),
            State::Answer => self.read_answer(input),
            State::Content => self.read_content(input, output),
            State::Calls => match self.read_calls(input, output) {
                Some(state) => state,
                None => return true,
            },
            State::AfterCalls => skip_space(input, before, State::Content),
        };
        self.state != before
    }

    fn finish(&mut self, input: &mut Input, output: &mut Output) {
        input.advance_to_end();
        let is_within_call = self.calls.as_ref().is_some_and(|calls| calls.is_within_call());
        match self.state {
            State::Reasoning => output.reasoning(input.take()),
            State::AfterReasoning | State::AfterCalls => input.discard(),
            State::Calls if !is_within_call => input.discard(),
            State::Start | State::Answer | State::Content | State::Calls => output.content(input.take()),
        }
    }

    fn is_reasoning(&self) -> bool {
        self.state == State::Reasoning
    }
}

/// Drops white space; goes to `next` at the first other character.
fn skip_space(input: &mut Input, here: State, next: State) -> State {
    input.advance_over_space();
    input.discard();
    if input.rest().is_empty() { here } else { next }
}
