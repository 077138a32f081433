//! Calls of DeepSeek R1, of DeepSeek V3.1 and of Kimi K2: a section with a name, a mark and a JSON object for each call.
//!
//! DeepSeek V3 and R1: `<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME`, a line end, and the
//! arguments in a fence, ````json … ````, before `<｜tool▁call▁end｜>…<｜tool▁calls▁end｜>`.
//! DeepSeek V3.1: `<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>NAME<｜tool▁sep｜>{…}<｜tool▁call▁end｜>…<｜tool▁calls▁end｜>`.
//! Kimi K2: `<|tool_calls_section_begin|><|tool_call_begin|>functions.NAME:0<|tool_call_argument_begin|>{…}`
//! `<|tool_call_end|>…<|tool_calls_section_end|>`, where the calls of a conversation are numbered.

use super::call::ToolCall;
use super::calls::{Calls, Read};
use super::follow::Follow;
use super::input::{Begins, Input};
use super::list::next;
use super::marked::Marked;
use super::scan::{Scan, Scanner};
use super::syntax::{CallBody, CallSyntax, ReasoningMarks, Syntax, THINK};

const REASONING: ReasoningMarks = ReasoningMarks { ending: "</think>", ..THINK };

/// The form of DeepSeek V3 and R1, which write a fence around the arguments.
pub(super) const FENCED: Syntax = Syntax {
    name: "DeepSeek R1",
    is_shown_by: |template, _| [DEEPSEEK_MARKS.arguments, "```json"].iter().all(|mark| template.contains(mark)),
    call: CallSyntax {
        opening: "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>",
        body: CallBody::Named(&["\n```json\n"]),
        is_control: true,
    },
    parser: |start| Marked::parser(start, Sections::new(&FENCED_MARKS)),
    ..DEEPSEEK
};

/// The form of DeepSeek V3.1.
pub(super) const DEEPSEEK: Syntax = Syntax {
    name: "DeepSeek",
    is_shown_by: |template, _| template.contains(DEEPSEEK_MARKS.arguments),
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

const FENCED_MARKS: Marks =
    Marks { kind: "function<｜tool▁sep｜>", arguments: "\n```json", arguments_end: "```", ..DEEPSEEK_MARKS };

const DEEPSEEK_MARKS: Marks = Marks {
    openings: ["<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>"],
    kind: "",
    arguments: "<｜tool▁sep｜>",
    arguments_end: "",
    call_end: "<｜tool▁call▁end｜>",
    section_end: "<｜tool▁calls▁end｜>",
    is_numbered: false,
};

const KIMI_MARKS: Marks = Marks {
    openings: ["<|tool_calls_section_begin|>", "<|tool_call_begin|>"],
    kind: "",
    arguments: "<|tool_call_argument_begin|>",
    arguments_end: "",
    call_end: "<|tool_call_end|>",
    section_end: "<|tool_calls_section_end|>",
    is_numbered: true,
};

/// The marks of a form.
#[derive(Debug)]
struct Marks {
    /// Of a section, and of a call.
    openings: [&'static str; 2],
    /// Before a name; empty if the name follows the opening.
    kind: &'static str,
    /// Between a name and arguments.
    arguments: &'static str,
    /// After arguments; may lack.
    arguments_end: &'static str,
    call_end: &'static str,
    section_end: &'static str,
    /// A name is `functions.NAME:NUMBER`.
    is_numbered: bool,
}

#[derive(Debug)]
enum SectionState {
    /// Before the first call of a section.
    Open,
    /// Before a name.
    Kind,
    Name,
    Arguments(Scanner),
    /// After a call's arguments.
    ArgumentsEnd,
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
        let Marks { openings: [_, call], kind, arguments_end, call_end, section_end, .. } = *self.marks;
        match &mut self.state {
            SectionState::Open => match next(input, &[call])? {
                Some(_) => Ok(SectionState::Kind),
                None => Err(Read::Malformed),
            },
            SectionState::Kind if !kind.is_empty() && next(input, &[kind])?.is_none() => Err(Read::Malformed),
            SectionState::Kind => {
                input.begin_token();
                Ok(SectionState::Name)
            }
            SectionState::Name => self.read_name(input),
            SectionState::Arguments(scanner) => Err(match scanner.read(input) {
                Scan::More => Read::More,
                Scan::Invalid => Read::Malformed,
                Scan::End => ToolCall::new(&self.name, input.token()).map_or(Read::Malformed, Read::Call),
            }),
            SectionState::ArgumentsEnd => {
                next(input, &[arguments_end])?;
                Ok(SectionState::Closing)
            }
            SectionState::Closing => {
                next(input, &[call_end])?;
                Ok(SectionState::Between)
            }
            SectionState::Between => Ok(match next(input, &[call, section_end])? {
                Some(0) => SectionState::Kind,
                _ => SectionState::Ended,
            }),
            SectionState::Ended => Err(Read::End),
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

impl Calls for Sections {
    fn marks(&self) -> &[&'static str] {
        &self.marks.openings
    }

    fn follow(&self) -> Follow {
        let Marks { openings: [section, call], arguments_end, call_end, section_end, .. } = *self.marks;
        let mut marks = vec![call_end, call, section_end, section];
        marks.extend((!arguments_end.is_empty()).then_some(arguments_end));
        Follow { marks, ..Follow::default() }
    }

    fn begin(&mut self, mark: Option<usize>, _: &mut Input) {
        self.state = if mark == Some(1) { SectionState::Kind } else { SectionState::Open };
    }

    fn read(&mut self, input: &mut Input) -> Read {
        loop {
            match self.step(input) {
                Ok(state) => self.state = state,
                Err(Read::Call(call)) => {
                    self.state = SectionState::ArgumentsEnd;
                    return Read::Call(call);
                }
                Err(read) => return read,
            }
        }
    }

    fn is_within_call(&self) -> bool {
        matches!(self.state, SectionState::Open | SectionState::Kind | SectionState::Name | SectionState::Arguments(_))
    }
}
