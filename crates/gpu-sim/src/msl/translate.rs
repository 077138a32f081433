//! Translates preprocessed Metal source.

use super::function::Functions;
use super::problem::Problem;
use super::recursion::Calls;
use super::tokens::Token;
use super::translator::{Dialect, MOST_PROBLEMS, Translator};
use super::{scope, tokens};
use crate::error::Error;
use crate::source::Source;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// The translator's own source, part of the cache key.
pub(crate) const PASS: [&str; 16] = [
    include_str!("attribute.rs"),
    include_str!("body.rs"),
    include_str!("function.rs"),
    include_str!("kernel.rs"),
    include_str!("mod.rs"),
    include_str!("opencl.rs"),
    include_str!("parameters.rs"),
    include_str!("pointers.rs"),
    include_str!("preprocess.rs"),
    include_str!("problem.rs"),
    include_str!("recursion.rs"),
    include_str!("scope.rs"),
    include_str!("tokens.rs"),
    include_str!("translate.rs"),
    include_str!("translator.rs"),
    include_str!("words.rs"),
];

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
        functions: Functions::default(),
        templates: BTreeMap::new(),
        listed: 0,
        calls: Calls::default(),
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
