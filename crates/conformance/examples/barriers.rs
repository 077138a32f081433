//! Every barrier and every wait of the CUDA kernels, deleted in turn, and bugs that are planted in them: checked mode must
//! notice each. `cargo xtask prove barriers`.
//!
//! barriers [TABLE DATE]

#[cfg(all(target_arch = "x86_64", unix))]
mod prove {
    use gristmill_conformance::broken::{BUGS, Runs, first_notice, orders, plant, runs};
    use gristmill_conformance::simulated::{cache_of_changed, texts};
    use std::fmt::Write as _;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Instant;

    /// One thing to be done: its lines of the table, or what nothing noticed.
    type Work<'a> = Box<dyn Fn() -> Result<String, String> + Send + Sync + 'a>;

    /// Does all, two at a time, and returns the lines of the table in order, and what was not noticed.
    fn all(work: &[Work]) -> (Vec<String>, Vec<String>) {
        let next = AtomicUsize::new(0);
        let done = Mutex::new(vec![None; work.len()]);
        std::thread::scope(|scope| {
            for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
                scope.spawn(|| {
                    while let Some((i, one)) = {
                        let i = next.fetch_add(1, Ordering::Relaxed);
                        work.get(i).map(|one| (i, one))
                    } {
                        let begin = Instant::now();
                        let outcome = one();
                        let (Ok(line) | Err(line)) = &outcome;
                        eprintln!("{:>3} of {}, {:>3} s: {line}", i + 1, work.len(), begin.elapsed().as_secs());
                        done.lock().expect("no thread of these panics while it has it")[i] = Some(outcome);
                    }
                });
            }
        });
        let done = done.into_inner().expect("as above").into_iter().flatten();
        let (lines, missed): (Vec<_>, Vec<_>) = done.partition(Result::is_ok);
        (lines.into_iter().flatten().collect(), missed.into_iter().filter_map(Result::err).collect())
    }

    /// A message of the suite as a cell: the fault with its place, or how the result differs.
    fn cell(message: &str) -> String {
        let first = message.lines().next().unwrap_or_default();
        let fault = first.split("; block [").next().unwrap_or(first);
        let fault = match fault.find(": a kernel: ") {
            Some(at) => &fault[at + ": a kernel: ".len()..],
            None => fault,
        };
        let short: String = fault.chars().take(200).collect();
        short.replace('|', "\\|").replace('`', "'")
    }

    /// Deletes everything that orders, plants every bug; a table.
    pub(super) fn run(output: Option<(&str, &str)>) -> Result<(), String> {
        // What the suite notices is a panic, which is said in the table.
        std::panic::set_hook(Box::new(|_| {}));
        eprintln!("which part of the suite runs which text");
        let runs = runs(12);
        let mut barriers: Vec<Work> = Vec::new();
        for (name, text) in texts().iter().filter(|(name, _)| !["ptx.cuh", "hopper.cuh"].contains(name)) {
            let mut parts: Vec<&str> =
                runs.iter().filter(|Runs { texts, .. }| texts.contains(name)).map(|runs| runs.part).collect();
            if parts.is_empty() {
                parts = runs.iter().map(|runs| runs.part).collect();
            }
            for order in orders(text) {
                let mut changed = text.clone();
                changed.replace_range(order.at.clone(), order.instead);
                let (parts, place) = (parts.clone(), format!("{name}:{}", order.line));
                let call = order.call.trim_end_matches('(').to_owned();
                barriers.push(Box::new(move || match first_notice(name, &changed, &parts) {
                    Some((part, message)) => Ok(format!("| {place} | `{call}` | {part} | {} |", cell(&message))),
                    None => Err(format!("{place} {call}")),
                }));
            }
        }
        let bugs: Vec<Work> = (BUGS.iter())
            .map(|bug| -> Work {
                Box::new(move || {
                    let one_line =
                        |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|");
                    let (find, replace) = (one_line(bug.find), one_line(bug.replace));
                    plant(bug).map(|message| format!("| {} | `{find}` → `{replace}` | {} |", bug.file, cell(&message)))
                })
            })
            .collect();
        let (barriers, mut missed) = all(&barriers);
        let (bugs, missed_bugs) = all(&bugs);
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
