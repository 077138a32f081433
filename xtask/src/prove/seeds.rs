//! `prove seeds`: runs the op suite many times with new inputs. A case that fails in one of a hundred runs, because of
//! the kernel or the tolerance, rarely fails in a single run. The page reports the largest used share of each
//! tolerance.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::process::Command;
use std::time::Instant;

use super::cpu_levels;
use super::date::date_and_commit;
use super::report;
use crate::root;

const ARGUMENTS: &str = "test --workspace --no-fail-fast --test levels --test ops --test families --test checked";
const ROUNDS: usize = 10;
/// Kinds of cases on the page: those with the largest errors.
const KINDS: usize = 30;

/// The number of rounds that the options ask for.
fn rounds(words: &[&str]) -> Result<usize, String> {
    match words {
        [] => Ok(ROUNDS),
        ["--rounds", count] => {
            let rounds = count.parse().ok().filter(|&rounds| rounds > 0);
            rounds.ok_or(format!("prove seeds: --rounds {count}: not a positive number"))
        }
        [other, ..] => Err(format!("prove seeds: unknown option {other}; see cargo xtask")),
    }
}

/// Runs the op suite, fast and checked, this number of times; fails if any test ever did. The page has each failure
/// with its seed, and for each kind of case and backend the largest error relative to what is allowed.
pub(super) fn seeds(words: &[&str]) -> Result<(), String> {
    let rounds = rounds(words)?;
    let mut failures = Vec::new();
    let mut worst: BTreeMap<String, BTreeMap<String, f64>> = BTreeMap::new();
    let start = Instant::now();
    for round in 1..=rounds {
        let done = Command::new("cargo").args(ARGUMENTS.split(' ')).current_dir(root()).output();
        let done = done.map_err(|error| format!("cargo {ARGUMENTS}: {error}"))?;
        let text = [done.stdout, done.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
        let failed = failures_of(&text);
        if failed.is_empty() && !done.status.success() {
            return Err(format!("cargo {ARGUMENTS}: {}\n{text}", done.status));
        }
        for (kind, backend, share) in text.lines().filter_map(error_of) {
            let entry = worst.entry(kind.to_owned()).or_default().entry(backend.to_owned()).or_insert(0.0);
            *entry = entry.max(share);
        }
        let seconds = start.elapsed().as_secs();
        eprintln!(
            "round {round} of {rounds}: {}, {seconds} s in all",
            if failed.is_empty() { "passed" } else { "FAILED" }
        );
        failed.iter().for_each(|failure| eprintln!("    {failure}"));
        failures.extend(failed);
    }
    let page = page(rounds, start.elapsed().as_secs(), &failures, &worst);
    report::write("seeds", &page)?;
    if failures.is_empty() {
        Ok(())
    } else {
        Err(format!("the op suite failed in {rounds} rounds:\n{}", failures.join("\n")))
    }
}

/// Each failed test, with the suite's message.
fn failures_of(text: &str) -> Vec<String> {
    let failed = text.lines().filter(|line| line.starts_with("test ") && line.ends_with("FAILED"));
    let said = text.lines().filter(|line| line.starts_with("failed: "));
    failed.chain(said).map(str::to_owned).collect()
}

/// The kind, the backend and the share of the bound that was needed, in a line "kind  NMSE error of bound  (backend)".
fn error_of(line: &str) -> Option<(&str, &str, f64)> {
    let (kind, rest) = line.strip_prefix("    ")?.split_once(" NMSE ")?;
    let (numbers, backend) = rest.split_once("  (")?;
    let (error, bound) = numbers.split_once(" of ")?;
    let (error, bound): (f64, f64) = (error.parse().ok()?, bound.parse().ok()?);
    Some((kind.trim(), family(backend.strip_suffix(')')?), if bound > 0.0 { error / bound } else { error }))
}

/// A backend without what differs between runs: the simulated device's number, its order of threads.
fn family(backend: &str) -> &str {
    let mut names = cpu_levels::names().chain(["simulated CUDA", "simulated Metal"]);
    names.find(|name| backend.contains(name)).unwrap_or(backend)
}

fn page(rounds: usize, seconds: u64, failures: &[String], worst: &BTreeMap<String, BTreeMap<String, f64>>) -> String {
    let mut page = format!("# The op suite, {rounds} times, {}\n\n", date_and_commit());
    page += "`cargo xtask prove seeds`: inputs are fresh each time. The numbers are the largest error (NMSE) of a kind \
             of case as a\n";
    page += "share of what is allowed";
    let largest = |shares: &BTreeMap<String, f64>| shares.values().copied().fold(0.0, f64::max);
    let mut kinds: Vec<_> = worst.iter().collect();
    kinds.sort_by(|a, b| largest(b.1).total_cmp(&largest(a.1)));
    let least = kinds.get(KINDS).map(|(_, shares)| largest(shares));
    kinds.truncate(KINDS);
    let _ = match least {
        Some(least) => write!(page, "; {} other kinds have {least:.2} at most.\n\n", worst.len() - KINDS),
        None => write!(page, ".\n\n"),
    };
    let backends: std::collections::BTreeSet<&String> = worst.values().flat_map(BTreeMap::keys).collect();
    page += "| kind |";
    backends.iter().for_each(|backend| page += &format!(" {backend} |"));
    page += "\n| --- |";
    page += &" ---: |".repeat(backends.len());
    for (kind, shares) in kinds {
        let _ = write!(page, "\n| {kind} |");
        for backend in &backends {
            page += &shares.get(*backend).map_or(" |".to_owned(), |share| format!(" {share:.2} |"));
        }
    }
    let failed = if failures.is_empty() { "Nothing failed" } else { "FAILED" };
    let _ = write!(page, "\n\n{failed}; {seconds} s.\n");
    failures.iter().for_each(|failure| page += &format!("- {failure}\n"));
    page
}

#[cfg(test)]
mod tests {
    use super::{error_of, failures_of, rounds};

    #[test]
    fn errors_and_failures_are_read() {
        let line = "    gate_up_act exact            NMSE 1.5e-13 of 1.0e-11  (CPU, avx2, 1 threads)";
        let (kind, backend, share) = error_of(line).unwrap();
        assert_eq!((kind, backend), ("gate_up_act exact", "avx2"));
        assert!((share - 0.015).abs() < 1e-9);
        assert_eq!(error_of("executed: gate_up_act on avx2"), None);

        let text =
            "test avx2::route ... ok\nfailed:   add on avx2: NMSE 4; to repeat: seed 34\ntest avx2::add ... FAILED\n";
        assert_eq!(
            failures_of(text),
            ["test avx2::add ... FAILED", "failed:   add on avx2: NMSE 4; to repeat: seed 34"]
        );
        assert!(failures_of("test avx2::route ... ok\n").is_empty());
    }

    #[test]
    fn options_are_checked() {
        assert_eq!(rounds(&["--rounds", "3"]), Ok(3));
        for wrong in [&["--rounds", "0"][..], &["--rounds", "x"], &["--rounds"], &["--seed", "3"]] {
            assert!(rounds(wrong).is_err(), "{wrong:?}");
        }
    }
}
