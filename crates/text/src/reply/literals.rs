//! Arguments as Gemma 4 writes them: objects whose keys are bare, and strings between marks.

use serde_json::Value as Json;

use super::input::{Begins, Input};
use super::scan::{self, Scan};

/// Around a string.
const QUOTE: &str = "<|\"|>";

/// How deeply lists and objects may nest; `serde_json` accepts as much.
const MAX_DEPTH: usize = 100;

/// Finds the end of an object. Brackets and quotes are checked where they stand; what is between them is not.
#[derive(Debug, Default)]
pub(super) struct LiteralScanner {
    /// The closing brackets of what is open.
    open: Vec<u8>,
    within: Within,
}

#[derive(Debug, Default, Clone, Copy)]
enum Within {
    #[default]
    Brackets,
    /// A string between [`QUOTE`]s.
    Quotes,
    /// A string of JSON; whether the next character is escaped.
    Json { escaped: bool },
}

impl LiteralScanner {
    /// Reads on, up to the object's end at most.
    pub(super) fn read(&mut self, input: &mut Input) -> Scan {
        loop {
            match self.within {
                Within::Quotes => {
                    if !input.advance_to(QUOTE) {
                        return Scan::More;
                    }
                    input.advance(QUOTE.len());
                    self.within = Within::Brackets;
                }
                Within::Json { escaped } => {
                    let Some(c) = input.rest().chars().next() else { return Scan::More };
                    input.advance(c.len_utf8());
                    self.within = match c {
                        '"' if !escaped => Within::Brackets,
                        _ => Within::Json { escaped: c == '\\' && !escaped },
                    };
                }
                Within::Brackets => {
                    let Some(c) = input.rest().chars().next() else { return Scan::More };
                    if c == '<' {
                        match input.begins(&[QUOTE]) {
                            Begins::With(_) => input.advance(QUOTE.len()),
                            Begins::Maybe => return Scan::More,
                            Begins::No => return Scan::Invalid,
                        }
                        self.within = Within::Quotes;
                        continue;
                    }
                    let Some(ends) = self.step(c) else { return Scan::Invalid };
                    input.advance(c.len_utf8());
                    if ends {
                        return Scan::End;
                    }
                }
            }
        }
    }

    /// Takes a character between strings. Returns whether it ends the object; `None` if it is invalid.
    fn step(&mut self, c: char) -> Option<bool> {
        match c {
            '{' => self.opens(b'}'),
            '[' => self.opens(b']'),
            '}' | ']' => (self.open.pop().map(char::from) == Some(c)).then_some(self.open.is_empty()),
            '"' => {
                self.within = Within::Json { escaped: false };
                Some(false)
            }
            _ => Some(false),
        }
    }

    fn opens(&mut self, close: u8) -> Option<bool> {
        self.open.push(close);
        (self.open.len() <= MAX_DEPTH).then_some(false)
    }
}

/// An object as JSON. Its brackets match, as [`LiteralScanner`] has found.
pub(super) fn json(object: &str) -> Option<String> {
    let mut reader = LiteralReader { rest: object, json: String::with_capacity(object.len()) };
    reader.object()?;
    reader.rest.is_empty().then_some(reader.json)
}

/// The rest of an object, and what it is in JSON so far.
struct LiteralReader<'t> {
    rest: &'t str,
    json: String,
}

impl<'t> LiteralReader<'t> {
    /// Reads white space and this text, if it follows.
    fn takes(&mut self, text: &str) -> bool {
        scan::takes(&mut self.rest, text)
    }

    fn object(&mut self) -> Option<()> {
        self.sequence("{", "}", |reader| {
            if !reader.string()? {
                let key = reader.bare(&[':'])?;
                reader.json.push_str(&Json::from(key).to_string());
            }
            reader.json.push_str(": ");
            reader.takes(":").then_some(())?;
            reader.value()
        })
    }

    /// Reads items between brackets, with commas between them.
    fn sequence(&mut self, open: &str, close: &str, item: fn(&mut Self) -> Option<()>) -> Option<()> {
        self.takes(open).then_some(())?;
        self.json.push_str(open);
        if !self.takes(close) {
            item(self)?;
            while self.takes(",") {
                self.json.push_str(", ");
                item(self)?;
            }
            self.takes(close).then_some(())?;
        }
        self.json.push_str(close);
        Some(())
    }

    fn value(&mut self) -> Option<()> {
        if self.string()? {
            return Some(());
        }
        if self.rest.starts_with('{') {
            return self.object();
        }
        if self.rest.starts_with('[') {
            return self.sequence("[", "]", Self::value);
        }
        let literal = match self.bare(&[',', '}', ']'])? {
            // A template may write these as Python does.
            "None" => "null",
            "True" => "true",
            "False" => "false",
            literal => literal,
        };
        serde_json::from_str::<Json>(literal).ok()?;
        self.json.push_str(literal);
        Some(())
    }

    /// Reads a string, if one follows.
    fn string(&mut self) -> Option<bool> {
        if self.takes(QUOTE) {
            let (text, rest) = self.rest.split_once(QUOTE)?;
            self.json.push_str(&Json::from(text).to_string());
            self.rest = rest;
            return Some(true);
        }
        if !self.rest.starts_with('"') {
            return Some(false);
        }
        let mut strings = serde_json::Deserializer::from_str(self.rest).into_iter::<String>();
        let text = strings.next()?.ok()?;
        self.json.push_str(&Json::from(text).to_string());
        self.rest = &self.rest[strings.byte_offset()..];
        Some(true)
    }

    /// Reads up to one of these characters, which follows; there is something before it.
    fn bare(&mut self, ends: &[char]) -> Option<&'t str> {
        let (text, rest) = self.rest.split_at(self.rest.find(ends)?);
        self.rest = rest;
        Some(text.trim()).filter(|text| !text.is_empty() && !text.contains(['{', '}', '[', ']', ',', '"', '<']))
    }
}
