//! An answer: its request, and its text on stdout as it is generated, thinking dimmed. On a terminal lines break
//! between words.

use std::fmt::{self, Display, Formatter};
use std::io::{self, IsTerminal};

use gristmill_engine::Finish;
use gristmill_engine::{
    Chat, ChatImage, Conversation, ConverseOptions, Engine, EngineError, Grammar, Piece, ReplyParser,
};
use gristmill_text::reply::{Joiner, ReplyEvent};
use gristmill_text::template::{Message, Role};

use crate::console;
use crate::failure::Failure;
use crate::wrap::Wrap;

const DIM: &str = "\x1b[2m";
const PLAIN: &str = "\x1b[0m";

/// Characters of a prompt that are printed before its continuation.
const LONGEST_ECHO: usize = 1_000;

/// What is to be answered.
pub(crate) struct Asked<'a> {
    pub(crate) system: Option<&'a str>,
    pub(crate) turns: &'a [Message],
    /// The images of the turns, in their order.
    pub(crate) images: Vec<ChatImage>,
}

/// The conversation that an answer continues.
pub(crate) fn conversation(
    engine: &Engine,
    Asked { system, turns, images }: Asked,
    no_think: bool,
    grammar: Option<Grammar>,
) -> Result<Conversation, EngineError> {
    let system = system.map(|text| Message::new(Role::System, text));
    let mut chat = Chat::new(system.into_iter().chain(turns.iter().cloned()).collect());
    chat.thinking = no_think.then_some(false);
    engine.converse(chat, ConverseOptions { grammar, images, ..ConverseOptions::default() })
}

/// What truncated an answer.
pub(crate) struct Limit {
    pub(crate) is_context: bool,
    tokens: usize,
}

/// The limit of an answer that is truncated.
pub(crate) fn limit(finish: &Finish, max_tokens: Option<usize>, engine: &Engine) -> Limit {
    let tokens = finish.usage.generated_tokens;
    match max_tokens.is_some_and(|most| tokens >= most) {
        true => Limit { is_context: false, tokens },
        false => Limit { is_context: true, tokens: engine.context() },
    }
}

impl Display for Limit {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        match self.is_context {
            true => write!(f, "truncated: the context of {} tokens is full", self.tokens),
            false => write!(f, "truncated after {} tokens, by -n", self.tokens),
        }
    }
}

/// A generated text.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub(crate) thinking: String,
    /// The text after the thinking.
    pub(crate) text: String,
}

/// The printed part of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Show {
    All,
    /// The text without the thinking.
    Answer,
    Nothing,
}

/// Prints an answer in pieces.
pub(crate) struct Printer {
    parser: ReplyParser,
    show: Show,
    /// Breaks lines between words; for a terminal.
    wrap: Option<Wrap>,
    /// Thinking and prompts are dimmed.
    dims: bool,
    /// Whether the latest printed text is thinking, if there is one.
    in_thought: Option<bool>,
    /// Whether the text that is printed now is thinking, or a prompt.
    is_dim: bool,
    ends_line: bool,
    joiner: Joiner,
    answer: Answer,
}

impl Printer {
    pub(crate) fn new(parser: ReplyParser, show: Show) -> Printer {
        let terminal = io::stdout().is_terminal();
        let wrap = terminal.then(Wrap::default);
        let dims = terminal && console::styles_allowed();
        let (joiner, answer) = Default::default();
        Printer { parser, show, wrap, dims, in_thought: None, is_dim: false, ends_line: false, joiner, answer }
    }

    /// Prints the end of the text that the answer continues, dimmed. Files and pipes get only the answer.
    pub(crate) fn echo(&mut self, prompt: &str) -> Result<(), Failure> {
        let Some(wrap) = self.wrap.as_mut().filter(|_| self.show != Show::Nothing) else { return Ok(()) };
        let start = prompt.char_indices().rev().nth(LONGEST_ECHO - 1).map_or(0, |(at, _)| at);
        let mark = if start > 0 { "…" } else { "" };
        let columns = console::columns();
        let lines = wrap.push(mark, columns) + &wrap.push(&prompt[start..], columns) + &wrap.finish(columns);
        self.is_dim = true;
        self.write(&lines)?;
        self.is_dim = false;
        Ok(())
    }

    /// Takes the next piece.
    pub(crate) fn push(&mut self, piece: &Piece) -> Result<(), Failure> {
        self.parser.push(piece).into_iter().try_for_each(|event| self.take(event))
    }

    fn take(&mut self, event: ReplyEvent) -> Result<(), Failure> {
        let separator = self.joiner.separator(&event);
        let (text, is_thought) = match event {
            ReplyEvent::Reasoning(text) => (text, true),
            ReplyEvent::Content(text) => (text, false),
            // Calls are not parsed: no tools are offered.
            _ => return Ok(()),
        };
        let answer = if is_thought { &mut self.answer.thinking } else { &mut self.answer.text };
        answer.extend([separator, &text]);
        if self.show == Show::Nothing || (self.show == Show::Answer && is_thought) {
            return Ok(());
        }
        let turns = self.in_thought.is_some_and(|before| before != is_thought);
        if turns {
            self.print_held()?;
        }
        (self.in_thought, self.is_dim) = (Some(is_thought), is_thought);
        self.print(if turns { "\n\n" } else { separator })?;
        self.print(&text)
    }

    fn print(&mut self, text: &str) -> Result<(), Failure> {
        self.ends_line = text.ends_with('\n');
        match &mut self.wrap {
            Some(wrap) => {
                let lines = wrap.push(text, console::columns());
                self.write(&lines)
            }
            None => self.write(text),
        }
    }

    /// Prints the word that [`Wrap`] holds back.
    fn print_held(&mut self) -> Result<(), Failure> {
        let word = self.wrap.as_mut().map(|wrap| wrap.finish(console::columns()));
        self.write(&word.unwrap_or_default())
    }

    fn write(&self, text: &str) -> Result<(), Failure> {
        match text {
            "" => Ok(()),
            _ if self.is_dim && self.dims => console::print(format_args!("{DIM}{text}{PLAIN}")),
            _ => console::print(text),
        }
    }

    /// Prints the rest, if the answer was cancelled, and a line end; returns the whole answer.
    pub(crate) fn finish(mut self) -> Result<Answer, Failure> {
        self.parser.cut().into_iter().try_for_each(|event| self.take(event))?;
        self.print_held()?;
        if self.show != Show::Nothing && !self.ends_line {
            console::print("\n")?;
        }
        Ok(self.answer)
    }
}

#[cfg(test)]
mod tests {
    use gristmill_text::reply::{Reply, ReplyOptions};

    use super::*;

    #[test]
    fn texts_of_an_answer_are_joined_apart() {
        let mut reply = Reply::new(Some("<|channel|>"), "<|start|>assistant", ReplyOptions::default());
        let mut printer = Printer::new(ReplyParser::plain(), Show::Nothing);
        for (channel, text) in [("final", "I look."), ("analysis", "Hm."), ("final", "Done."), ("analysis", "Good.")] {
            let events = reply.push(&format!("<|channel|>{channel}<|message|>{text}<|end|><|start|>assistant"));
            events.into_iter().try_for_each(|event| printer.take(event)).expect("no output");
        }
        let Answer { thinking, text } = printer.finish().expect("no output");
        assert_eq!((&*thinking, &*text), ("Hm.\nGood.", "I look.\nDone."));
    }
}
