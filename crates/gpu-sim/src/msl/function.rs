//! Functions that are not kernels: where they start and end, and overloads that differ only in address spaces.

use super::scope::{Place, SPACES};
use super::tokens::Token;
use super::translator::{Dialect, Translator};
use std::collections::HashMap;

/// A function by its header without address spaces: its address spaces, and its body.
pub(super) type Functions = HashMap<String, (String, String)>;

/// The parts of a function, as indices of tokens.
#[derive(Clone, Copy, Debug)]
pub(super) struct Function {
    /// Start of specifiers, result and name.
    pub(super) begin: usize,
    /// The last token of the name; of an operator the word `operator`.
    pub(super) name: usize,
    /// The parentheses of the parameters.
    pub(super) open: usize,
    pub(super) close: usize,
    /// The brace of the body, or the semicolon.
    pub(super) body: usize,
}

impl Translator<'_> {
    /// The parts of the function that starts at `at`, if one does.
    pub(super) fn function_at(&self, begin: usize, to: usize) -> Option<Function> {
        let mut at = begin;
        let (name, open) = loop {
            if at >= to {
                return None;
            }
            match self.text(at) {
                ";" | "=" | "{" | "}" => return None,
                "operator" => {
                    let after = if self.is(at + 1, "(") { self.matching(at + 1) + 1 } else { at + 1 };
                    let open = (after..to).find(|&at| self.is(at, "("))?;
                    break (at, open);
                }
                "__attribute__" | "alignas" | "decltype" if self.is(at + 1, "(") => at = self.matching(at + 1),
                "[" => at = self.matching(at),
                "<" => at = self.after_angles(at, to)? - 1,
                "(" if at > begin => break (at - 1, at),
                "(" => return None,
                _ => {}
            }
            at += 1;
        };
        let close = self.matching(open);
        let mut body = close + 1;
        let mut initialises = false;
        while body < to {
            match self.text(body) {
                ";" => break,
                // `x{1}` among the initialisers of a constructor; its body comes after `)` or `}`.
                "{" if initialises && self.is_word(body - 1) => body = self.matching(body),
                "{" => break,
                ":" => initialises = true,
                "(" | "[" => body = self.matching(body),
                _ => {}
            }
            body += 1;
        }
        (body < to).then_some(Function { begin, name, open, close, body })
    }

    /// Translates a function that is not a kernel; `first` is its first written token. Returns the index after it.
    pub(super) fn function(&mut self, function: Function, place: Place, first: usize) -> usize {
        let Function { begin, name, open, close, body } = function;
        let defined = self.is(body, "{");
        // A variable with arguments for its constructor looks like a function without a body.
        if !defined && place == Place::Namespace && self.is(begin, "constant") {
            self.plain(begin, body + 1);
            return body + 1;
        }
        self.check_types(begin, open);
        self.check_parameters(open, close);
        self.plain(begin, open);
        self.function_parameters(open, close);
        if place == Place::Type && self.dialect == Dialect::OpenCl {
            self.object_space(function);
        }
        let constructs = place == Place::Type && self.types.last().is_some_and(|ty| ty == self.text(name));
        match self.dialect == Dialect::Cpp && constructs && self.is(close + 1, "constant") {
            // In C++ no constructor is `const`.
            true => self.plain(close + 2, body),
            false => self.plain(close + 1, body),
        }
        if !defined {
            self.keep(body);
            return body + 1;
        }
        let end = self.matching(body);
        let header = self.out.len();
        self.body(body, end + 1, false);
        let own = self.text(name).to_owned();
        if place == Place::Namespace && own != "operator" {
            self.note_calls(&own, name, body, end, self.is(begin.saturating_sub(1), ">"));
        }
        if self.dialect == Dialect::Cpp {
            self.keep_one(first, header, begin, body);
        }
        end + 1
    }

    /// Functions that differ only in address spaces are one in C++; the first is kept.
    fn keep_one(&mut self, first: usize, header: usize, begin: usize, body: usize) {
        let join = |tokens: &[Token]| tokens.iter().fold(String::new(), |text, token| text + &token.text + " ");
        let [head, text] = [&self.out[first..header], &self.out[header..]].map(join);
        let head = self.types.join("::") + " " + &head;
        let spaces = (begin..body).filter(|&at| SPACES.contains(&self.text(at)));
        let spaces = spaces.fold(String::new(), |text, at| text + &format!("{}{} ", self.text(at), at - begin));
        match self.functions.get(&head) {
            Some((other, _)) if *other == spaces => {}
            Some((_, known)) if *known == text => self.out.truncate(first),
            Some(_) => {
                let what = "functions that differ in address spaces alone must have the same body in the simulator";
                self.problem(begin, what);
            }
            None => {
                self.functions.insert(head, (spaces, text));
            }
        }
    }
}
