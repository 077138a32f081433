//! A value between tags while it is read: what tells whether a tag ends it.

use super::tags::Lines;

/// The value.
#[derive(Debug)]
pub(super) struct Value {
    pub(super) key: String,
    /// Where it begins, counted from the beginning of the text that is held.
    pub(super) begin: usize,
    /// The tag of the parameter is at a line's start.
    pub(super) is_at_line: bool,
    /// Tags of parameters in it that have no end yet.
    pub(super) opened: usize,
    /// The last end in it was that of such a tag.
    is_balanced: bool,
    /// Calls in it that have no end yet.
    pub(super) calls: usize,
    /// A tag that begins a call was text.
    pub(super) is_about_calls: bool,
    /// A tag that would have ended the value was text.
    pub(super) is_uncertain: bool,
    /// Behind a tag in it that would have ended it, and white space.
    loose_end: Option<usize>,
    /// The value must be JSON.
    json: Option<Quotes>,
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
    pub(super) fn new(key: &str, begin: usize, is_at_line: bool, is_json: bool) -> Value {
        Value {
            key: key.to_owned(),
            begin,
            is_at_line,
            opened: 0,
            is_balanced: false,
            calls: 0,
            is_about_calls: false,
            is_uncertain: false,
            loose_end: None,
            json: is_json.then(Quotes::default),
        }
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
    pub(super) fn may_end_again(&mut self, text: &str, next: usize, lines: Lines) {
        // A value on lines of its own has a line end before its end as well.
        let is_on_lines = lines != Lines::Never && text.starts_with('\n');
        if !self.is_balanced && (!is_on_lines || text.ends_with('\n')) {
            self.loose_end = Some(next);
        }
    }

    /// Whether the tag here, which ends the value, follows another one.
    pub(super) fn ended_before(&self, end: usize) -> bool {
        self.loose_end == Some(end)
    }
}
