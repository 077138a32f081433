//! All test programs of the workspace, two at a time: the last tests of a single program often leave cores idle.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use crate::root;

const AT_A_TIME: usize = 2;

/// Programs of this package take longest, so they start first.
const FIRST: &str = "/conformance/";

/// A test program, or the documentation tests.
struct Program {
    name: String,
    command: Command,
}

/// Builds all test programs and runs them.
pub(crate) fn run() -> Result<(), String> {
    let begin = Instant::now();
    let mut programs = build()?;
    println!("{} test programs: built in {} s", programs.len(), begin.elapsed().as_secs());
    programs.push_back(documentation());
    let queue = Mutex::new(programs);
    let failed = Mutex::new(Vec::new());
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    std::thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                while let Some(program) = next() {
                    let name = program.name.clone();
                    if !passes(program) {
                        failed.lock().unwrap_or_else(PoisonError::into_inner).push(name);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    if failed.is_empty() { Ok(()) } else { Err(format!("tests failed in: {}", failed.join(", "))) }
}

fn build() -> Result<VecDeque<Program>, String> {
    let output = Command::new("cargo")
        .args(["test", "--workspace", "--no-run", "--message-format", "json-render-diagnostics"])
        .current_dir(root())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("cargo cannot be started: {error}"))?;
    if !output.status.success() {
        return Err(format!("the tests do not compile: {}", output.status));
    }
    let messages = String::from_utf8_lossy(&output.stdout);
    let mut found: Vec<(PathBuf, PathBuf)> = messages.lines().filter_map(executable).collect();
    found.sort_by_key(|(folder, _)| !format!("{}/", folder.display()).contains(FIRST));
    Ok(found.into_iter().map(|(folder, path)| program(&folder, &path)).collect())
}

/// The folder of a package and the path of its test program, from a message of cargo.
fn executable(message: &str) -> Option<(PathBuf, PathBuf)> {
    let is_test = message.contains("\"reason\":\"compiler-artifact\"") && message.contains("\"test\":true},");
    let manifest = field(message, "manifest_path").filter(|_| is_test)?;
    Some((manifest.parent()?.to_owned(), field(message, "executable")?))
}

/// A path in a message of cargo.
fn field(message: &str, name: &str) -> Option<PathBuf> {
    let (_, rest) = message.split_once(&format!("\"{name}\":\""))?;
    Some(PathBuf::from(rest.split_once('"')?.0.replace("\\\\", "\\")))
}

fn program(folder: &Path, path: &Path) -> Program {
    let mut command = Command::new(path);
    // Cargo sets the same.
    command.current_dir(folder).env("CARGO_MANIFEST_DIR", folder);
    let part = |path: &Path| path.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    // A program's name ends in a hash.
    let name = part(path).rsplit_once('-').map(|(name, _)| name.to_owned()).unwrap_or_else(|| part(path));
    Program { name: format!("{}, {name}", part(folder)), command }
}

fn documentation() -> Program {
    let mut command = Command::new("cargo");
    command.args(["test", "--quiet", "--workspace", "--doc", "--no-fail-fast"]).current_dir(root());
    Program { name: "documentation".to_owned(), command }
}

/// Runs a program; prints a line, and what it printed if it failed.
fn passes(Program { name, mut command }: Program) -> bool {
    let begin = Instant::now();
    let output = command.stdin(Stdio::null()).output();
    let seconds = begin.elapsed().as_secs();
    let (passed, printed) = match output {
        Ok(output) => {
            let printed = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
            (output.status.success(), printed.concat())
        }
        Err(error) => (false, format!("cannot be started: {error}\n")),
    };
    match passed {
        true => println!("{seconds:>4} s  {name}: {}", counts(&printed)),
        false => println!("{seconds:>4} s  {name}: FAILED\n{printed}"),
    }
    passed
}

/// The sums of the lines `test result: ok. 8 passed; 0 failed; 1 ignored; …`.
fn counts(printed: &str) -> String {
    let sum = |word: &str| -> usize {
        let results = printed.lines().filter(|line| line.starts_with("test result: "));
        let count = |line: &str| {
            let before = line.split_once(word)?.0;
            before.trim_end().rsplit(' ').next()?.parse::<usize>().ok()
        };
        results.filter_map(count).sum()
    };
    format!("{} passed, {} ignored", sum("passed"), sum("ignored"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_cargo_are_read() {
        let message = r#"{"reason":"compiler-artifact","manifest_path":"/a/crates/x/Cargo.toml","target":{"name":"ops"},"profile":{"opt_level":"1","overflow_checks":true,"test":true},"features":[],"executable":"/a/target/debug/deps/ops-12ab","fresh":true}"#;
        let (folder, path) = executable(message).expect("a test program");
        assert_eq!(program(&folder, &path).name, "x, ops");
        for not in ["\"test\":true}", "compiler-artifact", "\"executable\""] {
            assert!(executable(&message.replace(not, "")).is_none(), "{not}");
        }
        let windows = message.replace("/a/", r"C:\\a\\");
        assert!(executable(&windows).expect("a test program").1.to_string_lossy().starts_with(r"C:\a\target"));
    }

    #[test]
    fn results_are_added_up() {
        let result = "test result: ok. 8 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; finished in 0.1s\n";
        assert_eq!(counts(&["x 5 passed\n", result, result].concat()), "16 passed, 2 ignored");
        assert_eq!(counts(""), "0 passed, 0 ignored");
    }

    #[test]
    fn a_failure_is_noticed() {
        let program = |word: &str| {
            let mut command = Command::new(std::env::current_exe().expect("this program"));
            command.args(["--exact", word]);
            Program { name: word.to_owned(), command }
        };
        assert!(passes(program("programs::tests::results_are_added_up")));
        assert!(!passes(program("--no-such-option")));
        assert!(!passes(Program { name: "none".to_owned(), command: Command::new("/no/such/program") }));
    }
}
