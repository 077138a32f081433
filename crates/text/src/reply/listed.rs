//! A list of calls between two marks: of LFM2 and of Command.

use super::calls::{Calls, Read};
use super::follow::Follow;
use super::input::Input;
use super::list::{List, next};

#[derive(Debug)]
enum ListedState {
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
    state: ListedState,
}

impl Listed {
    /// For a list between these marks.
    pub(super) fn new(open: &'static str, close: &'static str) -> Listed {
        Listed { open: [open], close, state: ListedState::Ended }
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
        self.state = ListedState::List(List::Open);
    }

    fn read(&mut self, input: &mut Input) -> Read {
        if let ListedState::List(list) = &mut self.state {
            match list.read(input) {
                Read::End => self.state = ListedState::Close,
                read => return read,
            }
        }
        if let ListedState::Close = self.state {
            if let Err(more) = next(input, &[self.close]) {
                return more;
            }
            self.state = ListedState::Ended;
        }
        Read::End
    }

    fn is_within_call(&self) -> bool {
        matches!(&self.state, ListedState::List(list) if list.is_within_call())
    }
}
