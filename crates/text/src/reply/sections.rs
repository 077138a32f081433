//! Calls of DeepSeek V3.1 and of Kimi K2: a section with a name, a mark and a JSON object for each call.
//!
//! DeepSeek V3.1: `<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>NAME<｜tool▁sep｜>{…}<｜tool▁call▁end｜>…<｜tool▁calls▁end｜>`.
//! Kimi K2: `<|tool_calls_section_begin|><|tool_call_begin|>functions.NAME:0<|tool_call_argument_begin|>{…}`
//! `<|tool_call_end|>…<|tool_calls_section_end|>`, where the calls of a conversation are numbered.

use super::call::ToolCall;
use super::calls::{Calls, Read};
use super::follow::Follow;
use super::input::{Begins, Input};
use super::marked::Marked;
use super::scan::{Scan, Scanner};
use super::syntax::{CallBody, CallSyntax, ReasoningMarks, Syntax, THINK};

const REASONING: ReasoningMarks = ReasoningMarks { ending: "</think>", ..THINK };

/// The form of DeepSeek V3.1. Earlier models write a fence around the arguments.
pub(super) const DEEPSEEK: Syntax = Syntax {
    name: "DeepSeek",
    is_shown_by: |template, _| template.contains(DEEPSEEK_MARKS.arguments) && !template.contains("```json"),
    reasoning: &[REASONING],
    answer: None,
    call: CallSyntax {
        opening: "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>",
        body: CallBody::Named(&["<｜tool▁sep｜>"]),
        is_control: true,
    },
    parser: |start| Marked::parser(start, Sections::new(&DEEPSEEK_MARKS)),
};

/// The form of Kimi K2. A required call has the number 0.
pub(super) const KIMI: Syntax = Syntax {
    name: "Kimi",
    is_shown_by: |template, _| template.contains(KIMI_MARKS.arguments),
    call: CallSyntax {
        opening: "<|tool_calls_section_begin|><|tool_call_begin|>functions.",
        body: CallBody::Named(&[":0", "<|tool_call_argument_begin|>"]),
        is_control: true,
    },
    parser: |start| Marked::parser(start, Sections::new(&KIMI_MARKS)),
    ..DEEPSEEK
};

const DEEPSEEK_MARKS: Marks = Marks {
    openings: ["<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>"],
    arguments: "<｜tool▁sep｜>",
    call_end: "<｜tool▁call▁end｜>",
    section_end: "<｜tool▁calls▁end｜>",
    is_numbered: false,
};

const KIMI_MARKS: Marks = Marks {
    openings: ["<|tool_calls_section_begin|>", "<|tool_call_begin|>"],
    arguments: "<|tool_call_argument_begin|>",
    call_end: "<|tool_call_end|>",
    section_end: "<|tool_calls_section_end|>",
    is_numbered: true,
};

/// The marks of a form.
#[derive(Debug)]
struct Marks {
    /// Of a section, and of a call.
    openings: [&'static str; 2],
    /// Between a name and arguments.
    arguments: &'static str,
    call_end: &'static str,
    section_end: &'static str,
    /// A name is `functions.NAME:NUMBER`.
    is_numbered: bool,
}

#[derive(Debug)]
enum SectionState {
    /// Before the first call of a section.
    Open,
    Name,
    Arguments(Scanner),
    /// After a call's arguments.
    Closing,
    /// After a call.
    Between,
    Ended,
}

#[derive(Debug)]
struct Sections {
    marks: &'static Marks,
    state: SectionState,
    name: String,
}

impl Sections {
    fn new(marks: &'static Marks) -> Sections {
        Sections { marks, state: SectionState::Ended, name: String::new() }
    }

    /// Reads in one state and returns the next, or what was read.
    fn step(&mut self, input: &mut Input) -> Result<SectionState, Read> {
        let Marks { openings: [_, call], call_end, section_end, .. } = *self.marks;
        match &mut self.state {
            SectionState::Open => match self.read_mark(input, &[call])? {
                Some(_) => Ok(begin_name(input)),
                None => Err(Read::Malformed),
            },
            SectionState::Name => self.read_name(input),
            SectionState::Arguments(scanner) => Err(match scanner.read(input) {
                Scan::More => Read::More,
                Scan::Invalid => Read::Malformed,
                Scan::End => ToolCall::new(&self.name, input.token()).map_or(Read::Malformed, Read::Call),
            }),
            SectionState::Closing => {
                self.read_mark(input, &[call_end])?;
                Ok(SectionState::Between)
            }
            SectionState::Between => Ok(match self.read_mark(input, &[call, section_end])? {
                Some(0) => begin_name(input),
                _ => SectionState::Ended,
            }),
            SectionState::Ended => Err(Read::End),
        }
    }

    /// Reads white space and one of these marks, if one follows.
    fn read_mark(&self, input: &mut Input, marks: &[&'static str]) -> Result<Option<usize>, Read> {
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

    /// Reads a name, which the mark of arguments ends.
    fn read_name(&mut self, input: &mut Input) -> Result<SectionState, Read> {
        let arguments = self.marks.arguments;
        let rest = input.rest();
        let Some(at) = rest.find(['<', '{', '\n']) else {
            input.advance_to_end();
            return Err(Read::More);
        };
        input.advance(at);
        match input.begins(&[arguments]) {
            Begins::With(_) => {}
            Begins::Maybe => return Err(Read::More),
            Begins::No => return Err(Read::Malformed),
        }
        let name = input.token().trim();
        let number = |name: &str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
        self.name = match name.rsplit_once(':').filter(|(_, n)| self.marks.is_numbered && number(n)) {
            Some((name, _)) => name.strip_prefix("functions.").unwrap_or(name).to_owned(),
            None => name.to_owned(),
        };
        input.advance(arguments.len());
        input.begin_token();
        Ok(SectionState::Arguments(Scanner::new()))
    }
}

fn begin_name(input: &mut Input) -> SectionState {
    input.begin_token();
    SectionState::Name
}

impl Calls for Sections {
    fn marks(&self) -> &[&'static str] {
        &self.marks.openings
    }

    fn follow(&self) -> Follow {
        let Marks { openings: [section, call], call_end, section_end, .. } = *self.marks;
        Follow { marks: vec![call_end, call, section_end, section], ..Follow::default() }
    }

    fn begin(&mut self, mark: Option<usize>, input: &mut Input) {
        self.state = if mark == Some(1) { begin_name(input) } else { SectionState::Open };
    }

    fn read(&mut self, input: &mut Input) -> Read {
        loop {
            match self.step(input) {
                Ok(state) => self.state = state,
                Err(Read::Call(call)) => {
                    self.state = SectionState::Closing;
                    return Read::Call(call);
                }
                Err(read) => return read,
            }
        }
    }

    fn is_within_call(&self) -> bool {
        matches!(self.state, SectionState::Open | SectionState::Name | SectionState::Arguments(_))
    }
}
