//! Checks that every link to a page or heading has a target.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::root;

/// The pages of the root and of `docs`.
fn pages() -> Vec<PathBuf> {
    let of = |folder: &str| fs::read_dir(root().join(folder)).expect("a folder of pages");
    let entries = of(".").chain(of("docs"));
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "md")).collect()
}

/// The lines of a page that are not within code.
fn lines(page: &Path) -> Vec<String> {
    let text = fs::read_to_string(page).expect("a page");
    let mut is_code = false;
    let is_text = |line: &&str| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    };
    text.lines().filter(is_text).map(str::to_owned).collect()
}

/// The name of a heading in an address, as GitHub forms it.
pub(super) fn anchor(heading: &str) -> String {
    let kept = |letter: &char| letter.is_alphanumeric() || [' ', '-', '_'].contains(letter);
    heading.trim().to_lowercase().chars().filter(kept).collect::<String>().replace(' ', "-")
}

fn anchors(page: &Path) -> BTreeSet<String> {
    let headings = |line: &String| line.starts_with('#').then(|| anchor(line.trim_start_matches('#')));
    lines(page).iter().filter_map(headings).collect()
}

/// The targets of `[text](target)`.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target)
}

#[test]
fn links_have_targets() {
    let (mut count, mut broken) = (0, Vec::new());
    for page in pages() {
        let folder = page.parent().expect("a folder");
        for line in lines(&page) {
            for target in targets(&line).filter(|target| !target.contains("://")) {
                let (path, heading) = target.split_once('#').unwrap_or((target, ""));
                let to = if path.is_empty() { page.clone() } else { folder.join(path) };
                let is_there = to.exists() && (heading.is_empty() || anchors(&to).contains(heading));
                broken.extend((!is_there).then(|| format!("{}: {target}", page.display())));
                count += 1;
            }
        }
    }
    assert!(count > 100, "only {count} links were found");
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn anchors_are_those_of_github() {
    assert_eq!(anchor(" CUDA: one H100, prompts"), "cuda-one-h100-prompts");
    assert_eq!(anchor(" `run --json`"), "run---json");
    assert_eq!(targets("[a](b.md#c) and ![d](e.png)").collect::<Vec<_>>(), ["b.md#c", "e.png"]);
}
