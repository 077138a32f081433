//! Pre-tokenizers: how byte-level BPE cuts a text into words before merging.
//!
//! Each model family publishes a regular expression. The expressions differ in a few rules, so each is data for one
//! scanner, which is linear in the length; a backtracking regex engine hits its limits on long runs of one character.

use unicode_properties::{GeneralCategory, GeneralCategoryGroup, UnicodeGeneralCategory};

/// The rules of one family.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pattern {
    /// Pieces that are cut out first; the other rules see only the text between.
    isolate: Isolate,
    /// `'s`, `'t`, `'re`, `'ve`, `'m`, `'ll`, `'d` are words of their own, or belong to one.
    contractions: Contractions,
    words: Words,
    /// The most digits in one piece.
    digits: usize,
    /// A space before digits belongs to them.
    spaced_digits: bool,
    /// Characters that belong to the punctuation before them.
    tail: &'static [char],
    /// White space up to its last newline is a piece: `\s*[\r\n]+`.
    newlines: bool,
    /// Digits are cut apart afterwards, with each ASCII group of three as a piece.
    triples: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Isolate {
    Nothing,
    /// Every digit, `\p{N}`.
    Digits,
    /// Runs of `[\p{P}$+<=>^~|]`.
    Punctuation,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Contractions {
    No,
    Lowercase,
    AnyCase,
    /// In any case, and at the end of the word before: `[…]+(?i:'s|…)?`.
    OfWords,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Words {
    /// ` ?\p{L}+`
    Spaced,
    /// `[^\r\n\p{L}\p{N}]?\p{L}+`
    Prefixed,
    /// `[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+`; marks are no punctuation.
    PrefixedWithMarks,
    /// A `Prefixed` word of letters and marks; a new word begins where an upper case letter follows a lower case one.
    PrefixedByCase,
}

/// `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
pub(super) const GPT2: Pattern = Pattern {
    isolate: Isolate::Nothing,
    contractions: Contractions::Lowercase,
    words: Words::Spaced,
    digits: usize::MAX,
    spaced_digits: true,
    tail: &[],
    newlines: false,
    triples: false,
};

/// `\p{N}` apart, then [`GPT2`].
pub(super) const SMOLLM: Pattern = Pattern { isolate: Isolate::Digits, ..GPT2 };

/// llama.cpp's rules for files that name no pre-tokenizer: `[\p{P}$+<=>^~|]+`, [`GPT2`], `\p{N}+`, `[0-9]{3}` in turn.
pub(super) const DEFAULT: Pattern = Pattern { isolate: Isolate::Punctuation, triples: true, ..GPT2 };

pub(super) const LLAMA3_REGEX: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
pub(super) const QWEN2_REGEX: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
pub(super) const SEED_REGEX: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+";
pub(super) const QWEN35_REGEX: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
pub(super) const TEKKEN_REGEX: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
pub(super) const GPT4O_REGEX: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";

pub(super) const LLAMA3: Pattern = Pattern {
    isolate: Isolate::Nothing,
    contractions: Contractions::AnyCase,
    words: Words::Prefixed,
    digits: 3,
    spaced_digits: false,
    tail: &['\r', '\n'],
    newlines: true,
    triples: false,
};

pub(super) const QWEN2: Pattern = Pattern { digits: 1, ..LLAMA3 };

/// Seed.
pub(super) const SEED: Pattern = Pattern { tail: &[], ..QWEN2 };

/// Qwen 3.5.
pub(super) const QWEN35: Pattern = Pattern { words: Words::PrefixedWithMarks, ..QWEN2 };

pub(super) const TEKKEN: Pattern = Pattern {
    contractions: Contractions::No,
    words: Words::PrefixedByCase,
    digits: 1,
    tail: &['\r', '\n', '/'],
    ..LLAMA3
};

/// o200k.
pub(super) const GPT4O: Pattern = Pattern { contractions: Contractions::OfWords, digits: 3, ..TEKKEN };

#[derive(Debug, Clone, Copy, PartialEq)]
enum Class {
    Letter,
    Number,
    Space,
    Other,
}

fn class(c: char) -> Class {
    match c {
        'a'..='z' | 'A'..='Z' => Class::Letter,
        '0'..='9' => Class::Number,
        _ if c.is_whitespace() => Class::Space,
        '\0'..='\x7f' => Class::Other,
        _ => match c.general_category_group() {
            GeneralCategoryGroup::Letter => Class::Letter,
            GeneralCategoryGroup::Number => Class::Number,
            _ => Class::Other,
        },
    }
}

/// `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]` and `[\p{Ll}\p{Lm}\p{Lo}\p{M}]`: many scripts are in both.
fn case(c: char) -> (bool, bool) {
    use GeneralCategory as G;
    match c.general_category() {
        G::UppercaseLetter | G::TitlecaseLetter => (true, false),
        G::LowercaseLetter => (false, true),
        G::ModifierLetter | G::OtherLetter => (true, true),
        G::NonspacingMark | G::SpacingMark | G::EnclosingMark => (true, true),
        _ => (false, false),
    }
}

/// `\p{M}`
fn is_mark(c: char) -> bool {
    c.general_category_group() == GeneralCategoryGroup::Mark
}

fn is_newline(c: char) -> bool {
    matches!(c, '\r' | '\n')
}

fn is_punctuation(c: char) -> bool {
    matches!(c, '$' | '+' | '<' | '=' | '>' | '^' | '~' | '|')
        || c.general_category_group() == GeneralCategoryGroup::Punctuation
}

/// The bytes at the start of `text` whose characters satisfy `test`.
fn run(text: &str, test: impl Fn(char) -> bool) -> usize {
    text.find(|c| !test(c)).unwrap_or(text.len())
}

/// The bytes of the first `n` characters.
fn chars(text: &str, n: usize) -> usize {
    text.char_indices().nth(n).map_or(text.len(), |(at, _)| at)
}

impl Pattern {
    /// Calls `word` with each piece of `text` in order. The pieces are never empty and join to `text`.
    pub(super) fn split<'t>(&self, text: &'t str, mut word: impl FnMut(&'t str)) {
        let mut rest = text;
        while !rest.is_empty() {
            let (before, isolated) = match self.isolate {
                Isolate::Nothing => (rest.len(), 0),
                Isolate::Digits => {
                    let at = run(rest, |c| class(c) != Class::Number);
                    (at, chars(&rest[at..], 1))
                }
                Isolate::Punctuation => {
                    let at = run(rest, |c| !is_punctuation(c));
                    (at, run(&rest[at..], is_punctuation))
                }
            };
            let (mut between, after) = rest.split_at(before);
            while !between.is_empty() {
                let (piece, remaining) = between.split_at(self.piece(between));
                if self.triples {
                    split_triples(piece, &mut word);
                } else {
                    word(piece);
                }
                between = remaining;
            }
            let (piece, remaining) = after.split_at(isolated);
            if !piece.is_empty() {
                word(piece);
            }
            rest = remaining;
        }
    }

    /// The length of the first piece of `text`, which is not empty.
    fn piece(&self, text: &str) -> usize {
        let word = if self.contractions == Contractions::OfWords {
            self.word(text).map(|n| n + self.contraction(&text[n..]).unwrap_or(0))
        } else {
            self.contraction(text).or_else(|| self.word(text))
        };
        let length = word.or_else(|| self.number(text)).or_else(|| self.punctuation(text));
        length.unwrap_or_else(|| self.space(text))
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
            _ => !is_newline(first) && matches!(class(first), Class::Space | Class::Other),
        };
        // Only a mark can be both a prefix and the start of a word, hence the second attempt of each rule.
        let prefix = if may_prefix { first.len_utf8() } else { 0 };
        let attempt = |letters: fn(&str) -> usize| {
            let lengths = [prefix, 0].map(|from| (from, letters(&text[from..])));
            lengths.into_iter().find(|&(_, n)| n > 0).map(|(from, n)| from + n)
        };
        match self.words {
            Words::PrefixedByCase => attempt(capitalised).or_else(|| attempt(uppercase)),
            Words::PrefixedWithMarks => attempt(|text| run(text, |c| class(c) == Class::Letter || is_mark(c))),
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
        let marks = self.words != Words::PrefixedWithMarks;
        match run(&text[prefix..], |c| class(c) == Class::Other && (marks || !is_mark(c))) {
            0 => None,
            n => Some(prefix + n + run(&text[prefix + n..], |c| self.tail.contains(&c))),
        }
    }

    /// `\s*[\r\n]+|\s+(?!\S)|\s+`: up to the last newline, or all but the last character, which goes with the next
    /// word.
    fn space(&self, text: &str) -> usize {
        let length = run(text, char::is_whitespace);
        let (spaces, after) = text.split_at(length);
        if self.newlines
            && let Some(newline) = spaces.rfind(is_newline)
        {
            return newline + 1;
        }
        let last = spaces.char_indices().next_back().map_or(0, |(at, _)| at);
        if after.is_empty() || last == 0 { length } else { last }
    }
}

/// `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+`, zero if it does not match.
fn capitalised(text: &str) -> usize {
    let upper = uppercase(text);
    let lower = run(&text[upper..], |c| case(c).1);
    if lower > 0 {
        return upper + lower;
    }
    // The first part gives back characters until the second can match: up to the last letter without case.
    let caseless = text[..upper].char_indices().rev().find(|&(_, c)| case(c).1);
    caseless.map_or(0, |(at, c)| at + c.len_utf8())
}

/// `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*`; no lower case letter can follow where [`capitalised`] does not match.
fn uppercase(text: &str) -> usize {
    run(text, |c| case(c).0)
}

/// Cuts `piece` before and after runs of digits, and every three ASCII digits.
fn split_triples<'t>(piece: &'t str, word: &mut impl FnMut(&'t str)) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
    use tokenizers::tokenizer::{
        OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer, SplitDelimiterBehavior,
    };

    const GPT2_REGEX: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

    fn compile(regexes: &[&str]) -> Vec<Split> {
        let split = |regex: &&str| {
            let pattern = SplitPattern::Regex((*regex).to_owned());
            Split::new(pattern, SplitDelimiterBehavior::Isolated, false).unwrap()
        };
        regexes.iter().map(split).collect()
    }

    /// Each published expression is applied to the pieces of the one before.
    fn by_regex(splits: &[Split], text: &str) -> Vec<String> {
        let mut pieces = PreTokenizedString::from(text);
        for split in splits {
            split.pre_tokenize(&mut pieces).unwrap();
        }
        let pieces = pieces.get_splits(OffsetReferential::Original, OffsetType::Byte);
        pieces.into_iter().map(|(piece, _, _)| piece.to_owned()).filter(|piece| !piece.is_empty()).collect()
    }

    fn by_scanner(pattern: &Pattern, text: &str) -> Vec<String> {
        let mut pieces = Vec::new();
        pattern.split(text, |piece| pieces.push(piece.to_owned()));
        pieces
    }

    // SplitMix64.
    fn next(state: &mut u64) -> u64 {
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    #[test]
    fn the_scanner_gives_the_pieces_of_the_published_expressions() {
        // Ling 2's expression cuts as that of Qwen 2: white space before its last newline has the other newlines.
        const LING: &str =
            r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+";
        let families: [(&str, Pattern, &[&str]); 9] = [
            ("gpt-2", GPT2, &[GPT2_REGEX]),
            ("smollm", SMOLLM, &[r"\p{N}", GPT2_REGEX]),
            ("default", DEFAULT, &[r"[\p{P}$+<=>^~|]+", GPT2_REGEX, r"\p{N}+", "[0-9][0-9][0-9]"]),
            ("llama-bpe", LLAMA3, &[LLAMA3_REGEX]),
            ("qwen2", QWEN2, &[QWEN2_REGEX]),
            ("bailingmoe2", QWEN2, &[LING]),
            ("qwen35", QWEN35, &[QWEN35_REGEX]),
            ("tekken", TEKKEN, &[TEKKEN_REGEX]),
            ("gpt-4o", GPT4O, &[GPT4O_REGEX]),
        ];
        let families = families.map(|(name, pattern, regexes)| (name, pattern, compile(regexes)));
        // Characters of every rule, some kinds twice or three times.
        let alphabet: Vec<char> = "   \t\n\n\r\u{a0}\u{3000}\u{85}aabsStTrReElLvVmMdDxZſÉéßǅʰªª中日ا़\u{301}\u{301}\u{20dd}0012345٣²Ⅳ''’’!./-_$+<^|`«😀\u{200d}\u{fe0f}\u{0}\u{e000}"
            .chars()
            .collect();
        // Blocks that are full, and whose categories no recent version of Unicode has changed.
        let planes =
            [(0x80, 0x24f), (0x300, 0x36f), (0x400, 0x52f), (0x2000, 0x2069), (0x2190, 0x23ff), (0x3041, 0x3096)];
        let planes =
            [&planes[..], &[(0x4e00, 0x9fef), (0xac00, 0xd7a3), (0x1f300, 0x1f5ff), (0x20000, 0x2a6d6)]].concat();
        let seed = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64;
        let mut state = seed;
        for round in 0..3000 {
            let length = next(&mut state) % 24;
            let text: String = (0..length)
                .map(|_| {
                    let r = next(&mut state);
                    let (first, last) = planes[(r >> 8) as usize % planes.len()];
                    let any = char::from_u32(first + (r >> 16) as u32 % (last - first + 1));
                    any.filter(|_| r.is_multiple_of(8)).unwrap_or(alphabet[(r >> 32) as usize % alphabet.len()])
                })
                .collect();
            for (name, pattern, regexes) in &families {
                let expected = by_regex(regexes, &text);
                assert_eq!(by_scanner(pattern, &text), expected, "{name}, {text:?}, seed {seed}, round {round}");
            }
        }
    }
}
