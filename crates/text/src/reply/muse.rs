//! Replies of Muse Glimmer (ATEM): messages to a recipient, ` to=self<|message|>…<|eom|>`, then
//! `<|start|>assistant to=user<|message|>…<|eot|>`. Messages to `self` are reasoning, those to `user` are content. A call
//! is a message to the tool: `<atem:function_calls>`, `<atem:invoke name="NAME">`, `<atem:parameter
//! name="KEY">VALUE</atem:parameter>` for each argument, `</atem:invoke>` and `</atem:function_calls>`.

use super::ReplyOptions;
use super::call::ToolCall;
use super::calls::{Calls, Follows, Read};
use super::frame::{Frame, Item, Named};
use super::hermes::Hermes;
use super::input::{Begins, Input};
use super::marked::Frames;
use super::names::Names;
use super::output::Output;
use super::scan::{Scan, Scanner};
use super::syntax::{CallBody, CallSyntax, Parser, ReasoningMarks, Start, Syntax};
use super::tags::Tags;

/// The form of Muse Glimmer. The arguments of a required call are JSON, which can be held to a schema.
pub(super) const SYNTAX: Syntax = Syntax {
    name: "Muse",
    is_shown_by: |template, _| template.contains(TAGS.open),
    reasoning: &[ReasoningMarks {
        open: " to=self<|message|>",
        close: "<|eom|>",
        ending: "<|eom|><|start|>assistant",
        is_control: true,
    }],
    answer: Some((TURN, " to=user<|message|>")),
    frames: Frames::NONE,
    call: CallSyntax {
        body: CallBody::Json(Frame {
            call: [" to=", "<|eom|>"],
            item: Item::Named(Named { between: "<|message|><atem:function_calls>\n", ..Named::PLAIN }),
            ..Frame::PLAIN
        }),
        is_control: true,
    },
    parser: |_, start| Box::new(Muse::new(start)),
};

const TAGS: Tags = Tags {
    open: "<atem:function_calls>",
    close: "</atem:function_calls>",
    function: "<atem:invoke name=\"",
    name_end: Some("\">"),
    end: "</atem:invoke>",
    key: "<atem:parameter name=\"",
    key_end: "\">",
    value_end: "</atem:parameter>",
    several: true,
    ..Tags::PLAIN
};

/// The end of a prompt.
const TURN: &str = "<|start|>assistant";
const MESSAGE: &str = "<|message|>";
/// Ends of a message. The last starts the next message, for a model that omits the end.
const ENDS: [&str; 3] = ["<|eom|>", "<|eot|>", "<|start|>"];
/// Ends of a message in which a call can start.
const ENDS_AND_CALL: [&str; 4] = [ENDS[0], ENDS[1], ENDS[2], TAGS.open];

/// A message, by its recipient.
#[derive(Debug, Clone, PartialEq)]
enum Message {
    Reasoning,
    /// To the user.
    Answer,
    /// To a tool, or to none: the text may have calls.
    Calls(Option<String>),
}

#[derive(Debug)]
enum MuseState {
    /// Before a message's text; `said` is false before the first.
    Head {
        said: bool,
    },
    /// In a message; `started` once it has text.
    Text {
        message: Message,
        started: bool,
    },
    /// After the mark of calls to this tool.
    Open {
        tool: Option<String>,
    },
    /// In arguments of this tool.
    Object {
        tool: String,
        scanner: Scanner,
    },
    Calls,
    /// After calls; white space is dropped here.
    AfterCalls,
}

/// The parser.
#[derive(Debug)]
struct Muse {
    state: MuseState,
    calls: Hermes,
    /// Calls are events.
    tools: bool,
    names: Names,
    /// A message to the user is the rest of the reply.
    answer_or_calls: bool,
}

impl Muse {
    /// For the reply to a prompt, whose end may have started a message.
    fn new(start: Start) -> Muse {
        let Start { prompt_end, options: ReplyOptions { tools, schemas, .. }, answer_or_calls, .. } = start;
        let calls = Hermes::new(&TAGS, schemas.clone());
        let names = Names::new(schemas);
        let started = prompt_end.rsplit_once(TURN).and_then(|(_, started)| started.rsplit_once(MESSAGE));
        let state = match started {
            Some((head, text)) if !ENDS.iter().any(|end| text.contains(end)) => {
                MuseState::Text { message: message(head), started: !text.trim().is_empty() }
            }
            _ => MuseState::Head { said: false },
        };
        Muse { state, calls, tools, names, answer_or_calls }
    }

    /// Gives out a message's text up to its end or a call. `None` while it continues.
    fn read_text(&self, message: &Message, started: bool, input: &mut Input, output: &mut Output) -> Option<MuseState> {
        let may_call = self.tools && matches!(message, Message::Calls(_));
        let ends: &[&str] = match message {
            Message::Answer if self.answer_or_calls => &[],
            _ if may_call => &ENDS_AND_CALL,
            _ => &ENDS,
        };
        let (len, found) = input.find(ends);
        // White space before a call is no text: it is read, and given out with the text that follows it.
        let text = if may_call { input.rest()[..len].trim_end().len() } else { len };
        if text > 0 {
            input.advance(text);
            give(message, started, input, output);
        }
        input.advance(len - text);
        let started = started || text > 0;
        match (found, message) {
            (Begins::With(3), Message::Calls(tool)) => {
                input.advance(TAGS.open.len());
                Some(MuseState::Open { tool: tool.clone() })
            }
            (Begins::With(end), _) => {
                give(message, started, input, output);
                Some(end_message(end, input))
            }
            _ if text > 0 => Some(MuseState::Text { message: message.clone(), started }),
            _ => None,
        }
    }

    /// Reads what follows the mark of calls.
    fn read_open(&mut self, tool: Option<String>, input: &mut Input) -> Option<MuseState> {
        input.advance_over_space();
        let first = input.rest().chars().next()?;
        if let Some(tool) = tool.filter(|_| first == '{') {
            input.begin_token();
            return Some(MuseState::Object { tool, scanner: Scanner::new() });
        }
        self.calls.begin(Some(0), input);
        Some(MuseState::Calls)
    }

    /// Reads calls. `None` if more text is needed.
    fn read_calls(&mut self, input: &mut Input, output: &mut Output, follows: Follows) -> Option<MuseState> {
        match self.calls.read_before(follows, input) {
            Read::More => None,
            Read::Call(call) => Some(self.end_call(Some(call), MuseState::Calls, input, output)),
            Read::Malformed => Some(self.end_call(None, MuseState::Calls, input, output)),
            Read::End => {
                input.discard();
                Some(MuseState::AfterCalls)
            }
        }
    }

    /// A call has ended, or is none.
    fn end_call(
        &mut self,
        call: Option<ToolCall>,
        next: MuseState,
        input: &mut Input,
        output: &mut Output,
    ) -> MuseState {
        match call.filter(|call| self.names.allow(call)) {
            Some(call) => {
                input.discard();
                output.call(call);
                next
            }
            None => {
                self.names.damage();
                let message = Message::Calls(None);
                give(&message, false, input, output);
                MuseState::Text { message, started: true }
            }
        }
    }

    /// Reads in one state and returns the next; `None` if more text is needed.
    fn next(&mut self, input: &mut Input, output: &mut Output, follows: Follows) -> Option<MuseState> {
        match &mut self.state {
            MuseState::Head { .. } => {
                if !input.advance_to(MESSAGE) {
                    return None;
                }
                let message = message(input.read());
                input.advance(MESSAGE.len());
                input.discard();
                Some(MuseState::Text { message, started: false })
            }
            MuseState::Text { message, started } => {
                let message = message.clone();
                let started = *started;
                self.read_text(&message, started, input, output)
            }
            MuseState::Open { tool } => {
                let tool = tool.take();
                let next = self.read_open(tool.clone(), input);
                if next.is_none() {
                    self.state = MuseState::Open { tool };
                }
                next
            }
            MuseState::Object { tool, scanner } => {
                let call = match scanner.read(input) {
                    Scan::More => return None,
                    Scan::End => ToolCall::new(tool, input.token()),
                    Scan::Invalid => None,
                };
                Some(self.end_call(call, MuseState::AfterCalls, input, output))
            }
            MuseState::Calls => self.read_calls(input, output, follows),
            MuseState::AfterCalls => {
                input.advance_over_space();
                input.discard();
                match input.begins(&[ENDS[0], ENDS[1], ENDS[2], TAGS.close]) {
                    Begins::With(3) => {
                        input.advance(TAGS.close.len());
                        Some(MuseState::AfterCalls)
                    }
                    Begins::With(end) => Some(end_message(end, input)),
                    Begins::Maybe => None,
                    Begins::No => Some(MuseState::Text { message: Message::Calls(None), started: false }),
                }
            }
        }
    }
}

impl Parser for Muse {
    fn step(&mut self, input: &mut Input, output: &mut Output) -> bool {
        match self.next(input, output, Follows::More) {
            Some(state) => {
                self.state = state;
                true
            }
            None => false,
        }
    }

    fn finish(&mut self, input: &mut Input, output: &mut Output, is_cut: bool) {
        let follows = if is_cut { Follows::Cut } else { Follows::End };
        while let MuseState::Calls = self.state
            && let Some(state) = self.next(input, output, follows)
        {
            self.state = state;
            while self.step(input, output) {}
        }
        input.advance_to_end();
        match &self.state {
            MuseState::Text { message, started } => give(message, *started, input, output),
            MuseState::Open { .. } | MuseState::Object { .. } | MuseState::Calls => {
                give(&Message::Answer, false, input, output)
            }
            // A text without marks is an answer.
            MuseState::Head { said: false } if !input.read().trim_start().starts_with("to=") => {
                give(&Message::Answer, false, input, output)
            }
            MuseState::Head { .. } | MuseState::AfterCalls => input.discard(),
        }
    }

    fn is_reasoning(&self) -> bool {
        matches!(self.state, MuseState::Text { message: Message::Reasoning, .. })
    }
}

/// The message with this head.
fn message(head: &str) -> Message {
    match head.split_whitespace().filter_map(|word| word.strip_prefix("to=")).next_back() {
        Some("self") => Message::Reasoning,
        Some("user") => Message::Answer,
        recipient => Message::Calls(recipient.map(str::to_owned)),
    }
}

/// Gives out what is read of a message; an earlier one is separate from it.
fn give(message: &Message, started: bool, input: &mut Input, output: &mut Output) {
    let text = input.take();
    if !started && !text.is_empty() {
        output.separate();
    }
    match message {
        Message::Reasoning => output.reasoning(text),
        Message::Answer | Message::Calls(_) => output.content(text),
    }
}

/// A message has ended with this one of [`ENDS`].
fn end_message(end: usize, input: &mut Input) -> MuseState {
    if ENDS[end] != ENDS[2] {
        input.advance(ENDS[end].len());
        input.discard();
    }
    MuseState::Head { said: true }
}
