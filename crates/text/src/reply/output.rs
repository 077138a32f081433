//! The events that a parser finds in the text.

use super::call::ToolCall;

/// A part of a reply.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReplyEvent {
    /// Text of the reasoning that precedes an answer.
    Reasoning(String),
    /// Text of the answer.
    Content(String),
    /// A whole call of a tool, whose arguments are a JSON object.
    ToolCall(ToolCall),
}

/// Events; neighbours of one kind are one event, and none is empty.
#[derive(Debug, Default)]
pub(super) struct Output {
    events: Vec<ReplyEvent>,
    joiner: Joiner,
    /// Number of calls that were found.
    calls: usize,
    /// Calls after the first are dropped.
    one_call: bool,
}

impl Output {
    /// Without `parallel_calls`, calls after the first are dropped.
    pub(super) fn new(parallel_calls: bool) -> Output {
        Output { one_call: !parallel_calls, ..Output::default() }
    }

    /// Takes the events.
    pub(super) fn take(&mut self) -> Vec<ReplyEvent> {
        std::mem::take(&mut self.events)
    }

    /// Drops the events: they are part of the prompt.
    pub(super) fn discard(&mut self) {
        self.events.clear();
        self.calls = 0;
    }

    /// Whether calls were found.
    pub(super) fn has_calls(&self) -> bool {
        self.calls > 0
    }

    pub(super) fn reasoning(&mut self, text: &str) {
        self.text(Kind::Reasoning, text);
    }

    pub(super) fn content(&mut self, text: &str) {
        self.text(Kind::Content, text);
    }

    pub(super) fn call(&mut self, call: ToolCall) {
        self.calls += 1;
        if self.one_call && self.calls > 1 {
            self.separate();
        } else {
            self.joiner.call();
            self.events.push(ReplyEvent::ToolCall(call));
        }
    }

    /// A message ends here, or a call that is dropped. If text of the same kind is next, a line end separates the two.
    pub(super) fn separate(&mut self) {
        self.joiner.is_separate = true;
    }

    fn text(&mut self, kind: Kind, text: &str) {
        if text.is_empty() {
            return;
        }
        let is_next = self.joiner.last == Some(kind);
        let separator = self.joiner.text(kind, text);
        // Across other events, the reader of the events decides.
        let text = [if is_next { separator } else { "" }, text].concat();
        match (self.events.last_mut(), kind) {
            (Some(ReplyEvent::Reasoning(before)), Kind::Reasoning) => before.push_str(&text),
            (Some(ReplyEvent::Content(before)), Kind::Content) => before.push_str(&text),
            (_, Kind::Reasoning) => self.events.push(ReplyEvent::Reasoning(text)),
            (_, Kind::Content) => self.events.push(ReplyEvent::Content(text)),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Reasoning,
    Content,
}

/// For readers that join all texts of a kind: finds where a separator is needed, so that words do not run together.
///
/// ```
/// use gristmill_text::reply::{Joiner, ReplyEvent};
/// let mut joiner = Joiner::default();
/// assert_eq!(joiner.separator(&ReplyEvent::Content("I look.".into())), "");
/// assert_eq!(joiner.separator(&ReplyEvent::Reasoning("Found.".into())), "");
/// assert_eq!(joiner.separator(&ReplyEvent::Content("Done.".into())), "\n");
/// ```
#[derive(Debug, Default)]
pub struct Joiner {
    /// The kind of the last event, if it was text.
    last: Option<Kind>,
    /// Whether reasoning, and whether content, ends with a character that is not white space.
    ends_in_word: [bool; 2],
    /// The last text ended, whatever follows.
    is_separate: bool,
}

impl Joiner {
    /// The separator before the text of an event: a line end if another event is between this text and the one of its
    /// kind before, and neither has white space there.
    pub fn separator(&mut self, event: &ReplyEvent) -> &'static str {
        match event {
            ReplyEvent::Reasoning(text) => self.text(Kind::Reasoning, text),
            ReplyEvent::Content(text) => self.text(Kind::Content, text),
            ReplyEvent::ToolCall(_) => self.call(),
        }
    }

    fn text(&mut self, kind: Kind, text: &str) -> &'static str {
        let Some(end) = text.chars().next_back() else { return "" };
        let is_separate = std::mem::take(&mut self.is_separate) || self.last != Some(kind);
        let ends_in_word = &mut self.ends_in_word[kind as usize];
        let joins_words = *ends_in_word && !text.starts_with(char::is_whitespace);
        *ends_in_word = !end.is_whitespace();
        self.last = Some(kind);
        if is_separate && joins_words { "\n" } else { "" }
    }

    fn call(&mut self) -> &'static str {
        self.last = None;
        ""
    }
}
