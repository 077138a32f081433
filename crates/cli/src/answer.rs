//! An answer: its request, and its text on stdout as it is generated, thinking dimmed. On a terminal lines break
//! between words.

use std::io::{self, IsTerminal};

use gristmill_engine::{Chat, Conversation, ConverseOptions, Engine, EngineError, Grammar, Piece, ReplyParser};
use gristmill_text::reply::{Joiner, ReplyEvent};
use gristmill_text::template::{Message, Role};

use crate::console;
use crate::failure::Failure;
use crate::wrap::Wrap;

const DIM: &str = "\x1b[2m";
const PLAIN: &str = "\x1b[0m";

/// The conversation that an answer continues.
pub(crate) fn conversation(
    engine: &Engine,
    system: Option<&str>,
    turns: &[Message],
    no_think: bool,
    grammar: Option<Grammar>,
) -> Result<Conversation, EngineError> {
    let system = system.map(|text| Message::new(Role::System, text));
    let mut chat = Chat::new(system.into_iter().chain(turns.iter().cloned()).collect());
    chat.thinking = no_think.then_some(false);
    engine.converse(chat, ConverseOptions { grammar, ..ConverseOptions::default() })
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
    /// Thinking is dimmed.
    dims: bool,
    /// Whether the latest printed text is thinking, if there is one.
    in_thought: Option<bool>,
    ends_line: bool,
    joiner: Joiner,
    answer: Answer,
}

impl Printer {
    pub(crate) fn new(parser: ReplyParser, show: Show) -> Printer {
        let terminal = io::stdout().is_terminal();
        let (wrap, dims) = (terminal.then(Wrap::default), terminal && console::styles_allowed());
        let (joiner, answer) = Default::default();
        Printer { parser, show, wrap, dims, in_thought: None, ends_line: false, joiner, answer }
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
        self.in_thought = Some(is_thought);
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
            _ if self.in_thought == Some(true) && self.dims => console::print(format_args!("{DIM}{text}{PLAIN}")),
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
