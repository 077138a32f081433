//! A key as a line of text: `KEY [NAME] [rpm=N] [concurrent=N]`.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest, Sha256};
use thiserror::Error;

/// The most bytes of a name.
const MOST_NAME_BYTES: usize = 64;

/// A key of a client. Only its hash is kept.
#[derive(Clone, PartialEq, Eq)]
pub struct Key {
    pub(super) digest: [u8; 32],
    pub(super) name: Option<String>,
    pub(super) limits: KeyLimits,
}

/// What the clients of a key may request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyLimits {
    /// Requests per minute, which can arrive at the same time.
    pub requests_per_minute: Option<u32>,
    /// Requests at a time, running or waiting.
    pub concurrent: Option<u32>,
}

/// Why a line is not a valid key.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum KeyError {
    /// There is no key.
    #[error("there is no key; write KEY NAME")]
    Empty,
    /// More words than a key and a name.
    #[error(
        "has more than a key, a name and limits; write KEY NAME rpm=N concurrent=N, and comments in lines that start \
         with #"
    )]
    Words,
    /// A limit that does not exist.
    #[error("{0}: there is no such limit; write rpm=N or concurrent=N")]
    Limit(String),
    /// A limit whose value is no number, or 0.
    #[error("{0}: the limit is not a whole number of at least 1; write a number, or leave the limit out")]
    Number(String),
    /// A name that a log cannot show.
    #[error("the name has control characters or more than {MOST_NAME_BYTES} bytes; choose another")]
    Name,
}

impl Key {
    /// A key without a name and limits.
    pub fn new(secret: &str) -> Key {
        Key { digest: Sha256::digest(secret).into(), name: None, limits: KeyLimits::default() }
    }

    /// Whether both have the same secret.
    pub fn is_same(&self, other: &Key) -> bool {
        self.digest == other.digest
    }

    /// Whether both have the same name, and so are one tenant, but different limits.
    pub fn contradicts(&self, other: &Key) -> bool {
        self.name.is_some() && self.name == other.name && self.limits != other.limits
    }
}

impl From<&str> for Key {
    fn from(secret: &str) -> Key {
        Key::new(secret)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key").field("name", &self.name).field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl FromStr for Key {
    type Err = KeyError;

    /// Reads `KEY [NAME] [rpm=N] [concurrent=N]`. A key may have any characters but white space; a name has no `=`.
    fn from_str(line: &str) -> Result<Key, KeyError> {
        let mut words = line.split_whitespace();
        let mut key = Key::new(words.next().ok_or(KeyError::Empty)?);
        for word in words {
            match word.split_once('=') {
                Some(limit) => key.limits.set(limit)?,
                None if key.name.is_some() || word.starts_with('#') => return Err(KeyError::Words),
                None if word.len() > MOST_NAME_BYTES || word.contains(char::is_control) => return Err(KeyError::Name),
                None => key.name = Some(word.to_owned()),
            }
        }
        Ok(key)
    }
}

impl KeyLimits {
    fn set(&mut self, (name, value): (&str, &str)) -> Result<(), KeyError> {
        let limit = match name {
            "rpm" => &mut self.requests_per_minute,
            "concurrent" => &mut self.concurrent,
            _ => return Err(KeyError::Limit(name.to_owned())),
        };
        let number = value.parse().ok().filter(|&number: &u32| number > 0);
        *limit = Some(number.ok_or_else(|| KeyError::Number(name.to_owned()))?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read() {
        let limits = |rpm, concurrent| KeyLimits { requests_per_minute: rpm, concurrent };
        for (line, name, expected) in [
            ("k", None, limits(None, None)),
            ("k=v anna", Some("anna"), limits(None, None)),
            (" k  anna rpm=60 concurrent=4", Some("anna"), limits(Some(60), Some(4))),
            ("k concurrent=1\tzo\u{eb}", Some("zo\u{eb}"), limits(None, Some(1))),
        ] {
            let key: Key = line.parse().expect("a key");
            assert_eq!((key.name.as_deref(), key.limits), (name, expected), "{line}");
            assert_eq!(key.digest, Key::new(line.split_whitespace().next().expect("a word")).digest);
        }
        let number = |name: &str| KeyError::Number(name.to_owned());
        for (line, error) in [
            ("", KeyError::Empty),
            ("k anna ben", KeyError::Words),
            ("k # comment", KeyError::Words),
            ("k #comment", KeyError::Words),
            ("k rate=5", KeyError::Limit("rate".to_owned())),
            ("k rpm=0", number("rpm")),
            ("k concurrent=-1", number("concurrent")),
            ("k rpm=", number("rpm")),
            (&format!("k {}", "n".repeat(65)), KeyError::Name),
        ] {
            assert_eq!(line.parse::<Key>(), Err(error), "{line}");
        }
    }

    #[test]
    fn a_key_is_not_shown() {
        let shown = format!("{:?}", "sekret anna".parse::<Key>().expect("a key"));
        assert!(shown.contains("anna") && !shown.contains("sekret"), "{shown}");
    }
}
