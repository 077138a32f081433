//! `prove mutations`: plausible mistakes in the CPU kernels, which the op suite must detect. Those of single formats are applied
//! in rounds ([`rounds`]), all others one at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::time::Instant;

use super::date::date_and_commit;
use super::list::{MUTATIONS, Mutation};
use super::report;
use super::rounds::rounds;
use super::scratch_tree::{Outcome, ScratchTree};

const INTRO: &str = "\
`cargo xtask prove mutations`: each mutation of `xtask/src/prove/list.rs` and of the formats' `mod.rs` was applied to a copy of the tree, and its parts of the op
suite ran on every CPU level of the machine. Mutations of formats that share no code were applied together, and each had to
fail the products of its own format; all others were applied alone. A part named `formats` is the test of golden blocks,
`crates/kernels/tests/formats`.

| operation | mutations | noticed | of these by a hang | s |
| --- | ---: | ---: | ---: | ---: |
";

/// Precedes the missing feature in the line of a mutation whose source this CPU does not run.
const NEEDS: &str = "`: needs ";

/// Options of [`mutations`] on the command line.
#[derive(Default)]
struct Options<'a> {
    only: Option<&'a str>,
    file: Option<&'a str>,
    list: bool,
}

impl<'a> Options<'a> {
    fn parse(mut words: &[&'a str]) -> Result<Self, String> {
        let mut options = Self::default();
        loop {
            match words {
                [] => return Ok(options),
                ["--only", op, rest @ ..] => (options.only, words) = (Some(*op), rest),
                ["--file", file, rest @ ..] => (options.file, words) = (Some(*file), rest),
                ["--list", rest @ ..] => (options.list, words) = (true, rest),
                [other, ..] => return Err(format!("prove mutations: unknown option {other}; see cargo xtask")),
            }
        }
    }
}

/// Applies the mutations of all operations, of one operation, or of the files whose paths start with a prefix, and writes the
/// report after each operation. Fails unless the op suite detects each mutation that this CPU can run.
pub(super) fn mutations(words: &[&str]) -> Result<(), String> {
    let options = Options::parse(words)?;
    let chosen = |mutation: &&Mutation| {
        options.only.is_none_or(|op| mutation.op == op)
            && options.file.is_none_or(|file| mutation.file.starts_with(file))
    };
    if options.list {
        let row = |m: &Mutation| format!("{:<20} {:<22} {} → {}", m.op, m.file, one_line(m.find), one_line(m.replace));
        MUTATIONS.iter().filter(chosen).for_each(|mutation| println!("{}", row(mutation)));
        return Ok(());
    }
    let ops: BTreeSet<&str> = MUTATIONS.iter().filter(chosen).map(|mutation| mutation.op).collect();
    if ops.is_empty() {
        let all: BTreeSet<&str> = MUTATIONS.iter().map(|mutation| mutation.op).collect();
        return Err(format!("no such mutations; there are some of {all:?}, in files that --list prints"));
    }
    let (mut rows, mut missed) = (String::new(), Vec::new());
    run(&ops.into_iter().collect::<Vec<_>>(), &chosen, &mut |row, others| {
        let _ = writeln!(rows, "{row}");
        missed.extend(others);
        let missed = missed.concat();
        let not_proved = if missed.is_empty() { String::new() } else { format!("\nNot proved:\n\n{missed}") };
        report::write(
            "mutations",
            &format!("# Mutations of the CPU kernels, {}\n\n{INTRO}{rows}{not_proved}", date_and_commit()),
        )
    })?;
    match missed.iter().filter(|line| !line.contains(NEEDS)).count() {
        0 => Ok(()),
        missed => Err(format!("{missed} mutations were not noticed: the op suite has a hole")),
    }
}

/// Takes the row of an operation, and a line for each of its mutations that was not detected or not run.
type Done<'a> = dyn FnMut(String, Vec<String>) -> Result<(), String> + 'a;

/// Proves the chosen mutations of some operations, one operation after another.
fn run(ops: &[&str], chosen: &dyn Fn(&&Mutation) -> bool, done: &mut Done) -> Result<(), String> {
    let scratch_tree = ScratchTree::new()?;
    let of_ops = || MUTATIONS.iter().filter(|mutation| ops.contains(&mutation.op)).filter(chosen);
    let parts: BTreeSet<&str> = of_ops().flat_map(|mutation| mutation.parts.iter().copied()).collect();
    let parts: Vec<&str> = parts.into_iter().collect();
    eprintln!("the suite must pass before anything is changed, with seed {}: {parts:?}", scratch_tree.seed);
    match scratch_tree.run(&parts)? {
        Outcome::Survived => {}
        Outcome::Broken => return Err(format!("the copy does not compile: see {}", scratch_tree.log.display())),
        other => return Err(format!("without a mutation the op suite says: {other}; mend that first")),
    }
    let mut number = 0;
    let all = of_ops().count();
    for op in ops {
        let of_op: Vec<&Mutation> = of_ops().filter(|mutation| mutation.op == *op).collect();
        let mut noticed = noticed_in_rounds(&scratch_tree, &of_op)?;
        let mut outcomes = Vec::new();
        for mutation in of_op {
            let start = Instant::now();
            let (outcome, seconds) = match noticed.remove(&(mutation.file, mutation.find)) {
                Some(seconds) => (Outcome::Killed, seconds),
                None => (alone(&scratch_tree, mutation)?, start.elapsed().as_secs()),
            };
            number += 1;
            eprintln!("{number:>3} of {all} {outcome:<16} {} ({seconds} s)", change(mutation));
            outcomes.push((mutation, outcome, seconds));
        }
        done(row(op, &outcomes), missed(&outcomes))?;
    }
    Ok(())
}

/// Builds and tests one mutation.
fn alone(scratch_tree: &ScratchTree, mutation: &Mutation) -> Result<Outcome, String> {
    match scratch_tree.obstacle(mutation)? {
        Some(obstacle) => Ok(obstacle),
        None => scratch_tree.with(&[mutation], || scratch_tree.run(mutation.parts)),
    }
}

/// The mutations of single formats that are noticed when several formats are broken at once, with their share of the seconds.
/// Keys are files and the replaced sources.
fn noticed_in_rounds<'a>(
    scratch_tree: &ScratchTree,
    mutations: &[&'a Mutation],
) -> Result<BTreeMap<(&'a str, &'a str), u64>, String> {
    let mut applicable = Vec::new();
    for &mutation in mutations {
        if mutation.format().is_some() && scratch_tree.obstacle(mutation)?.is_none() {
            applicable.push(mutation);
        }
    }
    let mut noticed = BTreeMap::new();
    if applicable.len() < 2 {
        return Ok(noticed);
    }
    match scratch_tree.failing_formats()? {
        Some(failing) if failing.is_empty() => {}
        other => return Err(format!("without a mutation the products of formats fail: {other:?}; mend that first")),
    }
    for round in rounds(&applicable, &scratch_tree.formats()?) {
        let start = Instant::now();
        let failing = scratch_tree.with(&round, || scratch_tree.failing_formats())?.unwrap_or_default();
        let seconds = start.elapsed().as_secs() / round.len() as u64;
        let fails = |mutation: &&Mutation| mutation.format().is_some_and(|format| failing.contains(format));
        let found: Vec<_> =
            round.iter().copied().filter(fails).map(|mutation| (mutation.file, mutation.find)).collect();
        eprintln!("{} formats broken at once, {} noticed ({} s)", round.len(), found.len(), start.elapsed().as_secs());
        noticed.extend(found.into_iter().map(|key| (key, seconds)));
    }
    Ok(noticed)
}

fn change(mutation: &Mutation) -> String {
    let Mutation { op, file, find, replace, .. } = mutation;
    format!("{op}: {file}: `{}` → `{}`", one_line(find), one_line(replace))
}

/// The row of an operation.
fn row(op: &str, outcomes: &[(&Mutation, Outcome, u64)]) -> String {
    let noticed = outcomes.iter().filter(|(_, outcome, _)| outcome.is_noticed()).count();
    let hung = outcomes.iter().filter(|(_, outcome, _)| *outcome == Outcome::Hung).count();
    let seconds: u64 = outcomes.iter().map(|(.., seconds)| seconds).sum();
    format!("| {op} | {} | {noticed} | {hung} | {seconds} |", outcomes.len())
}

/// A line for each mutation that was not detected or not run.
fn missed(outcomes: &[(&Mutation, Outcome, u64)]) -> Vec<String> {
    let missed = outcomes.iter().filter(|(_, outcome, _)| !outcome.is_noticed());
    missed.map(|(mutation, outcome, _)| format!("- {}: {outcome}\n", change(mutation))).collect()
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prove::list::Feature;

    #[test]
    fn lines_count_and_name_what_survived() {
        let first = &MUTATIONS[0];
        let outcomes = [(first, Outcome::Killed, 3), (first, Outcome::Survived, 4), (first, Outcome::Hung, 5)];
        assert_eq!(row(first.op, &outcomes), format!("| {} | 3 | 2 | 1 | 12 |", first.op));
        let missed = missed(&outcomes);
        assert!(missed.len() == 1 && missed[0].starts_with(&format!("- {}: ", first.op)), "{missed:?}");
        assert!(missed[0].ends_with("SURVIVED\n"), "{missed:?}");
    }

    #[test]
    fn a_line_names_the_feature_that_is_lacking() {
        let of_bf16 = MUTATIONS.iter().find(|mutation| mutation.needs.is_some()).expect("a mutation of avx512_bf16");
        let outcomes = [(of_bf16, Outcome::Needs(Feature::Avx512Bf16), 0)];
        assert_eq!(row(of_bf16.op, &outcomes), "| matmul | 1 | 0 | 0 | 0 |");
        let missed = missed(&outcomes);
        assert!(missed[0].contains(NEEDS) && missed[0].ends_with("needs avx512_bf16\n"), "{missed:?}");
    }

    #[test]
    fn options_are_checked() {
        assert!(mutations(&["--every"]).is_err_and(|error| error.contains("--every")));
        assert!(mutations(&["--only", "none"]).is_err_and(|error| error.contains("route")));
    }
}
