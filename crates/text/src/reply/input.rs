//! The text of a reply that is not an event yet.

use std::ops::Range;

/// Held text. Bytes before `start` were returned as events, bytes before `position` were read. Bytes before `started`
/// were in the prompt, and are never returned.
#[derive(Debug, Default)]
pub(super) struct Input {
    text: String,
    start: usize,
    position: usize,
    /// Where a name or value started; between `start` and `position`.
    token: usize,
    started: usize,
}

/// Whether a text starts with a mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Begins {
    /// With the mark of this index.
    With(usize),
    /// More text may complete a mark.
    Maybe,
    No,
}

/// Whether a text starts with one of `marks`, of which an earlier one goes before a later one: as long as more text may
/// complete it, no later one is found. So what is found does not depend on how the text is cut.
pub(super) fn begins(text: &str, marks: &[&str]) -> Begins {
    for (index, mark) in marks.iter().enumerate() {
        if text.starts_with(mark) {
            return Begins::With(index);
        }
        if mark.starts_with(text) {
            return Begins::Maybe;
        }
    }
    Begins::No
}

impl Input {
    /// The input of a reply whose beginning is in the prompt.
    pub(super) fn started(text: &str) -> Input {
        Input { text: text.to_owned(), started: text.len(), ..Input::default() }
    }

    pub(super) fn push(&mut self, text: &str) {
        self.text.drain(..self.start);
        self.position -= self.start;
        self.token = self.token.saturating_sub(self.start);
        self.started = self.started.saturating_sub(self.start);
        self.start = 0;
        self.text.push_str(text);
    }

    /// The text that is not read.
    pub(super) fn rest(&self) -> &str {
        &self.text[self.position..]
    }

    /// Reads `bytes` bytes, which end at a character's boundary.
    pub(super) fn advance(&mut self, bytes: usize) {
        self.position += bytes;
    }

    pub(super) fn advance_over_space(&mut self) {
        let rest = self.rest();
        self.position += rest.len() - rest.trim_start().len();
    }

    pub(super) fn advance_to_end(&mut self) {
        self.position = self.text.len();
    }

    /// Whether the rest starts with one of these marks.
    pub(super) fn begins(&self, marks: &[&str]) -> Begins {
        begins(self.rest(), marks)
    }

    /// The first offset in the rest at which a mark starts, or can start with more text; the rest's length if there is
    /// none. The time is linear in this offset.
    pub(super) fn find(&self, marks: &[&str]) -> (usize, Begins) {
        let rest = self.rest();
        let mut at = 0;
        while let Some(next) = rest[at..].find(|c| marks.iter().any(|mark| mark.starts_with(c))) {
            at += next;
            match begins(&rest[at..], marks) {
                Begins::No => at += rest[at..].chars().next().map_or(1, char::len_utf8),
                found => return (at, found),
            }
        }
        (rest.len(), Begins::No)
    }

    /// Reads up to a mark and returns whether the mark follows.
    pub(super) fn advance_to(&mut self, mark: &str) -> bool {
        let (at, found) = self.find(&[mark]);
        self.advance(at);
        matches!(found, Begins::With(_))
    }

    /// A name or value starts here.
    pub(super) fn begin_token(&mut self) {
        self.token = self.position;
    }

    /// The text read since [`begin_token`](Self::begin_token).
    pub(super) fn token(&self) -> &str {
        &self.text[self.token..self.position]
    }

    /// The text that is read and not given out.
    pub(super) fn read(&self) -> &str {
        &self.text[self.start..self.position]
    }

    /// How much of the text that is held is read.
    pub(super) fn offset(&self) -> usize {
        self.position - self.start
    }

    /// A part of the text that is held.
    pub(super) fn text(&self, range: Range<usize>) -> &str {
        &self.text[self.start + range.start..self.start + range.end]
    }

    /// Goes back to an earlier [`offset`](Self::offset).
    pub(super) fn return_to(&mut self, offset: usize) {
        self.position = self.start + offset;
    }

    /// Gives out the text that is read.
    pub(super) fn take(&mut self) -> &str {
        let from = std::mem::replace(&mut self.start, self.position).max(self.started);
        self.text.get(from..self.position).unwrap_or_default()
    }

    /// Gives out the text before the name or value that started last.
    pub(super) fn take_before_token(&mut self) -> &str {
        let from = std::mem::replace(&mut self.start, self.token).max(self.started);
        self.text.get(from..self.token).unwrap_or_default()
    }

    /// Drops the text that is read.
    pub(super) fn discard(&mut self) {
        self.start = self.position;
    }
}
