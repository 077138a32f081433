//! The table of `scripts/ci/mutations.sh` fits the stages and the sources.

use std::collections::BTreeSet;
use std::fs;

use crate::root;

/// Stages that test no source: what they lack they install, or print that they were skipped.
const WITHOUT: [&str; 3] = ["tools", "advisories", "semver"];

#[test]
fn every_stage_has_a_mistake_that_can_be_made() {
    let read = |path: &str| fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    let mut tried = BTreeSet::new();
    for row in read("scripts/ci/mutations.tsv").lines() {
        let [stage, file, text, instead, sign] = row.split('\t').collect::<Vec<_>>()[..] else { panic!("{row}") };
        let [text, instead] = [text, instead].map(|text| text.replace("\\n", "\n"));
        assert!(read(file).contains(&text) && text != instead, "{stage}: {file} does not contain {text:?}");
        assert!(!sign.is_empty(), "{stage}: what the stage prints of the mistake");
        tried.insert(stage.to_owned());
    }
    let script = read(".ci/run");
    let stages = script.lines().filter_map(|line| line.strip_prefix("stage \"")?.split('"').next());
    let stages: BTreeSet<String> = stages.filter(|stage| !WITHOUT.contains(stage)).map(str::to_owned).collect();
    assert!(stages.len() > 10);
    assert_eq!(stages, tried);
}
