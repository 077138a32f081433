//! `prove barriers`: an example of the conformance crate deletes each call that orders threads or memory in the GPU
//! kernels, and inserts bugs. The simulator's checked mode must detect each change.

use std::process::{Command, Stdio};

use super::Done;
use super::date::date_and_commit;
use super::page::{Page, key};
use crate::build;

/// The page of this proof.
const PAGE: &str = "barriers.md";
const HEAD: &str = "\
# Barriers of the kernels

`cargo xtask prove`: each call that orders threads or memory was deleted alone, in all instances of its source, for each
GPU; then bugs of other kinds were planted one at a time. The op suite noticed them in the simulator's checked mode, in
four orders of threads.

Synccheck (`compute-sanitizer --tool synccheck`) reports \"Divergent thread(s) in block\" at the barrier EVERYBODY of
`gemm_wgmma.cu`. Warps of two roles reach it by different instructions. PTX allows this: only the threads of a warp must
reach `bar.sync` together. [Benchmarks](../benchmarks.md) has the kernel of ten lines with the same report.

| source | deleted, CUDA | deleted, Metal | planted | noticed as | proved for |
| --- | ---: | ---: | ---: | --- | --- |
";

/// Proves the barriers of all sources, or of the given sources.
pub(crate) fn barriers(words: &[&str]) -> Result<(), String> {
    let sources = match words {
        [] => &[][..],
        ["--source", sources @ ..] if !sources.is_empty() => sources,
        [other, ..] => return Err(format!("prove barriers: unknown option {other}; see cargo xtask")),
    };
    let lines = run(sources)?;
    lines.iter().for_each(|line| println!("{line}"));
    match lines.iter().filter(|line| line.starts_with('-')).count() {
        0 => Ok(()),
        missed => Err(format!("{missed} changes were not noticed")),
    }
}

/// Proves the barriers of some sources in one run. `done` gets each source with its lines of the page, none if the
/// source has nothing that orders.
pub(super) fn prove(sources: &[&str], done: &mut Done) -> Result<(), String> {
    let lines = run(sources)?;
    for source in sources {
        let of_source = lines.iter().filter(|line| key(line) == Some(source));
        done(source, &of_source.map(|line| proved_for(line)).collect::<Vec<_>>())?;
    }
    Ok(())
}

/// Writes the lines of a source into the page.
pub(super) fn write(source: &str, lines: &[String]) -> Result<(), String> {
    let mut page = Page::open(PAGE, HEAD);
    page.put(source, lines.to_vec());
    page.write()
}

/// A row with the commit.
fn proved_for(line: &str) -> String {
    if line.starts_with('|') { format!("{line} {} |", date_and_commit()) } else { line.to_owned() }
}

/// The lines that the example prints of the sources: a row for each that has anything to change, and a line for each
/// change that was not detected.
fn run(sources: &[&str]) -> Result<Vec<String>, String> {
    let path = build("example", "barriers")?;
    let failed = |error| format!("{}: {error}", path.display());
    let done =
        Command::new(&path).args(sources).stdin(Stdio::null()).stderr(Stdio::inherit()).output().map_err(failed)?;
    if !done.status.success() {
        return Err(format!("{}: {}", path.display(), done.status));
    }
    let printed = String::from_utf8_lossy(&done.stdout);
    Ok(printed.lines().filter(|line| key(line).is_some()).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_names_the_commit() {
        let row = proved_for("| gemm.cu | 8 | 0 | 5 | Early 2 |");
        assert!(row.starts_with("| gemm.cu | 8 | 0 | 5 | Early 2 | 20") && row.contains("commit"), "{row}");
        assert_eq!(proved_for("- gemm.cu: line 3"), "- gemm.cu: line 3");
    }

    #[test]
    fn options_are_checked() {
        assert!(barriers(&["--sources", "x"]).is_err_and(|error| error.contains("--sources")));
    }
}
