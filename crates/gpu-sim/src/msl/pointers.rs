//! Checks that pointers and references name their address space. The translator recognises types only by their syntax,
//! so it checks certain cases and leaves the rest to the compiler with address spaces.

use super::scope::SPACES;
use super::translator::Translator;

/// Words that are not followed by a type.
const NO_TYPES: &[&str] = &[
    "return",
    "case",
    "if",
    "else",
    "do",
    "while",
    "for",
    "switch",
    "sizeof",
    "break",
    "continue",
    "default",
    "struct",
    "class",
    "union",
    "enum",
    "template",
    "operator",
    "static_assert",
];

impl Translator<'_> {
    fn is_star(&self, at: usize) -> bool {
        self.is(at, "*") || self.is(at, "&")
    }

    /// Whether the type before `*` or `&` at `at` names an address space.
    fn has_space(&self, at: usize) -> bool {
        let mut at = at;
        while at > 0 {
            at -= 1;
            match self.text(at) {
                text if SPACES.contains(&text) => return true,
                "::" | "..." => {}
                ">" => {
                    let mut depth = 0_usize;
                    loop {
                        match self.text(at) {
                            ">" => depth += 1,
                            "<" => depth -= 1,
                            ")" | "]" => at = self.matching(at),
                            ";" | "{" | "}" => return false,
                            _ => {}
                        }
                        if depth == 0 {
                            break;
                        }
                        let Some(before) = at.checked_sub(1) else { return false };
                        at = before;
                    }
                }
                ")" if self.matching(at) > 0 && self.is(self.matching(at) - 1, "decltype") => at = self.matching(at),
                _ if self.is_word(at) => {}
                _ => return false,
            }
        }
        false
    }

    fn check_star(&mut self, at: usize) {
        if !self.has_space(at) {
            let what = if self.is(at, "*") { "pointer" } else { "reference" };
            self.problem(at, format!("a {what} without an address space: device, constant, threadgroup or thread"));
        }
    }

    /// `*` or `&` before `>`, `,` or `)` ends a type.
    pub(super) fn check_abstract(&mut self, at: usize) {
        let ends = self.is(at + 1, ">") || self.is(at + 1, ",") || self.is(at + 1, ")");
        let Some(before) = at.checked_sub(1) else { return };
        if self.is_star(at) && ends && (self.is_word(before) || self.is(before, ">") || self.is_star(before)) {
            let operator = self.is(before, "operator");
            if !operator {
                self.check_star(at);
            }
        }
    }

    /// A declaration outside of functions up to a place: every `*` and `&` outside of parentheses and template
    /// arguments is part of a type.
    pub(super) fn check_types(&mut self, from: usize, to: usize) {
        let mut at = from;
        while at < to {
            match self.text(at) {
                "(" | "[" | "{" => {
                    let end = self.matching(at);
                    (at..end.min(to)).for_each(|at| self.check_abstract(at));
                    at = end;
                }
                "<" => {
                    if let Some(after) = self.after_angles(at, to) {
                        (at..after).for_each(|at| self.check_abstract(at));
                        at = after - 1;
                    }
                }
                "*" | "&" if at > from && !self.is(at - 1, "operator") && !self.is(at - 1, "=") => self.check_star(at),
                _ => {}
            }
            at += 1;
        }
    }

    /// The parameters of a function.
    pub(super) fn check_parameters(&mut self, open: usize, close: usize) {
        for (from, to) in self.split(open + 1, close) {
            let end = self.find(from, to, &["="]);
            let end = (from..end).find(|&at| self.is_attribute(at)).unwrap_or(end);
            self.check_types(from, end);
        }
    }

    /// A statement that declares a pointer or a reference.
    pub(super) fn check_local(&mut self, from: usize, to: usize) {
        if self.is(from, "using") || self.is(from, "typedef") {
            let end = self.find(from, to, &[";"]);
            return self.check_types(from, end);
        }
        let mut at = from;
        while !self.is_star(at) {
            match self.text(at) {
                "::" => {}
                "<" if at > from => match self.after_angles(at, to) {
                    Some(after) => at = after - 1,
                    None => return,
                },
                word if self.is_word(at) && !NO_TYPES.contains(&word) => {}
                _ => return,
            }
            at += 1;
        }
        if at == from {
            return;
        }
        let first = at;
        while self.is_star(at) || self.is(at, "const") || SPACES.contains(&self.text(at)) {
            at += 1;
        }
        let declares = ["=", ";", ",", "[", "{", ":"].iter().any(|end| self.is(at + 1, end));
        if self.is_word(at) && declares {
            (first..at)
                .filter(|&at| self.is_star(at))
                .collect::<Vec<_>>()
                .into_iter()
                .for_each(|at| self.check_star(at));
        }
    }
}
