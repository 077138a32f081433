//! Replies of gpt-oss (Harmony): messages on several channels, `<|channel|>analysis<|message|>…<|end|>`, then
//! `<|start|>assistant<|channel|>final<|message|>…`. A call is a message to `functions.NAME`. Other text on any channel
//! but `final` is reasoning.

use super::ReplyOptions;
use super::call::ToolCall;
use super::follow::{AfterCall, Follow, Verdict};
use super::frame::{Frame, Item, Named};
use super::input::{Begins, Input};
use super::marked::Frames;
use super::names::Names;
use super::output::Output;
use super::scan::{Scan, Scanner};
use super::schema;
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
    frames: Frames::NONE,
    call: CallSyntax {
        body: CallBody::Json(Frame {
            call: ["<|channel|>commentary to=", "<|call|>"],
            item: Item::Named(Named { before: FUNCTIONS, between: " <|constrain|>json<|message|>", ..Named::PLAIN }),
            ..Frame::PLAIN
        }),
        is_control: true,
    },
    parser: |_, start| Box::new(Harmony::new(start)),
};

/// The end of a prompt.
const TURN: &str = "<|start|>assistant";
const CHANNEL: &str = "<|channel|>";
const MESSAGE: &str = "<|message|>";
/// Ends of a message. Those of [`NEXT`] start the next message, for a model that omits the end.
const ENDS: [&str; 5] = ["<|end|>", "<|return|>", "<|call|>", NEXT[0], NEXT[1]];
const NEXT: [&str; 2] = ["<|start|>", CHANNEL];
const FUNCTIONS: &str = "functions.";

#[derive(Debug)]
enum HarmonyState {
    /// Before a message's text; `said` is false before the first.
    Head {
        said: bool,
    },
    /// In a message on a channel; `started` once it has text.
    Message {
        is_final: bool,
        started: bool,
    },
    /// Before the arguments of a call.
    Arguments {
        name: String,
    },
    Object {
        name: String,
        scanner: Scanner,
    },
    /// After the arguments, which may have ended early.
    Complete {
        call: Option<ToolCall>,
        after: AfterCall,
    },
    /// After a call's arguments; white space is dropped here.
    AfterCall,
}

/// The parser.
#[derive(Debug)]
pub(super) struct Harmony {
    state: HarmonyState,
    options: ReplyOptions,
    names: Names,
    /// A message on the channel `final` is the rest of the reply.
    answer_or_calls: bool,
}

impl Harmony {
    /// For the reply to a prompt, whose end may have started a message.
    fn new(start: Start) -> Harmony {
        let Start { options, answer_or_calls, .. } = start;
        let names = Names::new(options.schemas.clone());
        let mut parser = Harmony { state: HarmonyState::Head { said: false }, options, names, answer_or_calls };
        let started = start.prompt_end.rsplit_once(TURN).and_then(|(_, started)| started.rsplit_once(MESSAGE));
        if let Some((head, text)) = started
            && !ENDS.iter().any(|end| text.contains(end))
        {
            parser.state = HarmonyState::Message { is_final: is_final(head), started: !text.trim().is_empty() };
        }
        parser
    }

    /// Reads the head of a message: `<|channel|>final` or `<|channel|>commentary to=functions.x <|constrain|>json`,
    /// where the recipient may also precede the channel.
    fn read_head(&mut self, input: &mut Input, output: &mut Output) -> Option<HarmonyState> {
        if !input.advance_to(MESSAGE) {
            return None;
        }
        let name = self.function(input.read());
        let is_final = is_final(input.read());
        // The mark is one within the arguments.
        if name.is_some() && input.read().contains('{') {
            return Some(self.end_call(None, input, output));
        }
        input.advance(MESSAGE.len());
        Some(match name {
            Some(name) => HarmonyState::Arguments { name },
            None => {
                input.discard();
                HarmonyState::Message { is_final, started: false }
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

impl Harmony {
    /// Reads up to the arguments. If the message ends without any, they are `{}`; if another starts, only for a
    /// function that needs none.
    fn read_arguments(
        &mut self,
        name: &str,
        input: &mut Input,
        output: &mut Output,
        is_last: bool,
    ) -> Option<HarmonyState> {
        input.advance_over_space();
        match input.begins(&ENDS) {
            _ if input.rest().starts_with('{') => {
                input.begin_token();
                Some(HarmonyState::Object { name: name.to_owned(), scanner: Scanner::new() })
            }
            Begins::With(end) => {
                let after = &input.rest()[ENDS[end].len()..];
                if after.is_empty() && !is_last {
                    return None;
                }
                // The arguments follow a mark too many.
                let needs_none = schema::needs_none(&self.options.schemas, name);
                let is_whole = !after.starts_with('{') && (needs_none || !NEXT.contains(&ENDS[end]));
                let call = ToolCall::new(name, "{}").filter(|_| is_whole);
                Some(self.end_call(call, input, output))
            }
            Begins::Maybe => None,
            Begins::No => Some(self.end_call(None, input, output)),
        }
    }

    /// Reads what follows the arguments. `None` while that does not decide, and in other states.
    fn complete(&mut self, input: &mut Input, output: &mut Output, is_last: bool) -> Option<HarmonyState> {
        let HarmonyState::Complete { call, after } = &mut self.state else { return None };
        let call = match after.read(input.rest(), is_last) {
            Verdict::Unknown => return None,
            Verdict::Early => None,
            Verdict::Whole => call.take(),
        };
        input.advance(call.as_ref().map_or(0, |_| after.surplus()));
        Some(self.end_call(call, input, output))
    }

    /// The arguments have ended, or are none.
    fn end_call(&mut self, call: Option<ToolCall>, input: &mut Input, output: &mut Output) -> HarmonyState {
        match call.filter(|call| self.names.allow(call)) {
            Some(call) => {
                input.discard();
                output.call(call);
                HarmonyState::AfterCall
            }
            None => {
                self.names.damage();
                self.give(true, false, input, output);
                HarmonyState::Message { is_final: true, started: true }
            }
        }
    }

    /// Gives out a message's text up to its end. `None` while it continues.
    fn read_message(
        &self,
        is_final: bool,
        started: bool,
        input: &mut Input,
        output: &mut Output,
    ) -> Option<HarmonyState> {
        let ends: &[&str] = if is_final && self.answer_or_calls { &[] } else { &ENDS };
        let (len, found) = input.find(ends);
        input.advance(len);
        self.give(is_final, started, input, output);
        match found {
            Begins::With(_) => Some(end_message(input)),
            _ if len > 0 && !started => Some(HarmonyState::Message { is_final, started: true }),
            _ => None,
        }
    }

    /// Gives out what is read of a message; an earlier one is separate from it.
    fn give(&self, is_final: bool, started: bool, input: &mut Input, output: &mut Output) {
        let text = input.take();
        if !started && !text.is_empty() {
            output.separate();
        }
        match is_final {
            true => output.content(text),
            false => output.reasoning(text),
        }
    }
}

impl Parser for Harmony {
    fn step(&mut self, input: &mut Input, output: &mut Output) -> bool {
        let next = match &mut self.state {
            HarmonyState::Head { .. } => self.read_head(input, output),
            &mut HarmonyState::Message { is_final, started } => self.read_message(is_final, started, input, output),
            HarmonyState::Arguments { name } => {
                let name = name.clone();
                self.read_arguments(&name, input, output, false)
            }
            HarmonyState::Object { name, scanner } => match scanner.read(input) {
                Scan::More => None,
                Scan::End => {
                    let follow = Follow { marks: ENDS.to_vec(), ..Follow::default() };
                    let after = AfterCall::new(follow, '}');
                    Some(HarmonyState::Complete { call: ToolCall::new(name, input.token()), after })
                }
                Scan::Invalid => Some(self.end_call(None, input, output)),
            },
            HarmonyState::Complete { .. } => self.complete(input, output, false),
            HarmonyState::AfterCall => {
                input.advance_over_space();
                input.discard();
                match input.begins(&ENDS) {
                    Begins::With(_) => Some(end_message(input)),
                    Begins::Maybe => None,
                    Begins::No => Some(HarmonyState::Message { is_final: true, started: false }),
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

    fn finish(&mut self, input: &mut Input, output: &mut Output, is_cut: bool) {
        let ended = match &self.state {
            HarmonyState::Arguments { name } => {
                let name = name.clone();
                self.read_arguments(&name, input, output, true)
            }
            _ => self.complete(input, output, true),
        };
        if let Some(state) = ended {
            self.state = state;
            while self.step(input, output) {}
        }
        let rest = input.rest().len();
        input.advance_to_end();
        match &self.state {
            &HarmonyState::Message { is_final, started } => self.give(is_final, started, input, output),
            // The mark of the end is no text where it ends generation.
            HarmonyState::Arguments { name }
                if !is_cut && rest == 0 && schema::needs_none(&self.options.schemas, name) =>
            {
                let call = ToolCall::new(name, "{}");
                self.end_call(call, input, output);
            }
            HarmonyState::Arguments { .. } | HarmonyState::Object { .. } | HarmonyState::Complete { .. } => {
                self.give(true, false, input, output)
            }
            // A text without marks is an answer.
            HarmonyState::Head { said: false } if !input.read().contains(CHANNEL) => {
                self.give(true, false, input, output)
            }
            HarmonyState::Head { .. } if self.function(input.read()).is_some() => self.give(true, false, input, output),
            HarmonyState::Head { .. } | HarmonyState::AfterCall => input.discard(),
        }
    }

    fn is_reasoning(&self) -> bool {
        matches!(self.state, HarmonyState::Message { is_final: false, .. })
    }
}

/// The words of a message's head, its marks among them.
fn words(head: &str) -> impl DoubleEndedIterator<Item = &str> {
    head.split(|c: char| c.is_whitespace() || c == '<' || c == '>').filter(|word| !word.is_empty())
}

fn is_final(head: &str) -> bool {
    head.rsplit_once(CHANNEL).and_then(|(_, channel)| words(channel).next()) == Some("final")
}

/// The input is at the end of a message.
fn end_message(input: &mut Input) -> HarmonyState {
    if let Begins::With(end) = input.begins(&ENDS)
        && ENDS[end] != CHANNEL
    {
        input.advance(ENDS[end].len());
        input.discard();
    }
    HarmonyState::Head { said: true }
}
