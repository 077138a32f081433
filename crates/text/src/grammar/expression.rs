//! Grammars as parts of others.

use super::compile::check_regex;
use super::{Grammar, GrammarError, gbnf};

impl Grammar {
    /// The expression of this grammar in a rule of a grammar in Lark.
    ///
    /// # Errors
    /// [`GrammarError::Refused`] if a regular expression is not complete, or a grammar in GBNF not valid.
    pub fn expression(&self) -> Result<String, GrammarError> {
        match self {
            Grammar::Json => Ok(r#"%json {"type": "object"}"#.to_owned()),
            Grammar::JsonSchema(schema) => Ok(format!("%json {schema}")),
            Grammar::Lark(text) => Ok(nested(text)),
            Grammar::Gbnf(text) => gbnf::lark(text).map(|text| nested(&text)),
            Grammar::Regex(text) => {
                check_regex(text)?;
                Ok(format!("/{}/", delimited(text)))
            }
        }
    }
}

/// A grammar in Lark within another.
fn nested(text: &str) -> String {
    format!("%lark {{\n{text}\n}}")
}

/// A regular expression between slashes.
fn delimited(regex: &str) -> String {
    let mut delimited = String::with_capacity(regex.len());
    let mut is_escaped = false;
    for c in regex.chars() {
        if c == '/' && !is_escaped {
            delimited.push('\\');
        }
        delimited.push(c);
        is_escaped = c == '\\' && !is_escaped;
    }
    delimited
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slashes_are_escaped_once() {
        for (regex, expected) in [("a/b", r"a\/b"), (r"a\/b", r"a\/b"), (r"\\/", r"\\\/"), ("[/]", r"[\/]"), ("é", "é")]
        {
            assert_eq!(delimited(regex), expected);
        }
    }
}
