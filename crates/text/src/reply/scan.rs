//! Finds the end of a JSON object in a text that arrives in pieces.

use super::input::Input;

/// How deeply lists and objects may nest; `serde_json` accepts as much.
const MAX_DEPTH: usize = 128;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expects {
    Object,
    Value,
    ValueOrEnd,
    Key,
    KeyOrEnd,
    Colon,
    CommaOrEnd,
    Text {
        key: bool,
    },
    Escape {
        key: bool,
    },
    /// The rest of a number or of `true`, `false`, `null`.
    Scalar,
}

/// Reads one object. Brackets, commas, colons and quotes are checked where they stand; numbers and the like are not.
#[derive(Debug)]
pub(super) struct Scanner {
    /// The closing brackets of what is open.
    open: Vec<u8>,
    expects: Expects,
}

/// How far an object is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scan {
    More,
    /// The object ends where the input stands.
    End,
    /// The text is no JSON object; the offending character is not read.
    Invalid,
}

/// Reads bytes until `step` returns whether one is the last: `None` if it is invalid.
pub(super) fn bytes(input: &mut Input, mut step: impl FnMut(u8) -> Option<bool>) -> Scan {
    let rest = input.rest();
    for (at, byte) in rest.bytes().enumerate() {
        match step(byte) {
            Some(false) => {}
            Some(true) => {
                input.advance(at + 1);
                return Scan::End;
            }
            None => {
                let at = rest.floor_char_boundary(at);
                input.advance(at);
                return Scan::Invalid;
            }
        }
    }
    input.advance_to_end();
    Scan::More
}

/// Reads white space and this text from `rest`, if it follows.
pub(super) fn takes(rest: &mut &str, text: &str) -> bool {
    *rest = rest.trim_start();
    let after = rest.strip_prefix(text);
    *rest = after.unwrap_or(rest);
    after.is_some()
}

impl Scanner {
    pub(super) fn new() -> Scanner {
        Scanner { open: Vec::new(), expects: Expects::Object }
    }

    /// Reads on, up to the object's end at most.
    pub(super) fn read(&mut self, input: &mut Input) -> Scan {
        bytes(input, |byte| self.step(byte))
    }

    /// Takes a byte. Returns whether it ends the object; `None` if it is invalid.
    fn step(&mut self, byte: u8) -> Option<bool> {
        use Expects::*;
        self.expects = match (self.expects, byte) {
            (Text { key: true }, b'"') => Colon,
            (Text { key: false }, b'"') => CommaOrEnd,
            (Text { key }, b'\\') => Escape { key },
            (Text { .. }, 0..0x20) => return None,
            (Text { key }, _) => Text { key },
            (Escape { key }, b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' | b'u') => Text { key },
            (Escape { .. }, _) => return None,
            (Scalar, b'0'..=b'9' | b'a'..=b'z' | b'+' | b'-' | b'.' | b'E') => Scalar,
            (Scalar, b' ' | b'\t' | b'\n' | b'\r') => CommaOrEnd,
            (expects, b' ' | b'\t' | b'\n' | b'\r') => expects,
            (Object | Value | ValueOrEnd, b'{') => self.enter(b'}', KeyOrEnd)?,
            (Value | ValueOrEnd, b'[') => self.enter(b']', ValueOrEnd)?,
            (Value | ValueOrEnd, b'"') => Text { key: false },
            (Value | ValueOrEnd, b'0'..=b'9' | b'-' | b't' | b'f' | b'n') => Scalar,
            (Key | KeyOrEnd, b'"') => Text { key: true },
            (Colon, b':') => Value,
            (CommaOrEnd | Scalar, b',') if self.open.last() == Some(&b'}') => Key,
            (CommaOrEnd | Scalar, b',') => Value,
            (CommaOrEnd | Scalar | KeyOrEnd | ValueOrEnd, close) if self.open.last() == Some(&close) => {
                self.open.pop();
                CommaOrEnd
            }
            _ => return None,
        };
        Some(self.open.is_empty() && self.expects == CommaOrEnd)
    }

    fn enter(&mut self, close: u8, expects: Expects) -> Option<Expects> {
        self.open.push(close);
        (self.open.len() <= MAX_DEPTH).then_some(expects)
    }
}
