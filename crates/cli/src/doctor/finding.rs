//! The results of the doctor's checks: printed one by one, and kept for the report.

use std::fmt::{self, Display, Formatter, Write};

use crate::console;
use crate::failure::Failure;

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Good,
    /// An optional part is missing.
    Absent,
    Bad,
}

impl Display for Verdict {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        f.pad(match self {
            Verdict::Good => "ok",
            Verdict::Absent => "-",
            Verdict::Bad => "FAILED",
        })
    }
}

/// One check.
#[derive(Debug)]
struct Finding {
    verdict: Verdict,
    what: String,
    found: String,
}

/// All checks so far.
#[derive(Debug, Default)]
pub(super) struct Findings(Vec<Finding>);

impl Findings {
    /// Prints a finding and keeps it. `found` may be a message of a library, or a case of the op suite with its data:
    /// it becomes one line, and a long line loses its middle.
    pub(super) fn add(&mut self, verdict: Verdict, what: impl Display, found: impl Display) -> Result<(), Failure> {
        let what = what.to_string();
        let found = shortened(&found.to_string());
        console::print_report(format_args!("{verdict:<7}{what:<27}  {found}\n"))?;
        self.0.push(Finding { verdict, what, found });
        Ok(())
    }

    /// [`Verdict::Good`], or [`Verdict::Bad`] for an error.
    pub(super) fn result<T: Display, E: Display>(
        &mut self,
        what: impl Display,
        found: Result<T, E>,
    ) -> Result<(), Failure> {
        match found {
            Ok(found) => self.add(Verdict::Good, what, found),
            Err(error) => self.add(Verdict::Bad, what, error),
        }
    }

    /// Checks that failed.
    pub(super) fn failed(&self) -> usize {
        self.0.iter().filter(|finding| finding.verdict == Verdict::Bad).count()
    }

    /// A page of Markdown.
    pub(super) fn markdown(&self, title: &str) -> String {
        let mut page = format!("# {title}\n\n| | check | found |\n| --- | --- | --- |\n");
        let cell = |text: &str| text.replace('\\', "\\\\").replace('|', "\\|");
        for Finding { verdict, what, found } in &self.0 {
            let _ = writeln!(page, "| {verdict} | {} | {} |", cell(what), cell(found));
        }
        let _ = writeln!(page, "\n{} checks, {} failed.", self.0.len(), self.failed());
        page
    }
}

/// Most characters of a line, and the characters of both ends of a longer one.
const MAX_LINE: usize = 600;
const START: usize = 400;
const END: usize = 150;

fn shortened(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let characters: Vec<char> = line.chars().collect();
    if characters.len() <= MAX_LINE {
        return line;
    }
    let start = &characters[..START];
    let end = &characters[characters.len() - END..];
    start.iter().chain(&[' ', '…', ' ']).chain(end).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_lose_their_middle() {
        assert_eq!(shortened(" a\n b "), "a b");
        let long = shortened(&format!("start {} end", "ä".repeat(5000)));
        assert_eq!(long.chars().count(), START + 3 + END);
        assert!(long.starts_with("start ä") && long.ends_with("ä end") && long.contains(" … "));
    }

    #[test]
    fn a_page_is_a_table() {
        let mut findings = Findings::default();
        findings.result("a|b", Ok::<_, String>("fine")).unwrap_or_else(|_| panic!("stdout"));
        findings.result("c", Err::<String, _>("two\nlines")).unwrap_or_else(|_| panic!("stdout"));
        let page = findings.markdown("A title");
        assert!(page.starts_with("# A title\n\n| | check | found |\n"), "{page}");
        assert!(page.contains("| ok | a\\|b | fine |\n| FAILED | c | two lines |\n"), "{page}");
        assert!(page.ends_with("\n2 checks, 1 failed.\n"), "{page}");
    }
}
