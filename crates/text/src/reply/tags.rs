//! The tags of the forms that write calls as tags, and what follows from them.

use serde_json::Value as Json;

/// The tags of a form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tags {
    /// Before a call, or several.
    pub open: &'static str,
    /// Tags without `open` announce a call too, otherwise.
    pub is_open_needed: bool,
    /// After them.
    pub close: &'static str,
    /// Before the name; empty if the name follows `open`.
    pub function: &'static str,
    /// After the name; `None` if a line end or the next tag ends it.
    pub name_end: Option<&'static str>,
    /// After the number of a call, which follows `name_end`; empty if calls have no numbers.
    pub number_end: &'static str,
    /// After all parameters.
    pub end: &'static str,
    /// Before a key.
    pub key: &'static str,
    /// After a key.
    pub key_end: &'static str,
    /// Before a value, after white space, or after the type; empty if the value follows its key.
    pub value: &'static str,
    /// What a type between `key_end` and `value` is, if there is one.
    pub types: Option<Types>,
    /// Around a value that has other tags; `None` if values are never quoted.
    pub quotes: Option<[&'static str; 2]>,
    /// After a value.
    pub value_end: &'static str,
    /// Between tags, as a model writes it; any white space is read.
    pub line: &'static str,
    /// Where line ends within the tags of a value are not part of it.
    pub lines: Lines,
    /// Several calls may be between `open` and `close`.
    pub several: bool,
}

/// How a tag states the type of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Types {
    /// `true` for a string, which is written as it is, and `false` for JSON.
    IsString,
    /// The name of a JSON type. A string is written as it is, other values as JSON.
    Name,
}

impl Types {
    /// What the tag of a value has.
    pub(super) fn of(self, value: &Json) -> &'static str {
        match (self, value) {
            (_, Json::String(_)) => self.of_text(),
            (Types::IsString, _) => "false",
            (Types::Name, Json::Null) => "null",
            (Types::Name, Json::Bool(_)) => "boolean",
            (Types::Name, Json::Number(_)) => "number",
            (Types::Name, Json::Array(_)) => "array",
            (Types::Name, Json::Object(_)) => "object",
        }
    }

    /// Whether a tag can have this.
    pub(super) fn has(self, named: &str) -> bool {
        match self {
            Types::IsString => ["true", "false"].contains(&named),
            Types::Name => ["string", "number", "integer", "boolean", "array", "object", "null"].contains(&named),
        }
    }

    /// What the tag of a string has.
    pub fn of_text(self) -> &'static str {
        match self {
            Types::IsString => "true",
            Types::Name => "string",
        }
    }
}

/// How a model writes a value between its tags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lines {
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
    value_end: "</parameter>",
    lines: Lines::Always,
    is_open_needed: false,
    ..Tags::PLAIN
};

impl Tags {
    /// Without tags.
    pub(super) const PLAIN: Tags = Tags {
        open: "",
        is_open_needed: true,
        close: "",
        function: "",
        name_end: None,
        number_end: "",
        end: "",
        key: "",
        key_end: "",
        value: "",
        types: None,
        quotes: None,
        value_end: "",
        line: "\n",
        lines: Lines::Never,
        several: false,
    };

    /// The text that announces a call.
    pub fn opening(&self) -> String {
        // The name follows the tag.
        [self.open, if self.function.is_empty() { "" } else { self.line }].concat()
    }

    /// The tags that announce calls.
    pub(super) fn marks(&self) -> Vec<&'static str> {
        if self.is_open_needed { vec![self.open] } else { vec![self.open, self.function] }
    }

    /// The first tag before a name.
    pub(super) fn first(&self) -> &'static str {
        if self.function.is_empty() { self.open } else { self.function }
    }

    /// Where a call starts whose last tag before the name is here, if it has all tags before it.
    pub(super) fn opening_in(&self, text: &str) -> Option<usize> {
        if self.function.is_empty() {
            return Some(text.len());
        }
        text.trim_end().strip_suffix(self.open).map(str::len)
    }

    /// Whether another call ends before this place.
    pub(super) fn is_after_call(&self, text: &str) -> bool {
        [self.end, self.close].iter().any(|end| text.trim_end().ends_with(end))
    }

    /// A value without the quotes, or the line ends, that belong to its tags.
    pub(super) fn trimmed<'t>(&self, value: &'t str) -> &'t str {
        let unquoted = |[open, close]: [&str; 2]| value.trim().strip_prefix(open)?.strip_suffix(close);
        if let Some(unquoted) = self.quotes.and_then(unquoted) {
            return unquoted;
        }
        let after = value.strip_prefix('\n');
        let between = after.and_then(|value| value.strip_suffix('\n'));
        match self.lines {
            Lines::Never => value,
            Lines::Sometimes => between.unwrap_or(value),
            Lines::Always => between.or(after).unwrap_or(value),
        }
    }
}
