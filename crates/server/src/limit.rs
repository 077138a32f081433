//! The most tokens to generate, as requests have it.

use serde::Deserialize;
use serde::de::{Deserializer, Error, Unexpected, Visitor};

/// The most tokens to generate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenLimit {
    Tokens(usize),
    /// Written as -1: only the context limits the reply.
    Context,
}

impl TokenLimit {
    /// The number of tokens; `None` if only the context limits the reply.
    pub(crate) fn tokens(self) -> Option<usize> {
        match self {
            TokenLimit::Tokens(tokens) => Some(tokens),
            TokenLimit::Context => None,
        }
    }
}

const RULE: &str = "a whole number that is at least 1, or -1 for no limit but the context,";

impl<'de> Deserialize<'de> for TokenLimit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<TokenLimit, D::Error> {
        struct Limit;
        impl Visitor<'_> for Limit {
            type Value = TokenLimit;
            fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
                f.write_str(RULE)
            }
            fn visit_u64<E: Error>(self, tokens: u64) -> Result<TokenLimit, E> {
                Ok(TokenLimit::Tokens(usize::try_from(tokens).unwrap_or(usize::MAX)))
            }
            fn visit_i64<E: Error>(self, tokens: i64) -> Result<TokenLimit, E> {
                match tokens {
                    -1 => Ok(TokenLimit::Context),
                    wrong => match usize::try_from(wrong) {
                        Ok(tokens) => Ok(TokenLimit::Tokens(tokens)),
                        Err(_) => Err(E::invalid_value(Unexpected::Signed(wrong), &self)),
                    },
                }
            }
            fn visit_f64<E: Error>(self, tokens: f64) -> Result<TokenLimit, E> {
                Err(E::invalid_type(Unexpected::Float(tokens), &self))
            }
        }
        deserializer.deserialize_any(Limit)
    }
}
