//! What may follow a call. A bracket too many, or a quote that lacks, ends a call early: then text follows as within one.

use super::input::{Begins, begins};

/// Bytes of the start of a call that are looked at.
const LOOKED_AT: usize = 256;

/// What a form has after a call.
#[derive(Debug, Clone, Default)]
pub(super) struct Follow {
    /// Marks that end calls, or start others.
    pub(super) marks: Vec<&'static str>,
    /// Between calls.
    pub(super) separator: Option<char>,
    /// After the last call of a list.
    pub(super) list_end: Option<char>,
}

/// Whether the text after a call may follow one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// More text is needed to tell.
    Unknown,
    /// The call is whole.
    Whole,
    /// The text is a part of the call, which ended early.
    Early,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FollowState {
    /// Only closing brackets, as the one that ended the call.
    Direct,
    /// White space too.
    Apart,
    /// After a separator.
    Separated,
    /// In text. If a call has no mark at its end, text may follow, which looks like none of a call.
    Text,
}

/// Reads the text after a call as far as it decides.
#[derive(Debug)]
pub(super) struct AfterCall {
    follow: Follow,
    /// The bracket that ended the call.
    bracket: char,
    state: FollowState,
    /// How much is read.
    read: usize,
    /// The length of brackets that are too many.
    surplus: usize,
}

impl AfterCall {
    /// After a call that this bracket ended.
    pub(super) fn new(follow: Follow, bracket: char) -> AfterCall {
        AfterCall { follow, bracket, state: FollowState::Direct, read: 0, surplus: 0 }
    }

    /// The length of brackets that are too many after the call.
    pub(super) fn surplus(&self) -> usize {
        self.surplus
    }

    /// Reads on in all text after the call. `is_last`: no more follows.
    pub(super) fn read(&mut self, text: &str, is_last: bool) -> Verdict {
        loop {
            let rest = &text[self.read..];
            let Some(c) = rest.chars().next() else {
                return if is_last { Verdict::Whole } else { Verdict::Unknown };
            };
            match self.state {
                _ if c.is_whitespace() => {
                    self.read += rest.len() - rest.trim_start().len();
                    if self.state == FollowState::Direct {
                        self.state = FollowState::Apart;
                    }
                }
                FollowState::Direct | FollowState::Apart => match self.mark(rest) {
                    Begins::Maybe if !is_last => return Verdict::Unknown,
                    Begins::With(_) | Begins::Maybe => return Verdict::Whole,
                    _ if self.follow.separator == Some(c) => {
                        self.read += c.len_utf8();
                        self.state = FollowState::Separated;
                    }
                    _ if self.follow.list_end == Some(c) => {
                        self.read += c.len_utf8();
                        self.state = FollowState::Direct;
                        (self.follow.list_end, self.follow.separator) = (None, None);
                    }
                    _ if self.state == FollowState::Apart => self.state = FollowState::Text,
                    _ if c == self.bracket && self.surplus == self.read => {
                        self.read += c.len_utf8();
                        self.surplus = self.read;
                    }
                    _ => return Verdict::Early,
                },
                FollowState::Separated => return self.next_call(rest, is_last),
                FollowState::Text if rest.contains(self.bracket) => return Verdict::Early,
                FollowState::Text => self.read = text.len(),
            }
        }
    }

    /// Whether a mark follows: of the form, or one that ends a turn.
    fn mark(&self, rest: &str) -> Begins {
        match begins(rest, &self.follow.marks) {
            Begins::No => turn_end(rest),
            mark => mark,
        }
    }

    /// Whether another call begins: an object, or a name and a bracket.
    fn next_call(&self, rest: &str, is_last: bool) -> Verdict {
        let (is_object, after) = match rest.strip_prefix('{') {
            Some(fields) => (true, fields.trim_start()),
            None => (false, rest.trim_start_matches(|c: char| c.is_alphanumeric() || "_.-".contains(c))),
        };
        match after.chars().next() {
            None if is_last => Verdict::Whole,
            None if rest.len() < LOOKED_AT => Verdict::Unknown,
            Some('"' | '}') if is_object => Verdict::Whole,
            Some('(') if self.bracket == ')' && after.len() < rest.len() => Verdict::Whole,
            _ => Verdict::Early,
        }
    }
}

/// Whether a mark such as `<|im_end|>`, `<end_of_turn>`, `</s>` or `[/INST]` follows. Templates write these after calls, and
/// so does a model whose file does not say that they end a generation.
fn turn_end(rest: &str) -> Begins {
    let is_name: fn(char) -> bool = match rest.chars().next() {
        Some('<') => |c| c.is_alphanumeric() || "|｜▁_/-".contains(c),
        Some('[') => |c| c.is_ascii_uppercase() || "_/".contains(c),
        _ => return Begins::No,
    };
    let name = &rest[1..];
    let end = name.find(|c| !is_name(c)).unwrap_or(name.len());
    let is_mark =
        rest.starts_with('[') || name[..end].contains(['|', '｜', '_']) || ["/s", "eos"].contains(&&name[..end]);
    match name[end..].chars().next() {
        Some('>' | ']') if is_mark && end > 0 => Begins::With(0),
        None if name.len() < LOOKED_AT => Begins::Maybe,
        _ => Begins::No,
    }
}
