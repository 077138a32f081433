//! Characters and their cases, as Python has them.

use unicode_properties::{GeneralCategory, UnicodeGeneralCategory};

/// What `isspace` of a character says, and `strip` removes.
pub(in super::super) fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\x1c'..='\x1f').contains(&c)
}

/// Whether `repr` shows a character as it is.
pub(in super::super) fn is_printable(c: char) -> bool {
    use GeneralCategory::{
        Control, Format, LineSeparator, ParagraphSeparator, PrivateUse, SpaceSeparator, Surrogate, Unassigned,
    };
    match c.general_category() {
        SpaceSeparator => c == ' ',
        Control | Format | LineSeparator | ParagraphSeparator | PrivateUse | Surrogate | Unassigned => false,
        _ => true,
    }
}

pub(super) fn is_letter(c: char) -> bool {
    if c.is_ascii() {
        return c.is_ascii_alphabetic();
    }
    use GeneralCategory::{LowercaseLetter, ModifierLetter, OtherLetter, TitlecaseLetter, UppercaseLetter};
    matches!(c.general_category(), UppercaseLetter | LowercaseLetter | TitlecaseLetter | ModifierLetter | OtherLetter)
}

pub(super) fn is_decimal(c: char) -> bool {
    c.is_ascii_digit() || !c.is_ascii() && c.general_category() == GeneralCategory::DecimalNumber
}

pub(super) fn is_digit(c: char) -> bool {
    is_decimal(c)
        || matches!(c, '²' | '³' | '¹' | '⁰' | '⁴'..='⁹' | '₀'..='₉' | '①'..='⑨' | '⑴'..='⑼' | '⒈'..='⒐' | '❶'..='❾')
}

pub(super) fn is_numeric(c: char) -> bool {
    let is_other = matches!(c.general_category(), GeneralCategory::LetterNumber | GeneralCategory::OtherNumber);
    is_digit(c) || is_other || "〇一二三四五六七八九十百千万億兆零壹貳參".contains(c)
}

/// Whether a character belongs to a word.
pub(in super::super) fn is_word(c: char) -> bool {
    is_letter(c) || is_numeric(c) || c == '_'
}

fn is_title(c: char) -> bool {
    !c.is_ascii() && c.general_category() == GeneralCategory::TitlecaseLetter
}

fn is_cased(c: char) -> bool {
    c.is_uppercase() || c.is_lowercase() || is_title(c)
}

/// The first character as a title begins: `ß` becomes `Ss`.
fn title_case(c: char, out: &mut String) {
    // Letters of two parts, of which a title has the first as a capital.
    match c {
        'Ǆ' | 'ǆ' => return out.push('ǅ'),
        'Ǉ' | 'ǉ' => return out.push('ǈ'),
        'Ǌ' | 'ǌ' => return out.push('ǋ'),
        'Ǳ' | 'ǳ' => return out.push('ǲ'),
        _ if is_title(c) => return out.push(c),
        _ => {}
    }
    let mut upper = c.to_uppercase();
    out.extend(upper.next());
    out.extend(upper.flat_map(char::to_lowercase));
}

/// `text.capitalize()`.
pub(in super::super) fn capitalized(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    if let Some(first) = chars.next() {
        title_case(first, &mut out);
    }
    // A sigma at the end depends on what precedes it.
    let lower = text.to_lowercase();
    let skipped = text.chars().next().map_or(0, |first| first.to_lowercase().count());
    out.extend(lower.chars().skip(skipped));
    out
}

pub(super) fn titled(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut word = String::new();
    let finish = |word: &mut String, out: &mut String| {
        let mut chars = word.chars();
        if let Some(first) = chars.next() {
            title_case(first, out);
            let skipped = first.to_lowercase().count();
            out.extend(word.to_lowercase().chars().skip(skipped));
        }
        word.clear();
    };
    for c in text.chars() {
        if is_cased(c) {
            word.push(c);
        } else {
            finish(&mut word, &mut out);
            out.push(c);
        }
    }
    finish(&mut word, &mut out);
    out
}

pub(super) fn swapped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_uppercase() {
            out.extend(c.to_lowercase());
        } else {
            out.extend(c.to_uppercase());
        }
    }
    out
}

pub(super) fn folded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            'ı' => out.push(c),
            c => out.extend(c.to_uppercase().flat_map(char::to_lowercase)),
        }
    }
    out
}

/// All cased characters are of one case, and there is one.
fn is_case(text: &str, is_it: impl Fn(char) -> bool) -> bool {
    text.chars().any(is_cased) && text.chars().filter(|c| is_cased(*c)).all(is_it)
}

pub(super) fn is_titled(text: &str) -> bool {
    let (mut any, mut after_cased) = (false, false);
    for c in text.chars() {
        let starts = c.is_uppercase() || is_title(c);
        if is_cased(c) && starts == after_cased {
            return false;
        }
        after_cased = is_cased(c);
        any = any || after_cased;
    }
    any
}

pub(super) fn is_identifier(text: &str) -> bool {
    use GeneralCategory::{ConnectorPunctuation, LetterNumber, NonspacingMark, SpacingMark};
    let starts = |c: char| is_letter(c) || c == '_' || c.general_category() == LetterNumber;
    let goes_on = |c: char| {
        starts(c)
            || is_decimal(c)
            || matches!(c.general_category(), ConnectorPunctuation | NonspacingMark | SpacingMark)
    };
    text.chars().next().is_some_and(starts) && text.chars().all(goes_on)
}

/// `text.islower()`.
pub(in super::super) fn is_lower(text: &str) -> bool {
    is_case(text, |c| c.is_lowercase())
}

/// `text.isupper()`.
pub(in super::super) fn is_upper(text: &str) -> bool {
    is_case(text, |c| c.is_uppercase())
}
