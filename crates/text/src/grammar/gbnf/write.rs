//! Writes a grammar in Lark: lexemes as terminals, everything else as rules. Each expression has a definition of its
//! own, because Lark's groups may be nested less deep.

use std::collections::HashMap;
use std::fmt::Write;

use super::lexemes::Lexemes;
use super::parse::{Grammar, Id, Node};

/// The grammar in Lark.
pub(super) fn lark(grammar: &Grammar, lexemes: &Lexemes) -> String {
    let mut writer = Writer { grammar, lexemes, names: HashMap::new(), lines: Vec::new() };
    let root = writer.name(grammar.rules[grammar.root], Kind::Rule);
    let mut text = format!("start: {root}\n");
    writer.lines.iter().for_each(|line| text.extend([line, "\n"]));
    text
}

/// What a definition is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Rule,
    /// A part of a lexeme.
    Terminal,
}

struct Writer<'g> {
    grammar: &'g Grammar,
    lexemes: &'g Lexemes,
    /// The names of expressions that are written or being written.
    names: HashMap<(Id, Kind), String>,
    lines: Vec<String>,
}

impl Writer<'_> {
    /// The name of an expression, or the expression if it is short; it may be repeated.
    fn name(&mut self, node: Id, kind: Kind) -> String {
        match &self.grammar.nodes[node] {
            Node::Class(ranges) => return class(ranges),
            Node::Token(token) => return token.clone(),
            Node::Rule(rule) if kind == Kind::Terminal => return self.name(self.grammar.rules[*rule], kind),
            Node::Sequence(_) | Node::Choice(_) | Node::Repeat(..) | Node::Rule(_) => {}
        }
        if let Some(name) = self.names.get(&(node, kind)) {
            return name.clone();
        }
        let number = self.names.len();
        let name = if kind == Kind::Rule { format!("r{number}") } else { format!("T{number}") };
        self.names.insert((node, kind), name.clone());
        let body = match kind {
            Kind::Rule if self.lexemes.is_lexeme(self.grammar, node) => {
                let terminal = self.name(node, Kind::Terminal);
                // A lexeme has a character at least.
                self.lines.push(format!("L{number}: {terminal} & /(?s:.+)/"));
                match self.lexemes.is_nullable(self.grammar, node) {
                    true => format!("L{number}?"),
                    false => format!("L{number}"),
                }
            }
            _ => self.body(node, kind),
        };
        self.lines.push(format!("{name}: {body}"));
        name
    }

    fn body(&mut self, node: Id, kind: Kind) -> String {
        match &self.grammar.nodes[node] {
            Node::Class(_) | Node::Token(_) => self.name(node, kind),
            Node::Rule(rule) => self.name(self.grammar.rules[*rule], kind),
            Node::Sequence(parts) if parts.is_empty() => "\"\"".to_owned(),
            Node::Sequence(parts) => parts.iter().map(|&part| self.name(part, kind)).collect::<Vec<_>>().join(" "),
            Node::Choice(alternatives) => {
                alternatives.iter().map(|&part| self.name(part, kind)).collect::<Vec<_>>().join(" | ")
            }
            Node::Repeat(part, least, most) => {
                let part = self.name(*part, kind);
                match (least, most) {
                    (_, Some(0)) => "\"\"".to_owned(),
                    (0, None) => format!("{part}*"),
                    (1, None) => format!("{part}+"),
                    (0, Some(1)) => format!("{part}?"),
                    (least, None) => format!("{part}{{{least},}}"),
                    (least, Some(most)) => format!("{part}{{{least},{most}}}"),
                }
            }
        }
    }
}

/// A class as a regular expression.
fn class(ranges: &[(char, char)]) -> String {
    let mut text = "/[".to_owned();
    for &(first, last) in ranges {
        // Writing to a text does not fail.
        let _ = write!(text, "\\u{{{:x}}}-\\u{{{:x}}}", u32::from(first), u32::from(last));
    }
    text + "]/"
}
