//! The most tokens of a reply and of its reasoning, as requests have them.

use serde::Deserialize;
use serde::de::{Deserializer, Error, Unexpected, Visitor};
use utoipa::ToSchema;

/// The most tokens of a reply, or of its reasoning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenLimit {
    Tokens(usize),
    /// Written as -1: no limit but the context.
    Context,
}

impl TokenLimit {
    /// The number of tokens; `None` for no limit.
    pub(crate) fn tokens(self) -> Option<usize> {
        match self {
            TokenLimit::Tokens(tokens) => Some(tokens),
            TokenLimit::Context => None,
        }
    }
}

/// A limit on reasoning, by the names that other servers have for it.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub(crate) struct BudgetFields {
    /// The most tokens of reasoning, at which it is ended; 0 for none, -1 for no limit.
    #[serde(alias = "reasoning_budget", alias = "thinking_token_budget", alias = "thinking_budget_tokens")]
    #[serde(alias = "reasoning_budget_tokens")]
    #[schema(value_type = Option<i64>, minimum = -1)]
    thinking_budget: Option<TokenLimit>,
}

impl BudgetFields {
    /// The most tokens of reasoning.
    pub(crate) fn tokens(&self) -> Option<usize> {
        self.thinking_budget.and_then(TokenLimit::tokens)
    }
}

const RULE: &str = "a number of tokens, or -1 for no limit,";

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
