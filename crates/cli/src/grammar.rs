//! The grammar of the answer: a JSON schema, a grammar or a regular expression.

use std::path::{Path, PathBuf};

use clap::Args;
use gristmill_engine::{Grammar, closed_schema};

use crate::console;
use crate::failure::Failure;

/// A grammar of the answer.
#[derive(Args)]
pub(crate) struct GrammarArgs {
    /// The answer is JSON that is valid for this schema: a file, or the schema itself, which starts with a brace.
    /// Keywords that cannot be enforced are refused. Objects have the listed properties, and others only if the schema
    /// allows them.
    #[arg(long, value_name = "SCHEMA", help_heading = "Form of the answer")]
    json_schema: Option<String>,
    /// The answer matches the grammar in this file: GBNF with the first rule `root`, or llguidance's dialect of Lark
    /// with the first rule `start`.
    #[arg(long, value_name = "FILE", conflicts_with = "json_schema", help_heading = "Form of the answer")]
    grammar: Option<PathBuf>,
    /// The whole answer matches this regular expression.
    #[arg(long, value_name = "REGEX", allow_hyphen_values = true, conflicts_with_all = ["json_schema", "grammar"], help_heading = "Form of the answer")]
    regex: Option<String>,
}

impl GrammarArgs {
    /// Reads the grammar, if there is one; the engine compiles it.
    pub(crate) fn read(&self) -> Result<Option<Grammar>, Failure> {
        Ok(match self {
            GrammarArgs { json_schema: Some(schema), .. } => Some(Grammar::JsonSchema(closed_schema(json(schema)?))),
            GrammarArgs { grammar: Some(path), .. } => {
                Some(Grammar::of_text(console::read_text(path, console::LONGEST_FORM)?))
            }
            GrammarArgs { regex: Some(regex), .. } => Some(Grammar::Regex(regex.clone())),
            _ => None,
        })
    }
}

/// The schema, or the file with the schema.
fn json(given: &str) -> Result<serde_json::Value, Failure> {
    let (text, place) = match given.trim_start().starts_with('{') {
        true => (given.to_owned(), "--json-schema".to_owned()),
        false => (console::read_text(Path::new(given), console::LONGEST_FORM)?, given.to_owned()),
    };
    serde_json::from_str(&text).map_err(|error| Failure::new(format!("{place} is not valid JSON: {error}")))
}
