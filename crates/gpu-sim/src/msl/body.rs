//! Function bodies, and other tokens that are copied without address spaces and attributes.

use super::scope::SPACES;
use super::translator::{Dialect, Translator};

/// Specifiers with which a variable in threadgroup memory may start, next to `threadgroup` itself.
const SPECIFIERS: &[&str] = &["const", "volatile", "static", "constexpr", "inline"];

impl Translator<'_> {
    /// Copies tokens without attributes. In C++ also without address spaces; `constant` becomes `const`.
    pub(super) fn plain(&mut self, from: usize, to: usize) {
        let mut at = from;
        while at < to {
            at = self.copy(at, to);
        }
    }

    /// Copies the token at `at`. Returns the index of the next.
    fn copy(&mut self, at: usize, to: usize) -> usize {
        if self.is_attribute(at) {
            let (attributes, after) = self.attributes(at);
            self.refuse_attributes(&attributes, &[], "this");
            return after;
        }
        if self.is(at, "is_function_constant_defined") && self.is(at + 1, "(") {
            let defined = !self.missing.contains(self.text(at + 2));
            self.emit(at, if defined { "true" } else { "false" }.to_owned());
            return self.matching(at + 1) + 1;
        }
        let text = self.text(at);
        if SPACES.contains(&text) && at > 0 && matches!(self.text(at - 1), "." | "->" | "::") {
            self.problem(at, format!("{text} is a keyword"));
        } else if self.dialect == Dialect::OpenCl {
            return self.copy_for_opencl(at, to);
        } else if !SPACES.contains(&text) {
            self.keep(at);
        } else if text == "constant" && !self.is_const(at, to) {
            self.emit(at, "const".to_owned());
        }
        at + 1
    }

    /// Whether the type with `constant` at `at` also has `const`, or an earlier `constant`.
    fn is_const(&self, at: usize, to: usize) -> bool {
        let mut before = at;
        while before > 0 && (self.is_word(before - 1) || self.is(before - 1, "::")) {
            before -= 1;
            if self.is(before, "const") || self.is(before, "constant") {
                return true;
            }
        }
        let mut after = at + 1;
        while after < to {
            match self.text(after) {
                "const" => return true,
                "<" => match self.after_angles(after, to) {
                    Some(end) => after = end - 1,
                    None => return false,
                },
                "::" => {}
                _ if self.is_word(after) => {}
                _ => return false,
            }
            after += 1;
        }
        false
    }

    /// The body of a function, from its opening brace to after its closing brace.
    pub(super) fn body(&mut self, from: usize, to: usize, in_kernel: bool) {
        let mut at = from;
        let mut begins = false;
        while at < to {
            if begins {
                self.check_local(at, to);
                if let Some(end) = self.threadgroup_variables(at, to, in_kernel) {
                    at = end;
                    continue;
                }
                if self.is(at, "static") && !self.is(at + 1, "constant") && !self.is(at + 1, "constexpr") {
                    self.problem(at, "Metal has no static variables in functions");
                }
            }
            begins = matches!(self.text(at), ";" | "{" | "}" | "else" | "do")
                || self.is(at, "(") && at > 0 && self.is(at - 1, "for");
            self.check_abstract(at);
            at = self.copy(at, to);
        }
    }

    /// The index of the semicolon of a declaration in threadgroup memory; `None` if there is no declaration.
    fn threadgroup_variables(&mut self, from: usize, to: usize, in_kernel: bool) -> Option<usize> {
        let mut space = from;
        while SPECIFIERS.contains(&self.text(space)) {
            space += 1;
        }
        // `float threadgroup x` is rare, and is found by what follows the word.
        let first = self.find(from, to, &[";", "=", ",", "*", "&", ":"]);
        let space = match self.is(space, "threadgroup") {
            true => space,
            false => (from..first).find(|&at| self.is(at, "threadgroup") && self.is_word(at.saturating_sub(1)))?,
        };
        let end = self.find(from, to, &[";"]);
        let mut declarator = space + 1;
        // The type: words and `::` up to the last word before a bracket, a comma or the end.
        let mut name = None;
        while declarator < end {
            match self.text(declarator) {
                "*" | "&" => return None,
                "<" => declarator = self.after_angles(declarator, end)? - 1,
                "::" => {}
                _ if self.is_word(declarator) => name = Some(declarator),
                _ => break,
            }
            declarator += 1;
        }
        let Some(name) = name.filter(|&name| name + 1 == declarator && name > from) else {
            self.problem(space, "a declaration of threadgroup memory that is not understood");
            return None;
        };
        if !in_kernel {
            self.problem(space, "variables in threadgroup memory can be declared in kernels only");
        }
        let mut ty = String::new();
        for at in from..name {
            match self.text(at) {
                "threadgroup" | "static" | "volatile" => {}
                "const" | "constexpr" => self.problem(at, "a constant in threadgroup memory"),
                _ => {
                    ty.push_str(&self.name(at));
                    ty.push(' ');
                }
            }
        }
        if ty.is_empty() {
            self.problem(space, "a variable in threadgroup memory without a type");
        }
        let mut at = name;
        loop {
            let next = self.find(at, end, &[","]);
            let variable = self.name(at);
            if !self.is_word(at) {
                self.problem(at, "a variable in threadgroup memory has no name");
                break;
            }
            let mut dimensions = at + 1;
            while dimensions < next && self.is(dimensions, "[") && !self.is_attribute(dimensions) {
                dimensions = self.matching(dimensions) + 1;
            }
            if dimensions != next {
                self.problem(dimensions, "a variable in threadgroup memory cannot be initialised");
            }
            let ty = format!("typedef {ty}{variable}_gpu_sim_type");
            let (before, after) = match self.dialect {
                Dialect::Cpp => (
                    format!("struct {variable}_gpu_sim {{}}; {ty}"),
                    format!(
                        "; {variable}_gpu_sim_type& {variable} = gpu_sim::shared_variable<{variable}_gpu_sim, \
                         {variable}_gpu_sim_type>({{__builtin_FILE(), (gpu_sim::u32)__builtin_LINE(), nullptr}})"
                    ),
                ),
                Dialect::OpenCl => (
                    ty,
                    format!(
                        "; __local {variable}_gpu_sim_type& {variable} = *(__local {variable}_gpu_sim_type*)gpu_sim_threadgroup_memory()"
                    ),
                ),
            };
            self.emit(at, before);
            self.plain(at + 1, dimensions.min(next));
            self.emit(at, after);
            if next >= end {
                break;
            }
            self.emit(at, ";".to_owned());
            at = next + 1;
        }
        Some(end)
    }
}
