//! The Metal Shading Language: translates preprocessed source to C++ for the prelude, in one pass over its tokens. Line
//! numbers are preserved. The translator rejects what the language does not have, with its line. Errors that need types
//! are left to the second check (`opencl.rs`), in which a compiler checks address spaces.
//!
//! [`tokens`] reads and writes tokens. `scope` walks through namespaces and types to `function`, and `body` through
//! bodies. `kernel` and `parameters` create entry points. `pointers`, `words` and `recursion` reject invalid source.

mod attribute;
mod body;
mod function;
mod kernel;
mod opencl;
mod parameters;
mod pointers;
mod preprocess;
mod recursion;
mod scope;
mod tokens;
mod words;

use crate::error::Error;
use crate::{Constant, Source};
pub(crate) use opencl::address_spaces;
pub(crate) use preprocess::preprocess;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fmt::Write;
use tokens::{Kind, Token};

/// The translator's own source, part of the cache key.
pub(crate) const PASS: [&str; 13] = [
    include_str!("attribute.rs"),
    include_str!("body.rs"),
    include_str!("function.rs"),
    include_str!("kernel.rs"),
    include_str!("mod.rs"),
    include_str!("opencl.rs"),
    include_str!("parameters.rs"),
    include_str!("pointers.rs"),
    include_str!("preprocess.rs"),
    include_str!("recursion.rs"),
    include_str!("scope.rs"),
    include_str!("tokens.rs"),
    include_str!("words.rs"),
];

/// The fault of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) file: String,
    pub(crate) line: u32,
    pub(crate) what: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.what)
    }
}

/// Maximum number of reported faults.
const MOST_PROBLEMS: usize = 20;

/// A source's tokens, and the state of the translation.
#[derive(Debug)]
struct Translator<'a> {
    dialect: Dialect,
    tokens: Vec<Token<'a>>,
    /// For each bracket the index of its counterpart; 0 for other tokens.
    matches: Vec<usize>,
    constants: &'a [(u32, Constant)],
    /// Function constants without a value.
    missing: BTreeSet<String>,
    kernels: BTreeSet<String>,
    /// Names of the enclosing types.
    types: Vec<String>,
    /// For OpenCL: types with references in the constant address space.
    constant_types: BTreeSet<String>,
    /// Functions by their headers; those that differ only in address spaces would be one in C++.
    functions: function::Functions,
    templates: BTreeMap<String, kernel::Signature>,
    /// Kernels and instances so far.
    listed: u32,
    calls: recursion::Calls,
    out: Vec<Token<'a>>,
    problems: Vec<(usize, String)>,
}

/// The target of a translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// C++ that runs, without address spaces.
    Cpp,
    /// C++ for OpenCL, in which a compiler checks address spaces. It does not run.
    OpenCl,
}

/// A source as C++.
#[derive(Debug)]
pub(crate) struct Translated {
    /// Macros that name the swizzles of the source, for the prelude.
    pub(crate) swizzles: String,
    pub(crate) text: String,
}

/// Translates preprocessed Metal source.
pub(crate) fn translate(source: &Source, text: &str, dialect: Dialect) -> Result<Translated, Error> {
    let failed = |problems: &[Problem]| {
        let mut log = String::new();
        for problem in problems {
            let _ = writeln!(log, "{problem}");
        }
        Error::Compile { name: source.name.to_owned(), log }
    };
    let read = tokens::read(text).map_err(|problem| failed(&[problem]))?;
    let swizzles = swizzles(&read.list);
    let files = read.files;
    let locate = |token: Option<&Token>, what: String| Problem {
        file: token.map_or("", |token| files[token.file as usize].trim_matches('"')).to_owned(),
        line: token.map_or(0, |token| token.line),
        what,
    };
    let matches = match scope::matches(&read.list) {
        Ok(matches) => matches,
        Err((at, what)) => return Err(failed(&[locate(read.list.get(at), what)])),
    };
    let end = read.list.len();
    let mut translator = Translator {
        dialect,
        tokens: read.list,
        matches,
        constants: source.constants,
        missing: BTreeSet::new(),
        kernels: BTreeSet::new(),
        types: Vec::new(),
        constant_types: BTreeSet::new(),
        functions: function::Functions::default(),
        templates: BTreeMap::new(),
        listed: 0,
        calls: recursion::Calls::default(),
        out: Vec::new(),
        problems: Vec::new(),
    };
    translator.refuse_words();
    translator.find_constant_types();
    translator.scope(0, end, scope::Place::Namespace);
    translator.refuse_recursion();
    translator.refuse_calls_of_kernels();
    let Translator { tokens, out, mut problems, .. } = translator;
    if problems.is_empty() {
        return Ok(Translated { swizzles, text: tokens::write(&out, &files) });
    }
    problems.sort();
    problems.dedup();
    let problems: Vec<Problem> =
        problems.into_iter().take(MOST_PROBLEMS).map(|(at, what)| locate(tokens.get(at), what)).collect();
    Err(failed(&problems))
}

/// The swizzles of a source, as calls of a macro: `S(xy, 0, 1)`, by the last component that one needs.
fn swizzles(tokens: &[Token]) -> String {
    let mut used: [BTreeSet<(String, String)>; 4] = Default::default();
    for pair in tokens.windows(2) {
        let name = &pair[1].text;
        if !pair[0].is(".") || !pair[1].is_word() || !(2..=4).contains(&name.len()) {
            continue;
        }
        let index = |letters: &str| name.chars().map(|c| letters.find(c)).collect::<Option<Vec<usize>>>();
        if let Some(places) = index("xyzw").or_else(|| index("rgba")) {
            let last = places.iter().max().copied().unwrap_or(0);
            let list: Vec<String> = places.iter().map(usize::to_string).collect();
            used[last].insert((name.to_string(), list.join(", ")));
        }
    }
    let mut text = String::new();
    for size in 2..=4 {
        let _ = write!(text, "#define GPU_SIM_SWIZZLES_{size}(S)");
        for (name, places) in used[..size].iter().flatten() {
            let _ = write!(text, " S({name}, {places})");
        }
        text.push('\n');
    }
    text
}

impl<'a> Translator<'a> {
    fn problem(&mut self, at: usize, what: impl Into<String>) {
        // More than are told are not needed.
        if self.problems.len() < 10 * MOST_PROBLEMS {
            self.problems.push((at, what.into()));
        }
    }

    fn is(&self, at: usize, text: &str) -> bool {
        self.tokens.get(at).is_some_and(|token| token.is(text))
    }

    fn text(&self, at: usize) -> &str {
        self.tokens.get(at).map_or("", |token| &token.text)
    }

    fn is_word(&self, at: usize) -> bool {
        self.tokens.get(at).is_some_and(Token::is_word)
    }

    /// The counterpart of the bracket at `at`.
    fn matching(&self, at: usize) -> usize {
        self.matches[at]
    }

    /// Writes generated C++, in the line of a token of the source.
    fn emit(&mut self, at: usize, text: String) {
        let Some(near) = self.tokens.get(at.min(self.tokens.len().saturating_sub(1))) else { return };
        let (file, line) = (near.file, near.line);
        self.out.push(Token { kind: Kind::Word, text: text.into(), file, line, spaced: true });
    }

    /// Writes a token of the source as it is.
    fn keep(&mut self, at: usize) {
        let token = self.tokens[at].clone();
        self.out.push(token);
    }
}

#[cfg(test)]
mod tests;
