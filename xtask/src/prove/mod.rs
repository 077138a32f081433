//! `prove`: tests that take too long for every run. Each writes a short page into `docs/prove`, which is committed.
//! `docs/prove/ledger.tsv` records the sources of each part, so a part runs again only after a change.

mod barriers;
mod browser;
mod checked;
mod clients;
mod date;
mod guides;
mod hub;
mod ledger;
mod list;
mod mutations;
mod page;
mod parts;
mod publish;
mod ready;
mod replicas;
mod rounds;
mod seeds;
mod settings;
pub(crate) mod stages;
mod synthetic;
mod templates;
mod workshop;

pub(crate) use barriers::barriers;
pub(crate) use browser::browser;
pub(crate) use checked::checked;
pub(crate) use clients::clients;
pub(crate) use date::date_and_commit;
pub(crate) use guides::{Options as Guides, guides};
pub(crate) use hub::hub;
use ledger::{Ledger, Part};
pub(crate) use mutations::mutations;
pub(crate) use publish::publish;
pub(crate) use replicas::replicas;
pub(crate) use seeds::seeds;
pub(crate) use settings::settings;
pub(crate) use synthetic::synthetic;
pub(crate) use templates::templates;

use crate::{example, root, sh};

/// Takes the key of a part that ran, and its lines of the page.
type Done<'a> = dyn FnMut(&str, &[String]) -> Result<(), String> + 'a;

/// Runs the parts whose sources have changed. `--all` runs every part, `--list` runs none, and `--only` runs the parts
/// whose name starts with one of the words.
pub(crate) fn prove(words: &[&str]) -> Result<(), String> {
    let (all, list, only) = options(words)?;
    if !list && ledger::uncommitted()? {
        return Err("commit first: a part is proved for a commit".to_owned());
    }
    let ledger = Ledger::read();
    let mut changed = Vec::new();
    for part in chosen(parts::all()?, only)? {
        let holds = ledger.holds(&part)?;
        println!("{:<40} {}", part.name(), holds.as_deref().map_or("changed", |holds| holds));
        if all || holds.is_none() {
            changed.push(part);
        }
    }
    if list { Ok(()) } else { run(&changed, ledger) }
}

/// Whether all parts run, whether none does, and the names of those that may.
fn options<'a>(words: &'a [&'a str]) -> Result<(bool, bool, &'a [&'a str]), String> {
    match words {
        [] => Ok((false, false, &[])),
        ["--all"] => Ok((true, false, &[])),
        ["--list"] => Ok((false, true, &[])),
        ["--only", names @ ..] if !names.is_empty() => Ok((false, false, names)),
        ["--only"] => Err("prove --only: name parts, as `cargo xtask prove --list` prints them".to_owned()),
        [other, ..] => Err(format!("prove: unknown proof or option {other}; see cargo xtask")),
    }
}

/// The parts whose name starts with one of these, or all.
fn chosen(parts: Vec<Part>, only: &[&str]) -> Result<Vec<Part>, String> {
    if let Some(name) = only.iter().find(|name| !parts.iter().any(|part| part.name().starts_with(**name))) {
        return Err(format!("prove: there is no part {name}; `cargo xtask prove --list` prints all"));
    }
    let is_chosen = |part: &Part| only.is_empty() || only.iter().any(|name| part.name().starts_with(name));
    Ok(parts.into_iter().filter(is_chosen).collect())
}

/// Runs parts, and records each that holds as soon as it does.
fn run(changed: &[Part], mut ledger: Ledger) -> Result<(), String> {
    let of = |proof: &str| changed.iter().filter(|part| part.proof == proof).collect::<Vec<_>>();
    let mut failed = Vec::new();
    let mut note = |part: &Part, outcome: Result<(), String>| match outcome {
        Ok(()) => ledger.record(part),
        Err(error) => {
            failed.push(format!("{}: {error}", part.name()));
            ledger.remove(part)
        }
    };
    for (proof, run) in WHOLE {
        for part in of(proof) {
            note(part, run(&format!("docs/prove/{proof}.md")))?;
        }
    }
    each_part(&of("mutations"), mutations::prove, mutations::write, &mut note)?;
    each_part(&of("barriers"), barriers::prove, barriers::write, &mut note)?;
    if failed.is_empty() { Ok(()) } else { Err(failed.join("\n")) }
}

/// Runs parts of one proof, whose lines go into its page.
fn each_part(
    parts: &[&Part],
    prove: impl FnOnce(&[&str], &mut Done) -> Result<(), String>,
    write: impl Fn(&str, &[String]) -> Result<(), String>,
    note: &mut impl FnMut(&Part, Result<(), String>) -> Result<(), String>,
) -> Result<(), String> {
    if parts.is_empty() {
        return Ok(());
    }
    let keys: Vec<&str> = parts.iter().map(|part| part.key.as_str()).collect();
    prove(&keys, &mut |key, lines| {
        write(key, lines)?;
        let part = parts.iter().find(|part| part.key == key).ok_or(format!("there is no part {key}"))?;
        let missed: Vec<&str> = lines.iter().filter(|line| line.starts_with('-')).map(String::as_str).collect();
        note(part, if missed.is_empty() { Ok(()) } else { Err(missed.join("; ")) })
    })
}

/// Compiles the CUDA kernels of some sources for all architectures, and writes their rows of the page.
pub(crate) fn kernels(sources: &[&str]) -> Result<(), String> {
    let page = root().join("docs/prove/kernels.md");
    example("kernels", &[&["sources", &page.display().to_string(), &date_and_commit()], sources].concat())
}

/// A proof of one part, which writes the page at this path.
type Whole = fn(&str) -> Result<(), String>;

const WHOLE: [(&str, Whole); 13] = [
    ("kernels", |path| example("kernels", &["all", path, &date_and_commit()])),
    ("checked", |path| checked(Some(path))),
    ("synthetic", |path| synthetic(Some(path))),
    ("clients", |path| clients(Some(path))),
    ("guides", |path| guides(&Guides { output: Some(path), ..Guides::default() })),
    ("hub", |path| hub(Some(path))),
    ("page", |path| browser(Some(path))),
    ("publish", |path| publish(Some(path))),
    ("replicas", |path| replicas(Some(path))),
    ("seeds", |path| seeds(&["--output", path])),
    ("settings", |path| settings(Some(path))),
    ("templates", |path| templates(Some(path), false)),
    ("elsewhere", |_| sh("scripts/elsewhere.sh", &["all"])),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_has_a_proof() {
        let parts = parts::all().expect("the folders are there");
        let known = |part: &Part| {
            ["mutations", "barriers"].contains(&part.proof) || WHOLE.iter().any(|(proof, _)| *proof == part.proof)
        };
        assert!(parts.iter().all(known));
        assert!(WHOLE.iter().all(|(proof, _)| parts.iter().any(|part| part.proof == *proof)));
    }

    #[test]
    fn unknown_words_are_refused() {
        assert!(prove(&["--every"]).is_err_and(|error| error.contains("--every")));
        assert!(prove(&["--only"]).is_err_and(|error| error.contains("--list")));
    }

    #[test]
    fn parts_are_chosen_by_name() {
        let names = |only: &[&str]| -> Result<Vec<String>, String> {
            Ok(chosen(parts::all()?, only)?.iter().map(Part::name).collect())
        };
        assert_eq!(names(&[]).map(|all| all.len()), parts::all().map(|all| all.len()));
        assert_eq!(
            names(&["mutations route", "checked"]),
            Ok(vec!["mutations route".to_owned(), "checked".to_owned()])
        );
        assert!(names(&["barriers"]).is_ok_and(|barriers| barriers.len() > 20));
        assert!(names(&["checked", "nothing"]).is_err_and(|error| error.contains("no part nothing")));
    }
}
