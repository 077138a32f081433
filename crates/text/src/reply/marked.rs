//! Replies whose reasoning and calls are between marks within the text: all forms but Harmony.

use super::call::ToolCall;
use super::calls::{Calls, Follows, Read};
use super::draft::{Draft, Drafted};
use super::follow::{AfterCall, Verdict};
use super::input::{Begins, Input};
use super::names::Names;
use super::output::Output;
use super::syntax::{Parser, ReasoningMarks, Start};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MarkedState {
    /// Only white space so far.
    Start,
    Reasoning,
    /// In calls within reasoning.
    Draft,
    /// White space is dropped here.
    AfterReasoning,
    /// At the first character of the answer.
    Answer,
    Content,
    Calls,
    /// White space is dropped here.
    AfterCalls,
}

/// Marks that are no part of an answer.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Frames {
    /// Those that may precede an answer, with the white space after each.
    pub(super) leads: &'static [&'static str],
    /// Those anywhere in it.
    pub(super) within: &'static [&'static str],
}

impl Frames {
    pub(super) const NONE: Frames = Frames { leads: &[], within: &[] };
}

/// The parser.
#[derive(Debug)]
pub(super) struct Marked {
    state: MarkedState,
    reasoning: ReasoningMarks,
    /// `None` if calls are content.
    calls: Option<Box<dyn Calls>>,
    names: Names,
    /// A call that may have ended early.
    held: Option<(ToolCall, AfterCall)>,
    draft: Draft,
    /// Marks that may precede an answer, and are no part of it.
    leads: Vec<&'static str>,
    /// The mark with which the prompt ends, if it is one of calls.
    opened: Option<usize>,
    /// Marks that end content: first those that are no part of it, then those of calls.
    marks: Vec<&'static str>,
    frames: usize,
    /// The last mark was no part of content, and no content followed it.
    is_after_frame: bool,
    /// White space before marks, which is content if more content follows; `None` before content.
    blank: Option<String>,
}

impl Marked {
    /// For a reply whose answer these marks surround.
    pub(super) fn parser(start: Start, frames: Frames, calls: Box<dyn Calls>) -> Box<dyn Parser> {
        let Start { prompt_end, reasoning, options, answer_or_calls, answer } = start;
        let state = match answer_or_calls {
            true => MarkedState::Answer,
            false if prompt_end.trim_end().ends_with(reasoning.open) => MarkedState::Reasoning,
            false => MarkedState::Start,
        };
        let calls = options.tools.then_some(calls);
        let of_calls = calls.as_ref().map_or(&[][..], |calls| calls.marks());
        let draft = Draft::new(reasoning.close, of_calls);
        let opened = of_calls.iter().position(|mark| prompt_end.trim_end().ends_with(mark));
        let (leads, within) = match answer_or_calls {
            true => (answer.into_iter().filter(|mark| !mark.is_empty()).collect(), &[][..]),
            false => (frames.leads.to_vec(), frames.within),
        };
        let marks = if answer_or_calls { Vec::new() } else { [within, of_calls].concat() };
        let names = Names::new(options.schemas);
        let frames = within.len();
        let is_after_frame = false;
        Box::new(Marked {
            state,
            reasoning,
            calls,
            names,
            held: None,
            draft,
            leads,
            opened,
            marks,
            frames,
            is_after_frame,
            blank: None,
        })
    }

    fn read_start(&self, input: &mut Input) -> MarkedState {
        input.advance_over_space();
        match input.begins(&[self.reasoning.open]) {
            Begins::With(_) => {
                input.advance(self.reasoning.open.len());
                input.discard();
                MarkedState::Reasoning
            }
            Begins::Maybe => MarkedState::Start,
            Begins::No => MarkedState::Answer,
        }
    }

    fn read_reasoning(&mut self, input: &mut Input, output: &mut Output) -> MarkedState {
        let (len, found) = input.find(self.draft.marks());
        input.advance(len);
        output.reasoning(input.take());
        match (found, &mut self.calls) {
            (Begins::With(0), _) => {
                input.advance(self.reasoning.close.len());
                input.discard();
                MarkedState::AfterReasoning
            }
            (Begins::With(mark), Some(calls)) => {
                self.draft.begin(mark, calls.as_mut(), input);
                MarkedState::Draft
            }
            _ => MarkedState::Reasoning,
        }
    }

    /// Reads calls within reasoning.
    fn read_draft(&mut self, input: &mut Input, output: &mut Output, follows: Follows) -> MarkedState {
        let Some(calls) = &mut self.calls else { return MarkedState::Reasoning };
        match self.draft.read(calls.as_mut(), &self.names, input, follows) {
            Drafted::More => MarkedState::Draft,
            Drafted::Calls(calls) => {
                input.advance_to_end();
                input.discard();
                calls.into_iter().for_each(|call| output.call(call));
                MarkedState::AfterCalls
            }
            Drafted::Reasoning => {
                output.reasoning(input.take());
                MarkedState::Reasoning
            }
            Drafted::Closed => {
                output.reasoning(input.take_before_token());
                input.discard();
                MarkedState::AfterReasoning
            }
        }
    }

    fn read_answer(&mut self, input: &mut Input) -> MarkedState {
        if !self.leads.is_empty() {
            input.advance_over_space();
            match input.begins(&self.leads) {
                Begins::With(lead) => {
                    input.advance(self.leads[lead].len());
                    input.discard();
                    // White space after it belongs to it.
                    return MarkedState::AfterReasoning;
                }
                Begins::Maybe => return MarkedState::Answer,
                Begins::No => {}
            }
        }
        let Some(calls) = &mut self.calls else { return MarkedState::Content };
        if let Some(mark) = self.opened.take() {
            calls.begin(Some(mark), input);
            return MarkedState::Calls;
        }
        input.advance_over_space();
        let mark = match input.begins(calls.marks()) {
            _ if input.rest().starts_with(calls.unmarked()) => None,
            Begins::With(mark) => Some(mark),
            Begins::Maybe => return MarkedState::Answer,
            Begins::No => return MarkedState::Content,
        };
        input.advance(mark.map_or(0, |mark| calls.marks()[mark].len()));
        calls.begin(mark, input);
        MarkedState::Calls
    }

    /// Reads content up to a mark. White space is held, because it is dropped before a mark without content behind it.
    fn read_content(&mut self, input: &mut Input, output: &mut Output) -> MarkedState {
        if self.marks.is_empty() {
            input.advance_to_end();
            output.content(input.take());
            return MarkedState::Content;
        }
        loop {
            let (len, found) = input.find(&self.marks);
            let text = input.rest()[..len].trim_end().len();
            if text > 0 {
                input.advance(text);
                self.give(input, output);
            }
            input.advance(len - text);
            let Begins::With(mark) = found else { return MarkedState::Content };
            self.is_after_frame = mark < self.frames;
            if self.is_after_frame {
                self.hold(input);
            }
            input.advance(self.marks[mark].len());
            if let (Some(calls), Some(mark)) = (&mut self.calls, mark.checked_sub(self.frames)) {
                calls.begin(Some(mark), input);
                return MarkedState::Calls;
            }
            input.discard();
        }
    }

    /// Gives out what is read as content.
    fn give(&mut self, input: &mut Input, output: &mut Output) {
        self.is_after_frame = false;
        output.content(&self.blank.replace(String::new()).unwrap_or_default());
        output.content(input.take());
    }

    /// Holds white space that is read.
    fn hold(&mut self, input: &Input) {
        if let Some(blank) = &mut self.blank {
            blank.push_str(input.read());
        }
    }

    /// Reads calls. Returns the next state; `None` after a call.
    fn read_calls(&mut self, input: &mut Input, output: &mut Output, follows: Follows) -> Option<MarkedState> {
        let Some(calls) = &mut self.calls else { return Some(MarkedState::Content) };
        if self.held.is_none() {
            match calls.read_before(follows, input) {
                Read::Call(call) if self.names.allow(&call) => {
                    let bracket = input.read().chars().next_back().filter(|c| matches!(c, '}' | ')'));
                    let Some(bracket) = bracket else { return Self::give_call(call, input, output) };
                    self.held = Some((call, AfterCall::new(calls.follow(), bracket)));
                }
                Read::Call(_) | Read::Malformed => return Some(self.give_malformed(input, output)),
                Read::More => return Some(MarkedState::Calls),
                Read::End => {
                    input.discard();
                    return Some(MarkedState::AfterCalls);
                }
            }
        }
        let (call, mut after) = self.held.take()?;
        match after.read(input.rest(), follows != Follows::More) {
            Verdict::Unknown => {
                self.held = Some((call, after));
                Some(MarkedState::Calls)
            }
            Verdict::Early => Some(self.give_malformed(input, output)),
            Verdict::Whole => {
                input.advance(after.surplus());
                Self::give_call(call, input, output)
            }
        }
    }

    /// Gives out a call, after which others may follow.
    fn give_call(call: ToolCall, input: &mut Input, output: &mut Output) -> Option<MarkedState> {
        input.discard();
        output.call(call);
        None
    }

    /// Gives out what is read of a call as content.
    fn give_malformed(&mut self, input: &mut Input, output: &mut Output) -> MarkedState {
        self.names.damage();
        self.give(input, output);
        MarkedState::Content
    }
}

impl Parser for Marked {
    fn step(&mut self, input: &mut Input, output: &mut Output) -> bool {
        let before = self.state;
        self.state = match self.state {
            MarkedState::Start => self.read_start(input),
            MarkedState::Reasoning => self.read_reasoning(input, output),
            MarkedState::Draft => self.read_draft(input, output, Follows::More),
            MarkedState::AfterReasoning => skip_space(input, before, MarkedState::Answer),
            MarkedState::Answer => self.read_answer(input),
            MarkedState::Content => self.read_content(input, output),
            MarkedState::Calls => match self.read_calls(input, output, Follows::More) {
                Some(state) => state,
                None => return true,
            },
            MarkedState::AfterCalls => skip_space(input, before, MarkedState::Content),
        };
        self.state != before
    }

    fn finish(&mut self, input: &mut Input, output: &mut Output, is_cut: bool) {
        let follows = if is_cut { Follows::Cut } else { Follows::End };
        // What follows a call that has no end is read anew.
        while let MarkedState::Calls | MarkedState::Draft = self.state {
            self.state = match self.state {
                MarkedState::Draft => self.read_draft(input, output, follows),
                _ => self.read_calls(input, output, follows).unwrap_or(MarkedState::Calls),
            };
            while self.step(input, output) {}
        }
        input.advance_to_end();
        match self.state {
            MarkedState::Reasoning => output.reasoning(input.take()),
            MarkedState::AfterReasoning | MarkedState::AfterCalls => input.discard(),
            MarkedState::Content if self.is_after_frame && input.read().trim().is_empty() => input.discard(),
            _ => output.content(input.take()),
        }
    }

    fn is_reasoning(&self) -> bool {
        matches!(self.state, MarkedState::Reasoning | MarkedState::Draft)
    }
}

/// Drops white space; goes to `next` at the first other character.
fn skip_space(input: &mut Input, here: MarkedState, next: MarkedState) -> MarkedState {
    input.advance_over_space();
    input.discard();
    if input.rest().is_empty() { here } else { next }
}
