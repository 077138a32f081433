//! Deletes every barrier and every wait of the kernels in turn, on each GPU that runs the source, and plants bugs: checked mode
//! must notice each. `cargo xtask prove barriers`.
//!
//! barriers [PAGE DATE]: all. barriers --source NAME: those of one source.

#[cfg(all(target_arch = "x86_64", unix))]
mod prove {
    use gpu_sim::Language;
    use gristmill_conformance::broken::{BUGS, Bug, Call, Map, each, orders, plant};
    use gristmill_conformance::simulated::cache_of_changed;
    use gristmill_conformance::sources;
    use std::collections::{BTreeMap, BTreeSet};
    use std::fmt::Write as _;
    use std::time::Instant;

    /// Cases of each part of the suite that are run to learn which sources they run; one for a single source, which many run.
    const LOOKS: usize = 4;

    /// Rounds that look for cases to reach a call on each GPU, which few calls of a shared source do on one of them; then for
    /// what no case reaches on either.
    const ROUNDS: [usize; 2] = [8, 60];

    /// A change that checked mode noticed.
    struct Noticed {
        file: &'static str,
        /// The column of the page.
        column: Column,
        /// The suite's message.
        message: String,
    }

    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Column {
        Deleted(Language),
        Planted,
    }

    const COLUMNS: [Column; 3] = [Column::Deleted(Language::Cuda), Column::Deleted(Language::Metal), Column::Planted];

    /// Changes that were noticed, and descriptions of the others.
    #[derive(Default)]
    struct Outcomes {
        noticed: Vec<Noticed>,
        missed: Vec<String>,
    }

    impl Outcomes {
        /// Does something with each on all cores.
        fn add<T: Sync>(&mut self, all: &[T], work: impl Fn(&T) -> Result<Noticed, String> + Sync) {
            let outcomes = each(all, |one| {
                let begin = Instant::now();
                let outcome = work(one);
                let line = match &outcome {
                    Ok(Noticed { file, message, .. }) => format!("{file}: {}", fault(message)),
                    Err(line) => format!("NOT NOTICED {line}"),
                };
                eprintln!("{:>3} s: {line}", begin.elapsed().as_secs());
                outcome
            });
            for outcome in outcomes {
                match outcome {
                    Ok(noticed) => self.noticed.push(noticed),
                    Err(missed) => self.missed.push(missed),
                }
            }
        }
    }

    /// The fault with its place, or how the result differs: the start of the suite's message.
    fn fault(message: &str) -> String {
        let first = message.lines().next().unwrap_or_default();
        let fault = first.split("; block [").next().unwrap_or(first);
        let fault = fault.split_once("reason: \"").map_or(fault, |(_, reason)| reason);
        fault.chars().take(200).collect()
    }

    /// The kind of fault that a message names in parentheses; without one the result differs.
    fn kind(message: &str) -> &str {
        let first = message.lines().next().unwrap_or_default();
        let named = first.split('(').skip(1).filter_map(|rest| Some(rest.split_once(')')?.0));
        let is_kind = |name: &&str| name.starts_with(char::is_uppercase) && name.chars().all(char::is_alphabetic);
        named.filter(is_kind).last().unwrap_or("wrong result")
    }

    /// Finds, for each GPU, cases that reach the calls.
    fn maps(source: Option<&str>, calls: &[(&'static str, &String, Call)]) -> Result<Vec<Map>, String> {
        let begin = Instant::now();
        let languages = [Language::Cuda, Language::Metal].into_iter();
        let languages = languages.filter(|&language| source.is_none_or(|source| sources::has(language, source)));
        let looks = if source.is_some() { 1 } else { LOOKS };
        let mut maps = languages.map(|language| Map::new(language, looks)).collect::<Result<Vec<_>, _>>()?;
        for (what, time) in maps.iter().filter_map(Map::slowest) {
            eprintln!("{:>3} s: the slowest is {what}, {} s", begin.elapsed().as_secs(), time.as_secs());
        }
        let mut sought: Vec<(&'static str, &Call)> = calls.iter().map(|(name, _, call)| (*name, call)).collect();
        for most_rounds in ROUNDS {
            for map in &mut maps {
                let rounds = map.look_for(sought.iter().copied(), most_rounds)?;
                eprintln!("{:>3} s: {:?}, in {rounds} more rounds", begin.elapsed().as_secs(), map.language());
            }
            sought.retain(|(name, call)| !maps.iter().any(|map| map.comes_to(name, call)));
        }
        Ok(maps)
    }

    fn delete(map: &Map, (name, source, order): &(&'static str, &String, Call)) -> Result<Noticed, String> {
        let mut changed = (*source).clone();
        changed.replace_range(order.at.clone(), order.instead);
        match map.notice(name, order, &changed) {
            Some((_, message)) => Ok(Noticed { file: name, column: Column::Deleted(map.language()), message }),
            None => Err(format!("{:?}, {name}:{}, {} deleted", map.language(), order.line, order.call)),
        }
    }

    /// Deletes every call that orders and plants every bug, of all sources or of one.
    pub(super) fn run(source: Option<&str>, output: Option<(&str, &str)>) -> Result<(), String> {
        // The suite reports what it notices by panicking.
        std::panic::set_hook(Box::new(|_| {}));
        let begin = Instant::now();
        let wanted = |name: &str| source.is_none_or(|source| source == name);
        if let Some(unknown) = source.filter(|_| !sources::all().iter().any(|(name, _)| wanted(name))) {
            return Err(format!("there is no source {unknown}"));
        }
        // These two are the simulator's own.
        let files = sources::all().iter().filter(|(name, _)| !["ptx.cuh", "hopper.cuh"].contains(name) && wanted(name));
        let calls: Vec<(&'static str, &String, Call)> =
            files.flat_map(|(name, text)| orders(text).into_iter().map(move |call| (*name, text, call))).collect();
        let bugs: Vec<&Bug> = BUGS.iter().filter(|bug| wanted(bug.file)).collect();
        let maps = maps(source, &calls)?;

        let mut outcomes = Outcomes::default();
        // Without a case that reaches a call, its deletion goes unnoticed.
        let unseen = calls.iter().filter(|(name, _, call)| !maps.iter().any(|map| map.comes_to(name, call)));
        outcomes.missed.extend(unseen.map(|(name, _, call)| format!("{name}:{}, no case reaches it", call.line)));
        eprintln!("{:>3} s: NOT REACHED {:?}", begin.elapsed().as_secs(), outcomes.missed);
        let on_each = maps.iter().flat_map(|map| calls.iter().map(move |call| (map, call)));
        let on_each: Vec<_> = on_each.filter(|(map, (name, _, call))| map.comes_to(name, call)).collect();
        eprintln!("{} calls, {} bugs", on_each.len(), bugs.len());
        outcomes.add(&on_each, |(map, call)| delete(map, call));
        outcomes
            .add(&bugs, |bug| plant(bug).map(|message| Noticed { file: bug.file, column: Column::Planted, message }));
        let _ = std::fs::remove_dir_all(cache_of_changed());

        let Outcomes { noticed, missed } = outcomes;
        if let Some((path, date)) = output {
            let page = page(&noticed, &missed, date, begin.elapsed().as_secs());
            std::fs::write(path, page).map_err(|error| format!("{path}: {error}"))?;
        }
        println!("{} changes were noticed", noticed.len());
        if missed.is_empty() { Ok(()) } else { Err(format!("nothing notices:\n{}", missed.join("\n"))) }
    }

    /// How often each word occurs: "a 3, b 1".
    fn counts<'a>(words: impl Iterator<Item = &'a str>) -> String {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        words.for_each(|word| *counts.entry(word).or_default() += 1);
        counts.iter().map(|(word, count)| format!("{word} {count}")).collect::<Vec<_>>().join(", ")
    }

    /// Counts by source, and each change that was not noticed.
    fn page(noticed: &[Noticed], missed: &[String], date: &str, seconds: u64) -> String {
        let mut page = format!("# Barriers of the kernels, {date}\n\n`cargo xtask prove barriers`: {seconds} s. ");
        page += "Each call that orders threads or memory was deleted alone, in all instances of its source, for\neach GPU; \
                 then bugs of other kinds were planted one at a time. The op suite noticed them in the simulator's checked mode,\n\
                 in four orders of threads.\n\n| source | deleted, CUDA | deleted, Metal | planted | noticed as |\n\
                 | --- | ---: | ---: | ---: | --- |\n";
        let row = |name: &str, of: &[&Noticed]| {
            let count = |column| of.iter().filter(|noticed| noticed.column == column).count();
            let [cuda, metal, planted] = COLUMNS.map(count);
            let kinds = counts(of.iter().map(|noticed| kind(&noticed.message)));
            format!("| {name} | {cuda} | {metal} | {planted} | {kinds} |\n")
        };
        for file in noticed.iter().map(|noticed| noticed.file).collect::<BTreeSet<_>>() {
            page += &row(file, &noticed.iter().filter(|noticed| noticed.file == file).collect::<Vec<_>>());
        }
        page += &row("all", &noticed.iter().collect::<Vec<_>>());
        let _ = writeln!(page, "\n{} not noticed.", missed.len());
        missed.iter().for_each(|missed| page += &format!("- {missed}\n"));
        page
    }
}

fn main() -> std::process::ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (source, output) = match words[..] {
        [] => (None, None),
        ["--source", source] => (Some(source), None),
        [page, date] => (None, Some((page, date))),
        _ => {
            eprintln!("usage: barriers [PAGE DATE], or barriers --source NAME");
            return std::process::ExitCode::FAILURE;
        }
    };
    #[cfg(all(target_arch = "x86_64", unix))]
    let outcome = prove::run(source, output);
    #[cfg(not(all(target_arch = "x86_64", unix)))]
    let outcome = Err::<(), _>(format!("{source:?} {output:?}: the simulator runs on x86-64 Unix machines only"));
    match outcome {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            std::process::ExitCode::FAILURE
        }
    }
}
