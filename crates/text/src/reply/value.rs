//! A value between tags while it is read: what tells whether a tag ends it.

use super::tags::{Lines, Tags};

/// The value.
#[derive(Debug)]
pub(super) struct Value {
    pub(super) key: String,
    /// Where it starts, counted from the start of the text that is held.
    pub(super) begin: usize,
    /// Whether its tag states that it is a string; `None` if tags do not state types.
    pub(super) is_text: Option<bool>,
    /// It is read up to a quote that has no end yet.
    pub(super) is_quoted: bool,
    /// The tag of the parameter is at a line's start.
    pub(super) is_at_line: bool,
    /// Tags of parameters in it that have no end yet.
    pub(super) opened: usize,
    /// The last end in it was that of such a tag.
    is_balanced: bool,
    /// Calls in it that have no end yet.
    pub(super) calls: usize,
    /// Behind the last of them that has ended.
    call_end: Option<usize>,
    /// A tag that starts a call was text.
    pub(super) is_about_calls: bool,
    /// A tag that would have ended the value was text.
    pub(super) is_uncertain: bool,
    /// A tag in it that would have ended it.
    loose_end: Option<LooseEnd>,
    /// Whether a JSON text is within a string, if it must be JSON and strings in it are whole.
    json: Option<Quotes>,
    /// If it must be JSON, other text is none.
    pub(super) is_strict: bool,
}

/// A tag that is not the end of a value, if no other follows.
#[derive(Debug)]
struct LooseEnd {
    /// Behind the tag, and white space.
    next: usize,
    is_at_line: bool,
}

/// Whether a JSON text is within a string.
#[derive(Debug, Default)]
struct Quotes {
    /// The length of the text that was looked at.
    seen: usize,
    quoted: bool,
    escaped: bool,
}

impl Value {
    pub(super) fn new(key: &str, begin: usize, is_at_line: bool) -> Value {
        Value {
            key: key.to_owned(),
            begin,
            is_text: None,
            is_quoted: false,
            is_at_line,
            opened: 0,
            is_balanced: false,
            calls: 0,
            call_end: None,
            is_about_calls: false,
            is_uncertain: false,
            loose_end: None,
            json: None,
            is_strict: false,
        }
    }

    /// The value must be JSON. `is_last`: its strings may have no end.
    pub(super) fn must_be_json(&mut self, is_last: bool) {
        self.json = (!is_last).then(Quotes::default);
        self.is_strict = is_last;
    }

    /// A tag after a call in it, which it may end, is before this place.
    pub(super) fn end_call(&mut self, ends: bool, at: usize) {
        self.calls -= usize::from(ends);
        self.call_end = Some(at);
    }

    /// Whether this text, up to the start of a call, ends with the end of the value, or with that of a call that did
    /// not start in it.
    pub(super) fn is_before_other_call(&self, text: &str, tags: &Tags) -> bool {
        let is_ended = self.loose_end.as_ref().is_some_and(|loose| loose.next == self.begin + text.len());
        is_ended || (tags.is_after_call(text) && self.call_end != Some(self.begin + text.trim_end().len()))
    }

    /// Whether the value up to a tag is a JSON text within a string.
    pub(super) fn is_within_string(&mut self, text: &str) -> bool {
        let Some(quotes) = &mut self.json else { return false };
        for byte in text[quotes.seen..].bytes() {
            match byte {
                _ if quotes.escaped => quotes.escaped = false,
                b'\\' => quotes.escaped = quotes.quoted,
                b'"' => quotes.quoted = !quotes.quoted,
                _ => {}
            }
        }
        quotes.seen = text.len();
        quotes.quoted
    }

    /// Takes a tag that would end the value for text.
    pub(super) fn go_on(&mut self) {
        self.loose_end = None;
        self.is_uncertain = true;
        self.is_balanced = self.opened > 0;
        self.opened = self.opened.saturating_sub(1);
    }

    /// The tag was the end of this text, and what follows it and white space is at `next`.
    pub(super) fn may_end_again(&mut self, text: &str, next: usize) {
        if !self.is_balanced {
            self.loose_end = Some(LooseEnd { next, is_at_line: text.ends_with('\n') });
        }
    }

    /// Whether the tag here, which ends this text, follows another one that may have ended it.
    pub(super) fn ended_before(&self, text: &str, end: usize, lines: Lines) -> bool {
        // A value on lines of its own has a line end before its end as well.
        let is_on_lines = lines != Lines::Never && text.starts_with('\n');
        self.loose_end
            .as_ref()
            .is_some_and(|loose| loose.next == end && (!is_on_lines || loose.is_at_line || !text.ends_with('\n')))
    }
}
