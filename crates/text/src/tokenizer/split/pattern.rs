//! The rules of a family as data, and the scanner that follows them.

use std::ops::RangeInclusive;

use super::classes::*;

/// The rules of one family.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pattern {
    /// Rules that split the text first, one after another; the other rules split each of the pieces separately.
    pub(super) isolate: &'static [Isolate],
    /// `'s`, `'t`, `'re`, `'ve`, `'m`, `'ll`, `'d` are words of their own, or belong to one.
    pub(super) contractions: Contractions,
    pub(super) words: Words,
    /// The most digits in one piece.
    pub(super) digits: usize,
    /// A space before digits belongs to them.
    pub(super) spaced_digits: bool,
    /// Characters that belong to the punctuation before them, and how many at most.
    pub(super) tail: (&'static [char], usize),
    /// White space up to its last newline is a piece: `\s*[\r\n]+`.
    pub(super) newlines: bool,
    /// Digits are cut apart afterwards, with each ASCII group of three as a piece.
    pub(super) triples: bool,
}

/// Pieces that are cut out of a text.
#[derive(Debug, Clone, Copy)]
pub(super) enum Isolate {
    /// Every number, `\p{N}`.
    Numbers,
    /// The same in threes, counted from the first: `\p{N}{1,3}`.
    FirstTriples,
    /// Runs of `[\p{P}$+<=>^~|]`.
    Punctuation,
    /// Decimal digits `\p{Nd}` in threes, counted from the last.
    Triples,
    /// The same where no letter or other part of a word follows them.
    LastTriples,
    /// Runs of characters of one of these classes.
    Runs(&'static [CharClass]),
    /// Runs of `\n`.
    Newlines,
    /// Every `\r` and `\n`.
    EachNewline,
    /// Runs of characters of a class, with the white space character before them: `\s?[…]+`.
    Spaced(fn() -> &'static [RangeInclusive<char>]),
    /// White space at the end: `\s+$`.
    SpaceAtEnd,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Contractions {
    No,
    Lowercase,
    AnyCase,
    /// In any case, and at the end of the word before: `[…]+(?i:'s|…)?`.
    OfWords,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Words {
    /// ` ?\p{L}+`
    Spaced,
    /// `[^\r\n\p{L}\p{N}]?\p{L}+`
    Prefixed,
    /// `[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+`; marks are no punctuation.
    PrefixedWithMarks,
    /// A `Prefixed` word of letters and marks; a new word starts where an upper case letter follows a lower case one.
    PrefixedByCase,
    /// `\p{Han}+`, or a `PrefixedByCase` word without Han characters.
    HanOrByCase,
    /// The whole text is a piece.
    Whole,
    /// `[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+`: several words with one space between them.
    Phrases,
    /// `[!-/:-@\[-`{-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+`; punctuation is `[\p{P}\p{S}]`
    /// alone. Text that matches no rule is a piece of its own.
    OrPunctuation,
}

/// The bytes at the start of `text` whose characters satisfy `test`.
fn run(text: &str, test: impl Fn(char) -> bool) -> usize {
    text.find(|c| !test(c)).unwrap_or(text.len())
}

/// The bytes of the first `n` characters.
fn chars(text: &str, n: usize) -> usize {
    text.char_indices().nth(n).map_or(text.len(), |(at, _)| at)
}

impl Isolate {
    /// The bytes before the first pieces that follow each other, and of those.
    fn find(self, text: &str) -> (usize, usize) {
        let first = |is_part: fn(char) -> bool| {
            let before = text.find(is_part).unwrap_or(text.len());
            (before, run(&text[before..], is_part))
        };
        match self {
            Isolate::Numbers | Isolate::FirstTriples => first(|c| class(c) == Class::Number),
            Isolate::Punctuation => first(is_punctuation),
            Isolate::Newlines => first(|c| c == '\n'),
            Isolate::EachNewline => first(is_newline),
            Isolate::Triples => first(is_digit),
            Isolate::Runs(classes) => match text.char_indices().find_map(|(at, c)| Some((at, class_of(c, classes)?))) {
                Some((before, found)) => (before, run(&text[before..], |c| class_of(c, classes) == Some(found))),
                None => (text.len(), 0),
            },
            Isolate::Spaced(class) => {
                let class = class();
                let Some(at) = text.find(|c| is_in(c, class)) else { return (text.len(), 0) };
                let space = text[..at].chars().next_back().filter(|c| c.is_whitespace()).map_or(0, char::len_utf8);
                (at - space, space + run(&text[at..], |c| is_in(c, class)))
            }
            Isolate::SpaceAtEnd => {
                let before = text.trim_end().len();
                (before, text.len() - before)
            }
            Isolate::LastTriples => {
                let mut from = 0;
                loop {
                    let before = text[from..].find(is_digit).map_or(text.len(), |at| from + at);
                    let length = run(&text[before..], is_digit);
                    from = before + length;
                    if !text[from..].starts_with(is_word) {
                        return (before, length);
                    }
                }
            }
        }
    }

    /// Calls `each` with the pieces of what [`Self::find`] found.
    fn pieces<'t>(self, run: &'t str, mut each: impl FnMut(&'t str)) {
        let mut rest = run;
        let mut size = match self {
            Isolate::Numbers | Isolate::EachNewline => 1,
            Isolate::FirstTriples => 3,
            Isolate::Punctuation | Isolate::Newlines | Isolate::Runs(_) => usize::MAX,
            Isolate::Spaced(_) | Isolate::SpaceAtEnd => usize::MAX,
            // The first piece has what the threes after it leave.
            Isolate::Triples | Isolate::LastTriples => (run.chars().count() + 2) % 3 + 1,
        };
        while !rest.is_empty() {
            let (piece, remaining) = rest.split_at(chars(rest, size));
            each(piece);
            rest = remaining;
            size = size.max(if matches!(self, Isolate::Numbers | Isolate::EachNewline) { 1 } else { 3 });
        }
    }
}

impl Pattern {
    /// Calls `word` with each piece of `text` in order. The pieces are never empty and join to `text`.
    pub(crate) fn split<'t>(&self, text: &'t str, mut word: impl FnMut(&'t str)) {
        self.isolate(self.isolate, text, &mut word);
    }

    /// Cuts out what `kinds` are, one after the other, and all the rest by the other rules.
    fn isolate<'t>(&self, kinds: &[Isolate], text: &'t str, word: &mut dyn FnMut(&'t str)) {
        let Some((kind, kinds)) = kinds.split_first() else { return self.words(text, word) };
        let mut rest = text;
        while !rest.is_empty() {
            let (before, run) = kind.find(rest);
            let (between, after) = rest.split_at(before);
            let (run, remaining) = after.split_at(run);
            if !between.is_empty() {
                self.isolate(kinds, between, word);
            }
            kind.pieces(run, |piece| self.isolate(kinds, piece, word));
            rest = remaining;
        }
    }

    fn words<'t>(&self, text: &'t str, word: &mut dyn FnMut(&'t str)) {
        if self.words == Words::Whole {
            return word(text);
        }
        let mut rest = text;
        while !rest.is_empty() {
            let (piece, remaining) = rest.split_at(self.piece(rest));
            if self.triples {
                split_triples(piece, word);
            } else {
                word(piece);
            }
            rest = remaining;
        }
    }

    /// The length of the first piece of `text`, which is not empty.
    fn piece(&self, text: &str) -> usize {
        let none = text.char_indices().find_map(|(at, _)| Some((at, self.matched(&text[at..])?)));
        match none {
            Some((0, length)) => length,
            Some((at, _)) => at,
            None => text.len(),
        }
    }

    /// The length of the piece that a rule takes from the start of `text`.
    fn matched(&self, text: &str) -> Option<usize> {
        if self.words == Words::HanOrByCase
            && let han @ 1.. = run(text, is_han)
        {
            return Some(han);
        }
        let word = if self.contractions == Contractions::OfWords {
            self.word(text).map(|n| n + self.contraction(&text[n..]).unwrap_or(0))
        } else {
            self.contraction(text).or_else(|| self.word(text))
        };
        word.or_else(|| self.number(text)).or_else(|| self.punctuation(text)).or_else(|| self.space(text))
    }

    fn contraction(&self, text: &str) -> Option<usize> {
        let mut rest = text.strip_prefix('\'')?.chars();
        let mut next = || {
            let c = rest.next()?;
            match self.contractions {
                Contractions::No => None,
                Contractions::Lowercase => Some(c),
                // The long s is the only other character that folds to one of these letters.
                _ if c == 'ſ' => Some('s'),
                Contractions::AnyCase | Contractions::OfWords => Some(c.to_ascii_lowercase()),
            }
        };
        match (next()?, next()) {
            ('s' | 't' | 'm' | 'd', _) => Some(1 + chars(&text[1..], 1)),
            ('r' | 'v', Some('e')) | ('l', Some('l')) => Some(3),
            _ => None,
        }
    }

    fn word(&self, text: &str) -> Option<usize> {
        let first = text.chars().next()?;
        let may_prefix = match self.words {
            Words::Spaced => first == ' ',
            Words::OrPunctuation if first.is_ascii_punctuation() => {
                return Some(1 + run(&text[1..], |c| c.is_ascii_alphabetic())).filter(|&n| n > 1);
            }
            Words::OrPunctuation => !is_newline(first) && class(first) != Class::Letter && !is_symbol(first),
            _ => !is_newline(first) && matches!(class(first), Class::Space | Class::Other),
        };
        // Only a mark can be both a prefix and the start of a word, hence the second attempt of each rule.
        let prefix = if may_prefix { first.len_utf8() } else { 0 };
        let attempt = |letters: fn(&str) -> usize| {
            let lengths = [prefix, 0].map(|from| (from, letters(&text[from..])));
            lengths.into_iter().find(|&(_, n)| n > 0).map(|(from, n)| from + n)
        };
        match self.words {
            Words::Whole => None,
            Words::PrefixedByCase => {
                attempt(|text| capitalised(text, case)).or_else(|| attempt(|text| uppercase(text, case)))
            }
            Words::HanOrByCase => attempt(|text| capitalised(text, case_without_han))
                .or_else(|| attempt(|text| uppercase(text, case_without_han))),
            Words::Phrases => attempt(phrase),
            Words::PrefixedWithMarks | Words::OrPunctuation => {
                attempt(|text| run(text, |c| class(c) == Class::Letter || is_mark(c)))
            }
            Words::Spaced | Words::Prefixed => attempt(|text| run(text, |c| class(c) == Class::Letter)),
        }
    }

    fn number(&self, text: &str) -> Option<usize> {
        let prefix = usize::from(self.spaced_digits && text.starts_with(' '));
        let digits = &text[prefix..];
        let most = if self.digits == usize::MAX { digits.len() } else { chars(digits, self.digits) };
        match run(&digits[..most], |c| class(c) == Class::Number) {
            0 => None,
            n => Some(prefix + n),
        }
    }

    fn punctuation(&self, text: &str) -> Option<usize> {
        let prefix = usize::from(text.starts_with(' '));
        let (tail, most) = self.tail;
        let is_punctuation = |c: char| match self.words {
            Words::OrPunctuation => is_symbol(c),
            Words::PrefixedWithMarks => class(c) == Class::Other && !is_mark(c),
            _ => class(c) == Class::Other,
        };
        match run(&text[prefix..], is_punctuation) {
            0 => None,
            n => {
                let after = &text[prefix + n..];
                Some(prefix + n + run(after, |c| tail.contains(&c)).min(most))
            }
        }
    }

    /// `\s*[\r\n]+|\s+(?!\S)|\s+`: up to the last newline, or all but the last character, which goes with the next
    /// word.
    fn space(&self, text: &str) -> Option<usize> {
        let length = Some(run(text, char::is_whitespace)).filter(|&length| length > 0)?;
        let (spaces, after) = text.split_at(length);
        if self.newlines
            && let Some(newline) = spaces.rfind(is_newline)
        {
            return Some(newline + 1);
        }
        let last = spaces.char_indices().next_back().map_or(0, |(at, _)| at);
        Some(if after.is_empty() || last == 0 { length } else { last })
    }
}

/// `\p{L}\p{M}*(?: ?\p{L}\p{M}*)*`, zero if it does not match.
fn phrase(text: &str) -> usize {
    let is_letter = |c: char| class(c) == Class::Letter;
    let mut length = 0;
    loop {
        let rest = &text[length..];
        let space = usize::from(length > 0 && rest.starts_with(' '));
        let letters = run(&rest[space..], is_letter);
        if letters == 0 {
            return length;
        }
        length += space + letters;
        length += run(&text[length..], is_mark);
    }
}

/// `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+`, zero if it does not match.
fn capitalised(text: &str, case: fn(char) -> (bool, bool)) -> usize {
    let upper = uppercase(text, case);
    let lower = run(&text[upper..], |c| case(c).1);
    if lower > 0 {
        return upper + lower;
    }
    // The first part gives back characters until the second can match: up to the last letter without case.
    let caseless = text[..upper].char_indices().rev().find(|&(_, c)| case(c).1);
    caseless.map_or(0, |(at, c)| at + c.len_utf8())
}

/// `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*`; no lower case letter can follow where [`capitalised`] does not match.
fn uppercase(text: &str, case: fn(char) -> (bool, bool)) -> usize {
    run(text, |c| case(c).0)
}

/// Cuts `piece` before and after runs of digits, and every three ASCII digits.
fn split_triples<'t>(piece: &'t str, word: &mut dyn FnMut(&'t str)) {
    let mut start = 0;
    let mut digits = 0;
    let mut previous = None;
    for (at, c) in piece.char_indices() {
        let number = class(c) == Class::Number;
        if previous.is_some_and(|previous| previous != number) && start < at {
            word(&piece[start..at]);
            start = at;
        }
        previous = Some(number);
        digits = if c.is_ascii_digit() { digits + 1 } else { 0 };
        if digits == 3 {
            let triple = at - 2;
            if start < triple {
                word(&piece[start..triple]);
            }
            word(&piece[triple..=at]);
            start = at + 1;
            digits = 0;
        }
    }
    if start < piece.len() {
        word(&piece[start..]);
    }
}
