//! Replies of gpt-oss (Harmony): messages on several channels, `<|channel|>analysis<|message|>…<|end|>`, then
//! `<|start|>assistant<|channel|>final<|message|>…`. A call is a message to `functions.NAME`. Other text on any channel
//! but `final` is reasoning.

use super::ReplyOptions;
use super::call::ToolCall;
use super::input::{Begins, Input};
use super::output::Output;
use super::scan::{Scan, Scanner};
use super::syntax::{CallBody, CallSyntax, Parser, ReasoningMarks, Start, Syntax};

/// The form of gpt-oss.
pub(super) const SYNTAX: Syntax = Syntax {
    name: "Harmony",
    is_shown_by: |template, prompt_end| template.contains(CHANNEL) || prompt_end.trim_end().ends_with(TURN),
    reasoning: &[ReasoningMarks {
        open: "<|channel|>analysis<|message|>",
        close: "<|end|>",
        ending: "<|end|><|start|>assistant",
        is_control: true,
    }],
    answer: Some((TURN, "<|channel|>final<|message|>")),
    call: CallSyntax {
        opening: "<|channel|>commentary to=functions.",
        body: CallBody::Named(&[" ", "<|constrain|>", "json", MESSAGE]),
        is_control: true,
    },
    parser: |start| Box::new(Harmony::new(start)),
};

/// The end of a prompt.
const TURN: &str = "<|start|>assistant";
const CHANNEL: &str = "<|channel|>";
const MESSAGE: &str = "<|message|>";
/// Ends of a message. The last two begin the next message, for a model that omits the end.
const ENDS: [&str; 5] = ["<|end|>", "<|return|>", "<|call|>", "<|start|>", CHANNEL];
const FUNCTIONS: &str = "functions.";

#[derive(Debug)]
enum State {
    /// Before a message's text; `said` is false before the first.
    Head { said: bool },
    /// In a message on a channel.
    Message { is_final: bool },
    /// In a message with a call.
    Call { name: String, scanner: Scanner },
    /// After a call's arguments; white space is dropped here.
    AfterCall,
}

/// The parser.
#[derive(Debug)]
pub(super) struct Harmony {
    state: State,
    options: ReplyOptions,
}

impl Harmony {
    /// For the reply to a prompt, whose end may have begun a message.
    fn new(start: Start) -> Harmony {
        let mut parser = Harmony { state: State::Head { said: false }, options: start.options };
        let begun = start.prompt_end.rsplit_once(TURN).and_then(|(_, begun)| begun.rsplit_once(MESSAGE));
        if let Some((head, text)) = begun
            && !ENDS.iter().any(|end| text.contains(end))
        {
            parser.state = State::Message { is_final: is_final(head) };
        }
        parser
    }

    /// Reads the head of a message: `<|channel|>final` or `<|channel|>commentary to=functions.x <|constrain|>json`,
    /// where the recipient may also precede the channel.
    fn read_head(&self, input: &mut Input) -> Option<State> {
        if !input.advance_to(MESSAGE) {
            return None;
        }
        let (name, is_final) = (self.function(input.read()), is_final(input.read()));
        input.advance(MESSAGE.len());
        Some(match name {
            Some(name) => {
                input.begin_token();
                State::Call { name, scanner: Scanner::new() }
            }
            None => {
                input.discard();
                State::Message { is_final }
            }
        })
    }

    /// The function that a message with this head calls.
    fn function(&self, head: &str) -> Option<String> {
        let recipient =
            words(head).filter_map(|word| word.strip_prefix("to=")).next_back().filter(|_| self.options.tools)?;
        let name = match recipient.strip_prefix(FUNCTIONS) {
            Some(name) => name,
            None if self.options.schemas.contains_key(recipient) => recipient,
            None => return None,
        };
        Some(name.to_owned())
    }
}

impl Parser for Harmony {
    fn step(&mut self, input: &mut Input, output: &mut Output) -> bool {
        let next = match &mut self.state {
            State::Head { .. } => self.read_head(input),
            State::Message { is_final } => read_message(*is_final, input, output),
            State::Call { name, scanner } => match scanner.read(input) {
                Scan::More => None,
                Scan::End => Some(end_call(ToolCall::new(name, input.token()), input, output)),
                Scan::Invalid => Some(end_call(None, input, output)),
            },
            State::AfterCall => {
                input.advance_over_space();
                input.discard();
                match input.begins(&ENDS) {
                    Begins::With(_) => Some(end_message(input)),
                    Begins::Maybe => None,
                    Begins::No => Some(State::Message { is_final: true }),
                }
            }
        };
        match next {
            Some(state) => {
                self.state = state;
                true
            }
            None => false,
        }
    }

    fn finish(&mut self, input: &mut Input, output: &mut Output) {
        input.advance_to_end();
        match self.state {
            State::Message { is_final: false } => output.reasoning(input.take()),
            State::Message { is_final: true } | State::Call { .. } => output.content(input.take()),
            // A text without marks is an answer.
            State::Head { said: false } if !input.read().contains(CHANNEL) => output.content(input.take()),
            State::Head { .. } if self.function(input.read()).is_some() => output.content(input.take()),
            State::Head { .. } | State::AfterCall => input.discard(),
        }
    }

    fn is_reasoning(&self) -> bool {
        matches!(self.state, State::Message { is_final: false })
    }
}

/// The words of a message's head, its marks among them.
fn words(head: &str) -> impl DoubleEndedIterator<Item = &str> {
    head.split(|c: char| c.is_whitespace() || c == '<' || c == '>').filter(|word| !word.is_empty())
}

fn is_final(head: &str) -> bool {
    head.rsplit_once(CHANNEL).and_then(|(_, channel)| words(channel).next()) == Some("final")
}

/// Gives out a message's text up to its end. `None` while it goes on.
fn read_message(is_final: bool, input: &mut Input, output: &mut Output) -> Option<State> {
    let (len, found) = input.find(&ENDS);
    input.advance(len);
    match is_final {
        true => output.content(input.take()),
        false => output.reasoning(input.take()),
    }
    matches!(found, Begins::With(_)).then(|| end_message(input))
}

/// The input stands at the end of a message.
fn end_message(input: &mut Input) -> State {
    if let Begins::With(end) = input.begins(&ENDS)
        && ENDS[end] != CHANNEL
    {
        input.advance(ENDS[end].len());
        input.discard();
    }
    State::Head { said: true }
}

/// The arguments have ended, or are none.
fn end_call(call: Option<ToolCall>, input: &mut Input, output: &mut Output) -> State {
    match call {
        Some(call) => {
            input.discard();
            output.call(call);
            State::AfterCall
        }
        None => {
            output.content(input.take());
            State::Message { is_final: true }
        }
    }
}
