//! `prove checked`: all cases of the op suite in the simulator's checked mode, all golden models by kernels of both GPUs, where a run of
//! CI has a few, and very many tokens.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Instant;

use super::date::today;
use crate::root;

const ARGUMENTS: &str = "test --workspace --no-fail-fast --test checked --test models --test large -- --ignored";

/// Runs the tests that are ignored because they take minutes; their outcomes as a page, if a file is given.
pub(crate) fn checked(output: Option<&str>) -> Result<(), String> {
    let failed = |error| format!("cargo {ARGUMENTS}: {error}");
    let mut cargo = Command::new("cargo");
    cargo.args(ARGUMENTS.split(' ')).current_dir(root()).stdout(Stdio::piped());
    let start = Instant::now();
    let mut child = cargo.spawn().map_err(failed)?;
    let mut page = format!("# Both GPUs in the simulator, {}\n\n`cargo {ARGUMENTS}`\n\n```text\n", today());
    if let Some(stdout) = child.stdout.take() {
        for line in BufReader::new(stdout).lines() {
            let line = line.map_err(failed)?;
            println!("{line}");
            if line.starts_with("test ") {
                page += &format!("{line}\n");
            }
        }
    }
    let status = child.wait().map_err(failed)?;
    page += &format!("```\n\n{} s.\n", start.elapsed().as_secs());
    if let Some(path) = output {
        std::fs::write(path, page).map_err(|error| format!("cannot write {path}: {error}"))?;
    }
    if status.success() { Ok(()) } else { Err(format!("cargo {ARGUMENTS}: failed, {status}")) }
}
