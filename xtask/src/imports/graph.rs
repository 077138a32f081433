//! The modules of a crate and what they import, read from their tokens.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use super::cycles::Edges;

/// A path in the source, such as `super::error::Error`.
type Names = Vec<String>;

/// The modules of a crate by their paths from its root, which is the empty path.
#[derive(Default)]
pub(super) struct Graph {
    modules: BTreeMap<Names, Module>,
}

/// What a file names.
#[derive(Default)]
struct Module {
    /// Names that `use` declares, and what they are.
    declared: BTreeMap<String, Names>,
    /// All paths of more than one name.
    paths: BTreeSet<Names>,
    /// Whether the file is a `mod.rs` that declares modules and defines more than that.
    is_mixed_index: bool,
}

/// Words that start the definition of an item. A macro is none, and what it writes is not read.
const ITEMS: [&str; 9] = ["struct", "enum", "union", "trait", "impl", "fn", "const", "static", "type"];

impl Graph {
    /// Reads the files of a crate.
    pub(super) fn read(folder: &Path) -> Result<Graph, String> {
        let mut graph = Graph::default();
        graph.read_folder(folder, &[])?;
        Ok(graph)
    }

    fn read_folder(&mut self, folder: &Path, at: &[String]) -> Result<(), String> {
        let failed = |error| format!("{}: {error}", folder.display());
        for entry in fs::read_dir(folder).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let inner = [at, std::slice::from_ref(&stem)].concat();
            match () {
                () if stem == "tests" => {}
                () if path.is_dir() => self.read_folder(&path, &inner)?,
                () if path.extension().is_some_and(|end| end == "rs") => {
                    let is_own = ["mod", "lib", "main"].contains(&stem.as_str());
                    let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
                    let module = self.add(if is_own { at.to_vec() } else { inner }, &text)?;
                    module.is_mixed_index &= stem == "mod";
                }
                () => {}
            }
        }
        Ok(())
    }

    fn add(&mut self, at: Names, text: &str) -> Result<&mut Module, String> {
        let tokens = text.parse::<TokenStream>().map_err(|error| format!("{}: {error}", at.join("::")))?;
        let module = self.modules.entry(at).or_default();
        let [declares, defines] = index_parts(&tokens.clone().into_iter().collect::<Vec<_>>());
        module.is_mixed_index = declares && defines;
        module.read(tokens);
        Ok(module)
    }

    /// The `mod.rs` that are not only an index, by their paths.
    pub(super) fn mixed_indexes(&self) -> impl Iterator<Item = String> {
        self.modules.iter().filter(|(_, module)| module.is_mixed_index).map(|(at, _)| at.join("/"))
    }

    /// Which module imports from which, by path.
    pub(super) fn edges(&self) -> Edges {
        let name = |at: &Names| if at.is_empty() { "crate".to_owned() } else { at.join("::") };
        let mut edges = Edges::new();
        for (at, module) in &self.modules {
            let targets = module.paths.iter().filter_map(|path| self.defined_in(at, path, 0));
            edges
                .entry(name(at))
                .or_default()
                .extend(targets.filter(|target| target != at).map(|target| name(&target)));
        }
        edges
    }

    /// The module that defines what a path in module `at` names; `None` for other crates, and for modules themselves.
    fn defined_in(&self, at: &Names, path: &[String], depth: usize) -> Option<Names> {
        let mut at = at.clone();
        let mut path = path;
        let mut is_first = true;
        // A name that declares itself has no end.
        if depth > 16 {
            return None;
        }
        while let [name, rest @ ..] = path {
            let child = [at.as_slice(), std::slice::from_ref(name)].concat();
            match name.as_str() {
                "crate" => at.clear(),
                "self" => {}
                "super" => drop(at.pop()),
                _ if self.modules.contains_key(&child) => at = child,
                _ => {
                    return match self.modules.get(&at)?.declared.get(name) {
                        Some(declared) => self.defined_in(&at, &[declared.as_slice(), rest].concat(), depth + 1),
                        // The first name of a path that is declared nowhere is another crate.
                        None if is_first && !rest.is_empty() => None,
                        None => Some(at),
                    };
                }
            }
            (path, is_first) = (rest, false);
        }
        None
    }
}

impl Module {
    fn read(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            match token {
                TokenTree::Punct(punct) if punct.as_char() == '#' && is_test(&tokens, at + 1) => {
                    at = end_of_item(&tokens, at + 1);
                }
                // `$crate` in the body of a macro is of the code that the macro writes.
                TokenTree::Punct(punct) if punct.as_char() == '$' => at = path(&tokens, at + 1).1.max(at + 1) - 1,
                TokenTree::Ident(ident) if ident == "use" => at = self.read_use(&tokens, at + 1, &[]),
                TokenTree::Ident(_) => {
                    let (path, end) = path(&tokens, at);
                    if path.len() > 1 {
                        self.paths.insert(path);
                    }
                    at = end - 1;
                }
                TokenTree::Group(group) => self.read(group.stream()),
                _ => {}
            }
            at += 1;
        }
    }

    /// Reads one tree of a `use`, and returns the place after it.
    fn read_use(&mut self, tokens: &[TokenTree], at: usize, before: &[String]) -> usize {
        let at = at + usize::from(is_colons(tokens, at)) * 2;
        let (names, mut end) = path(tokens, at);
        let mut names = [before, &names].concat();
        match tokens.get(end) {
            Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
                let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                let mut from = 0;
                while from < inner.len() {
                    from = self.read_use(&inner, from, &names) + 1;
                }
                return end + 1;
            }
            // Of everything that a module has, it is what the module itself defines.
            Some(TokenTree::Punct(punct)) if punct.as_char() == '*' => {
                names.push("*".to_owned());
                self.paths.insert(names);
                return end + 1;
            }
            _ => {}
        }
        if names.len() > 1 && names.last().is_some_and(|name| name == "self") {
            names.pop();
        }
        let mut alias = names.last().cloned().filter(|_| names.len() > 1);
        if let Some(TokenTree::Ident(ident)) = tokens.get(end)
            && ident == "as"
        {
            alias = tokens.get(end + 1).map(ToString::to_string);
            end += 2;
        }
        if let Some(alias) = alias.filter(|alias| alias != "_") {
            self.declared.insert(alias, names.clone());
        }
        self.paths.insert(names);
        end
    }
}

/// Whether a file declares modules, and whether it defines items. Tests are left out.
fn index_parts(tokens: &[TokenTree]) -> [bool; 2] {
    let mut parts = [false; 2];
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        match token {
            TokenTree::Punct(punct) if punct.as_char() == '#' && is_test(tokens, at + 1) => {
                at = end_of_item(tokens, at + 1);
            }
            TokenTree::Ident(ident) if ident == "use" => at = end_of_item(tokens, at),
            TokenTree::Ident(ident) if ident == "mod" => parts[0] = true,
            TokenTree::Ident(ident) if ITEMS.iter().any(|item| ident == item) => parts[1] = true,
            _ => {}
        }
        at += 1;
    }
    parts
}

/// Whether the attribute at a token is that of tests.
fn is_test(tokens: &[TokenTree], at: usize) -> bool {
    let attribute = tokens.get(at).map(ToString::to_string).unwrap_or_default().replace(' ', "");
    ["[cfg(test)]", "[cfg(all(test,"].iter().any(|start| attribute.starts_with(start))
}

/// The names of a path that starts at a token, and the place after it: a `::` before a brace or an asterisk belongs to it.
fn path(tokens: &[TokenTree], mut at: usize) -> (Names, usize) {
    let mut names = Names::new();
    while let Some(TokenTree::Ident(ident)) = tokens.get(at) {
        names.push(ident.to_string());
        at += 1;
        if !is_colons(tokens, at) {
            break;
        }
        at += 2;
    }
    (names, at)
}

fn is_colons(tokens: &[TokenTree], at: usize) -> bool {
    let is_colon = |at| matches!(tokens.get(at), Some(TokenTree::Punct(punct)) if punct.as_char() == ':');
    is_colon(at) && is_colon(at + 1)
}

/// The last token of the item after an attribute: its braces, or a semicolon.
fn end_of_item(tokens: &[TokenTree], from: usize) -> usize {
    let is_end = |token: &TokenTree| match token {
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        TokenTree::Punct(punct) => punct.as_char() == ';',
        _ => false,
    };
    tokens[from..].iter().position(is_end).map_or(tokens.len(), |end| from + end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edges(files: &[(&str, &str)]) -> Vec<String> {
        let mut graph = Graph::default();
        for (at, text) in files {
            graph.add(at.split("::").filter(|name| !name.is_empty()).map(str::to_owned).collect(), text).expect("Rust");
        }
        let edges = graph.edges().into_iter();
        edges.flat_map(|(from, to)| to.into_iter().map(move |to| format!("{from} > {to}"))).collect()
    }

    #[test]
    fn an_index_declares_modules_and_defines_nothing() {
        for (text, expected) in [
            ("mod a; pub use a::{One, Two}; #[cfg(test)] mod tests { const A: u8 = 0; }", [true, false]),
            ("mod a; macro_rules! write { () => { struct One; } } write!();", [true, false]),
            ("mod a; use a::One; struct Two(One);", [true, true]),
            ("mod a; impl a::One { fn f() {} }", [true, true]),
            ("//! A leaf.\nstruct One;", [false, true]),
        ] {
            let tokens: Vec<TokenTree> = text.parse::<TokenStream>().expect("Rust").into_iter().collect();
            assert_eq!(index_parts(&tokens), expected, "{text}");
        }
    }

    #[test]
    fn names_are_followed_to_where_they_are_defined() {
        let index =
            ("", "mod a; mod b; pub use a::{Deep as Flat, One}; pub use b::inner; pub use other_crate as other;");
        let inner = ("b::inner", "pub struct Inner;");
        let b = ("b", "pub mod inner;");
        for (user, expected) in [
            ("use crate::One;", vec!["user > a"]),
            ("use super::{Flat, b::inner::Inner};", vec!["user > a", "user > b::inner"]),
            ("use crate::inner::{self, Inner as Other};", vec!["user > b::inner"]),
            ("use crate::inner; fn f() { inner::f() }", vec!["user > b::inner"]),
            ("use crate::inner;", vec![]),
            ("use crate::a::*; use std::fmt::{self, Display}; fn f() { fmt::f() }", vec!["user > a"]),
            ("fn f() { let _ = vec![crate::One::new()]; }", vec!["user > a"]),
            ("#[cfg(test)] mod tests { use crate::One; } use crate::b::X;", vec!["user > b"]),
            ("#[cfg(test)] use crate::One;", vec![]),
            ("#[cfg(all(test, unix))] mod tests { use super::One; }", vec![]),
            ("use crate::LOCAL; use crate::other::Name;", vec!["user > crate"]),
        ] {
            let files = [index, ("a", "pub struct One; pub struct Deep;"), b, inner, ("user", user)];
            let found = edges(&files);
            // The index imports both, and is imported by neither.
            let found: Vec<&String> = found.iter().filter(|edge| edge.starts_with("user")).collect();
            assert_eq!(found, expected, "{user}");
        }
    }
}
