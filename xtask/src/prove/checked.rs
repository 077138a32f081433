//! `prove checked`: all cases of the op suite in the simulator's checked mode. Runs all golden models with the kernels
//! of both GPUs and at every level of this CPU, alone and in shared batches, and 70,000 tokens. CI runs a sample of
//! these.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Instant;

use super::date::date_and_commit;
use super::report;
use crate::root;

/// Checks overflow and assertions in the CPU kernels too; the development profile leaves them out.
const ARGUMENTS: &str = "--config profile.dev.package.gristmill-cpu.overflow-checks=true \
                         --config profile.dev.package.gristmill-cpu.debug-assertions=true test --workspace --no-fail-fast --test checked --test batching --test models --test smollm2 \
                         --test large -- --ignored";

/// Runs the tests that are ignored because they take minutes, and writes their outcomes.
pub(super) fn checked(words: &[&str]) -> Result<(), String> {
    report::no_options("checked", words)?;
    let failed = |error| format!("cargo {ARGUMENTS}: {error}");
    let mut cargo = Command::new("cargo");
    cargo.args(ARGUMENTS.split(' ')).current_dir(root()).stdout(Stdio::piped());
    let start = Instant::now();
    let mut child = cargo.spawn().map_err(failed)?;
    let mut tests = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        for line in BufReader::new(stdout).lines() {
            let line = line.map_err(failed)?;
            println!("{line}");
            if let Some(test) = line.strip_prefix("test ").filter(|test| !test.starts_with("result: ")) {
                tests.push(test.to_owned());
            }
        }
    }
    let status = child.wait().map_err(failed)?;
    report::write("checked", &page(&tests, start.elapsed().as_secs()))?;
    if status.success() { Ok(()) } else { Err(format!("cargo {ARGUMENTS}: failed, {status}")) }
}

/// Passed tests by module, and each other test.
fn page(tests: &[String], seconds: u64) -> String {
    let mut page =
        format!("# Both GPUs in the simulator, {}\n\n`cargo {ARGUMENTS}`: {seconds} s.\n\n", date_and_commit());
    let (passed, failed): (Vec<_>, Vec<_>) = tests.iter().partition(|test| test.ends_with(" ... ok"));
    let mut modules: BTreeMap<&str, usize> = BTreeMap::new();
    for test in passed {
        let name = test.split(" ... ").next().unwrap_or_default();
        *modules.entry(name.rsplit_once("::").map_or(name, |(module, _)| module)).or_default() += 1;
    }
    page += "| tests | passed |\n| --- | ---: |\n";
    modules.iter().for_each(|(module, count)| page += &format!("| {module} | {count} |\n"));
    page += &format!("\n{} failed.\n", failed.len());
    failed.iter().for_each(|test| page += &format!("- {test}\n"));
    page
}

#[cfg(test)]
mod tests {
    use super::page;

    #[test]
    fn a_page_counts_what_passed_and_names_what_failed() {
        let tests = ["cuda::all::add ... ok", "cuda::all::rope ... ok", "metal::all::add ... FAILED", "large ... ok"];
        let page = page(&tests.map(str::to_owned), 7);
        let lines = ["| cuda::all | 2 |", "| large | 1 |", "1 failed.", "- metal::all::add ... FAILED"];
        assert!(lines.iter().all(|line| page.contains(line)), "{page}");
    }
}
