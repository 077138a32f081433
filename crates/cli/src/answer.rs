//! Prints an answer as it comes, with the model's thinking dimmed before it, and keeps both. On a terminal lines break
//! between words.

use std::io::{self, IsTerminal};
use std::mem;

use crate::console;
use crate::failure::Failure;
use crate::think::{Part, Thinking};
use crate::wrap::Wrap;

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
    /// Breaks lines between words, if stdout is a terminal.
    wrap: Option<Wrap>,
    /// stdout is a terminal that may dim.
    dims: bool,
    /// A thought was printed, and nothing since.
    thought: bool,
    ends_line: bool,
    said: Said,
}

impl Printer {
    pub(crate) fn new(thinking: Thinking, show: Show) -> Printer {
        let terminal = io::stdout().is_terminal();
        let (wrap, dims) = (terminal.then(Wrap::default), terminal && console::styles_allowed());
        Printer { thinking, show, wrap, dims, thought: false, ends_line: false, said: Said::default() }
    }

    /// Takes the next text.
    pub(crate) fn push(&mut self, text: &str) -> Result<(), Failure> {
        self.thinking.push(text).into_iter().try_for_each(|part| self.take(part))
    }

    fn take(&mut self, part: Part) -> Result<(), Failure> {
        match part {
            Part::Thought(text) => {
                self.said.thinking.push_str(&text);
                if self.show == Show::All {
                    self.thought = true;
                    self.print(&text)?;
                }
            }
            Part::Answer(text) => {
                self.said.answer.push_str(&text);
                if self.show != Show::Nothing {
                    if self.thought {
                        self.print_held()?;
                        self.thought = false;
                        self.print("\n\n")?;
                    }
                    self.print(&text)?;
                }
            }
        }
        Ok(())
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

    /// Prints the word that waits for its end.
    fn print_held(&mut self) -> Result<(), Failure> {
        match &mut self.wrap {
            Some(wrap) => {
                let word = wrap.finish(console::columns());
                self.write(&word)
            }
            None => Ok(()),
        }
    }

    /// Writes the text, a thought dimmed.
    fn write(&self, text: &str) -> Result<(), Failure> {
        match text {
            "" => Ok(()),
            _ if self.thought && self.dims => console::print(format_args!("{DIM}{text}{PLAIN}")),
            _ => console::print(text),
        }
    }

    /// Prints what was held back, and ends the line. What was said in all.
    pub(crate) fn finish(mut self) -> Result<Said, Failure> {
        let rest = mem::replace(&mut self.thinking, Thinking::none()).finish();
        rest.into_iter().try_for_each(|part| self.take(part))?;
        self.print_held()?;
        if self.show != Show::Nothing && !self.ends_line {
            console::print("\n")?;
        }
        Ok(self.said)
    }
}
