//! Tokens of preprocessed source, each with its line.

use super::problem::Problem;
use std::borrow::Cow;

/// The kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A name or a keyword.
    Word,
    Number,
    /// A string or a character, with its quotes.
    Text,
    /// An operator or a bracket. `[[`, `]]` and `>>` are two.
    Mark,
}

/// A token, and its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Token<'a> {
    pub(crate) kind: Kind,
    pub(crate) text: Cow<'a, str>,
    /// Index of a file in [`Tokens::files`], and line in it.
    pub(crate) file: u32,
    pub(crate) line: u32,
    /// Whether white space precedes it.
    pub(crate) spaced: bool,
}

impl Token<'_> {
    pub(crate) fn is(&self, text: &str) -> bool {
        self.kind != Kind::Text && self.text == text
    }

    pub(crate) fn is_word(&self) -> bool {
        self.kind == Kind::Word
    }
}

/// A source's tokens.
#[derive(Debug, Default)]
pub(crate) struct Tokens<'a> {
    pub(crate) list: Vec<Token<'a>>,
    /// Names of files with their quotes, as the preprocessor wrote them.
    pub(crate) files: Vec<&'a str>,
}

/// Operators of more than one character; longer ones first.
const MARKS: &[&str] = &[
    "<<=", "...", "::", "->", "++", "--", "<<", "<=", ">=", "==", "!=", "&&", "||", "+=", "-=", "*=", "/=", "%=", "&=",
    "|=", "^=", ".*", "##",
];

/// Reads the preprocessor's output: comments are gone, and directives are line markers and pragmas. Pragmas are left
/// out: those that MSL has are hints to its compiler.
pub(crate) fn read(text: &str) -> Result<Tokens<'_>, Problem> {
    let mut tokens = Tokens { list: Vec::new(), files: vec!["\"\""] };
    let mut rest = text;
    let mut file = 0_u32;
    let mut line = 1_u32;
    let (mut spaced, mut begins) = (false, true);
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '\n' => {
                line = line.saturating_add(1);
                (spaced, begins) = (true, true);
                1
            }
            _ if first.is_whitespace() => {
                spaced = true;
                first.len_utf8()
            }
            // A line that is continued; one is left only outside of directives and macros.
            '\\' if rest[1..].starts_with('\n') => 1,
            '#' if begins => {
                let end = rest.find('\n').unwrap_or(rest.len());
                if let Some((number, name)) = marker(&rest[1..end]) {
                    file = match tokens.files.iter().position(|&known| known == name) {
                        Some(known) => known as u32,
                        None => {
                            tokens.files.push(name);
                            tokens.files.len() as u32 - 1
                        }
                    };
                    // The marker speaks of the line after its own.
                    line = number.wrapping_sub(1);
                }
                end
            }
            _ => {
                let (kind, length) = token(rest).ok_or_else(|| Problem {
                    file: tokens.files[file as usize].trim_matches('"').to_owned(),
                    line,
                    what: format!("{first:?} begins no token"),
                })?;
                let text = Cow::Borrowed(&rest[..length]);
                tokens.list.push(Token { kind, text, file, line, spaced });
                line = line.saturating_add(rest[..length].matches('\n').count() as u32);
                (spaced, begins) = (false, false);
                length
            }
        };
        rest = &rest[length..];
    }
    Ok(tokens)
}

/// `# 12 "name" flags`: the line and the name with its quotes. Nothing for other directives.
fn marker(directive: &str) -> Option<(u32, &str)> {
    let rest = directive.trim_start();
    let rest = rest.strip_prefix("line").unwrap_or(rest).trim_start();
    let end = rest.find(|c: char| !c.is_ascii_digit())?;
    let number = rest[..end].parse().ok()?;
    let name = rest[end..].trim_start();
    let close = name.strip_prefix('"')?.find('"')? + 2;
    Some((number, &name[..close]))
}

/// Kind and length of the token with which `text` starts.
fn token(text: &str) -> Option<(Kind, usize)> {
    let bytes = text.as_bytes();
    let first = *bytes.first()?;
    let second = bytes.get(1).copied().unwrap_or(0);
    if first.is_ascii_alphabetic() || first == b'_' {
        let end = bytes.iter().position(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_');
        return Some((Kind::Word, end.unwrap_or(bytes.len())));
    }
    if first.is_ascii_digit() || first == b'.' && second.is_ascii_digit() {
        let mut end = 1;
        while let Some(&byte) = bytes.get(end) {
            let sign = matches!(byte, b'+' | b'-') && matches!(bytes[end - 1], b'e' | b'E' | b'p' | b'P');
            // In hexadecimal numbers e is a digit.
            let sign = sign && (!text.starts_with("0x") || matches!(bytes[end - 1], b'p' | b'P'));
            if !sign && !byte.is_ascii_alphanumeric() && !matches!(byte, b'.' | b'_' | b'\'') {
                break;
            }
            end += 1;
        }
        return Some((Kind::Number, end));
    }
    if matches!(first, b'"' | b'\'') {
        let mut end = 1;
        loop {
            match *bytes.get(end)? {
                b'\\' => end += 2,
                b'\n' => return None,
                byte if byte == first => return text.is_char_boundary(end + 1).then_some((Kind::Text, end + 1)),
                _ => end += 1,
            }
        }
    }
    if let Some(mark) = MARKS.iter().find(|mark| text.starts_with(**mark)) {
        return Some((Kind::Mark, mark.len()));
    }
    b"{}[]()<>;:,.?!~+-*/%&|^=#".contains(&first).then_some((Kind::Mark, 1))
}

/// The tokens as source, each in its line.
pub(crate) fn write(list: &[Token], files: &[&str]) -> String {
    let mut text = String::new();
    let mut file = u32::MAX;
    let mut line = 0;
    for token in list {
        if token.file != file || token.line < line || token.line - line > 8 {
            let name = files.get(token.file as usize).copied().unwrap_or("\"\"");
            text.push_str(&format!("\n#line {} {name}\n", token.line));
            (file, line) = (token.file, token.line);
        }
        let spaced = token.spaced && !text.ends_with('\n');
        (line..token.line).for_each(|_| text.push('\n'));
        if spaced && line == token.line {
            text.push(' ');
        }
        text.push_str(&token.text);
        line = token.line.saturating_add(token.text.matches('\n').count() as u32);
    }
    text.push('\n');
    text
}
