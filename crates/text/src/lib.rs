//! Texts on their way into a model and out of it, without the model.
//!
//! ```text
//! messages ── template ──► prompt ── tokenizer ──► tokens
//! tokens ── tokenizer ──► text ── reply ──► reasoning, content, calls of tools
//! grammar ──► which tokens may follow
//! ```

#![forbid(unsafe_code)]

pub mod clock;
pub mod grammar;
pub mod reply;
pub mod template;
pub mod tokenizer;
