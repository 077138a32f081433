//! Kernel sources: `*.cu` is compiled for CUDA, `*.metal` for Metal, `*.gpu` for both; the rest is included. Every
//! implementer of [`crate::Gpu`] compiles what [`expand`] gives, so a GPU's compiler and a simulator see the same
//! lines. A source that includes the name of a [shared struct](mod@crate::shared_struct) gets its declaration.
//!
//! # Kernel sources
//!
//! A `*.gpu` file is compiled for both GPUs, in the macros of `device.h`. Matrices, experts and attention have one
//! source for each GPU, because CUDA needs int8 and tensor cores, and Metal needs floats. A unit is a file with
//! definitions (`FORMAT=Q4_K`). It includes the blocks of only that format, so a change of one format recompiles only
//! the kernels of that format. *Metal does not guarantee that an unbound argument is null, so a field states which
//! arguments are bound. No float atomics.*

use crate::shared_struct::StructLayout;
use crate::{Unit, common};
use gristmill_kernels::format::{self, Format};
use std::fmt::Write;

/// The kernel sources of a crate.
#[derive(Clone, Copy, Debug)]
pub struct Library {
    /// The crate, whose folder `src/kernels` has the files.
    pub krate: &'static str,
    /// The file of a GPU's own crate that spells [`LANGUAGE`].
    pub language: Option<&'static str>,
    /// Names and contents.
    pub files: &'static [(&'static str, &'static str)],
    /// The structs that the host fills.
    pub structs: &'static [StructLayout],
}

/// Makes a [`Library`] of files in `src/kernels` next to the file that calls it.
#[macro_export]
macro_rules! library {
    ($krate:literal, language $language:expr, $structs:expr, [$($file:literal),* $(,)?]) => {
        $crate::source::Library {
            krate: $krate,
            language: $language,
            files: &[$(($file, include_str!(concat!("kernels/", $file))),)*],
            structs: $structs,
        }
    };
}

/// Sources that all GPUs share.
pub const COMMON: Library = library!("gpu", language None, common::SHARED_STRUCTS,
    [
        "act.h",
        "activation.h",
        "activations.gpu",
        "add_norm.h",
        "argmax.h",
        "causal_conv.gpu",
        "delta_rule.gpu",
        "device.h",
        "elementwise.h",
        "embed.gpu",
        "epilogue.h",
        "exponential.h",
        "float64.h",
        "gated_norm.h",
        "group.gpu",
        "group.h",
        "kept_row.h",
        "kv.gpu",
        "kv.h",
        "multiply_act.h",
        "norm.h",
        "norm_act.h",
        "order.h",
        "product.h",
        "latent_write.gpu",
        "qkv_write.gpu",
        "quad.h",
        "quantise.h",
        "reduce.h",
        "rope.h",
        "route.gpu",
        "route.h",
        "route_and_group.h",
        "route_lanes.h",
        "rows.gpu",
        "runs.h",
        "sample.gpu",
        "sample.h",
        "selective_scan.gpu",
        "weight.h",
    ]
);

/// The name by which a source includes the macros and intrinsics of the GPU that it is compiled for.
pub const LANGUAGE: &str = "language.h";

/// The name by which a source includes the blocks of the format that its unit is compiled for: the one that the unit
/// defines as `FORMAT`.
pub const FORMAT: &str = "format.h";

/// The source of a unit: its file with every inclusion expanded once, with `#line` directives so that a compiler's
/// message names the right file and line. A file in `instead`
/// replaces a library's file of the same name. `None` if the file, or a file that it includes, is missing.
pub fn expand(unit: &Unit, libraries: &[Library], instead: &[(&str, &str)]) -> Option<String> {
    let mut expansion = Expansion { unit, libraries, instead, seen: Vec::new(), out: String::new() };
    expansion.include(unit.file)?;
    Some(expansion.out)
}

/// What a compiler makes machine code of: a source without comments, blank lines, white space around lines, and `#line`
/// directives. Sources that are equal in this form compile to the same machine code, as no kernel reads line numbers.
pub fn significant(source: &str) -> String {
    let mut text = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find(['/', '"', '\'']) {
        let (before, from) = rest.split_at(at);
        text.push_str(before);
        let taken = match from.as_bytes() {
            [b'/', b'/', ..] => from.find('\n').unwrap_or(from.len()),
            [b'/', b'*', ..] => {
                text.push(' ');
                from[2..].find("*/").map_or(from.len(), |end| end + 4)
            }
            [quote @ (b'"' | b'\''), ..] => {
                let taken = literal(from, *quote);
                text.push_str(&from[..taken]);
                taken
            }
            _ => {
                text.push('/');
                1
            }
        };
        rest = &from[taken..];
    }
    text.push_str(rest);
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("#line "));
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// Bytes of the literal that a text starts with. A quote between digits separates them, and its "literal" ends with it.
fn literal(text: &str, quote: u8) -> usize {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'\n' => return 1,
            byte if byte == quote => return at + 1,
            _ => {}
        }
    }
    1
}

struct Expansion<'a> {
    unit: &'a Unit,
    libraries: &'a [Library],
    instead: &'a [(&'a str, &'a str)],
    seen: Vec<&'a str>,
    out: String,
}

impl<'a> Expansion<'a> {
    fn include(&mut self, name: &'a str) -> Option<()> {
        if let Some(layout) = self.shared_struct(name) {
            self.declare(layout);
            return Some(());
        }
        let (name, content) = self.find(name)?;
        if self.seen.contains(&name) {
            return Some(());
        }
        self.seen.push(name);
        let _ = writeln!(self.out, "#line 1 \"{name}\"");
        for (number, line) in content.lines().enumerate() {
            match line.strip_prefix("#include \"").and_then(|rest| rest.split_once('"')) {
                Some((inner, _)) => {
                    self.include(inner)?;
                    let _ = writeln!(self.out, "#line {} \"{name}\"", number + 2);
                }
                None if line == "#pragma once" => self.out.push('\n'),
                None => {
                    self.out.push_str(line);
                    self.out.push('\n');
                }
            }
        }
        Some(())
    }

    fn shared_struct(&self, name: &str) -> Option<&'a StructLayout> {
        self.libraries.iter().flat_map(|library| library.structs).find(|layout| layout.name == name)
    }

    /// Declares a struct of the host once, after those of its fields.
    fn declare(&mut self, layout: &'a StructLayout) {
        if self.seen.contains(&layout.name) {
            return;
        }
        self.seen.push(layout.name);
        layout.types().filter_map(|name| self.shared_struct(name)).collect::<Vec<_>>().into_iter().for_each(|inner| {
            self.declare(inner);
        });
        layout.declare(&mut self.out);
    }

    /// A file's own name and its content.
    fn find(&self, name: &'a str) -> Option<(&'a str, &'a str)> {
        let name = match name {
            LANGUAGE => self.libraries.iter().find_map(|library| library.language)?,
            FORMAT => Format::named(self.unit.define("FORMAT")?)?.gpu_source().0,
            name => name,
        };
        let shared = format::gpu_sources().iter().map(|(name, content)| (*name, content.as_str()));
        let formats = Format::ALL.iter().map(|format| format.gpu_source()).chain(shared);
        let files = self.libraries.iter().flat_map(|library| library.files.iter().copied());
        self.instead.iter().copied().chain(files).chain(formats).find(|(known, _)| *known == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_lines_are_not_significant() {
        let one = "#line 1 \"a\"\n// A comment.\nint x = 1'000; // of x\n\n  f(\"// no \\\"comment\", '\"'); /* a\nb */ y / z\n";
        let expected = "int x = 1'000;\nf(\"// no \\\"comment\", '\"');   y / z\n";
        assert_eq!(significant(one), expected);
        let other = "int x = 1'000;\n#line 7 \"b\"\n    f(\"// no \\\"comment\", '\"'); /**/ y / z // end";
        assert_eq!(significant(other), expected);
        for changed in ["int x = 1'001;", "int x = 1'000; /", "f(\"// a comment\", '\"');"] {
            assert_ne!(significant(changed), significant(one));
        }
        assert_eq!(["", "/* open", "'", "// x"].map(significant), ["", "", "'\n", ""]);
    }

    /// What is left of every source has its code: no quote or comment confuses the reader.
    #[test]
    fn sources_keep_their_code() {
        for (name, content) in COMMON.files {
            let kept = significant(content);
            let words = |text: &str| text.matches([';', '{']).count();
            let code: String = content.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
            assert!(words(&kept) <= words(content) && words(&kept) * 10 >= words(&code) * 9, "{name}");
            assert!(!kept.contains("// ") && significant(&kept) == kept, "{name}");
        }
    }

    #[test]
    fn lines_are_those_of_the_files() {
        let instead = [("a", "first\n#include \"b\"\nthird\n#include \"b\"\n"), ("b", "#pragma once\nother\n")];
        let expected = "#line 1 \"a\"\nfirst\n#line 1 \"b\"\n\nother\n#line 3 \"a\"\nthird\n#line 5 \"a\"\n";
        let unit = |file| Unit { file, defines: Vec::new() };
        assert_eq!(expand(&unit("a"), &[], &instead).as_deref(), Some(expected));
        assert_eq!(expand(&unit("c"), &[], &instead), None);
    }
}
