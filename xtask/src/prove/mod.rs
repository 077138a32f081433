//! `prove`: what is too long for every run. Each proof prints a dated table, which is committed.

mod checked;
mod date;
mod list;
mod seeds;
mod synthetic;
mod workshop;

pub(crate) use checked::checked;
pub(crate) use date::today;
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

    let mut table = format!("# Mutations of the CPU kernels, {}\n\n", date::today());
    table += "Each line was applied alone to a copy of the tree; the op suite ran on every CPU level of the machine.\n";
    let _ = writeln!(table, "Its seed was {}; without a mutation it passes.\n", workshop.seed);
    table += "| op | file | mutation | outcome | s |\n| --- | --- | --- | --- | ---: |\n";
    let mut alive = 0;
    for (i, mutation) in chosen.iter().enumerate() {
        let start = Instant::now();
        let outcome = workshop.with(mutation, || workshop.run(mutation.parts))?;
        alive += usize::from(!outcome.is_noticed());
        let (find, replace) = (one_line(mutation.find), one_line(mutation.replace));
        let seconds = start.elapsed().as_secs();
        eprintln!(
            "{:>3} of {} {outcome:<16} {:<18} {find} → {replace} ({seconds} s)",
            i + 1,
            chosen.len(),
            mutation.op
        );
        let cell = |text: &str| text.replace('|', "\\|");
        let change = format!("`{}` → `{}`", cell(&find), cell(&replace));
        let _ = writeln!(table, "| {} | {} | {change} | {outcome} | {seconds} |", mutation.op, mutation.file);
    }
    let _ = writeln!(table, "\n{} mutations, {alive} not noticed.", chosen.len());
    println!("{table}");
    if let Some(file) = options.output {
        let folder = std::path::Path::new(file).parent().map_or(Ok(()), std::fs::create_dir_all);
        folder.and_then(|()| std::fs::write(file, &table)).map_err(|e| format!("cannot write {file}: {e}"))?;
    }
    if alive == 0 { Ok(()) } else { Err(format!("{alive} mutations were not noticed: the op suite has a hole")) }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
