//! Errors of llguidance in the terms of the author's grammar, without positions in the rewritten one.

use std::fmt::Display;

/// The most characters of an error.
const LONGEST: usize = 300;
/// Names the definition of a rewritten schema that was compiled.
const DEFINITION: &str = "while processing #/$defs/";
/// Precedes an excerpt with marks, and ends it.
const REGEX: [&str; 2] = ["regex parse error:", "error: "];

/// An error, and the number of the rewritten schema's definition that it is about, if it says so.
#[derive(Debug, PartialEq)]
pub(super) struct Reason {
    pub(super) text: String,
    pub(super) definition: Option<usize>,
}

impl Reason {
    pub(super) fn new(error: &impl Display) -> Reason {
        let text = error.to_string();
        // An excerpt of the rewritten grammar follows.
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !is_excerpt(line));
        let text = lines.collect::<Vec<_>>().join("; ");
        let (text, definition) = without_definition(&text);
        let mut text = in_words(&without_regex(&with_place(&text)));
        if let Some((end, _)) = text.char_indices().nth(LONGEST) {
            text.replace_range(end.., "…");
        }
        Reason { text, definition }
    }
}

/// Whether a line repeats one of the grammar's (`12 | rule: …`), or marks a place in it.
fn is_excerpt(line: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    line.split_once(" | ").is_some_and(|(number, _)| is_number(number.trim())) || line.bytes().all(|byte| byte == b'^')
}

fn without_definition(text: &str) -> (String, Option<usize>) {
    let Some((before, after)) = text.split_once(DEFINITION) else { return (text.to_owned(), None) };
    let digits = after.len() - after.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, rest) = after.split_at(digits);
    let text = format!("{}{rest}", before.trim_end().trim_end_matches(';'));
    (text, number.parse().ok())
}

/// `at 2(4): …` says line and column.
fn with_place(text: &str) -> String {
    let place = || {
        let (place, rest) = text.strip_prefix("at ")?.split_once("): ")?;
        let (line, column) = place.split_once('(')?;
        Some(format!("line {}, column {}: {rest}", line.parse::<u32>().ok()?, column.parse::<u32>().ok()?))
    };
    place().unwrap_or_else(|| text.to_owned())
}

/// A regular expression that is wrong is named once, and then the problem.
fn without_regex(text: &str) -> String {
    let Some((before, after)) = text.split_once(REGEX[0]) else { return text.to_owned() };
    match after.rsplit_once(REGEX[1]) {
        Some((_, problem)) => format!("{}: {problem}", before.trim_end().trim_end_matches("(in regex):").trim_end()),
        None => text.to_owned(),
    }
}

fn in_words(text: &str) -> String {
    let Some((before, problem)) = text.split_once("Unsatisfiable schema: ") else { return text.to_owned() };
    // The automata that have no text in common mean nothing to who wrote their patterns.
    let problem = match problem.starts_with("Regex is empty") {
        true => "no text has all of its patterns, formats and lengths",
        false => problem,
    };
    format!("{before}no value is valid: {problem}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_nothing_that_the_caller_has_not_written() {
        for (error, text, definition) in [
            (
                "Unsatisfiable schema: minItems (3) is greater than maxItems (1)\nwhile processing #/$defs/12",
                "no value is valid: minItems (3) is greater than maxItems (1)",
                Some(12),
            ),
            (
                "Unsatisfiable schema: Regex is empty:  (And (SearchRegex /^a$/) (Regex /(?s:.{5,})/))\n  while processing #/$defs/0",
                "no value is valid: no text has all of its patterns, formats and lengths",
                Some(0),
            ),
            (
                "at 2(4): invalid regex \"(?=a)b\" (in regex): regex parse error:\n    (?=a)b\n    ^^^\nerror: look-around is not supported\n1 | start: a\n2 | a: /(?=a)b/\n       ^",
                "line 2, column 4: invalid regex \"(?=a)b\": look-around is not supported",
                None,
            ),
            ("unknown name: \"b\"", "unknown name: \"b\"", None),
        ] {
            assert_eq!(Reason::new(&error), Reason { text: text.to_owned(), definition }, "{error}");
        }
        let long = Reason::new(&"\u{e9}".repeat(1_000)).text;
        assert!(long.chars().count() == LONGEST + 1 && long.ends_with('…'));
    }
}
