//! A list of calls between two marks: of LFM2 and of Command.

use super::calls::{Calls, Read};
use super::follow::Follow;
use super::input::Input;
use super::list::{List, next};

#[derive(Debug)]
enum State {
    List(List),
    /// After the list.
    Close,
    Ended,
}

/// The reader.
#[derive(Debug)]
pub(super) struct Listed {
    open: [&'static str; 1],
    close: &'static str,
    state: State,
}

impl Listed {
    /// For a list between these marks.
    pub(super) fn new(open: &'static str, close: &'static str) -> Listed {
        Listed { open: [open], close, state: State::Ended }
    }
}

impl Calls for Listed {
    fn marks(&self) -> &[&'static str] {
        &self.open
    }

    fn follow(&self) -> Follow {
        Follow { marks: vec![self.open[0], self.close], separator: Some(','), list_end: Some(']') }
    }

    fn begin(&mut self, _: Option<usize>, _: &mut Input) {
        self.state = State::List(List::Open);
    }

    fn read(&mut self, input: &mut Input) -> Read {
        if let State::List(list) = &mut self.state {
            match list.read(input) {
                Read::End => self.state = State::Close,
                read => return read,
            }
        }
        if let State::Close = self.state {
            if let Err(more) = next(input, &[self.close]) {
                return more;
            }
            self.state = State::Ended;
        }
        Read::End
    }

    fn is_within_call(&self) -> bool {
        matches!(&self.state, State::List(list) if list.is_within_call())
    }
}
