//! A list of calls, each a JSON object or a call of Python with literals: `[NAME(KEY=VALUE, …), {"name": …}, …]`.

use super::call::ToolCall;
use super::calls::Read;
use super::frame::Item;
use super::input::{Begins, Input};
use super::python::{self, CallScanner};
use super::scan::{Scan, Scanner};

/// How far a list is read.
#[derive(Debug)]
pub(super) enum List {
    /// Before `[`.
    Open,
    /// At an item.
    Item,
    Object(Scanner),
    Python(CallScanner),
    /// After an item.
    Between,
    Ended,
}

impl List {
    /// Reads on, up to the list's end at most.
    pub(super) fn read(&mut self, input: &mut Input, item: &Item) -> Read {
        loop {
            match self.step(input, item) {
                Ok(state) => *self = state,
                Err(Read::Call(call)) => {
                    *self = List::Between;
                    return Read::Call(call);
                }
                Err(read) => return read,
            }
        }
    }

    /// Whether a call has started that is not complete.
    pub(super) fn is_within_call(&self) -> bool {
        !matches!(self, List::Between | List::Ended)
    }

    /// Reads in one state and returns the next, or the outcome.
    fn step(&mut self, input: &mut Input, of: &Item) -> Result<List, Read> {
        let call = |scan, call: &dyn Fn() -> Option<ToolCall>| match scan {
            Scan::More => Read::More,
            Scan::Invalid => Read::Malformed,
            Scan::End => call().map_or(Read::Malformed, Read::Call),
        };
        match self {
            List::Open => match next(input, &["["])? {
                Some(_) => Ok(List::Item),
                None => Err(Read::Malformed),
            },
            List::Item => {
                input.advance_over_space();
                let Some(first) = input.rest().chars().next() else { return Err(Read::More) };
                input.begin_token();
                Ok(if first == '{' { List::Object(Scanner::new()) } else { List::Python(CallScanner::default()) })
            }
            List::Object(scanner) => {
                let scan = scanner.read(input);
                Err(call(scan, &|| of.call(input.token())))
            }
            List::Python(scanner) => {
                let scan = scanner.read(input);
                Err(call(scan, &|| {
                    let (name, arguments) = python::call(input.token())?;
                    ToolCall::new(name, &arguments)
                }))
            }
            List::Between => match next(input, &[",", "]"])? {
                Some(0) => Ok(List::Item),
                Some(_) => Ok(List::Ended),
                None => Err(Read::Malformed),
            },
            List::Ended => Err(Read::End),
        }
    }
}

/// Reads white space and one of these marks; which, or `None` if none of them follows.
pub(super) fn next(input: &mut Input, marks: &[&str]) -> Result<Option<usize>, Read> {
    let mark = follows(input, marks)?;
    input.advance(mark.map_or(0, |mark| marks[mark].len()));
    Ok(mark)
}

/// Which of these marks follows white space, which is read. An empty mark is found where the white space has ended.
pub(super) fn follows(input: &mut Input, marks: &[&str]) -> Result<Option<usize>, Read> {
    input.advance_over_space();
    match input.begins(marks) {
        _ if input.rest().is_empty() => Err(Read::More),
        Begins::With(mark) => Ok(Some(mark)),
        Begins::Maybe => Err(Read::More),
        Begins::No => Ok(None),
    }
}
