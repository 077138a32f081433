//! Why a grammar cannot be used.

use std::io;

use thiserror::Error;

/// Why a grammar cannot be used. Every message says what was wrong, where, and what to do.
#[derive(Debug, Error)]
pub enum GrammarError {
    /// A keyword of a JSON schema is not enforced or not valid, and the text would not be what the schema says.
    #[error("the JSON schema{}: {problem}", at(path))]
    Schema {
        /// The JSON pointer of the keyword, or of the schema; empty for the whole.
        path: String,
        /// The reason.
        problem: String,
    },
    /// The grammar is not valid or too large, or following it costs too much, for this reason.
    #[error("the grammar cannot be used: {0}")]
    Refused(String),
    /// No token continues the text as its grammar asks.
    #[error("the grammar allows no token of the model at this position; change the grammar")]
    Stuck,
    /// The system cannot start a thread to compile on.
    #[error("cannot start a thread for the grammar: {0}")]
    Thread(#[source] io::Error),
}

/// The place that a pointer names, if it is not the whole schema.
fn at(path: &str) -> String {
    if path.is_empty() { String::new() } else { format!(" at \"{path}\"") }
}
