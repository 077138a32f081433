//! Regular expressions of JSON schemas, which are ECMA-262's, in the syntax of Rust's crates.
//!
//! Where both accept a pattern they may mean different texts by it: `.`, `\s`, `\w`, `\d`, `\b` and `\<`, and in a
//! class `[`, `&&`, `--`, `~~`, `[]` and `[^]`.

use std::iter::Peekable;
use std::str::Chars;

use llguidance::derivre::RegexBuilder;

use super::guarded::guarded;

/// `\s`: white space and line terminators of ECMA-262, within a class.
const SPACE: &str =
    r"\t\n\x0B\x0C\r\x20\u{A0}\u{1680}\u{2000}-\u{200A}\u{2028}\u{2029}\u{202F}\u{205F}\u{3000}\u{FEFF}";
const DIGIT: &str = "0-9";
const WORD: &str = "0-9A-Za-z_";
/// `.`: all but line terminators.
const ANY: &str = r"[^\n\r\u{2028}\u{2029}]";

/// The pattern in Rust's syntax, or what of it is not enforced.
pub(super) fn translated(pattern: &str) -> Result<String, String> {
    let mut text = Translation { rest: pattern.chars().peekable(), out: String::new() };
    while let Some(c) = text.rest.next() {
        match c {
            '.' => text.out.push_str(ANY),
            '[' => text.class()?,
            '\\' => text.escape(false)?,
            '(' => text.group()?,
            '{' if text.rest.peek() == Some(&',') => return Err("`{,` is no repetition; write `{0,`".to_owned()),
            _ => text.out.push(c),
        }
    }
    Ok(text.out)
}

struct Translation<'a> {
    rest: Peekable<Chars<'a>>,
    out: String,
}

impl Translation<'_> {
    /// Reads a group after `(`. Only the flag `i` has the same meaning in both dialects.
    fn group(&mut self) -> Result<(), String> {
        self.out.push('(');
        if self.rest.next_if_eq(&'?').is_none() {
            return Ok(());
        }
        self.out.push('?');
        match self.rest.peek() {
            Some(':' | '<' | '=' | '!' | 'i') => {
                let kind = self.rest.next();
                self.out.extend(kind);
                let flags = kind == Some('i') && !matches!(self.rest.peek(), Some(':' | ')'));
                if flags { Err("of flags, `(?i)` and `(?i:` alone are enforced".to_owned()) } else { Ok(()) }
            }
            _ => Err("a group begins with `(`, `(?:`, `(?<name>`, `(?i)` or `(?i:`".to_owned()),
        }
    }

    /// Reads a class after `[`.
    fn class(&mut self) -> Result<(), String> {
        let negated = self.rest.next_if_eq(&'^').is_some();
        if self.rest.next_if_eq(&']').is_some() {
            if !negated {
                return Err("`[]` matches nothing".to_owned());
            }
            self.out.push_str(r"[\x00-\u{10FFFF}]");
            return Ok(());
        }
        self.out.push_str(if negated { "[^" } else { "[" });
        // A minus sign that follows nothing, or the sign of a range, stands for itself.
        let mut minus_is_range = false;
        while let Some(c) = self.rest.next() {
            match c {
                ']' => {
                    self.out.push(']');
                    return Ok(());
                }
                '-' if minus_is_range => self.out.push('-'),
                '[' | '&' | '~' | '-' => self.out.extend(['\\', c]),
                '\\' => self.escape(true)?,
                _ => self.out.push(c),
            }
            minus_is_range = c != '-' || !minus_is_range;
        }
        Err("a class has no end; add `]`".to_owned())
    }

    /// Reads an escape after the backslash.
    fn escape(&mut self, in_class: bool) -> Result<(), String> {
        let Some(c) = self.rest.next() else { return Err("it ends with a backslash".to_owned()) };
        let set = |set: &str| if in_class { set.to_owned() } else { format!("[{set}]") };
        let written = match c {
            's' => set(SPACE),
            'd' => set(DIGIT),
            'w' => set(WORD),
            // Within a class, a class may stand.
            'S' => format!("[^{SPACE}]"),
            'D' => format!("[^{DIGIT}]"),
            'W' => format!("[^{WORD}]"),
            'n' | 'r' | 't' | 'f' | 'v' => format!("\\{c}"),
            'b' if in_class => r"\x08".to_owned(),
            'b' | 'B' => return Err(format!("`\\{c}`, a boundary of words, is not enforced")),
            '0' if !self.rest.peek().is_some_and(char::is_ascii_digit) => r"\x00".to_owned(),
            '0'..='9' | 'k' => return Err("references to groups are not enforced".to_owned()),
            'x' => code(self.hexadecimal(2)?)?,
            'u' if self.rest.peek() == Some(&'{') => r"\u".to_owned(),
            'u' => self.unit()?,
            'c' => self.control()?,
            'p' | 'P' if self.rest.peek() == Some(&'{') => format!("\\{c}"),
            _ if c.is_ascii_alphanumeric() => return Err(format!("`\\{c}` is no escape of ECMA-262")),
            _ if r"\.+*?()|[]{}^$&~-".contains(c) => format!("\\{c}"),
            _ => c.to_string(),
        };
        self.out.push_str(&written);
        // The braces of a code or a property.
        if matches!(c, 'u' | 'p' | 'P') && self.rest.peek() == Some(&'{') {
            for c in self.rest.by_ref() {
                self.out.push(c);
                if c == '}' {
                    break;
                }
            }
        }
        Ok(())
    }

    fn hexadecimal(&mut self, digits: usize) -> Result<u32, String> {
        let mut code = 0;
        for _ in 0..digits {
            let digit = self.rest.next().and_then(|c| c.to_digit(16));
            code = code * 16 + digit.ok_or_else(|| format!("an escape needs {digits} hexadecimal digits"))?;
        }
        Ok(code)
    }

    /// `\uHHHH`, or two of them that are one character.
    fn unit(&mut self) -> Result<String, String> {
        let high = self.hexadecimal(4)?;
        if !(0xd800..0xdc00).contains(&high) {
            return code(high);
        }
        let follows = self.rest.next() == Some('\\') && self.rest.next() == Some('u');
        match if follows { self.hexadecimal(4)? } else { 0 } {
            low @ 0xdc00..0xe000 => code(0x1_0000 + ((high - 0xd800) << 10) + (low - 0xdc00)),
            _ => Err("half of a surrogate pair is no character".to_owned()),
        }
    }

    /// `\cX`.
    fn control(&mut self) -> Result<String, String> {
        match self.rest.next() {
            Some(letter) if letter.is_ascii_alphabetic() => code(u32::from(letter) % 32),
            _ => Err("`\\c` needs a letter".to_owned()),
        }
    }
}

/// An escape for a character.
fn code(code: u32) -> Result<String, String> {
    match char::from_u32(code) {
        Some(_) => Ok(format!("\\u{{{code:X}}}")),
        None => Err("half of a surrogate pair is no character".to_owned()),
    }
}

/// Checks that an automaton can follow a translated pattern: automata have no look-around. Compiling would refuse the
/// pattern too, but could not name its place in the schema.
pub(super) fn check(translated: &str) -> Result<(), String> {
    let build = || RegexBuilder::new().mk_regex_for_serach(translated).map(drop).map_err(|error| error.to_string());
    // An excerpt with marks precedes the problem.
    let problem = |error: String| error.rsplit("error: ").next().map(str::trim).unwrap_or_default().to_owned();
    guarded(build).map_err(|error| format!("the pattern cannot be enforced: {}", problem(error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a pattern, translated, matches somewhere in a text.
    fn matches(pattern: &str, text: &str) -> bool {
        let translated = translated(pattern).unwrap();
        let regex = regex::Regex::new(&translated).unwrap_or_else(|error| panic!("{pattern} → {translated}: {error}"));
        regex.is_match(text)
    }

    #[test]
    fn patterns_mean_what_they_mean_in_ecma_262() {
        for (pattern, yes, no) in [
            (r"^\s$", "\u{feff}", "\u{85}"),
            (r"^\S$", "\u{85}", "\u{feff}"),
            (r"^[\s]$", "\u{a0}", "a"),
            (r"^[^\s]$", "a", "\u{feff}"),
            (r"^[\S]$", "a", " "),
            (r"^[a\D]$", "a", "1"),
            (r"^\d\D$", "1a", "\u{661}a"),
            (r"^\w\W$", "_é", "é_"),
            (r"^.$", "\u{85}", "\u{2028}"),
            (r"^[[a]]$", "[]", "a"),
            (r"^[a&&b]$", "&", "c"),
            (r"^[a~~b]$", "~", "c"),
            (r"^[+--]$", ",", "."),
            (r"^[--a]$", "A", "b"),
            (r"^[a-]$", "-", "b"),
            (r"^[^]$", "\n", ""),
            (r"^\<\>\/\-\#$", "<>/-#", "<>"),
            (r"^[\b\]\\]$", "\u{8}", "b"),
            (r"^\cA\x41\u0042\u{43}\0$", "\u{1}ABC\0", "ABC"),
            (r"^\ud83d\ude00$", "😀", "a"),
            (r"^\p{Lu}\P{Lu}$", "Aa", "aA"),
            (r"^(?:a|b)(?<name>c)$", "bc", "b"),
            (r"^(?i:A)b$", "ab", "aB"),
            (r"^a{2,3}\{$", "aa{", "a{"),
            (r"^[(.{\\]+$", r"(.{\", "a"),
        ] {
            assert!(matches(pattern, yes), "{pattern} {yes:?}");
            assert!(!matches(pattern, no), "{pattern} {no:?}");
        }
    }

    #[test]
    fn what_differs_is_refused() {
        for pattern in [
            "[]",
            "[a",
            "a{,3}",
            r"\a",
            r"\A",
            r"\z",
            r"\1",
            r"\k<a>",
            r"\01",
            r"\u12",
            r"\xg0",
            r"\ud800",
            r"\ud800\u0041",
            r"\c1",
            r"\bword\b",
            "(?x)a b",
            "(?s).",
            "(?is)a",
            "(?P<a>b)",
            "a\\",
            r"\p",
        ] {
            assert!(translated(pattern).is_err(), "{pattern}: {:?}", translated(pattern));
        }
    }
}
