//! Classes of characters.

use std::ops::RangeInclusive;

use unicode_properties::{GeneralCategory, GeneralCategoryGroup, UnicodeGeneralCategory};

pub(super) type CharClass = &'static [RangeInclusive<char>];

/// `\p{Han}` of Unicode 16.
pub(super) const HAN: CharClass = &[
    '\u{2e80}'..='\u{2e99}',
    '\u{2e9b}'..='\u{2ef3}',
    '\u{2f00}'..='\u{2fd5}',
    '\u{3005}'..='\u{3005}',
    '\u{3007}'..='\u{3007}',
    '\u{3021}'..='\u{3029}',
    '\u{3038}'..='\u{303b}',
    '\u{3400}'..='\u{4dbf}',
    '\u{4e00}'..='\u{9fff}',
    '\u{f900}'..='\u{fa6d}',
    '\u{fa70}'..='\u{fad9}',
    '\u{16fe2}'..='\u{16fe3}',
    '\u{16ff0}'..='\u{16ff1}',
    '\u{20000}'..='\u{2a6df}',
    '\u{2a700}'..='\u{2b739}',
    '\u{2b740}'..='\u{2b81d}',
    '\u{2b820}'..='\u{2cea1}',
    '\u{2ceb0}'..='\u{2ebe0}',
    '\u{2ebf0}'..='\u{2ee5d}',
    '\u{2f800}'..='\u{2fa1d}',
    '\u{30000}'..='\u{3134a}',
    '\u{31350}'..='\u{323af}',
];

/// Whether one of the ranges, which are in order, has a character.
pub(super) fn is_in(c: char, class: &[RangeInclusive<char>]) -> bool {
    let at = class.partition_point(|range| *range.end() < c);
    class.get(at).is_some_and(|range| range.contains(&c))
}

pub(super) fn is_han(c: char) -> bool {
    c > '\u{2e7f}' && is_in(c, HAN)
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Class {
    Letter,
    Number,
    Space,
    Other,
}

pub(super) fn class(c: char) -> Class {
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
pub(super) fn case(c: char) -> (bool, bool) {
    use GeneralCategory as G;
    match c.general_category() {
        G::UppercaseLetter | G::TitlecaseLetter => (true, false),
        G::LowercaseLetter => (false, true),
        G::ModifierLetter | G::OtherLetter => (true, true),
        G::NonspacingMark | G::SpacingMark | G::EnclosingMark => (true, true),
        _ => (false, false),
    }
}

/// [`case`] without `\p{Han}`.
pub(super) fn case_without_han(c: char) -> (bool, bool) {
    if is_han(c) { (false, false) } else { case(c) }
}

/// `\p{M}`
pub(super) fn is_mark(c: char) -> bool {
    c.general_category_group() == GeneralCategoryGroup::Mark
}

pub(super) fn is_newline(c: char) -> bool {
    matches!(c, '\r' | '\n')
}

pub(super) fn is_punctuation(c: char) -> bool {
    matches!(c, '$' | '+' | '<' | '=' | '>' | '^' | '~' | '|')
        || c.general_category_group() == GeneralCategoryGroup::Punctuation
}

/// `[\p{P}\p{S}]`
pub(super) fn is_symbol(c: char) -> bool {
    matches!(c.general_category_group(), GeneralCategoryGroup::Punctuation | GeneralCategoryGroup::Symbol)
}

/// `\p{Nd}`
pub(super) fn is_digit(c: char) -> bool {
    c.general_category() == GeneralCategory::DecimalNumber
}

/// `\w` of Oniguruma, which reads the published expressions: alphabetic characters, marks, digits and joining
/// punctuation, and some fractions and powers.
pub(super) fn is_word(c: char) -> bool {
    use GeneralCategory as G;
    match c {
        '\u{b2}' | '\u{b3}' | '\u{b9}' | '\u{bc}'..='\u{be}' => true,
        // Letters within circles and squares.
        '\u{24b6}'..='\u{24e9}' | '\u{1f130}'..='\u{1f149}' | '\u{1f150}'..='\u{1f169}' => true,
        '\u{1f170}'..='\u{1f189}' => true,
        _ => match c.general_category_group() {
            GeneralCategoryGroup::Letter | GeneralCategoryGroup::Mark => true,
            _ => matches!(c.general_category(), G::DecimalNumber | G::LetterNumber | G::ConnectorPunctuation),
        },
    }
}

/// Which of the classes has a character; none has one below U+0800.
pub(super) fn class_of(c: char, classes: &[CharClass]) -> Option<usize> {
    classes.iter().position(|ranges| c > '\u{7ff}' && ranges.iter().any(|range| range.contains(&c)))
}
