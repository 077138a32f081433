//! Namespaces and types: finds the functions in them, and the variables.

use super::kernel::Template;
use super::tokens::{Kind, Token};
use super::translator::{Dialect, Translator};

/// Words that name an address space.
pub(super) const SPACES: &[&str] = &["device", "constant", "thread", "threadgroup"];

/// Brackets cannot be more deeply nested.
const DEPTH: usize = 256;

/// The most tokens of template arguments; without a limit, each `<` would be followed to the end of the source.
const LONGEST: usize = 1_024;

/// The scope of declarations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Namespace,
    Type,
}

/// For each bracket its counterpart. An error has an index and a message.
pub(super) fn matches(tokens: &[Token]) -> Result<Vec<usize>, (usize, String)> {
    let mut matches = vec![0; tokens.len()];
    let mut open: Vec<usize> = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        if token.is("(") || token.is("[") || token.is("{") {
            if open.len() == DEPTH {
                return Err((at, format!("brackets are nested more than {DEPTH} deep")));
            }
            open.push(at);
        }
        let opening = match &*token.text {
            ")" => "(",
            "]" => "[",
            "}" => "{",
            _ => continue,
        };
        if token.kind != Kind::Mark {
            continue;
        }
        match open.pop() {
            Some(other) if tokens[other].is(opening) => {
                matches[at] = other;
                matches[other] = at;
            }
            _ => return Err((at, format!("nothing is open that {:?} closes", token.text))),
        }
    }
    match open.pop() {
        Some(at) => Err((at, format!("nothing closes {:?}", tokens[at].text))),
        None => Ok(matches),
    }
}

impl Translator<'_> {
    /// The declarations between two indices.
    pub(super) fn scope(&mut self, from: usize, to: usize, place: Place) {
        let mut at = from;
        while at < to {
            at = self.declaration(at, to, place).clamp(at + 1, to);
        }
    }

    /// The index after `<…>` that starts at `at`; `None` if it does not end.
    pub(super) fn after_angles(&self, at: usize, to: usize) -> Option<usize> {
        let to = to.min(at + LONGEST);
        let mut depth = 0_usize;
        let mut at = at;
        while at < to {
            match self.text(at) {
                // After a bracket or a number it compares.
                "<" if depth > 0 && (self.is(at - 1, ")") || self.tokens[at - 1].kind == Kind::Number) => {}
                "<" => depth += 1,
                ">" => {
                    depth = depth.checked_sub(1)?;
                    if depth == 0 {
                        return Some(at + 1);
                    }
                }
                ";" | "{" => return None,
                "(" | "[" => at = self.matching(at),
                _ => {}
            }
            at += 1;
        }
        None
    }

    /// The first index from `at` on of one of these tokens outside brackets, else `to`.
    pub(super) fn find(&self, at: usize, to: usize, ends: &[&str]) -> usize {
        let mut at = at;
        while at < to {
            if ends.iter().any(|end| self.is(at, end)) {
                return at;
            }
            if self.is(at, "(") || self.is(at, "[") || self.is(at, "{") {
                at = self.matching(at);
            }
            at += 1;
        }
        to
    }

    /// Translates one declaration. Returns the index after it.
    fn declaration(&mut self, at: usize, to: usize, place: Place) -> usize {
        match self.text(at) {
            ";" => {
                self.keep(at);
                at + 1
            }
            "public" | "private" | "protected" if self.is(at + 1, ":") => {
                self.plain(at, at + 2);
                at + 2
            }
            "namespace" => self.block(at, to, Place::Namespace),
            "using" | "typedef" | "static_assert" | "enum" | "friend" => self.statement(at, to),
            "extern" => {
                self.problem(at, "Metal has no linkage to other translation units: extern");
                self.find(at, to, &[";"]) + 1
            }
            "template" => self.template(at, to, place),
            "struct" | "union" | "class" if self.defines_type(at, to) => self.block(at, to, Place::Type),
            // A type that is defined elsewhere.
            "struct" | "union" | "class" if self.is_word(at + 1) && self.is(at + 2, ";") => self.statement(at, to),
            _ => self.other(at, to, place, None),
        }
    }

    /// Whether `struct` and the like start a type with its members.
    fn defines_type(&self, at: usize, to: usize) -> bool {
        let mut at = at;
        while at < to {
            match self.text(at) {
                "{" => return true,
                ";" | "(" | "=" => return false,
                "alignas" | "__attribute__" if self.is(at + 1, "(") => at = self.matching(at + 1),
                "[" => at = self.matching(at),
                _ => {}
            }
            at += 1;
        }
        false
    }

    /// A namespace or a type with its body.
    fn block(&mut self, at: usize, to: usize, place: Place) -> usize {
        let open = self.find(at, to, &["{", ";"]);
        if !self.is(open, "{") {
            return self.statement(at, to);
        }
        let close = self.matching(open);
        self.plain(at, open + 1);
        let mut name = at + 1;
        while matches!(self.text(name), "alignas" | "__attribute__") && self.is(name + 1, "(") {
            name = self.matching(name + 1) + 1;
        }
        self.types.push(self.text(name).to_owned());
        self.scope(open + 1, close, place);
        if self.dialect == Dialect::OpenCl {
            self.copies_of_constants(close);
        }
        self.types.pop();
        self.keep(close);
        if place == Place::Namespace {
            return close + 1;
        }
        let end = self.find(close + 1, to, &[";"]);
        if end > close + 1 {
            self.problem(close + 1, "a variable declared with its type: declare the type by itself");
        }
        self.plain(close + 1, end);
        if end < to {
            self.keep(end);
        }
        end + 1
    }

    /// Copies up to a semicolon, without translation.
    fn statement(&mut self, at: usize, to: usize) -> usize {
        let end = self.find(at, to, &[";"]);
        self.check_types(at, end);
        self.plain(at, (end + 1).min(to));
        end + 1
    }

    fn template(&mut self, at: usize, to: usize, place: Place) -> usize {
        if !self.is(at + 1, "<") {
            let end = self.find(at, to, &[";", "{"]);
            if (at..end).any(|at| self.is(at, "kernel")) {
                self.instance(at, end);
                return end + 1;
            }
            return self.statement(at, to);
        }
        let Some(after) = self.after_angles(at + 1, to) else {
            self.problem(at, "the template's parameters do not end");
            return to;
        };
        let written = self.out.len();
        self.plain(at, after);
        if matches!(self.text(after), "struct" | "union" | "class") && self.defines_type(after, to) {
            return self.block(after, to, Place::Type);
        }
        if matches!(self.text(after), "struct" | "union" | "class") && self.is(self.find(after, to, &[";", "("]), ";") {
            return self.statement(after, to);
        }
        match self.text(after) {
            "using" => self.statement(after, to),
            "template" => {
                self.problem(after, "a template in a template is not simulated");
                to
            }
            _ => self.other(after, to, place, Some(Template { from: at + 2, to: after - 1, written })),
        }
    }

    /// A function or a variable, perhaps of a template.
    fn other(&mut self, at: usize, to: usize, place: Place, template: Option<Template>) -> usize {
        if let Some(function) = self.function_at(at, to) {
            let is_kernel = (at..function.open).any(|at| self.is(at, "kernel"));
            return match is_kernel {
                true if place == Place::Type => {
                    self.problem(at, "a kernel cannot be a member of a type");
                    to
                }
                true => self.kernel(function, template),
                false => self.function(function, place, template.map_or(self.out.len(), |template| template.written)),
            };
        }
        let end = self.find(at, to, &[";"]);
        self.variable(at, end, place);
        if end < to {
            self.keep(end);
        }
        end + 1
    }

    /// A variable outside of functions, without its semicolon.
    fn variable(&mut self, from: usize, to: usize, place: Place) {
        if from >= to {
            return;
        }
        let value = self.find(from, to, &["=", "{"]);
        self.check_types(from, value);
        let attributes = (from..value).find(|&at| self.is_attribute(at));
        if let Some(at) = attributes {
            let (attributes, _) = self.attributes(at);
            if attributes.iter().any(|attribute| attribute.name == "function_constant") {
                return self.function_constant(from, at, to, &attributes);
            }
            self.refuse_attributes(&attributes, &[], "a variable");
        }
        let has = |word: &str| (from..value).any(|at| self.is(at, word));
        let points = (from..value).any(|at| self.is(at, "*") || self.is(at, "&"));
        let lacks = !has("constant") && (place == Place::Namespace || has("static"));
        if !points && ["device", "thread", "threadgroup"].iter().any(|space| has(space)) {
            let what = "a variable in this address space can be declared in functions only (threadgroup: in kernels)";
            self.problem(from, what);
        } else if lacks && self.is_word(from) {
            self.problem(from, "a variable outside of functions must be in the address space constant");
        } else if lacks {
            self.problem(from, "a declaration begins with a name");
        }
        self.plain(from, to);
    }

    /// `constant T name [[function_constant(n)]]`, whose value the host sets.
    fn function_constant(&mut self, from: usize, at: usize, to: usize, attributes: &[super::attribute::Attribute]) {
        self.refuse_attributes(attributes, &["function_constant"], "a function constant");
        let Some(attribute) = attributes.iter().find(|attribute| attribute.name == "function_constant") else { return };
        let Some(number) = self.number(attribute) else { return };
        let words: Vec<String> = (from..at).map(|at| self.text(at).to_owned()).collect();
        let [space, ty, name] = words.as_slice() else {
            self.problem(from, "a function constant is declared as: constant type name [[function_constant(n)]]");
            return;
        };
        if space != "constant" || self.matching(at) + 1 != to {
            self.problem(from, "a function constant is in the address space constant and has no value of its own");
        }
        match self.constants.iter().find(|(known, _)| *known == number) {
            Some((_, value)) if value.type_name() == ty => {
                let space = self.constant_word();
                self.emit(from, format!("static {space} {ty} {name} = {}", value.literal()));
            }
            Some((_, value)) => {
                let what = format!("function constant {number} is a {ty}, and was given a {}", value.type_name());
                self.problem(from, what);
            }
            None => {
                let asked = (1..self.tokens.len().saturating_sub(1)).any(|at| {
                    self.is(at, name)
                        && self.is(at - 1, "(")
                        && self.is(at.wrapping_sub(2), "is_function_constant_defined")
                });
                if !asked {
                    self.problem(from, format!("function constant {number}, {name}, was given no value"));
                }
                let space = self.constant_word();
                self.emit(from, format!("static {space} {ty} {name} = {ty}()"));
                self.missing.insert(name.clone());
            }
        }
    }
}
