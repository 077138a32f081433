//! Calls of Mistral: `[TOOL_CALLS][{"name": …, "arguments": {…}}, …]`, and of later models
//! `[TOOL_CALLS]NAME[ARGS]{…}` for each call, where `[CALL_ID]…` may be after the name.

use super::call::ToolCall;
use super::calls::{Calls, Read};
use super::follow::Follow;
use super::frame::{Frame, Item, Named};
use super::input::{Begins, Input};
use super::marked::{Frames, Marked};
use super::scan::{Scan, Scanner};
use super::syntax::{CallBody, CallSyntax, ReasoningMarks, Syntax, THINK};

/// The form of Mistral's models until 2024.
pub(super) const LISTED: Syntax = Syntax {
    name: "Mistral (list)",
    is_shown_by: |template, _| [MARK, BRACKET_THINK.open].iter().any(|mark| template.contains(mark)),
    reasoning: &[BRACKET_THINK, THINK],
    answer: None,
    frames: Frames::NONE,
    call: CallSyntax {
        body: CallBody::Json(Frame { section: [MARK, ""], is_list: true, ..Frame::PLAIN }),
        is_control: true,
    },
    parser: |syntax, start| Marked::parser(start, syntax.frames, Box::new(Mistral::new())),
};

/// The form of later models.
pub(super) const NAMED: Syntax = Syntax {
    name: "Mistral (named)",
    is_shown_by: |template, _| [MARK, ARGUMENTS].iter().all(|mark| template.contains(mark)),
    call: CallSyntax {
        body: CallBody::Json(Frame {
            call: [MARK, ""],
            item: Item::Named(Named { between: ARGUMENTS, ..Named::PLAIN }),
            ..Frame::PLAIN
        }),
        is_control: true,
    },
    ..LISTED
};

/// The marks around reasoning of Magistral.
const BRACKET_THINK: ReasoningMarks =
    ReasoningMarks { open: "[THINK]", close: "[/THINK]", ending: "[/THINK]", is_control: true };

const MARK: &str = "[TOOL_CALLS]";
const ID: &str = "[CALL_ID]";
const ARGUMENTS: &str = "[ARGS]";

#[derive(Debug)]
enum MistralState {
    /// After the mark.
    Open,
    /// At an object of the list.
    Object(Scanner),
    /// After an object of the list.
    Between,
    Name,
    /// After `[CALL_ID]`.
    Id,
    Arguments(Scanner),
    /// After all calls of a mark.
    Ended,
}

#[derive(Debug)]
pub(super) struct Mistral {
    state: MistralState,
    name: String,
}

impl Mistral {
    fn new() -> Mistral {
        Mistral { state: MistralState::Ended, name: String::new() }
    }

    /// Reads in one state and returns the next, or what was read.
    fn step(&mut self, input: &mut Input) -> Result<MistralState, Read> {
        match &mut self.state {
            MistralState::Open => {
                input.advance_over_space();
                match input.begins(&["["]) {
                    Begins::With(_) => {
                        input.advance(1);
                        Ok(MistralState::Object(begin_object(input)))
                    }
                    Begins::Maybe => Err(Read::More),
                    Begins::No => {
                        input.begin_token();
                        Ok(MistralState::Name)
                    }
                }
            }
            MistralState::Object(scanner) => Err(match scanner.read(input) {
                Scan::More => Read::More,
                Scan::Invalid => Read::Malformed,
                Scan::End => ToolCall::from_object(input.token()).map_or(Read::Malformed, Read::Call),
            }),
            MistralState::Between => {
                input.advance_over_space();
                let next = input.begins(&[",", "]"]);
                if let Begins::With(_) = next {
                    input.advance(1);
                }
                match next {
                    Begins::With(0) => Ok(MistralState::Object(begin_object(input))),
                    Begins::With(_) => Ok(MistralState::Ended),
                    Begins::Maybe => Err(Read::More),
                    Begins::No => Err(Read::Malformed),
                }
            }
            MistralState::Name => self.read_name(input),
            MistralState::Id => {
                if !input.advance_to(ARGUMENTS) {
                    return Err(Read::More);
                }
                input.advance(ARGUMENTS.len());
                Ok(MistralState::Arguments(begin_object(input)))
            }
            MistralState::Arguments(scanner) => Err(match scanner.read(input) {
                Scan::More => Read::More,
                Scan::Invalid => Read::Malformed,
                Scan::End => ToolCall::new(&self.name, input.token()).map_or(Read::Malformed, Read::Call),
            }),
            MistralState::Ended => Err(Read::End),
        }
    }

    /// Reads a name, which ends at `[ARGS]`, `[CALL_ID]` or the arguments.
    fn read_name(&mut self, input: &mut Input) -> Result<MistralState, Read> {
        let rest = input.rest();
        let Some((at, end)) = rest.char_indices().find(|&(_, c)| matches!(c, '[' | '{' | '\n')) else {
            input.advance_to_end();
            return Err(Read::More);
        };
        input.advance(at);
        let marks = ["{", ARGUMENTS, ID];
        let next = input.begins(&marks);
        if end == '\n' || next == Begins::No {
            return Err(Read::Malformed);
        }
        let Begins::With(mark) = next else { return Err(Read::More) };
        self.name = input.token().trim().to_owned();
        if mark > 0 {
            input.advance(marks[mark].len());
        }
        Ok(if mark == 2 { MistralState::Id } else { MistralState::Arguments(begin_object(input)) })
    }
}

fn begin_object(input: &mut Input) -> Scanner {
    input.begin_token();
    Scanner::new()
}

impl Calls for Mistral {
    fn marks(&self) -> &[&'static str] {
        &[MARK]
    }

    fn follow(&self) -> Follow {
        let marks = vec![MARK];
        match self.state {
            MistralState::Between => Follow { marks, separator: Some(','), list_end: Some(']') },
            _ => Follow { marks, ..Follow::default() },
        }
    }

    fn begin(&mut self, _: Option<usize>, _: &mut Input) {
        self.state = MistralState::Open;
    }

    fn read(&mut self, input: &mut Input) -> Read {
        loop {
            match self.step(input) {
                Ok(state) => self.state = state,
                Err(Read::Call(call)) => {
                    let in_list = matches!(self.state, MistralState::Object(_));
                    self.state = if in_list { MistralState::Between } else { MistralState::Ended };
                    return Read::Call(call);
                }
                Err(read) => return read,
            }
        }
    }

    fn is_within_call(&self) -> bool {
        !matches!(self.state, MistralState::Between | MistralState::Ended)
    }
}
