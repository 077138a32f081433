//! Preprocesses Metal source with the system's C++ compiler.

use crate::error::{Error, Result};
use crate::source::Source;
use std::io::Write;
use std::process::{Command, Stdio};

/// Headers that a source may include; the prelude replaces all of them.
const HEADERS: &[&str] = &[
    "metal_stdlib",
    "metal_atomic",
    "metal_common",
    "metal_compute",
    "metal_geometric",
    "metal_integer",
    "metal_limits",
    "metal_math",
    "metal_matrix",
    "metal_numeric",
    "metal_pack",
    "metal_relational",
    "metal_simdgroup",
    "metal_simdgroup_matrix",
    "metal_types",
    "metal_type_traits",
];

/// Definitions of MSL 3.1, without those of the host.
const FLAGS: &[&str] =
    &["-E", "-x", "c++", "-std=c++17", "-undef", "-nostdinc", "-w", "-D__METAL__=1", "-D__METAL_VERSION__=310"];

/// The header that a line includes, if it is one of Metal's.
fn header(line: &str) -> Option<&str> {
    let name = line.trim().strip_prefix('#')?.trim_start().strip_prefix("include")?.trim_start();
    let name = name.strip_prefix('<')?.split_once('>')?.0.trim();
    HEADERS.iter().find(|known| **known == name).copied()
}

/// A source without comments, macros and directives. Line markers give the origin.
pub(crate) fn preprocess(compiler: &str, source: &Source) -> Result<String> {
    let failed = |log: String| Error::Compile { name: source.name.to_owned(), log };
    let io = |error: std::io::Error| failed(format!("{compiler} does not run: {error}"));
    let mut text = format!("#line 1 \"{}\"\n", source.name);
    let mut includes = false;
    for line in source.text.lines() {
        text.push_str(match header(line) {
            Some("metal_stdlib") => {
                includes = true;
                "#define METAL_FUNC inline __attribute__((always_inline))"
            }
            Some(_) => "",
            None => line,
        });
        text.push('\n');
    }
    if !includes {
        return Err(failed(format!("{}: the source does not include <metal_stdlib>", source.name)));
    }
    let mut command = Command::new(compiler);
    command.args(FLAGS).args(source.defines.iter().map(|(name, value)| format!("-D{name}={value}"))).arg("-");
    command.current_dir("/").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(io)?;
    let stdin = child.stdin.take();
    let output = std::thread::scope(|scope| {
        scope.spawn(|| stdin.map(|mut stdin| stdin.write_all(text.as_bytes())));
        child.wait_with_output()
    });
    let output = output.map_err(io)?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
