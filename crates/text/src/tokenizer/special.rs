//! Finding special tokens in a text.

use std::ops::Range;

use aho_corasick::{AhoCorasick, AhoCorasickKind, Input, MatchKind};

/// A part of a text: either ordinary text or a special token.
#[derive(Debug, PartialEq)]
pub(super) enum Fragment<'t> {
    Text(&'t str),
    Token(u32),
}

/// Matches a set of token texts, leftmost first and then longest.
#[derive(Debug)]
pub(super) struct Matcher {
    automaton: Option<AhoCorasick>,
    ids: Vec<u32>,
    /// The most bytes of a text.
    longest: usize,
}

impl Matcher {
    /// A matcher of (text, id) pairs; empty texts match nothing.
    ///
    /// # Errors
    /// If the texts are too many or too long for the automaton.
    pub(super) fn new<'t>(tokens: impl Iterator<Item = (&'t str, u32)>) -> Result<Self, aho_corasick::BuildError> {
        let (texts, ids): (Vec<&str>, Vec<u32>) = tokens.filter(|(text, _)| !text.is_empty()).unzip();
        let longest = texts.iter().map(|text| text.len()).max().unwrap_or(0);
        let automaton = if texts.is_empty() {
            None
        } else {
            let mut builder = AhoCorasick::builder();
            // The default for small sets is a DFA, which long hostile tokens would make large.
            builder.match_kind(MatchKind::LeftmostLongest).kind(Some(AhoCorasickKind::ContiguousNFA));
            Some(builder.build(texts)?)
        };
        Ok(Self { automaton, ids, longest })
    }

    /// Calls `each` with the fragments of `text` in order; none of them is empty.
    pub(super) fn split<'t, E>(
        &self,
        text: &'t str,
        exception: Exception,
        mut each: impl FnMut(Fragment<'t>) -> Result<(), E>,
    ) -> Result<(), E> {
        let (mut end, mut from) = (0, 0);
        while let Some(found) = self.find(text, from..text.len()) {
            let start = found.place.start;
            let token = match exception.within(&found.place) {
                None => Some(found),
                Some(byte) => {
                    let defined = exception.defined;
                    let before = self.at(text, start..byte);
                    let whole = defined.at(text, start..text.len().min(start + defined.longest));
                    before.into_iter().chain(whole).max_by_key(|token| token.place.end)
                }
            };
            match token {
                Some(token) => {
                    if end < start {
                        each(Fragment::Text(&text[end..start]))?;
                    }
                    each(Fragment::Token(token.id))?;
                    (end, from) = (token.place.end, token.place.end);
                }
                None => from = start + text[start..].chars().next().map_or(1, char::len_utf8),
            }
        }
        if end < text.len() { each(Fragment::Text(&text[end..])) } else { Ok(()) }
    }

    /// The first token in these bytes of a text, and of those that start there the longest.
    fn find(&self, text: &str, bytes: Range<usize>) -> Option<Found> {
        let found = self.automaton.as_ref()?.find(Input::new(text).range(bytes))?;
        Some(Found { id: *self.ids.get(found.pattern().as_usize())?, place: found.range() })
    }

    /// The longest token that starts these bytes of a text.
    fn at(&self, text: &str, bytes: Range<usize>) -> Option<Found> {
        let start = bytes.start;
        self.find(text, bytes).filter(|found| found.place.start == start)
    }
}

/// A token in a text.
struct Found {
    id: u32,
    place: Range<usize>,
}

/// Where tokens are not recognised.
#[derive(Clone, Copy)]
pub(super) struct Exception<'a> {
    /// The bytes, in ascending order, that no token includes,
    pub(super) plain: &'a [usize],
    /// except for these tokens.
    pub(super) defined: &'a Matcher,
}

impl Exception<'_> {
    /// The first of the bytes within a place.
    fn within(&self, place: &Range<usize>) -> Option<usize> {
        let next = self.plain.partition_point(|&byte| byte < place.start);
        self.plain.get(next).copied().filter(|byte| place.contains(byte))
    }
}
