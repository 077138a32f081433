//! Grammars that a generated text must follow.
//!
//! ```text
//! Grammar ─ schema (checks, rewrites), lark, gbnf ─► llguidance ──► Matcher, owned by the job
//! tokenizer ── vocabulary (once per engine) ──────────┘              │ before sampling: mask; after it: accept
//! ```
//! Compiling happens on a thread of the caller, masks are computed on the engine's thread. Of llguidance only its
//! parser is used: its `TokenParser` and `Matcher` install a panic hook, which is the process's own.

mod annotations;
mod applied;
mod budget;
mod closed;
mod compile;
mod constant;
mod discriminator;
mod ecma;
mod error;
mod expression;
mod gbnf;
mod guarded;
mod lark;
mod lookahead;
mod matcher;
mod names;
mod pointer;
mod schema;
mod text;
mod unique;
mod value;
mod vocabulary;
mod weight;
mod words;

#[cfg(test)]
mod tests;

pub use closed::closed_schema;
pub use compile::{Grammar, Grammars, check_schemas};
pub use error::GrammarError;
pub use matcher::Matcher;
