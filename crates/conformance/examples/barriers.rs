//! Every barrier and every wait of the CUDA kernels, deleted in turn, and bugs that are planted in them: checked mode must
//! notice each. `cargo xtask prove barriers`.
//!
//! barriers [TABLE DATE]

#[cfg(all(target_arch = "x86_64", unix))]
mod prove {
    use gristmill_conformance::broken::{BUGS, Bug, Call, Map, each, orders, plant};
    use gristmill_conformance::simulated::{cache_of_changed, texts};
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

    /// Deletes everything that orders, plants every bug; a table.
    pub(super) fn run(output: Option<(&str, &str)>) -> Result<(), String> {
        // What the suite notices is a panic, which is said in the table.
        std::panic::set_hook(Box::new(|_| {}));
        eprintln!("which cases run which text, and that nothing is noticed in them");
        let map = Map::new()?;
        let texts = texts().iter().filter(|(name, _)| !["ptx.cuh", "hopper.cuh"].contains(name));
        let calls: Vec<(&'static str, &String, Call)> =
            texts.flat_map(|(name, text)| orders(text).into_iter().map(move |call| (*name, text, call))).collect();
        eprintln!("{} calls, {} bugs", calls.len(), BUGS.len());
        let (barriers, mut missed) = table(&calls, |(name, text, call)| {
            let mut changed = (*text).clone();
            changed.replace_range(call.at.clone(), call.instead);
            let (place, call) = (format!("{name}:{}", call.line), call.call.trim_end_matches('('));
            match map.notice(name, &changed) {
                Some((part, message)) => Ok(format!("| {place} | `{call}` | {part} | {} |", cell(&message))),
                None => Err(format!("{place} {call}")),
            }
        });
        let (bugs, missed_bugs) = table(BUGS, |bug: &Bug| {
            let one_line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|");
            let (find, replace) = (one_line(bug.find), one_line(bug.replace));
            plant(bug).map(|message| format!("| {} | `{find}` → `{replace}` | {} |", bug.file, cell(&message)))
        });
        missed.extend(missed_bugs);
        let _ = std::fs::remove_dir_all(cache_of_changed());
        if let Some((path, date)) = output {
            let mut page = format!("# Barriers of the CUDA kernels, {date}\n\n");
            page += "Each call that orders threads or memory was deleted alone, at its place in the text, hence in all instances \
                     of it. The part of\nthe op suite named here, in the simulator's checked mode and in four orders of threads, \
                     was the first to notice it.\n\n";
            page += "| place | deleted | part | noticed |\n| --- | --- | --- | --- |\n";
            barriers.iter().for_each(|line| page += &format!("{line}\n"));
            let _ = write!(page, "\n{} deleted, {} not noticed.\n", barriers.len() + missed.len(), missed.len());
            missed.iter().for_each(|missed| page += &format!("\n- NOT NOTICED: {missed}"));
            page += "\n## Planted bugs\n\nMistakes of other kinds, put into the same kernels one at a time.\n\n";
            page += "| text | bug | noticed |\n| --- | --- | --- |\n";
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
    let output = match words[..] {
        [] => None,
        [table, date] => Some((table, date)),
        _ => {
            eprintln!("usage: barriers [TABLE DATE]");
            return std::process::ExitCode::FAILURE;
        }
    };
    #[cfg(all(target_arch = "x86_64", unix))]
    let outcome = prove::run(output);
    #[cfg(not(all(target_arch = "x86_64", unix)))]
    let outcome = Err::<(), _>(format!("{output:?}: the simulator runs on x86-64 Unix machines only"));
    match outcome {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            std::process::ExitCode::FAILURE
        }
    }
}
