//! A page whose table has one row per part of a proof; a run of some parts keeps the rows of the others.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use crate::root;

/// Rows `| KEY | … |` and lines `- KEY: …` below the table, by the parts' keys.
pub(super) struct Page {
    path: PathBuf,
    /// The lines before the first row.
    head: &'static str,
    rows: BTreeMap<String, Vec<String>>,
}

impl Page {
    /// The page in `docs/prove` with this name; a page that does not exist or has another head is empty.
    pub(super) fn open(name: &str, head: &'static str) -> Page {
        let path = root().join("docs/prove").join(name);
        let text = fs::read_to_string(&path).unwrap_or_default();
        Page { path, head, rows: parse(text.strip_prefix(head).unwrap_or_default()) }
    }

    /// Replaces the lines of a part: its row, and a line for each failure.
    pub(super) fn put(&mut self, key: &str, lines: Vec<String>) {
        self.rows.insert(key.to_owned(), lines);
    }

    /// Removes the lines of parts that are not among `keys`.
    pub(super) fn retain(&mut self, keys: &[&str]) {
        self.rows.retain(|key, _| keys.contains(&key.as_str()));
    }

    /// Writes the file.
    pub(super) fn write(&self) -> Result<(), String> {
        fs::write(&self.path, self.text()).map_err(|error| format!("cannot write {}: {error}", self.path.display()))
    }

    fn text(&self) -> String {
        let lines = || self.rows.values().flatten();
        let rows = lines().filter(|line| line.starts_with('|'));
        let failures: Vec<&String> = lines().filter(|line| line.starts_with('-')).collect();
        let mut text = self.head.to_owned();
        rows.for_each(|row| text += &format!("{row}\n"));
        if !failures.is_empty() {
            text += "\nNot proved:\n\n";
            failures.into_iter().for_each(|line| text += &format!("{line}\n"));
        }
        text
    }
}

/// The lines below the head, by their keys.
fn parse(text: &str) -> BTreeMap<String, Vec<String>> {
    let mut rows: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in text.lines() {
        if let Some(key) = key(line) {
            rows.entry(key.to_owned()).or_default().push(line.to_owned());
        }
    }
    rows
}

/// The key of a row or of a failure.
pub(super) fn key(line: &str) -> Option<&str> {
    let row = || line.strip_prefix("| ")?.split_once(" |");
    let failure = || line.strip_prefix("- ")?.split_once(": ");
    row().or_else(failure).map(|(key, _)| key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_other_parts_stay() {
        let head = "# Title\n\n| part | n |\n| --- | ---: |\n";
        let text = format!("{head}| a | 1 |\n| b | 2 |\n\nNot proved:\n\n- b: one\n- b: two\n");
        let mut page = Page { path: PathBuf::new(), head, rows: parse(text.strip_prefix(head).expect("the head")) };
        assert_eq!(page.text(), text);
        page.put("a", vec!["| a | 3 |".to_owned(), "- a: three".to_owned()]);
        let failures = "- a: three\n- b: one\n- b: two\n";
        assert_eq!(page.text(), format!("{head}| a | 3 |\n| b | 2 |\n\nNot proved:\n\n{failures}"));
        page.put("b", vec!["| b | 4 |".to_owned()]);
        page.retain(&["b"]);
        assert_eq!(page.text(), format!("{head}| b | 4 |\n"));
    }
}
