//! The parameters of a call between tags, while it is read.

use std::collections::HashSet;
use std::ops::Range;

use serde::de::IgnoredAny;
use serde_json::{Map, Value as Json};

use super::call::ToolCall;
use super::calls::Read;
use super::input::Input;
use super::python;
use super::schema;
use super::tags::{Lines, Tags};
use super::value::Value;

#[derive(Debug)]
struct Parameter {
    value: Value,
    range: Range<usize>,
}

/// The parameters. Places are counted from the start of the text that is held.
#[derive(Debug)]
pub(super) struct Parameters {
    tags: &'static Tags,
    /// Those whose value has ended.
    ended: Vec<Parameter>,
    /// The names of all that have started.
    keys: HashSet<String>,
    /// The value that is read.
    pub(super) value: Option<Value>,
    /// The first parameter whose end was omitted.
    repaired: Option<usize>,
}

impl Parameters {
    pub(super) fn new(tags: &'static Tags) -> Parameters {
        Parameters { tags, ended: Vec::new(), keys: HashSet::new(), value: None, repaired: None }
    }

    /// Whether a parameter of this name has started.
    pub(super) fn has(&self, key: &str) -> bool {
        self.keys.contains(key)
    }

    /// The value of another parameter starts.
    pub(super) fn begin_value(&mut self, value: Value) {
        self.keys.insert(value.key.clone());
        self.value = Some(value);
    }

    /// The value that is read ends here.
    pub(super) fn end_value(&mut self, input: &Input, end: usize) -> Result<(), Read> {
        if let Some(value) = self.value.take() {
            let range = value.begin..end.max(value.begin);
            debug_assert!(range.end <= input.offset());
            if value.ended_before(input.text(range.clone()), end, self.tags.lines) {
                return Err(Read::Malformed);
            }
            self.ended.push(Parameter { value, range });
        }
        Ok(())
    }

    /// The value that is read ends without its tag, before the tag of another parameter here.
    pub(super) fn repair(&mut self, input: &Input, at: usize, is_at_line: bool) -> Result<(), Read> {
        let Some(value) = &self.value else { return Ok(()) };
        self.repaired.get_or_insert(self.ended.len());
        // The line end before the tag is not part of the value.
        let is_open = !input.text(value.begin..at).starts_with('\n') || self.tags.lines == Lines::Never;
        let line = input.text(0..at).trim_end_matches([' ', '\t']);
        self.end_value(input, if is_at_line && is_open { line.len() - 1 } else { at })
    }

    /// The tag that was read last does not end the value.
    pub(super) fn go_on(&mut self) {
        if let Some(first) = self.repaired.take() {
            // It belongs to a tag that was not a parameter either.
            let keys = self.ended.drain(first..).map(|parameter| parameter.value);
            let mut values: Vec<Value> = keys.chain(self.value.take()).collect();
            values.drain(1..).for_each(|value| {
                self.keys.remove(&value.key);
            });
            self.value = values.pop();
            if let Some(value) = &mut self.value {
                value.is_uncertain = true;
            }
        } else if let Some(value) = &mut self.value {
            value.go_on();
        }
    }

    /// The call with these parameters.
    pub(super) fn call(&self, name: &str, input: &Input, schemas: &Map<String, Json>) -> Read {
        let is_uncertain = self.ended.iter().any(|parameter| parameter.value.is_uncertain);
        if is_uncertain && schema::required(schemas, name).any(|key| !self.keys.contains(key)) {
            return Read::Malformed;
        }
        let mut arguments = "{".to_owned();
        for Parameter { value, range } in &self.ended {
            if arguments.len() > 1 {
                arguments.push_str(", ");
            }
            let text = self.tags.trimmed(input.text(range.clone()));
            let must_be_json = match value.is_text {
                Some(is_text) => !is_text,
                None => !schema::allows_text(schemas, name, &value.key),
            };
            let is_json = || serde_json::from_str::<IgnoredAny>(text).is_ok() || python::literal(text).is_some();
            if (value.is_uncertain || value.is_strict) && must_be_json && !is_json() {
                return Read::Malformed;
            }
            arguments.push_str(&Json::from(value.key.as_str()).to_string());
            arguments.push_str(": ");
            arguments.push_str(&match value.is_text {
                Some(true) => Json::from(text).to_string(),
                Some(false) if serde_json::from_str::<IgnoredAny>(text).is_ok() => text.trim().to_owned(),
                _ => schema::argument(schemas, name, &value.key, text),
            });
        }
        arguments.push('}');
        ToolCall::new(name, &arguments).map_or(Read::Malformed, Read::Call)
    }
}
