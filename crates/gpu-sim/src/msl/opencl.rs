//! The second check of Metal source. As C++ for OpenCL it keeps its address spaces, and Clang rejects a pointer to the
//! wrong one. The result never runs.

use super::function::Function;
use super::preprocess::preprocess;
use super::scope::SPACES;
use super::tokens::Kind;
use super::translate::{Translated, translate};
use super::translator::{Dialect, Translator};
use crate::compile;
use crate::error::{Error, Result};
use crate::source::Source;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

const COMPILERS: &[&str] = &["clang-14", "clang", "clang-15", "clang-16", "clang-17", "clang-18", "clang-19"];

const FLAGS: &[&str] = &[
    "-x",
    "clcpp",
    "-cl-std=clc++",
    "-cl-no-stdinc",
    "-cl-single-precision-constant",
    "-target",
    "spir64",
    "-fsyntax-only",
    "-w",
];

/// Declarations of Metal's built-ins.
const PRELUDE: &str = include_str!("../../include/metal_opencl.h");

/// Words of OpenCL that are names in Metal.
const RENAMED: &[&str] = &["global", "local", "generic", "pipe", "read_only", "write_only", "read_write", "vec_step"];

/// Scalar types that have vector types.
const SCALARS: &[&str] =
    &["bool", "char", "uchar", "short", "ushort", "int", "uint", "long", "ulong", "half", "bfloat", "float"];

/// The first Clang that is installed, and its version line.
fn clang() -> Result<&'static (&'static str, String)> {
    static FOUND: OnceLock<Option<(&'static str, String)>> = OnceLock::new();
    let found = FOUND.get_or_init(|| compile::first_that_answers(COMPILERS));
    found.as_ref().ok_or(Error::NoClang { tried: COMPILERS })
}

/// Fails if a Metal source confuses two address spaces. The folder `cache` records sources that passed.
pub(crate) fn address_spaces(source: &Source, cache: &Path) -> Result<()> {
    let (clang, version) = clang()?;
    let with = [version.as_str(), PRELUDE].into_iter().chain(FLAGS.iter().copied());
    let path = cache.join(format!("{}.spaces", compile::key(source, with)));
    if path.exists() {
        return Ok(());
    }
    let (compiler, _) = compile::compiler()?;
    let Translated { swizzles: _, text } = translate(source, &preprocess(compiler, source)?, Dialect::OpenCl)?;
    let text = format!("#line 1 \"gpu-sim/metal_opencl.h\"\n{PRELUDE}\n{text}");
    let failed = |source| Error::Cache { path: path.clone(), source };
    std::fs::create_dir_all(cache).map_err(failed)?;
    let from = path.with_extension(format!("{}.clcpp", std::process::id()));
    std::fs::write(&from, &text).map_err(failed)?;
    let output = Command::new(clang).args(FLAGS).arg(&from).output();
    let _ = std::fs::remove_file(&from);
    let output = output.map_err(failed)?;
    if !output.status.success() {
        let log = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(Error::Compile { name: source.name.to_owned(), log });
    }
    std::fs::write(&path, "").map_err(failed)
}

/// Whether a name of Metal has another meaning in OpenCL.
fn is_renamed(name: &str) -> bool {
    RENAMED.contains(&name) || name.starts_with("atomic_")
}

fn is_vector(name: &str) -> bool {
    let scalar = name.trim_end_matches(['2', '3', '4']);
    name.len() == scalar.len() + 1 && SCALARS.contains(&scalar)
}

impl Translator<'_> {
    /// The address space of constants outside of functions.
    pub(super) fn constant_word(&self) -> &'static str {
        if self.dialect == Dialect::Cpp { "const" } else { "__constant" }
    }

    /// A name of the source as the dialect has it.
    pub(super) fn name(&self, at: usize) -> String {
        match self.text(at) {
            name if self.dialect == Dialect::OpenCl && is_renamed(name) => format!("gpu_sim_{name}"),
            name => name.to_owned(),
        }
    }

    /// Copies the token at `at` to C++ for OpenCL. Returns the index of the next.
    pub(super) fn copy_for_opencl(&mut self, at: usize, to: usize) -> usize {
        let token = &self.tokens[at];
        let text = token.text.to_string();
        if token.kind == Kind::Number {
            match text.strip_suffix("bf").or_else(|| text.strip_suffix("BF")) {
                Some(number) => self.emit(at, format!("{number}f")),
                None => self.keep(at),
            }
        } else if token.kind != Kind::Word {
            self.keep(at);
        } else if SPACES.contains(&text.as_str()) {
            let space = match text.as_str() {
                "device" => "__global",
                "constant" => "__constant",
                "threadgroup" => "__local",
                _ => "__private",
            };
            self.emit(at, space.to_owned());
        } else if is_renamed(&text) {
            self.emit(at, self.name(at));
        } else if is_vector(&text) && self.is(at + 1, "(") && at + 1 < to {
            // A vector of several parts is a literal of OpenCL; of one part it may be a conversion.
            if self.split(at + 2, self.matching(at + 1)).len() > 1 {
                self.emit(at, format!("({text})"));
            } else {
                self.emit(at, format!("gpu_sim_make<{text}>"));
            }
        } else {
            self.keep(at);
        }
        at + 1
    }

    /// The types with references in the constant address space.
    pub(super) fn find_constant_types(&mut self) {
        for window in self.tokens.windows(3) {
            let [before, ty, after] = window else { continue };
            if (before.is("constant") || before.is("const")) && ty.is_word() && after.is("&") {
                self.constant_types.insert(ty.text.to_string());
            }
        }
    }

    /// Writes how a type of which there are constants is copied from one: in Metal by itself, in OpenCL by a
    /// constructor of its own.
    pub(super) fn copies_of_constants(&mut self, close: usize) {
        let Some(ty) = self.types.last().cloned() else { return };
        if self.constant_types.contains(&ty) {
            let text = format!(
                "{ty}() = default; {ty}(const {ty}&) = default; {ty}(const __constant {ty}&); \
                 {ty}& operator=(const {ty}&) = default; {ty}& operator=(const __constant {ty}&);"
            );
            self.emit(close, text);
        }
    }

    /// Writes the address space of the object of a member function: `thread` in Metal unless it says another, anything
    /// in OpenCL.
    pub(super) fn object_space(&mut self, function: Function) {
        let Function { begin, name, close, body, .. } = function;
        let has = |from: usize, to: usize, words: &[&str]| (from..to).any(|at| words.contains(&self.text(at)));
        let constructs = self.types.last().is_some_and(|ty| ty == self.text(name));
        if !constructs && !has(begin, name, &["static", "friend", "~"]) && !has(close, body, SPACES) {
            self.emit(close, "__private".to_owned());
        }
    }
}
