//! Records which parts of the proofs hold: `docs/prove/ledger.tsv` has, for each part, the sources that it was proved
//! for.
//!
//! A line consists of the part's name, a hash of the part's dependencies, the date and the commit, separated by tabs.
//! The hash covers git's ids of file contents, so it survives a rebase.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::date::{commit, date};
use crate::root;

/// A part of a proof, which can run separately.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Part {
    /// The proof.
    pub(super) proof: &'static str,
    /// The part of it, such as an operation; empty for a proof of one part.
    pub(super) key: String,
    /// Files and folders that the part depends on.
    pub(super) sources: Vec<String>,
    /// A section of a file that the part depends on, if it does not depend on the whole file.
    pub(super) excerpt: String,
}

impl Part {
    pub(super) fn name(&self) -> String {
        format!("{} {}", self.proof, self.key).trim_end().to_owned()
    }

    /// A hash of what the part depends on, as it is committed.
    fn hash(&self) -> Result<String, String> {
        let mut words = vec!["ls-tree", "-r", "HEAD", "--"];
        words.extend(self.sources.iter().map(String::as_str));
        let listed = git(&words, "")?;
        if let Some(missing) = self.sources.iter().find(|source| !listed.contains(&format!("\t{source}"))) {
            return Err(format!("{} depends on {missing}, which is not committed", self.name()));
        }
        Ok(git(&["hash-object", "--stdin"], &format!("{listed}{}", self.excerpt))?.trim().to_owned())
    }
}

/// The sources, date and commit that a part was proved for.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    hash: String,
    date: String,
    commit: String,
}

/// The parts that were proved.
#[derive(Debug, Default)]
pub(super) struct Ledger(BTreeMap<String, Entry>);

impl Ledger {
    pub(super) fn read() -> Ledger {
        Ledger::parse(&fs::read_to_string(path()).unwrap_or_default())
    }

    fn parse(text: &str) -> Ledger {
        let entry = |line: &str| {
            let [part, hash, date, commit] = line.split('\t').collect::<Vec<_>>().try_into().ok()?;
            let [hash, date, commit] = [hash, date, commit].map(str::to_owned);
            Some((part.to_owned(), Entry { hash, date, commit }))
        };
        Ledger(text.lines().filter_map(entry).collect())
    }

    fn text(&self) -> String {
        let line =
            |(part, Entry { hash, date, commit }): (&String, &Entry)| format!("{part}\t{hash}\t{date}\t{commit}\n");
        self.0.iter().map(line).collect()
    }

    /// The date and commit that a part was proved for, if none of its dependencies has changed.
    pub(super) fn holds(&self, part: &Part) -> Result<Option<String>, String> {
        let hash = part.hash()?;
        let entry = self.0.get(&part.name()).filter(|entry| entry.hash == hash);
        Ok(entry.map(|entry| format!("{}, commit {}", entry.date, entry.commit)))
    }

    /// Records that a part holds for the current commit, and writes the file.
    pub(super) fn record(&mut self, part: &Part) -> Result<(), String> {
        let entry =
            Entry { hash: part.hash()?, date: date(), commit: commit().unwrap_or_else(|| "unknown".to_owned()) };
        self.0.insert(part.name(), entry);
        fs::write(path(), self.text()).map_err(|error| format!("cannot write {}: {error}", path().display()))
    }

    /// Removes a part that does not hold.
    pub(super) fn remove(&mut self, part: &Part) -> Result<(), String> {
        self.0.remove(&part.name());
        fs::write(path(), self.text()).map_err(|error| format!("cannot write {}: {error}", path().display()))
    }
}

fn path() -> PathBuf {
    root().join("docs/prove/ledger.tsv")
}

/// Whether the working tree differs from the last commit, ignoring pages that proofs write.
pub(super) fn uncommitted() -> Result<bool, String> {
    Ok(!git(&["status", "--porcelain", "--", ".", ":!docs/prove"], "")?.is_empty())
}

fn git(words: &[&str], input: &str) -> Result<String, String> {
    let failed = |error: std::io::Error| format!("git {}: {error}", words.join(" "));
    let mut child = Command::new("git")
        .args(words)
        .current_dir(root())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(input.as_bytes()).map_err(failed)?;
    }
    let done = child.wait_with_output().map_err(failed)?;
    match done.status.success() {
        true => Ok(String::from_utf8_lossy(&done.stdout).into_owned()),
        false => Err(format!("git {}: {}", words.join(" "), done.status)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(sources: &[&str], excerpt: &str) -> Part {
        let sources = sources.iter().map(|&source| source.to_owned()).collect();
        Part { proof: "mutations", key: "route".to_owned(), sources, excerpt: excerpt.to_owned() }
    }

    #[test]
    fn a_part_holds_until_a_source_changes() {
        let one = part(&["LICENSE-MIT", "crates/suite/src"], "a => b");
        let hash = one.hash().expect("both are committed");
        let mut ledger = Ledger::parse(&format!("mutations route\t{hash}\t2026-11-24\t0123456\n"));
        assert_eq!(ledger.holds(&one), Ok(Some("2026-11-24, commit 0123456".to_owned())));
        for other in [part(&["LICENSE-MIT"], "a => b"), part(&["LICENSE-MIT", "crates/suite/src"], "a => c")] {
            assert_eq!(ledger.holds(&other), Ok(None));
        }
        assert_eq!(ledger.text(), Ledger::parse(&ledger.text()).text());
        ledger.0.clear();
        assert_eq!(ledger.holds(&one), Ok(None));
    }

    #[test]
    fn a_source_that_is_missing_is_named() {
        let error = part(&["LICENSE-MIT", "crates/none"], "").hash().expect_err("it is not there");
        assert!(error.contains("mutations route depends on crates/none"), "{error}");
        assert!(Ledger::parse("too few\tfields\n\n").0.is_empty());
    }
}
