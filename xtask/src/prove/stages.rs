//! Long stages of `.ci/run` and long test programs, with their dependencies. A stage that has passed for the same
//! sources is skipped: `docs/prove/ledger.tsv` has one row per stage. `.ci/run --all` skips none.

use std::collections::BTreeSet;
use std::fs;

use super::ledger::{Ledger, Part, uncommitted};
use super::parts;
use crate::root;

/// Prefix of the parts of this file in the ledger.
const PROOF: &str = "stage";

/// Stages that run a proof, or a part of it: they depend on what the proof depends on. The seconds of the others are not
/// worth a row.
const OF_PROOFS: [&str; 4] = ["checked", "kernels", "page", "templates"];

/// The CPUs that are emulated run the op suite and a model.
const ELSEWHERE: [&str; 9] = [
    "Cargo.toml",
    "crates/conformance/golden",
    "crates/conformance/tests/models.rs",
    "crates/cpu",
    "crates/model/src",
    "crates/files",
    "crates/kernels",
    "crates/suite",
    "scripts/elsewhere.sh",
];

/// Folder of the fuzz targets.
const TARGETS: &str = "fuzz/fuzz_targets";

/// All stages that can be skipped.
pub(super) fn all() -> Result<Vec<Part>, String> {
    let stage = |key: String, sources: Vec<String>| Part { proof: PROOF, key, sources, excerpt: String::new() };
    let of_proof = |part: Part| stage(part.proof.to_owned(), part.sources);
    let proofs = parts::all()?.into_iter().filter(|part| part.key.is_empty() && OF_PROOFS.contains(&part.proof));
    let mut stages: Vec<Part> = proofs.map(of_proof).collect();
    stages.push(stage("elsewhere".to_owned(), ELSEWHERE.map(str::to_owned).to_vec()));
    for (target, sources) in fuzz_targets()? {
        stages.push(stage(format!("fuzz {target}"), sources));
    }
    Ok(stages)
}

/// `stages changed NAME...`: prints the last word of each of these stages whose sources have changed since it passed; a
/// name stands for all stages that start with it. What is not committed counts as a change.
pub(crate) fn changed(names: &[&str]) -> Result<(), String> {
    let (ledger, dirty) = (Ledger::read(), uncommitted()?);
    for part in chosen(names)? {
        match ledger.holds(&part)?.filter(|_| !dirty) {
            Some(proved) => eprintln!("{}: passed with the same sources: {proved}", part.key),
            None => println!("{}", part.key.rsplit(' ').next().unwrap_or_default()),
        }
    }
    Ok(())
}

/// `stages passed NAME...`: records that these stages passed with what is committed.
pub(crate) fn passed(names: &[&str]) -> Result<(), String> {
    let parts = chosen(names)?;
    if uncommitted()? {
        println!("{}: not recorded as passed, because of uncommitted changes", names.join(", "));
        return Ok(());
    }
    let mut ledger = Ledger::read();
    let is_new = |part: &&Part| ledger.holds(part).is_ok_and(|holds| holds.is_none());
    let new: Vec<Part> = parts.iter().filter(is_new).cloned().collect();
    for part in &new {
        ledger.record(part)?;
        println!("{}: recorded as passed in docs/prove/ledger.tsv, which is to be committed", part.name());
    }
    Ok(())
}

/// The date and commit at which a stage passed with the present sources, if it did.
pub(crate) fn has_passed(name: &str) -> Result<Option<String>, String> {
    let parts = chosen(&[name])?;
    if uncommitted()? {
        return Ok(None);
    }
    parts.first().map_or(Ok(None), |part| Ledger::read().holds(part))
}

/// The stages whose name starts with one of these.
fn chosen(names: &[&str]) -> Result<Vec<Part>, String> {
    let stages = all()?;
    let is_called = |part: &Part, name: &str| part.key == name || part.key.starts_with(&format!("{name} "));
    if let Some(unknown) = names.iter().find(|name| !stages.iter().any(|part| is_called(part, name))) {
        let keys: Vec<&str> = stages.iter().map(|part| part.key.as_str()).collect();
        return Err(format!("stages: {unknown} is not a stage that can be skipped; these are: {}", keys.join(", ")));
    }
    Ok(stages.into_iter().filter(|part| names.iter().any(|name| is_called(part, name))).collect())
}

/// The fuzz targets by name, each with its source, its corpus, and the crates that it is linked with.
fn fuzz_targets() -> Result<Vec<(String, Vec<String>)>, String> {
    let mut targets = Vec::new();
    let failed = |error| format!("cannot list {TARGETS}: {error}");
    for entry in fs::read_dir(root().join(TARGETS)).map_err(failed)? {
        let file = entry.map_err(failed)?.file_name().to_string_lossy().into_owned();
        let Some(name) = file.strip_suffix(".rs") else { continue };
        let source = format!("{TARGETS}/{file}");
        let mut sources = vec![source.clone(), "fuzz/Cargo.toml".to_owned(), "scripts/fuzz.sh".to_owned()];
        sources.push("Cargo.lock".to_owned());
        sources.extend(crates_of(&read(&source)?)?.into_iter().map(|name| format!("crates/{name}")));
        sources.extend(Some(format!("fuzz/corpus/{name}")).filter(|corpus| root().join(corpus).is_dir()));
        targets.push((name.to_owned(), sources));
    }
    targets.sort();
    Ok(targets)
}

/// The crates that a source names, with all that they depend on.
fn crates_of(source: &str) -> Result<BTreeSet<String>, String> {
    let (mut found, mut names) = (BTreeSet::new(), named(source, "gristmill_"));
    while let Some(name) = names.pop() {
        if found.insert(name.clone()) {
            let manifest = read(&format!("crates/{name}/Cargo.toml"))?;
            let dependencies = manifest.split("[dev-dependencies]").next().unwrap_or_default();
            names.extend(named(dependencies, "\ngristmill-"));
        }
    }
    Ok(found)
}

/// The words after a prefix.
fn named(text: &str, prefix: &str) -> Vec<String> {
    let name = |rest: &str| rest.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default().to_owned();
    text.split(prefix).skip(1).map(name).collect()
}

fn read(path: &str) -> Result<String, String> {
    fs::read_to_string(root().join(path)).map_err(|error| format!("cannot read {path}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fuzz_target_depends_on_all_that_it_is_linked_with() {
        let targets = fuzz_targets().expect("the folders are there");
        let sources = |name: &str| {
            let (_, sources) = targets.iter().find(|(target, _)| target == name).expect(name);
            sources.iter().map(String::as_str).collect::<BTreeSet<_>>()
        };
        assert!(sources("gguf").is_superset(&["crates/files", "crates/kernels", "fuzz/corpus/gguf"].into()));
        assert!(!sources("gguf").contains("crates/server"));
        let bodies = ["crates/server", "crates/engine", "crates/text", "crates/cpu", "fuzz/fuzz_targets/bodies.rs"];
        assert!(sources("bodies").is_superset(&bodies.into()), "{:?}", sources("bodies"));
    }

    #[test]
    fn all_that_a_stage_depends_on_is_there() {
        let stages = all().expect("the folders are there");
        for part in &stages {
            let missing = part.sources.iter().find(|source| !root().join(source).exists());
            assert_eq!(missing, None, "{part:?}");
        }
        for proof in OF_PROOFS {
            assert!(stages.iter().any(|part| part.key == proof), "{proof}");
        }
    }

    #[test]
    fn stages_are_chosen_by_name() {
        let keys = |names: &[&str]| -> Result<Vec<String>, String> {
            Ok(chosen(names)?.into_iter().map(|part| part.key).collect())
        };
        assert_eq!(keys(&["page", "fuzz gguf"]), Ok(vec!["page".to_owned(), "fuzz gguf".to_owned()]));
        assert!(keys(&["fuzz"]).is_ok_and(|fuzz| fuzz.len() > 5));
        assert!(keys(&["fuz"]).is_err_and(|error| error.contains("fuz is not a stage") && error.contains("page")));
    }
}
