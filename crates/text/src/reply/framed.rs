//! Reads calls whose arguments are JSON, between the marks of a [`Frame`].

use super::call::ToolCall;
use super::calls::{Calls, Read};
use super::follow::Follow;
use super::frame::{Frame, Item, Named};
use super::input::{Begins, Input};
use super::list::{List, next};
use super::scan::{Scan, Scanner};

#[derive(Debug)]
enum FramedState {
    /// After the mark of a section.
    Section,
    List(List),
    /// After the mark of a call.
    Call,
    Object(Scanner),
    /// In an id.
    Id,
    /// Before a name.
    Before,
    Name,
    Arguments(Scanner),
    /// After a call's arguments.
    After,
    Closing,
    /// After a call.
    Between,
    /// After the list of a section.
    SectionEnd,
    Ended,
}

/// The reader.
#[derive(Debug)]
pub(super) struct Framed {
    frame: Frame,
    /// See [`Calls::marks`].
    marks: Vec<&'static str>,
    state: FramedState,
    name: String,
}

impl Framed {
    pub(super) fn new(frame: Frame) -> Framed {
        let marks = frame.openings().collect();
        Framed { frame, marks, state: FramedState::Ended, name: String::new() }
    }

    fn named(&self) -> Named {
        if let Item::Named(named) = self.frame.item { named } else { Named::PLAIN }
    }

    /// Reads in one state and returns the next, or what was read.
    fn step(&mut self, input: &mut Input) -> Result<FramedState, Read> {
        let [call, call_end] = self.frame.call.map(str::trim);
        let [_, section_end] = self.frame.section.map(str::trim);
        let named = self.named();
        match &mut self.state {
            FramedState::Section if self.frame.is_list => Ok(FramedState::List(List::Open)),
            FramedState::Section => match next(input, &[call])? {
                Some(_) => Ok(FramedState::Call),
                None => Err(Read::Malformed),
            },
            FramedState::List(list) => match list.read(input, &self.frame.item) {
                Read::End => Ok(FramedState::SectionEnd),
                read => Err(read),
            },
            FramedState::Call => {
                input.begin_token();
                Ok(match self.frame.item {
                    Item::Named(_) if named.id_end.is_empty() => FramedState::Before,
                    Item::Named(_) => FramedState::Id,
                    _ => {
                        input.advance_over_space();
                        input.begin_token();
                        FramedState::Object(Scanner::new())
                    }
                })
            }
            FramedState::Object(scanner) => Err(match scanner.read(input) {
                Scan::More => Read::More,
                Scan::Invalid => Read::Malformed,
                Scan::End => self.frame.item.call(input.token()).map_or(Read::Malformed, Read::Call),
            }),
            FramedState::Id => {
                until(input, named.id_end.trim())?;
                Ok(FramedState::Before)
            }
            FramedState::Before => {
                // Some models leave it out before a name with a number.
                if next(input, &[named.before.trim()])?.is_none() && !named.is_numbered {
                    return Err(Read::Malformed);
                }
                input.begin_token();
                Ok(FramedState::Name)
            }
            FramedState::Name => {
                // White space before the mark is part of it, or not; that before the arguments is never.
                let name = until(input, named.between.trim_end())?;
                let number = |name: &str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
                self.name = match name.rsplit_once(':').filter(|(_, n)| named.is_numbered && number(n)) {
                    Some((name, _)) => name.to_owned(),
                    None => name,
                };
                input.begin_token();
                Ok(FramedState::Arguments(Scanner::new()))
            }
            FramedState::Arguments(scanner) => Err(match scanner.read(input) {
                Scan::More => Read::More,
                Scan::Invalid => Read::Malformed,
                Scan::End => ToolCall::new(&self.name, input.token()).map_or(Read::Malformed, Read::Call),
            }),
            FramedState::After => {
                next(input, &[named.after.trim()])?;
                Ok(FramedState::Closing)
            }
            FramedState::Closing => {
                next(input, &[call_end])?;
                Ok(if !self.frame.section[0].is_empty() { FramedState::Between } else { FramedState::Ended })
            }
            FramedState::Between if call.is_empty() => Ok(match next(input, &["{", section_end])? {
                Some(0) => {
                    input.return_to(input.offset() - 1);
                    FramedState::Call
                }
                _ => FramedState::Ended,
            }),
            FramedState::Between => Ok(match next(input, &[call, section_end])? {
                Some(0) => FramedState::Call,
                _ => FramedState::Ended,
            }),
            FramedState::SectionEnd => {
                next(input, &[section_end])?;
                Ok(FramedState::Ended)
            }
            FramedState::Ended => Err(Read::End),
        }
    }
}

/// Reads a name or an id and the mark after it. If the mark is empty, a name ends before the arguments.
fn until(input: &mut Input, mark: &str) -> Result<String, Read> {
    let rest = input.rest();
    let Some(at) = rest.find(|c| matches!(c, '<' | '{' | '\n') || mark.starts_with(c)) else {
        input.advance_to_end();
        return Err(Read::More);
    };
    input.advance(at);
    match input.begins(&[mark]) {
        Begins::With(_) => {
            let text = input.token().trim().to_owned();
            input.advance(mark.len());
            Ok(text)
        }
        Begins::Maybe => Err(Read::More),
        Begins::No => Err(Read::Malformed),
    }
}

impl Calls for Framed {
    fn marks(&self) -> &[&'static str] {
        &self.marks
    }

    fn follow(&self) -> Follow {
        let marks = self.frame.following();
        match self.frame.is_list {
            true => Follow { marks, separator: Some(','), list_end: Some(']') },
            false => Follow { marks, ..Follow::default() },
        }
    }

    fn begin(&mut self, mark: Option<usize>, _: &mut Input) {
        // Without a mark of sections, the only mark is that of a call.
        let is_section = mark == Some(0) && !self.frame.section[0].is_empty();
        self.state = if is_section { FramedState::Section } else { FramedState::Call };
    }

    fn read(&mut self, input: &mut Input) -> Read {
        loop {
            match self.step(input) {
                Ok(state) => self.state = state,
                Err(Read::Call(call)) => {
                    if !matches!(self.state, FramedState::List(_)) {
                        self.state = FramedState::After;
                    }
                    return Read::Call(call);
                }
                Err(read) => return read,
            }
        }
    }

    fn is_within_call(&self) -> bool {
        use FramedState::*;
        match &self.state {
            Section | Call | Object(_) | Id | Before | Name | Arguments(_) => true,
            List(list) => list.is_within_call(),
            After | Closing | Between | SectionEnd | Ended => false,
        }
    }
}
