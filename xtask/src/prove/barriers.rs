//! `prove barriers`: an example of the conformance crate deletes each call that orders threads or memory in the GPU
//! kernels, and inserts bugs. The simulator's checked mode must detect each change.

use std::process::{Command, Stdio};

use super::date::date_and_commit;
use super::report;
use crate::build;

const INTRO: &str = "\
`cargo xtask prove barriers`: each call that orders threads or memory was deleted alone, in all instances of its source,
for each GPU; then bugs of other kinds were planted one at a time. The op suite noticed them in the simulator's checked mode,
in four orders of threads.

| source | deleted, CUDA | deleted, Metal | planted | noticed as |
| --- | ---: | ---: | ---: | --- |
";

/// Proves the barriers of all sources, or of the given sources, and writes the report.
pub(super) fn barriers(words: &[&str]) -> Result<(), String> {
    let sources = match words {
        [] => &[][..],
        ["--source", sources @ ..] if !sources.is_empty() => sources,
        [other, ..] => return Err(format!("prove barriers: unknown option {other}; see cargo xtask")),
    };
    let printed = run(sources)?;
    let starting = |start: char| printed.lines().filter(move |line| line.starts_with(start));
    let text = |start: char| starting(start).map(|line| format!("{line}\n")).collect::<String>();
    let mut page = format!("# Barriers of the kernels, {}\n\n{INTRO}{}", date_and_commit(), text('|'));
    let missed = starting('-').count();
    if missed > 0 {
        page += &format!("\nNot proved:\n\n{}", text('-'));
    }
    report::write("barriers", &page)?;
    if missed == 0 { Ok(()) } else { Err(format!("{missed} changes were not noticed")) }
}

/// What the example prints of the sources: a row for each that has anything to change, and a line for each change that was
/// not detected.
fn run(sources: &[&str]) -> Result<String, String> {
    let path = build("example", "barriers")?;
    let failed = |error| format!("{}: {error}", path.display());
    let done =
        Command::new(&path).args(sources).stdin(Stdio::null()).stderr(Stdio::inherit()).output().map_err(failed)?;
    match done.status.success() {
        true => Ok(String::from_utf8_lossy(&done.stdout).into_owned()),
        false => Err(format!("{}: {}", path.display(), done.status)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_checked() {
        assert!(barriers(&["--sources", "x"]).is_err_and(|error| error.contains("--sources")));
    }
}
