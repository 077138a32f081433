//! SHA-256 of files, by `sha256sum` or `shasum`.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::artifacts::Inputs;
use super::formula::{FORMULA, manifests};
use super::install::SCRIPT;

pub(super) const SUMS: &str = "SHA256SUMS";

/// `SHA256SUMS`: a line for each file, by name.
pub(super) fn make(inputs: &Inputs) -> Result<(), String> {
    // What has sums in it is written after them, and is there from an earlier run.
    let later = [SCRIPT.to_owned(), FORMULA.to_owned(), manifests(inputs.release)];
    let files = all(inputs.out)?.into_iter().filter(|(name, _)| !later.contains(name));
    let text: String = files.map(|(name, sum)| format!("{sum}  {name}\n")).collect();
    write(&inputs.out.join(SUMS), &text)
}

/// Names and sums of the files in a folder, by name, without the list itself.
pub(super) fn all(folder: &Path) -> Result<Vec<(String, String)>, String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .map_err(|error| format!("{}: {error}", folder.display()))?
        .filter_map(|entry| entry.ok().filter(|entry| entry.path().is_file())?.file_name().into_string().ok())
        .filter(|name| name != SUMS)
        .collect();
    names.sort();
    names.into_iter().map(|name| sum(&folder.join(&name)).map(|sum| (name, sum))).collect()
}

/// The SHA-256 of a file, in hexadecimal.
pub(super) fn sum(path: &Path) -> Result<String, String> {
    for words in [&["sha256sum"][..], &["shasum", "-a", "256"]] {
        let Ok(output) = Command::new(words[0]).args(&words[1..]).arg(path).output() else { continue };
        let text = String::from_utf8_lossy(&output.stdout);
        let found = text.split_whitespace().next().filter(|sum| sum.len() == 64);
        return found.map(str::to_owned).ok_or_else(|| format!("{}: {} failed", path.display(), words[0]));
    }
    Err("sha256sum: cannot be started; install coreutils".to_owned())
}

pub(super) fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}
