//! The state of a translation.

use super::function::Functions;
use super::kernel::Signature;
use super::recursion::Calls;
use super::tokens::{Kind, Token};
use crate::source::Constant;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of reported faults.
pub(super) const MOST_PROBLEMS: usize = 20;

/// A source's tokens, and the state of the translation.
#[derive(Debug)]
pub(super) struct Translator<'a> {
    pub(super) dialect: Dialect,
    pub(super) tokens: Vec<Token<'a>>,
    /// For each bracket the index of its counterpart; 0 for other tokens.
    pub(super) matches: Vec<usize>,
    pub(super) constants: &'a [(u32, Constant)],
    /// Function constants without a value.
    pub(super) missing: BTreeSet<String>,
    pub(super) kernels: BTreeSet<String>,
    /// Names of the enclosing types.
    pub(super) types: Vec<String>,
    /// For OpenCL: types with references in the constant address space.
    pub(super) constant_types: BTreeSet<String>,
    /// Functions by their headers; those that differ only in address spaces would be one in C++.
    pub(super) functions: Functions,
    pub(super) templates: BTreeMap<String, Signature>,
    /// Kernels and instances so far.
    pub(super) listed: u32,
    pub(super) calls: Calls,
    pub(super) out: Vec<Token<'a>>,
    pub(super) problems: Vec<(usize, String)>,
}

/// The target of a translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// C++ that runs, without address spaces.
    Cpp,
    /// C++ for OpenCL, in which a compiler checks address spaces. It does not run.
    OpenCl,
}

impl<'a> Translator<'a> {
    pub(super) fn problem(&mut self, at: usize, what: impl Into<String>) {
        // More than are told are not needed.
        if self.problems.len() < 10 * MOST_PROBLEMS {
            self.problems.push((at, what.into()));
        }
    }

    pub(super) fn is(&self, at: usize, text: &str) -> bool {
        self.tokens.get(at).is_some_and(|token| token.is(text))
    }

    pub(super) fn text(&self, at: usize) -> &str {
        self.tokens.get(at).map_or("", |token| &token.text)
    }

    pub(super) fn is_word(&self, at: usize) -> bool {
        self.tokens.get(at).is_some_and(Token::is_word)
    }

    /// The counterpart of the bracket at `at`.
    pub(super) fn matching(&self, at: usize) -> usize {
        self.matches[at]
    }

    /// Writes generated C++, in the line of a token of the source.
    pub(super) fn emit(&mut self, at: usize, text: String) {
        let Some(near) = self.tokens.get(at.min(self.tokens.len().saturating_sub(1))) else { return };
        let (file, line) = (near.file, near.line);
        self.out.push(Token { kind: Kind::Word, text: text.into(), file, line, spaced: true });
    }

    /// Writes a token of the source as it is.
    pub(super) fn keep(&mut self, at: usize) {
        let token = self.tokens[at].clone();
        self.out.push(token);
    }
}
