//! `prove`: tests that take too long for every run. Each writes a short dated page, which is committed.

mod checked;
mod clients;
mod date;
mod list;
mod seeds;
mod synthetic;
mod workshop;

pub(crate) use checked::checked;
pub(crate) use clients::clients;
pub(crate) use date::date_and_commit;
use list::{MUTATIONS, Mutation};
pub(crate) use seeds::seeds;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::time::Instant;
pub(crate) use synthetic::synthetic;
use workshop::{Outcome, Workshop};

/// What the command line asks of [`mutations`].
#[derive(Default)]
struct Options<'a> {
    only: Option<&'a str>,
    list: bool,
    output: Option<&'a str>,
}

impl<'a> Options<'a> {
    fn parse(mut words: &[&'a str]) -> Result<Self, String> {
        let mut options = Self::default();
        loop {
            match words {
                [] => return Ok(options),
                ["--only", op, rest @ ..] => (options.only, words) = (Some(*op), rest),
                ["--list", rest @ ..] => (options.list, words) = (true, rest),
                ["--output", file, rest @ ..] => (options.output, words) = (Some(*file), rest),
                [other, ..] => return Err(format!("prove mutations: unknown option {other}; see cargo xtask")),
            }
        }
    }
}

/// Applies every mutation and fails unless the op suite notices each.
pub(crate) fn mutations(words: &[&str]) -> Result<(), String> {
    let options = Options::parse(words)?;
    let chosen: Vec<&Mutation> = MUTATIONS.iter().filter(|m| options.only.is_none_or(|op| m.op == op)).collect();
    if chosen.is_empty() {
        let ops: BTreeSet<&str> = MUTATIONS.iter().map(|m| m.op).collect();
        return Err(format!("no mutations of this operation; there are some of {ops:?}"));
    }
    if options.list {
        chosen
            .iter()
            .for_each(|m| println!("{:<20} {:<22} {} → {}", m.op, m.file, one_line(m.find), one_line(m.replace)));
        return Ok(());
    }

    let workshop = Workshop::new()?;
    let parts: BTreeSet<&str> = chosen.iter().flat_map(|m| m.parts.iter().copied()).collect();
    let parts: Vec<&str> = parts.into_iter().collect();
    eprintln!("the suite must pass before anything is changed: {parts:?}");
    match workshop.run(&parts)? {
        Outcome::Survived => {}
        Outcome::Broken => return Err(format!("the copy does not compile: see {}", workshop.log.display())),
        other => return Err(format!("without a mutation the op suite says: {other}; mend that first")),
    }

    let mut outcomes = Vec::new();
    for (i, &mutation) in chosen.iter().enumerate() {
        let start = Instant::now();
        let outcome = workshop.with(mutation, || workshop.run(mutation.parts))?;
        let seconds = start.elapsed().as_secs();
        let (number, all, line) = (i + 1, chosen.len(), change(mutation));
        eprintln!("{number:>3} of {all} {outcome:<16} {line} ({seconds} s)");
        outcomes.push((mutation, outcome, seconds));
    }
    let page = page(&outcomes, workshop.seed);
    println!("{page}");
    if let Some(file) = options.output {
        let folder = std::path::Path::new(file).parent().map_or(Ok(()), std::fs::create_dir_all);
        folder.and_then(|()| std::fs::write(file, &page)).map_err(|e| format!("cannot write {file}: {e}"))?;
    }
    match outcomes.iter().filter(|(_, outcome, _)| !outcome.is_noticed()).count() {
        0 => Ok(()),
        missed => Err(format!("{missed} mutations were not noticed: the op suite has a hole")),
    }
}

fn change(mutation: &Mutation) -> String {
    let Mutation { op, file, find, replace, .. } = mutation;
    format!("{op}, {file}: `{}` → `{}`", one_line(find), one_line(replace))
}

/// Counts by operation, and each mutation that was not noticed.
fn page(outcomes: &[(&Mutation, Outcome, u64)], seed: u64) -> String {
    let mut page = format!("# Mutations of the CPU kernels, {}\n\n", date_and_commit());
    page += "`cargo xtask prove mutations`: each mutation of `xtask/src/prove/list.rs` was applied alone to a copy of the tree, and\n";
    let _ = writeln!(page, "its parts of the op suite ran on every CPU level of the machine, with seed {seed}.\n");
    page += "| operation | mutations | noticed | of these by a hang | s |\n| --- | ---: | ---: | ---: | ---: |\n";
    let ops: BTreeSet<&str> = outcomes.iter().map(|(mutation, ..)| mutation.op).collect();
    let row = |name: &str, of: &dyn Fn(&Mutation) -> bool| {
        let of = || outcomes.iter().filter(|(mutation, ..)| of(mutation));
        let noticed = of().filter(|(_, outcome, _)| outcome.is_noticed()).count();
        let hung = of().filter(|(_, outcome, _)| *outcome == Outcome::Hung).count();
        let seconds: u64 = of().map(|(.., seconds)| seconds).sum();
        format!("| {name} | {} | {noticed} | {hung} | {seconds} |\n", of().count())
    };
    ops.iter().for_each(|op| page += &row(op, &|mutation| mutation.op == *op));
    page += &row("all", &|_| true);
    for (mutation, outcome, _) in outcomes.iter().filter(|(_, outcome, _)| !outcome.is_noticed()) {
        let _ = write!(page, "\n- {outcome}: {}", change(mutation));
    }
    page
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::{MUTATIONS, Outcome, page};

    #[test]
    fn a_page_counts_by_operation_and_names_what_survived() {
        let first = &MUTATIONS[0];
        let page = page(&[(first, Outcome::Killed, 3), (first, Outcome::Survived, 4), (first, Outcome::Hung, 5)], 34);
        let row = "| 3 | 2 | 1 | 12 |\n";
        assert!(page.contains(&format!("| {} {row}", first.op)) && page.contains(&format!("| all {row}")), "{page}");
        assert!(
            page.contains(&format!("- SURVIVED: {}, {}: `", first.op, first.file)) && page.contains("seed 34"),
            "{page}"
        );
    }
}
