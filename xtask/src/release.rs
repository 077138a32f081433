//! `release VERSION`: sets the version in all files that have it, dates the changelog, commits and tags. Without `--write` it
//! only prints what it would change. It publishes nothing.

use std::fs;
use std::process::Command;

use crate::dist::version;
use crate::prove::date;
use crate::{root, sh};

/// A file that contains the version, and how it is written there: text before and after it.
struct Place {
    file: &'static str,
    before: &'static str,
    after: &'static str,
}

/// The changelog and `Cargo.lock` have functions of their own, and the Python package has the version of its crate.
const PLACES: [Place; 3] = [
    Place { file: "Cargo.toml", before: "version = \"", after: "\"" },
    Place { file: "deploy/kubernetes/gristmill.yaml", before: "/gristmill:", after: "\n" },
    Place { file: "CITATION.cff", before: "\nversion: ", after: "\n" },
];

/// A file with its new text.
#[derive(Debug, PartialEq)]
struct Change {
    file: String,
    text: String,
}

/// `release VERSION [--write]`.
pub(crate) fn release(words: &[&str]) -> Result<(), String> {
    let (new, write) = match words {
        [new] => (*new, false),
        [new, "--write"] | ["--write", new] => (*new, true),
        _ => return Err("release: expects a version and optionally --write; see cargo xtask".to_owned()),
    };
    let read = |file: &str| fs::read_to_string(root().join(file)).map_err(|error| format!("{file}: {error}"));
    let old = version(&read("Cargo.toml")?)?.to_owned();
    let changes = changes(&old, new, &date(), |file| read(file).ok())?;
    for change in &changes {
        println!("{}:", change.file);
        let before = read(&change.file)?;
        for (before, after) in before.lines().zip(change.text.lines()).filter(|(before, after)| before != after) {
            println!("  - {before}\n  + {after}");
        }
    }
    let tag = format!("v{new}");
    if !write {
        println!("then: cargo update --workspace, git commit, git tag {tag}\nnothing was changed; add --write");
        return Ok(());
    }
    let is_clean = Command::new("git").args(["diff", "--quiet", "HEAD"]).current_dir(root()).status();
    if !is_clean.is_ok_and(|status| status.success()) {
        return Err("release: the working tree has changes; commit them first".to_owned());
    }
    for change in &changes {
        fs::write(root().join(&change.file), &change.text).map_err(|error| format!("{}: {error}", change.file))?;
    }
    sh("cargo", &["update", "--workspace", "--quiet"])?;
    sh("git", &["commit", "--quiet", "--all", "--message", &format!("Release {new}")])?;
    sh("git", &["tag", "--annotate", &tag, "--message", &format!("gristmill {new}")])?;
    println!("tagged {tag}. Now: cargo xtask dist, cargo xtask dist check, git push --follow-tags");
    Ok(())
}

/// The files whose text changes.
fn changes(old: &str, new: &str, date: &str, read: impl Fn(&str) -> Option<String>) -> Result<Vec<Change>, String> {
    let (from, to) = (numbers(old)?, numbers(new)?);
    if to < from {
        return Err(format!(
            "release: the version is older than that of Cargo.toml (found {new}, expected at least {old})"
        ));
    }
    let mut changes = Vec::new();
    for Place { file, before, after } in PLACES {
        let Some(text) = read(file) else { return Err(format!("{file}: cannot be read")) };
        let text = if file == "CITATION.cff" { dated(&text, date) } else { text };
        let (from, to) = (format!("{before}{old}{after}"), format!("{before}{new}{after}"));
        let text = if file == "Cargo.toml" { manifest(&text, &from, &to) } else { text.replace(&from, &to) };
        changes.push(Change { file: file.to_owned(), text });
    }
    let file = "CHANGELOG.md".to_owned();
    let text = read(&file).ok_or("CHANGELOG.md: cannot be read")?;
    changes.push(Change { text: changelog(&text, new, date)?, file });
    changes.retain(|change| read(&change.file).as_deref() != Some(&change.text));
    Ok(changes)
}

/// The manifest of the workspace. A dependency can have the old version too.
fn manifest(text: &str, from: &str, to: &str) -> String {
    let is_own = |line: &str| line.starts_with("version = ") || line.starts_with("gristmill-");
    let lines = text.split_inclusive('\n');
    lines.map(|line| if is_own(line) { line.replace(from, to) } else { line.to_owned() }).collect()
}

/// The changelog, whose topmost section gets the version and its date.
fn changelog(text: &str, new: &str, date: &str) -> Result<String, String> {
    let start = text.find("\n## ").ok_or("CHANGELOG.md: has no section")? + 1;
    let end = text[start..].find('\n').map_or(text.len(), |end| start + end);
    let heading = &text[start..end];
    if !heading.ends_with("(unreleased)") {
        return Err(format!(
            "CHANGELOG.md: the topmost section is released (found {heading:?}); add one with `(unreleased)`"
        ));
    }
    Ok(format!("{}## {new} ({date}){}", &text[..start], &text[end..]))
}

/// The citation with the date of the release.
fn dated(text: &str, date: &str) -> String {
    let line = |line: &str| match line.starts_with("date-released: ") {
        true => format!("date-released: {date}\n"),
        false => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}

/// The numbers of `MAJOR.MINOR.PATCH`.
fn numbers(version: &str) -> Result<[u64; 3], String> {
    let parts: Option<Vec<u64>> = version.split('.').map(|part| part.parse().ok()).collect();
    let parts = parts.and_then(|parts| parts.try_into().ok());
    parts.ok_or_else(|| format!("release: is no version (found {version:?}, expected MAJOR.MINOR.PATCH)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(file: &str) -> Option<String> {
        Some(match file {
            "Cargo.toml" => "[workspace.package]\nversion = \"0.1.0\"\ngristmill-a = { path = \"a\", version = \"0.1.0\" }\nb = { version = \"0.1.0\" }\n".to_owned(),
            "CITATION.cff" => "cff-version: 1.2.0\nversion: 0.1.0\ndate-released: 2026-01-01\n".to_owned(),
            "deploy/kubernetes/gristmill.yaml" => "image: example/gristmill:0.1.0\n".to_owned(),
            "CHANGELOG.md" => "# Changelog\n\n## 0.2.0 (unreleased)\n\n- a\n\n## 0.1.0 (2026-01-01)\n".to_owned(),
            _ => return None,
        })
    }

    #[test]
    fn a_release_sets_every_version_and_no_other() {
        let changes = changes("0.1.0", "0.2.0", "2026-12-01", read).unwrap();
        let text = |file: &str| changes.iter().find(|change| change.file == file).map(|change| change.text.as_str());
        let manifest = "[workspace.package]\nversion = \"0.2.0\"\ngristmill-a = { path = \"a\", version = \"0.2.0\" }\nb = { version = \"0.1.0\" }\n";
        assert_eq!(text("Cargo.toml"), Some(manifest));
        assert_eq!(text("CITATION.cff"), Some("cff-version: 1.2.0\nversion: 0.2.0\ndate-released: 2026-12-01\n"));
        let log = "# Changelog\n\n## 0.2.0 (2026-12-01)\n\n- a\n\n## 0.1.0 (2026-01-01)\n";
        assert_eq!((text("CHANGELOG.md"), changes.len()), (Some(log), 4));
        assert_eq!(text("deploy/kubernetes/gristmill.yaml"), Some("image: example/gristmill:0.2.0\n"));
    }

    #[test]
    fn wrong_releases_are_refused() {
        assert!(changes("0.2.0", "0.1.9", "", read).unwrap_err().contains("older"));
        assert!(changes("0.1.0", "0.2", "", read).unwrap_err().contains("MAJOR.MINOR.PATCH"));
        assert!(changelog("\n## 0.1.0 (2026-01-01)\n", "0.2.0", "").unwrap_err().contains("released"));
    }

    /// 0.1.0 is the version of this checkout and of its citation.
    #[test]
    fn the_citation_has_the_version_of_the_workspace() {
        let read = |file: &str| fs::read_to_string(root().join(file)).unwrap();
        let manifest = read("Cargo.toml");
        let version = version(&manifest).unwrap();
        assert!(read("CITATION.cff").contains(&format!("\nversion: {version}\n")));
    }
}
