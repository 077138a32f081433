//! A call of a function in Python with literals as arguments: where its text ends, and its arguments as JSON.

use super::input::Input;
use super::scan::{self, Scan};

/// How deeply lists and dictionaries may nest; `serde_json` accepts as much.
const MAX_DEPTH: usize = 100;

/// Reads one call, `NAME(…)`. Brackets and quotes are checked where they stand; what is between them is not.
#[derive(Debug, Default)]
pub(super) struct CallScanner {
    /// The closing brackets of what is open.
    open: Vec<u8>,
    named: bool,
    /// The quote that ends the string which is read.
    quote: Option<u8>,
    escaped: bool,
}

impl CallScanner {
    /// Reads on, up to the call's end at most.
    pub(super) fn read(&mut self, input: &mut Input) -> Scan {
        scan::bytes(input, |byte| self.step(byte))
    }

    /// Takes a byte. Returns whether it ends the call; `None` if it is invalid.
    fn step(&mut self, byte: u8) -> Option<bool> {
        if let Some(quote) = self.quote {
            if self.escaped {
                self.escaped = false;
            } else if byte == b'\\' {
                self.escaped = true;
            } else if byte == quote {
                self.quote = None;
            }
            return Some(false);
        }
        if self.open.is_empty() {
            return match byte {
                b'(' if self.named => self.opens(b')'),
                byte if is_name(byte) => {
                    self.named = true;
                    Some(false)
                }
                _ => None,
            };
        }
        match byte {
            b'(' => self.opens(b')'),
            b'[' => self.opens(b']'),
            b'{' => self.opens(b'}'),
            b')' | b']' | b'}' => (self.open.pop() == Some(byte)).then_some(self.open.is_empty()),
            b'\'' | b'"' => {
                self.quote = Some(byte);
                Some(false)
            }
            _ => Some(false),
        }
    }
}

impl CallScanner {
    fn opens(&mut self, close: u8) -> Option<bool> {
        self.open.push(close);
        (self.open.len() <= MAX_DEPTH).then_some(false)
    }
}

/// Whether a byte may be part of a name: of Python, and what tools are called besides.
fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-') || byte >= 0x80
}

/// The name of a call and its arguments as a JSON object, if all of them have names and literals as values.
pub(super) fn call(text: &str) -> Option<(&str, String)> {
    let (name, rest) = text.split_once('(')?;
    let mut literals = Literals { rest, json: "{".to_owned(), depth: 0 };
    let mut names = Vec::new();
    while !literals.takes(")") {
        if !names.is_empty() && !literals.takes(",") {
            return None;
        }
        if !names.is_empty() && literals.takes(")") {
            break;
        }
        let argument = literals.name()?;
        if names.contains(&argument) || !literals.takes("=") {
            return None;
        }
        literals.json.push_str(if names.is_empty() { "" } else { ", " });
        names.push(argument);
        literals.json.push_str(&serde_json::to_string(argument).ok()?);
        literals.json.push_str(": ");
        literals.value()?;
    }
    literals.json.push('}');
    literals.rest.is_empty().then_some((name, literals.json))
}

/// A list or a dictionary of literals as JSON.
pub(super) fn literal(text: &str) -> Option<String> {
    let rest = text.trim();
    let mut literals = Literals { rest, json: String::new(), depth: 0 };
    literals.value().filter(|()| rest.starts_with(['[', '{']) && literals.rest.trim().is_empty())?;
    Some(literals.json)
}

/// Literals that are read, and the JSON that is written of them.
struct Literals<'t> {
    rest: &'t str,
    json: String,
    depth: usize,
}

/// Names of values, in Python and, as models write them too, in JSON.
const CONSTANTS: [(&str, &str); 6] =
    [("True", "true"), ("False", "false"), ("None", "null"), ("true", "true"), ("false", "false"), ("null", "null")];

impl<'t> Literals<'t> {
    /// Takes this text, and white space before it.
    fn takes(&mut self, text: &str) -> bool {
        scan::takes(&mut self.rest, text)
    }

    /// Reads the longest run of bytes of a kind; `None` if it is empty.
    fn run(&mut self, is_part: impl Fn(u8) -> bool) -> Option<&'t str> {
        self.rest = self.rest.trim_start();
        let end = self.rest.bytes().position(|byte| !is_part(byte)).unwrap_or(self.rest.len());
        // All bytes of a character beyond ASCII are of one kind.
        let (run, rest) = self.rest.split_at(end);
        self.rest = rest;
        (!run.is_empty()).then_some(run)
    }

    fn name(&mut self) -> Option<&'t str> {
        self.run(is_name)
    }

    fn value(&mut self) -> Option<()> {
        self.rest = self.rest.trim_start();
        match self.rest.bytes().next()? {
            b'\'' | b'"' => {
                let text = self.string()?;
                self.json.push_str(&serde_json::to_string(&text).ok()?);
            }
            b'[' => self.items("[", "]", "[", "]")?,
            b'(' => self.items("(", ")", "[", "]")?,
            b'{' => self.items("{", "}", "{", "}")?,
            _ => {
                let word = self.run(|byte| is_name(byte) || byte == b'+')?;
                let constant = CONSTANTS.iter().find(|(name, _)| *name == word).map(|(_, json)| *json);
                let number = || serde_json::from_str::<serde_json::Number>(word).is_ok().then_some(word);
                self.json.push_str(constant.or_else(number)?);
            }
        }
        Some(())
    }

    /// Takes the items of a list or dictionary between these brackets, and writes them between those.
    fn items(&mut self, open: &str, close: &str, json_open: &str, json_close: &str) -> Option<()> {
        self.depth += 1;
        if self.depth > MAX_DEPTH || !self.takes(open) {
            return None;
        }
        self.json.push_str(json_open);
        let mut first = true;
        while !self.takes(close) {
            if !first {
                if !self.takes(",") {
                    return None;
                }
                if self.takes(close) {
                    break;
                }
                self.json.push_str(", ");
            }
            first = false;
            if open == "{" {
                self.rest = self.rest.trim_start();
                let key = self.string()?;
                self.json.push_str(&serde_json::to_string(&key).ok()?);
                self.json.push_str(": ");
                if !self.takes(":") {
                    return None;
                }
            }
            self.value()?;
        }
        self.json.push_str(json_close);
        self.depth -= 1;
        Some(())
    }

    /// Takes a string in single or double quotes.
    fn string(&mut self) -> Option<String> {
        let mut chars = self.rest.chars();
        let quote = chars.next().filter(|quote| matches!(quote, '\'' | '"'))?;
        // A template may write a list as JSON, whose escapes differ.
        let mut json = serde_json::Deserializer::from_str(self.rest).into_iter::<String>();
        if let Some(Ok(text)) = json.next().filter(|_| quote == '"') {
            self.rest = &self.rest[json.byte_offset()..];
            return Some(text);
        }
        let mut text = String::new();
        loop {
            match chars.next()? {
                '\\' => match chars.next()? {
                    '\n' => {}
                    'n' => text.push('\n'),
                    't' => text.push('\t'),
                    'r' => text.push('\r'),
                    'x' => text.push(code(&mut chars, 2)?),
                    'u' => text.push(code(&mut chars, 4)?),
                    'U' => text.push(code(&mut chars, 8)?),
                    c @ ('\\' | '\'' | '"') => text.push(c),
                    // Python keeps the backslash of any other escape.
                    c => text.extend(['\\', c]),
                },
                c if c == quote => break,
                c => text.push(c),
            }
        }
        self.rest = chars.as_str();
        Some(text)
    }
}

/// The character with this hexadecimal number of this length.
fn code(chars: &mut std::str::Chars, digits: usize) -> Option<char> {
    let mut number = 0;
    for _ in 0..digits {
        number = number << 4 | chars.next()?.to_digit(16)?;
    }
    char::from_u32(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_become_json() {
        for (text, json) in [
            ("f()", "{}"),
            ("f( )", "{}"),
            ("f(a=1, b=-2.5e3,)", r#"{"a": 1, "b": -2.5e3}"#),
            (r#"f(a='it\'s', b="x\n\u00e9\q")"#, r#"{"a": "it's", "b": "x\né\\q"}"#),
            (
                "f(a=[1, 'two', [True]], b={'k': None, \"l\": (1,)})",
                r#"{"a": [1, "two", [true]], "b": {"k": null, "l": [1]}}"#,
            ),
            ("f(grün='😀')", r#"{"grün": "😀"}"#),
        ] {
            assert_eq!(call(text), Some(("f", json.to_owned())), "{text}");
        }
        for text in
            ["f(1)", "f(a)", "f(a=)", "f(a=b)", "f(a=1 b=2)", "f(a=1, a=2)", "f(a=[1)", "f(a={1: 2})", "f(a='x)"]
        {
            assert_eq!(call(text), None, "{text}");
        }
        let deep = |n: usize| format!("f(a={}{})", "[".repeat(n), "]".repeat(n));
        assert!(call(&deep(MAX_DEPTH)).is_some() && call(&deep(MAX_DEPTH + 1)).is_none());
    }
}
