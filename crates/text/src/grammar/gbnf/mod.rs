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
mod lexemes;
mod parse;
mod set;
mod write;

#[cfg(test)]
mod tests;

use super::GrammarError;
use lexemes::Lexemes;

/// The grammar in llguidance's dialect of Lark.
///
/// # Errors
/// [`GrammarError::Refused`] with the line.
pub(super) fn lark(text: &str) -> Result<String, GrammarError> {
    let grammar = parse::parse(text)?;
    Ok(write::lark(&grammar, &Lexemes::new(&grammar)))
}

/// Whether a grammar is written in GBNF: its first rule has `::=`.
pub(super) fn is_gbnf(text: &str) -> bool {
    let mut lines = text.lines().map(str::trim_start);
    let first = lines.find(|line| !line.is_empty() && !line.starts_with('#') && !line.starts_with("//"));
    let name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let rest = first.map(|line| line.trim_start_matches(name).trim_start());
    rest.is_some_and(|rest| rest.starts_with("::=") || rest.is_empty() && text.contains("::="))
}
