//! Every barrier and every wait of the kernels, deleted in turn, on each GPU that runs the text, and bugs that are planted in them:
//! checked mode must notice each. `cargo xtask prove barriers`.
//!
//! barriers [TABLE DATE]: all. barriers --text NAME: those of one text alone.

#[cfg(all(target_arch = "x86_64", unix))]
mod prove {
    use gpu_sim::Language;
    use gristmill_conformance::broken::{BUGS, Bug, Call, Map, each, orders, plant};
    use gristmill_conformance::simulated::cache_of_changed;
    use gristmill_conformance::sources;
    use std::fmt::Write as _;
    use std::time::Instant;

    /// Does something with each, and says how it goes; the lines of the table, and what was not noticed.
    fn table<T: Sync>(all: &[T], work: impl Fn(&T) -> Result<String, String> + Sync) -> (Vec<String>, Vec<String>) {
        let outcomes = each(all, |one| {
            let begin = Instant::now();
            let outcome = work(one);
            let (what, Ok(line) | Err(line)) = (if outcome.is_ok() { "" } else { "NOT NOTICED " }, &outcome);
            eprintln!("{:>3} s: {what}{line}", begin.elapsed().as_secs());
            outcome
        });
        let (lines, missed): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(Result::is_ok);
        (lines.into_iter().flatten().collect(), missed.into_iter().filter_map(Result::err).collect())
    }

    /// A message of the suite as a cell: the fault with its place, or how the result differs.
    fn cell(message: &str) -> String {
        let first = message.lines().next().unwrap_or_default();
        let fault = first.split("; block [").next().unwrap_or(first);
        let fault = fault.split_once("reason: \"").map_or(fault, |(_, reason)| reason);
        let short: String = fault.chars().take(200).collect();
        short.replace('|', "\\|").replace('`', "'")
    }

    /// Cases of each part of the suite that are tried to learn which texts they run; fewer for one text, which many run.
    const LOOKS: usize = 4;

    /// Deletes everything that orders, plants every bug; a table. Of one text alone, if one is given.
    pub(super) fn run(text: Option<&str>, output: Option<(&str, &str)>) -> Result<(), String> {
        // What the suite notices is a panic, which is said in the table.
        std::panic::set_hook(Box::new(|_| {}));
        let begin = Instant::now();
        eprintln!("which cases run which text, and that nothing is noticed in them");
        let wanted = |name: &str| text.is_none_or(|text| text == name);
        if let Some(unknown) = text.filter(|_| !sources::all().iter().any(|(name, _)| wanted(name))) {
            return Err(format!("there is no text {unknown}"));
        }
        let languages = [Language::Cuda, Language::Metal].into_iter();
        let languages = languages.filter(|&language| text.is_none_or(|text| sources::has(language, text)));
        let looks = if text.is_some() { 1 } else { LOOKS };
        let mut maps = languages.map(|language| Map::new(language, looks)).collect::<Result<Vec<_>, _>>()?;
        for (what, time) in maps.iter().filter_map(Map::slowest) {
            eprintln!("{:>3} s: the slowest is {what}, {} s", begin.elapsed().as_secs(), time.as_secs());
        }
        // Those are the simulator's own.
        let texts = sources::all().iter().filter(|(name, _)| !["ptx.cuh", "hopper.cuh"].contains(name) && wanted(name));
        let calls: Vec<(&'static str, &String, Call)> =
            texts.flat_map(|(name, text)| orders(text).into_iter().map(move |call| (*name, text, call))).collect();
        let bugs: Vec<&Bug> = BUGS.iter().filter(|bug| wanted(bug.file)).collect();
        eprintln!("which come to which call");
        for map in &mut maps {
            let rounds = map.look_for(calls.iter().map(|(name, _, call)| (*name, call)))?;
            eprintln!("{:>3} s: {:?}, in {rounds} more rounds", begin.elapsed().as_secs(), map.language());
        }
        // Where no case comes, nothing notices anything.
        let unseen = calls.iter().filter(|(name, _, call)| !maps.iter().any(|map| map.comes_to(name, call)));
        let unseen: Vec<String> =
            unseen.map(|(name, _, call)| format!("{name}:{}, no case comes there", call.line)).collect();
        eprintln!("{:>3} s: NOT SEEN {unseen:?}", begin.elapsed().as_secs());
        let on_each = maps.iter().flat_map(|map| calls.iter().map(move |call| (map, call)));
        let calls: Vec<_> = on_each.filter(|(map, (name, _, call))| map.comes_to(name, call)).collect();
        eprintln!("{} calls, {} bugs", calls.len(), bugs.len());
        let (barriers, mut missed) = table(&calls, |(map, (name, text, order))| {
            let mut changed = (*text).clone();
            changed.replace_range(order.at.clone(), order.instead);
            let (place, call) = (format!("{name}:{}", order.line), order.call.trim_end_matches('('));
            let gpu = map.language();
            match map.notice(name, order, &changed) {
                Some((part, message)) => Ok(format!("| {gpu:?} | {place} | `{call}` | {part} | {} |", cell(&message))),
                None => Err(format!("{gpu:?}, {place} {call}")),
            }
        });
        missed.extend(unseen);
        let (bugs, missed_bugs) = table(&bugs, |bug| {
            let one_line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|");
            let (gpu, file, find, replace) = (bug.language, bug.file, one_line(bug.find), one_line(bug.replace));
            plant(bug).map(|message| format!("| {gpu:?} | {file} | `{find}` → `{replace}` | {} |", cell(&message)))
        });
        missed.extend(missed_bugs);
        let _ = std::fs::remove_dir_all(cache_of_changed());
        if let Some((path, date)) = output {
            let mut page = format!("# Barriers of the kernels, {date}\n\n");
            page += "Each call that orders threads or memory was deleted alone, at its place in the text, hence in all instances \
                     of it, for each GPU. The part of\nthe op suite named here, in the simulator's checked mode and in four orders of threads, \
                     was the first to notice it.\n\n";
            page += "| GPU | place | deleted | part | noticed |\n| --- | --- | --- | --- | --- |\n";
            barriers.iter().for_each(|line| page += &format!("{line}\n"));
            let _ = write!(page, "\n{} deleted, {} not noticed.\n", barriers.len() + missed.len(), missed.len());
            missed.iter().for_each(|missed| page += &format!("\n- NOT NOTICED: {missed}"));
            page += "\n## Planted bugs\n\nMistakes of other kinds, put into the same kernels one at a time.\n\n";
            page += "| GPU | text | bug | noticed |\n| --- | --- | --- | --- |\n";
            bugs.iter().for_each(|line| page += &format!("{line}\n"));
            std::fs::write(path, page).map_err(|error| format!("{path}: {error}"))?;
        }
        println!("{} barriers and {} bugs were noticed", barriers.len(), bugs.len());
        match missed.is_empty() {
            true => Ok(()),
            false => Err(format!("nothing notices:\n{}", missed.join("\n"))),
        }
    }
}

fn main() -> std::process::ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (text, output) = match words[..] {
        [] => (None, None),
        ["--text", text] => (Some(text), None),
        [table, date] => (None, Some((table, date))),
        _ => {
            eprintln!("usage: barriers [TABLE DATE], or barriers --text NAME");
            return std::process::ExitCode::FAILURE;
        }
    };
    #[cfg(all(target_arch = "x86_64", unix))]
    let outcome = prove::run(text, output);
    #[cfg(not(all(target_arch = "x86_64", unix)))]
    let outcome = Err::<(), _>(format!("{text:?} {output:?}: the simulator runs on x86-64 Unix machines only"));
    match outcome {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            std::process::ExitCode::FAILURE
        }
    }
}
