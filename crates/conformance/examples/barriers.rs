//! Deletes every barrier and every wait of the kernels in turn, on each GPU that runs the source, and plants bugs:
//! checked mode must notice each. `cargo xtask prove barriers`.
//!
//! barriers [SOURCE...]: those of these sources, or of all. It prints a row of a table for each source that has any,
//! and a line for each change that was not noticed: `- SOURCE: …`.

#[cfg(all(target_arch = "x86_64", unix))]
mod prove {
    use gpu_sim::Language;
    use gristmill_conformance::fault_injection::{BUGS, Bug, Call, Map, each, orders, plant};
    use gristmill_conformance::simulated::cache_of_changed;
    use gristmill_conformance::sources;
    use std::collections::{BTreeMap, BTreeSet};
    use std::time::Instant;

    /// Rounds that look for cases to reach a call on each GPU, which few calls of a shared source do on one of them;
    /// then for what no case reaches on either.
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

    /// A change that was not noticed.
    struct Missed {
        file: &'static str,
        change: String,
    }

    /// The changes that were tried.
    #[derive(Default)]
    struct Outcomes {
        noticed: Vec<Noticed>,
        missed: Vec<Missed>,
    }

    impl Outcomes {
        /// Does something with each on all cores, and returns those that were missed.
        fn add<T: Copy + Send + Sync>(
            &mut self,
            all: &[T],
            work: impl Fn(T) -> Result<Noticed, Missed> + Sync,
        ) -> Vec<(T, Missed)> {
            let outcomes = each(all, |&one| {
                let begin = Instant::now();
                let outcome = work(one);
                let line = match &outcome {
                    Ok(Noticed { file, message, .. }) => format!("{file}: {}", fault(message)),
                    Err(Missed { file, change }) => format!("NOT NOTICED {file}: {change}"),
                };
                eprintln!("{:>3} s: {line}", begin.elapsed().as_secs());
                (one, outcome)
            });
            let mut missed = Vec::new();
            for (one, outcome) in outcomes {
                match outcome {
                    Ok(noticed) => self.noticed.push(noticed),
                    Err(reason) => missed.push((one, reason)),
                }
            }
            missed
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
    fn maps(wanted: &[&str], calls: &[(&'static str, &String, Call)]) -> Result<Vec<Map>, String> {
        let begin = Instant::now();
        let languages = [Language::Cuda, Language::Metal].into_iter();
        let languages = languages.filter(|&language| wanted.iter().any(|source| sources::has(language, source)));
        let mut maps = languages.map(|language| Map::new(language, wanted)).collect::<Result<Vec<_>, _>>()?;
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
            if !sought.is_empty() {
                maps.iter_mut().try_for_each(|map| map.complete().map(drop))?;
            }
        }
        Ok(maps)
    }

    fn delete(map: &Map, (name, source, order): &(&'static str, &String, Call)) -> Result<Noticed, Missed> {
        let mut changed = (*source).clone();
        changed.replace_range(order.at.clone(), order.instead);
        match map.notice(name, order, &changed) {
            Some((_, message)) => Ok(Noticed { file: name, column: Column::Deleted(map.language()), message }),
            None => {
                let change = format!("{:?}, line {}, {} deleted", map.language(), order.line, order.call);
                Err(Missed { file: name, change })
            }
        }
    }

    /// Deletes every call that orders and plants every bug, of all sources or of some. Returns the lines for the page.
    pub(super) fn run(wanted: &[&str]) -> Result<Vec<String>, String> {
        // The suite reports what it notices by panicking.
        std::panic::set_hook(Box::new(|_| {}));
        let begin = Instant::now();
        let is_wanted = |name: &str| wanted.is_empty() || wanted.contains(&name);
        if let Some(unknown) = wanted.iter().find(|wanted| !sources::all().iter().any(|(name, _)| name == *wanted)) {
            return Err(format!("there is no source {unknown}"));
        }
        // These are the simulator's own.
        let files = sources::all()
            .iter()
            .filter(|(name, _)| !["ptx.cuh", "hopper.cuh", "system.cuh"].contains(name) && is_wanted(name));
        let calls: Vec<(&'static str, &String, Call)> =
            files.flat_map(|(name, text)| orders(text).into_iter().map(move |call| (*name, text, call))).collect();
        let bugs: Vec<&Bug> = BUGS.iter().filter(|bug| is_wanted(bug.file)).collect();
        if calls.is_empty() && bugs.is_empty() {
            return Ok(Vec::new());
        }
        let names: Vec<&str> = calls.iter().map(|(name, ..)| *name).collect();
        let mut maps = maps(&names, &calls)?;

        let mut outcomes = Outcomes::default();
        // Without a case that reaches a call, its deletion goes unnoticed.
        let unseen = calls.iter().filter(|(name, _, call)| !maps.iter().any(|map| map.comes_to(name, call)));
        let unreached = |(file, _, call): &(&'static str, &String, Call)| {
            eprintln!("{:>3} s: NOT REACHED {file}, line {}", begin.elapsed().as_secs(), call.line);
            Missed { file, change: format!("line {}, no case reaches it", call.line) }
        };
        outcomes.missed.extend(unseen.map(unreached));
        let on_each = (0..maps.len()).flat_map(|map| calls.iter().map(move |call| (map, call)));
        let mut left: Vec<_> = on_each.filter(|(map, (name, _, call))| maps[*map].comes_to(name, call)).collect();
        eprintln!("{} calls, {} bugs", left.len(), bugs.len());
        loop {
            let missed = outcomes.add(&left, |(map, call)| delete(&maps[map], call));
            // Cases of parts that were not looked at yet may notice.
            left = missed.iter().map(|(one, _)| *one).collect();
            let mut are_more = false;
            for (map, _) in &left {
                are_more |= maps[*map].complete()?;
            }
            if !are_more {
                outcomes.missed.extend(missed.into_iter().map(|(_, reason)| reason));
                break;
            }
        }
        let missed = outcomes.add(&bugs, |bug| match plant(bug) {
            Ok(message) => Ok(Noticed { file: bug.file, column: Column::Planted, message }),
            Err(change) => Err(Missed { file: bug.file, change }),
        });
        outcomes.missed.extend(missed.into_iter().map(|(_, reason)| reason));
        let _ = std::fs::remove_dir_all(cache_of_changed());
        eprintln!("{:>3} s: {} changes were noticed", begin.elapsed().as_secs(), outcomes.noticed.len());
        Ok(lines(&outcomes))
    }

    /// How often each word occurs: "a 3, b 1".
    fn counts<'a>(words: impl Iterator<Item = &'a str>) -> String {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        words.for_each(|word| *counts.entry(word).or_default() += 1);
        counts.iter().map(|(word, count)| format!("{word} {count}")).collect::<Vec<_>>().join(", ")
    }

    /// Counts by source, and each change that was not noticed.
    fn lines(Outcomes { noticed, missed }: &Outcomes) -> Vec<String> {
        let files = noticed.iter().map(|noticed| noticed.file).chain(missed.iter().map(|missed| missed.file));
        let row = |file: &'static str| {
            let of: Vec<&Noticed> = noticed.iter().filter(|noticed| noticed.file == file).collect();
            let count = |column| of.iter().filter(|noticed| noticed.column == column).count();
            let [cuda, metal, planted] = COLUMNS.map(count);
            let kinds = counts(of.iter().map(|noticed| kind(&noticed.message)));
            format!("| {file} | {cuda} | {metal} | {planted} | {kinds} |")
        };
        let rows = files.collect::<BTreeSet<_>>().into_iter().map(row);
        rows.chain(missed.iter().map(|Missed { file, change }| format!("- {file}: {change}"))).collect()
    }
}

fn main() -> std::process::ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let sources: Vec<&str> = arguments.iter().map(String::as_str).collect();
    #[cfg(all(target_arch = "x86_64", unix))]
    let outcome = prove::run(&sources);
    #[cfg(not(all(target_arch = "x86_64", unix)))]
    let outcome = Err::<Vec<String>, _>(format!("{sources:?}: the simulator runs on x86-64 Unix machines only"));
    match outcome {
        Ok(lines) => {
            lines.iter().for_each(|line| println!("{line}"));
            std::process::ExitCode::SUCCESS
        }
        Err(message) => {
            eprintln!("{message}");
            std::process::ExitCode::FAILURE
        }
    }
}
