//! Prints an answer as it comes, with the model's thinking dimmed before it, and keeps both.

use std::io::{self, IsTerminal};
use std::mem;

use crate::console;
use crate::failure::Failure;
use crate::think::{Part, Thinking};

const DIM: &str = "\x1b[2m";
const PLAIN: &str = "\x1b[0m";

/// What a model said.
#[derive(Debug, Default)]
pub(crate) struct Said {
    pub(crate) thinking: String,
    pub(crate) answer: String,
}

/// What of an answer is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Show {
    All,
    Answer,
    Nothing,
}

/// Prints what a model says.
pub(crate) struct Printer {
    thinking: Thinking,
    show: Show,
    /// stdout is a terminal that can dim.
    dims: bool,
    /// A thought was printed, and nothing since.
    thought: bool,
    ends_line: bool,
    said: Said,
}

impl Printer {
    pub(crate) fn new(thinking: Thinking, show: Show) -> Printer {
        let dims = io::stdout().is_terminal();
        Printer { thinking, show, dims, thought: false, ends_line: false, said: Said::default() }
    }

    /// Takes the next text.
    pub(crate) fn push(&mut self, text: &str) -> Result<(), Failure> {
        self.thinking.push(text).into_iter().try_for_each(|part| self.take(part))
    }

    fn take(&mut self, part: Part) -> Result<(), Failure> {
        match part {
            Part::Thought(text) => {
                self.said.thinking.push_str(&text);
                match self.show {
                    Show::All if self.dims => self.print(&text, format_args!("{DIM}{text}{PLAIN}"))?,
                    Show::All => self.print(&text, format_args!("{text}"))?,
                    Show::Answer | Show::Nothing => return Ok(()),
                }
                self.thought = true;
            }
            Part::Answer(text) => {
                self.said.answer.push_str(&text);
                if self.show != Show::Nothing {
                    let gap = if mem::take(&mut self.thought) { "\n\n" } else { "" };
                    self.print(&text, format_args!("{gap}{text}"))?;
                }
            }
        }
        Ok(())
    }

    fn print(&mut self, text: &str, shown: std::fmt::Arguments) -> Result<(), Failure> {
        self.ends_line = text.ends_with('\n');
        console::print(shown)
    }

    /// Prints what was held back, and ends the line. What was said in all.
    pub(crate) fn finish(mut self) -> Result<Said, Failure> {
        let rest = mem::replace(&mut self.thinking, Thinking::none()).finish();
        rest.into_iter().try_for_each(|part| self.take(part))?;
        if self.show != Show::Nothing && !self.ends_line {
            console::print("\n")?;
        }
        Ok(self.said)
    }
}
