//! The call graph: Metal has no recursion, and no function calls a kernel.

use super::translator::Translator;
use std::collections::{BTreeMap, BTreeSet};

/// Functions by their names.
#[derive(Debug, Default)]
pub(super) struct Calls {
    /// The number of functions with a name, and the index of the last.
    defined: BTreeMap<String, (u32, usize)>,
    /// The functions that they call, and the index of each call.
    called: BTreeMap<String, BTreeMap<String, usize>>,
}

impl Translator<'_> {
    /// Records the calls in a function's body. A template counts as several functions.
    pub(super) fn note_calls(&mut self, name: &str, at: usize, from: usize, to: usize, template: bool) {
        let defined = self.calls.defined.entry(name.to_owned()).or_insert((0, at));
        *defined = (defined.0 + if template { 2 } else { 1 }, at);
        for at in from..to {
            let member = at > 0 && matches!(self.text(at - 1), "." | "->" | "::");
            if self.is_word(at) && !member && (self.is(at + 1, "(") || self.is(at + 1, "<")) {
                let callee = self.tokens[at].text.to_string();
                self.calls.called.entry(name.to_owned()).or_default().entry(callee).or_insert(at);
            }
        }
    }

    /// Refuses functions that call themselves, also through others. An overloaded name is not resolved, so it is not
    /// refused.
    pub(super) fn refuse_recursion(&mut self) {
        let single = |name: &&String| self.calls.defined.get(*name).is_some_and(|(count, _)| *count == 1);
        let mut found = Vec::new();
        for (name, (_, at)) in self.calls.defined.iter().filter(|(name, _)| single(name)) {
            let mut seen = BTreeSet::new();
            let mut next = vec![name];
            while let Some(caller) = next.pop() {
                let called = self.calls.called.get(caller).into_iter().flatten();
                for (callee, _) in called.filter(|(callee, _)| single(callee)) {
                    if callee == name {
                        found.push((
                            *at,
                            format!("{name} calls itself, by itself or by others: Metal has no recursion"),
                        ));
                        next.clear();
                        break;
                    }
                    if seen.insert(callee) {
                        next.push(callee);
                    }
                }
            }
        }
        found.into_iter().for_each(|(at, what)| self.problem(at, what));
    }

    pub(super) fn refuse_calls_of_kernels(&mut self) {
        let mut found = Vec::new();
        for (callee, at) in self.calls.called.values().flatten() {
            let single = self.calls.defined.get(callee).is_some_and(|(count, _)| *count == 1);
            if single && self.kernels.contains(callee) {
                found.push((*at, format!("{callee} is a kernel, which no function can call")));
            }
        }
        found.into_iter().for_each(|(at, what)| self.problem(at, what));
    }
}
