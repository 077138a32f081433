//! Finding special tokens in a text.

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};

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
}

impl Matcher {
    /// A matcher of the given (text, id) pairs; empty texts match nothing.
    ///
    /// # Errors
    /// If the texts are too many or too long for the automaton.
    pub(super) fn new<'t>(tokens: impl Iterator<Item = (&'t str, u32)>) -> Result<Self, aho_corasick::BuildError> {
        let (texts, ids): (Vec<&str>, Vec<u32>) = tokens.filter(|(text, _)| !text.is_empty()).unzip();
        let automaton = if texts.is_empty() {
            None
        } else {
            let mut builder = AhoCorasick::builder();
            // The default for small sets is a DFA, which long hostile tokens would make large.
            builder.match_kind(MatchKind::LeftmostLongest).kind(Some(AhoCorasickKind::ContiguousNFA));
            Some(builder.build(texts)?)
        };
        Ok(Self { automaton, ids })
    }

    /// Calls `each` with the fragments of `text` in order; none of them is empty.
    pub(super) fn split<'t, E>(
        &self,
        text: &'t str,
        mut each: impl FnMut(Fragment<'t>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut end = 0;
        for found in self.automaton.iter().flat_map(|automaton| automaton.find_iter(text)) {
            if end < found.start() {
                each(Fragment::Text(&text[end..found.start()]))?;
            }
            if let Some(&id) = self.ids.get(found.pattern().as_usize()) {
                each(Fragment::Token(id))?;
            }
            end = found.end();
        }
        if end < text.len() { each(Fragment::Text(&text[end..])) } else { Ok(()) }
    }
}
