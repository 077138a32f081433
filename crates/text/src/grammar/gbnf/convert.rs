//! From GBNF to Lark.

use super::lexemes::Lexemes;
use crate::grammar::GrammarError;

/// The grammar in llguidance's dialect of Lark.
///
/// # Errors
/// [`GrammarError::Refused`] with the line.
pub(crate) fn lark(text: &str) -> Result<String, GrammarError> {
    let grammar = super::parse::parse(text)?;
    Ok(super::write::lark(&grammar, &Lexemes::new(&grammar)))
}

/// Whether a grammar is written in GBNF: its first rule has `::=`.
pub(crate) fn is_gbnf(text: &str) -> bool {
    let mut lines = text.lines().map(str::trim_start);
    let first = lines.find(|line| !line.is_empty() && !line.starts_with('#') && !line.starts_with("//"));
    let name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let rest = first.map(|line| line.trim_start_matches(name).trim_start());
    rest.is_some_and(|rest| rest.starts_with("::=") || rest.is_empty() && text.contains("::="))
}
