//! The tags of the forms that write calls as tags, and what follows from them.

/// The tags of a form.
#[derive(Debug)]
pub(super) struct Tags {
    /// Before a call, or several.
    pub(super) open: &'static str,
    pub(super) close: &'static str,
    /// Before the name; empty if the name follows `open`.
    pub(super) function: &'static str,
    /// After the name; `None` if a line end or the next tag ends it.
    pub(super) name_end: Option<&'static str>,
    /// After all parameters.
    pub(super) end: &'static str,
    /// Before a key.
    pub(super) key: &'static str,
    pub(super) key_end: &'static str,
    /// Before a value, after white space; empty if the value follows its key.
    pub(super) value: &'static str,
    pub(super) value_end: &'static str,
    /// Where line ends within the tags of a value are not part of it.
    pub(super) lines: Lines,
    /// Several calls may be between `open` and `close`.
    pub(super) several: bool,
}

/// How a model writes a value between its tags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lines {
    /// As it is.
    Never,
    /// As it is, or on lines of its own: then it has a line end on both sides.
    Sometimes,
    /// On lines of its own. The second line end may lack.
    Always,
}

/// Qwen3-Coder's.
pub(super) const CODER: Tags = Tags {
    open: "<tool_call>",
    close: "</tool_call>",
    function: "<function=",
    name_end: Some(">"),
    end: "</function>",
    key: "<parameter=",
    key_end: ">",
    value: "",
    value_end: "</parameter>",
    lines: Lines::Always,
    several: false,
};

impl Tags {
    /// The first tag before a name.
    pub(super) fn first(&self) -> &'static str {
        if self.function.is_empty() { self.open } else { self.function }
    }

    /// Where a call starts whose last tag before the name is here, if it has all tags before it.
    pub(super) fn opening(&self, text: &str) -> Option<usize> {
        if self.function.is_empty() {
            return Some(text.len());
        }
        text.trim_end().strip_suffix(self.open).map(str::len)
    }

    /// Whether another call ends before this place.
    pub(super) fn is_after_call(&self, text: &str) -> bool {
        [self.end, self.close].iter().any(|end| text.trim_end().ends_with(end))
    }

    /// A value without the line ends that belong to its tags.
    pub(super) fn trimmed<'t>(&self, value: &'t str) -> &'t str {
        let after = value.strip_prefix('\n');
        let between = after.and_then(|value| value.strip_suffix('\n'));
        match self.lines {
            Lines::Never => value,
            Lines::Sometimes => between.unwrap_or(value),
            Lines::Always => between.or(after).unwrap_or(value),
        }
    }
}
