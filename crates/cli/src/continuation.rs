//! A backslash at the end of a line continues the message on the next line. In the editor this holds for a typed Enter;
//! a backslash in a pasted text stays, because lines of shell scripts and C macros end in backslashes.

use std::sync::{Arc, Mutex, MutexGuard};

use reedline::{
    FileBackedHistory, History, HistoryItem, HistoryItemId, HistorySessionId, Result, SearchQuery, ValidationResult,
    Validator,
};

/// The line without the backslash that continues it. An even number of backslashes is text.
pub(crate) fn continued(line: &str) -> Option<&str> {
    let before = line.trim_end_matches('\\');
    if (line.len() - before.len()).is_multiple_of(2) { None } else { line.strip_suffix('\\') }
}

/// The editor's content at each Enter that continued the message. Each entry is a prefix of the next, unless the user
/// edited it.
#[derive(Clone, Default)]
pub(crate) struct Continuations(Arc<Mutex<Vec<String>>>);

impl Continuations {
    fn beginnings(&self) -> MutexGuard<'_, Vec<String>> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The message without the backslashes that continued it.
    pub(crate) fn join(&self, message: &str) -> String {
        let mut joined = message.to_owned();
        // From the last to the first: earlier prefixes then still match.
        for beginning in self.beginnings().iter().rev() {
            if joined.strip_prefix(beginning.as_str()).is_some_and(|rest| rest.starts_with('\n')) {
                joined.remove(beginning.len() - 1);
            }
        }
        joined
    }

    /// Starts a new message.
    pub(crate) fn clear(&self) {
        self.beginnings().clear();
    }
}

impl Validator for Continuations {
    fn validate(&self, line: &str) -> ValidationResult {
        if continued(line).is_none() {
            return ValidationResult::Complete;
        }
        self.beginnings().push(line.to_owned());
        ValidationResult::Incomplete
    }
}

/// A history of messages without continuation backslashes, so that a recalled message equals the sent one.
pub(crate) struct JoinedHistory {
    pub(crate) inner: FileBackedHistory,
    pub(crate) continuations: Continuations,
}

impl History for JoinedHistory {
    fn save(&mut self, mut item: HistoryItem) -> Result<HistoryItem> {
        item.command_line = self.continuations.join(&item.command_line);
        self.inner.save(item)
    }
    fn load(&self, id: HistoryItemId) -> Result<HistoryItem> {
        self.inner.load(id)
    }
    fn count(&self, query: SearchQuery) -> Result<i64> {
        self.inner.count(query)
    }
    fn search(&self, query: SearchQuery) -> Result<Vec<HistoryItem>> {
        self.inner.search(query)
    }
    fn update(&mut self, id: HistoryItemId, updater: &dyn Fn(HistoryItem) -> HistoryItem) -> Result<()> {
        self.inner.update(id, updater)
    }
    fn clear(&mut self) -> Result<()> {
        self.inner.clear()
    }
    fn delete(&mut self, id: HistoryItemId) -> Result<()> {
        self.inner.delete(id)
    }
    fn sync(&mut self) -> std::io::Result<()> {
        self.inner.sync()
    }
    fn session(&self) -> Option<HistorySessionId> {
        self.inner.session()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_odd_number_of_backslashes_continues() {
        assert_eq!(continued("a\\"), Some("a"));
        assert_eq!(continued("\\"), Some(""));
        assert_eq!(continued("a\\\\\\"), Some("a\\\\"));
        for line in ["", "a", "a\\\\", "a\\ ", "a\\b"] {
            assert_eq!(continued(line), None, "{line:?}");
        }
    }

    #[test]
    fn only_typed_continuations_are_joined() {
        let typed = Continuations::default();
        // A pasted line of a script, then typed lines.
        let text = "x \\\n  y\\";
        assert!(matches!(typed.validate(text), ValidationResult::Incomplete));
        let text = format!("{text}\nz\\");
        assert!(matches!(typed.validate(&text), ValidationResult::Incomplete));
        let text = format!("{text}\nend");
        assert!(matches!(typed.validate(&text), ValidationResult::Complete));
        assert_eq!(typed.join(&text), "x \\\n  y\nz\nend");
        // An edited line is text.
        assert_eq!(typed.join("x \\\n  y\\ \nz"), "x \\\n  y\\ \nz");
        typed.clear();
        assert_eq!(typed.join(&text), text);
    }
}
