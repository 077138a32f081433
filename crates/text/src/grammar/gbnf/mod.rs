//! GBNF, the grammars of llama.cpp's server, in Lark.
//!
//! `parse` reads the text, `lexemes` decides which expressions are lexemes (`automaton`, `set`), `write` writes Lark.
//!
//! # GBNF becomes Lark
//!
//! llguidance reads lexemes and takes the longest match, but GBNF means all derivations. So lexemes are single
//! characters, except where an expression without recursion has one possible end. There, no following text continues
//! the expression, and no other lexeme starts like it (`gbnf/lexemes.rs`, found by automata). *A text is accepted if
//! and only if the grammar derives it; checked by random grammars against a recogniser.*

mod automaton;
mod convert;
mod lexemes;
mod parse;
mod set;
#[cfg(test)]
mod tests;
mod write;

pub(super) use convert::{is_gbnf, lark};
