//! Finding added tokens in a text: control tokens, and tokens that no merge forms.
//!
//! [`TokenFlags`] has the meaning of the crate `tokenizers`, also where a token is white space: the search continues after
//! the token itself, whatever white space belongs to it.

use std::ops::Range;

use aho_corasick::{AhoCorasick, AhoCorasickKind, BuildError, Input, MatchKind};
use unicode_properties::{GeneralCategory, GeneralCategoryGroup, UnicodeGeneralCategory};

/// How an added token is recognised in a text: the flags of `added_tokens` in `tokenizer.json`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TokenFlags {
    /// The white space before it belongs to it.
    pub lstrip: bool,
    /// The white space after it belongs to it.
    pub rstrip: bool,
    /// It is not recognised next to a letter, a digit or another character of words.
    pub single_word: bool,
    /// It is recognised in the normal form of the text, after all tokens without this flag.
    pub normalized: bool,
}

/// A part of a text: either ordinary text, by its place, or an added token.
#[derive(Debug, PartialEq)]
pub(super) enum Fragment {
    Text(Range<usize>),
    Token(u32),
}

/// Matches a set of token texts, leftmost first and then longest.
#[derive(Debug)]
pub(super) struct Matcher {
    automaton: Option<AhoCorasick>,
    tokens: Vec<(u32, TokenFlags)>,
    /// The most bytes of a text.
    longest: usize,
}

impl Matcher {
    /// A matcher of these tokens: text, id and flags. Empty texts match nothing.
    ///
    /// # Errors
    /// If the texts are too many or too long for the automaton.
    pub(super) fn new<T: AsRef<str>>(tokens: impl Iterator<Item = (T, u32, TokenFlags)>) -> Result<Self, BuildError> {
        let tokens = tokens.filter(|(text, ..)| !text.as_ref().is_empty());
        let (texts, tokens): (Vec<T>, Vec<_>) = tokens.map(|(text, id, flags)| (text, (id, flags))).unzip();
        let texts: Vec<&str> = texts.iter().map(AsRef::as_ref).collect();
        let longest = texts.iter().map(|text| text.len()).max().unwrap_or(0);
        let automaton = if texts.is_empty() {
            None
        } else {
            let mut builder = AhoCorasick::builder();
            // The default for small sets is a DFA, which long hostile tokens would make large.
            builder.match_kind(MatchKind::LeftmostLongest).kind(Some(AhoCorasickKind::ContiguousNFA));
            Some(builder.build(texts)?)
        };
        Ok(Self { automaton, tokens, longest })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Whether the white space around some token belongs to it.
    pub(super) fn strips(&self) -> bool {
        self.tokens.iter().any(|(_, flags)| flags.lstrip || flags.rstrip)
    }

    /// Calls `each` with the fragments of `text` in order; no text among them is empty.
    pub(super) fn split<E>(
        &self,
        text: &str,
        exception: Exception,
        mut each: impl FnMut(Fragment) -> Result<(), E>,
    ) -> Result<(), E> {
        let (mut end, mut from, mut spaces) = (0, 0, 0..0);
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
            let Some(Found { id, flags, place }) = token else {
                from = start + text[start..].chars().next().map_or(1, char::len_utf8);
                continue;
            };
            from = place.end;
            if flags.single_word && is_in_word(text, &place) {
                continue;
            }
            let before = text.get(end..start).unwrap_or_default();
            let kept = if flags.lstrip { before.trim_end().len() } else { before.len() };
            if kept > 0 {
                each(Fragment::Text(end..end + kept))?;
            }
            each(Fragment::Token(id))?;
            end = place.end;
            if flags.rstrip {
                // White space that is known is not read again, so that time is linear.
                if !spaces.contains(&end) {
                    spaces = end..text.len() - text[end..].trim_start().len();
                }
                end = end.max(spaces.end);
            }
        }
        if end < text.len() { each(Fragment::Text(end..text.len())) } else { Ok(()) }
    }

    /// The first token in these bytes of a text, and of those that start there the longest.
    fn find(&self, text: &str, bytes: Range<usize>) -> Option<Found> {
        let found = self.automaton.as_ref()?.find(Input::new(text).range(bytes))?;
        let &(id, flags) = self.tokens.get(found.pattern().as_usize())?;
        Some(Found { id, flags, place: found.range() })
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
    flags: TokenFlags,
    place: Range<usize>,
}

/// Whether a character of words is directly before or after this place.
fn is_in_word(text: &str, place: &Range<usize>) -> bool {
    let (before, after) = (text[..place.start].chars().next_back(), text[place.end..].chars().next());
    before.into_iter().chain(after).any(is_of_word)
}

/// `\w`, as in the crate `regex`.
fn is_of_word(c: char) -> bool {
    c.is_alphabetic()
        || c.general_category_group() == GeneralCategoryGroup::Mark
        || matches!(c.general_category(), GeneralCategory::DecimalNumber | GeneralCategory::ConnectorPunctuation)
        || matches!(c, '\u{200c}' | '\u{200d}')
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

#[cfg(test)]
mod tests {
    use regex::Regex;

    use super::is_of_word;

    #[test]
    fn characters_of_words_are_those_of_the_crate_regex() {
        let [word, assigned] = [r"\w", r"\P{Cn}"].map(|class| Regex::new(class).expect("it is valid"));
        let is = |class: &Regex, c: char| class.is_match(c.encode_utf8(&mut [0; 4]));
        let differ: Vec<char> = (0..=u32::from(char::MAX))
            .filter_map(char::from_u32)
            // The two crates may have different versions of Unicode.
            .filter(|&c| is(&assigned, c) && is(&word, c) != is_of_word(c))
            .collect();
        assert!(differ.len() < 10, "{differ:?}");
    }
}
