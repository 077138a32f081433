//! Calls whose name, keys and values stand between tags, as in Qwen3-Coder's
//! `<function=NAME><parameter=KEY>value</parameter>…</function>`.

use serde_json::{Map, Value as Json};

use super::call::ToolCall;
use super::calls::Read;
use super::input::{Begins, Input};
use super::schema;

/// The tags of a form.
#[derive(Debug)]
pub(super) struct Tags {
    /// Before a call, or several.
    pub(super) open: &'static str,
    pub(super) close: &'static str,
    /// Before the name.
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
    /// A line end after the first tag of a value, and one before the last, are not part of the value.
    pub(super) value_has_lines: bool,
    /// Several calls may stand between `open` and `close`.
    pub(super) several: bool,
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
    value_has_lines: true,
    several: false,
};

#[derive(Debug, Clone, Copy)]
enum State {
    Name,
    BetweenParameters,
    Key,
    BeforeValue,
    Value,
}

/// Reads a call after [`Tags::function`].
#[derive(Debug)]
pub(super) struct Function {
    tags: &'static Tags,
    state: State,
    name: String,
    key: String,
    /// The JSON object, without its closing brace.
    arguments: String,
}

impl Function {
    /// The input stands at the name.
    pub(super) fn new(tags: &'static Tags, input: &mut Input) -> Function {
        input.begin_token();
        Function { tags, state: State::Name, name: String::new(), key: String::new(), arguments: "{".to_owned() }
    }

    pub(super) fn read(&mut self, input: &mut Input, schemas: &Map<String, Json>) -> Read {
        loop {
            let next = match self.state {
                State::Name => self.read_name(input),
                State::BetweenParameters => self.read_between(input),
                State::Key => self.read_key(input),
                State::BeforeValue => self.read_before_value(input),
                State::Value => self.read_value(input, schemas),
            };
            match next {
                Ok(state) => self.state = state,
                Err(read) => return read,
            }
        }
    }

    fn read_name(&mut self, input: &mut Input) -> Result<State, Read> {
        self.name = match self.tags.name_end {
            Some(end) => until(input, end)?,
            None => until_line_or_tag(input)?,
        };
        Ok(State::BetweenParameters)
    }

    fn read_between(&mut self, input: &mut Input) -> Result<State, Read> {
        input.advance_over_space();
        match input.begins(&[self.tags.key, self.tags.end]) {
            Begins::With(0) => {
                input.advance(self.tags.key.len());
                input.begin_token();
                Ok(State::Key)
            }
            Begins::With(_) => {
                input.advance(self.tags.end.len());
                let arguments = std::mem::take(&mut self.arguments) + "}";
                Err(ToolCall::new(&self.name, &arguments).map_or(Read::Malformed, Read::Call))
            }
            Begins::Maybe => Err(Read::More),
            Begins::No => Err(Read::Malformed),
        }
    }

    fn read_key(&mut self, input: &mut Input) -> Result<State, Read> {
        self.key = until(input, self.tags.key_end)?;
        Ok(State::BeforeValue)
    }

    fn read_before_value(&mut self, input: &mut Input) -> Result<State, Read> {
        let tag = self.tags.value;
        if !tag.is_empty() {
            input.advance_over_space();
            match input.begins(&[tag]) {
                Begins::With(_) => input.advance(tag.len()),
                Begins::Maybe => return Err(Read::More),
                Begins::No => return Err(Read::Malformed),
            }
        }
        input.begin_token();
        Ok(State::Value)
    }

    fn read_value(&mut self, input: &mut Input, schemas: &Map<String, Json>) -> Result<State, Read> {
        if !input.advance_to(self.tags.value_end) {
            return Err(Read::More);
        }
        let mut text = input.token();
        if self.tags.value_has_lines {
            text = text.strip_prefix('\n').unwrap_or(text);
            text = text.strip_suffix('\n').unwrap_or(text);
        }
        if self.arguments.len() > 1 {
            self.arguments.push_str(", ");
        }
        self.arguments.push_str(&Json::from(self.key.as_str()).to_string());
        self.arguments.push_str(": ");
        self.arguments.push_str(&schema::argument(schemas, &self.name, &self.key, text));
        input.advance(self.tags.value_end.len());
        Ok(State::BetweenParameters)
    }
}

/// Reads a name and the mark after it.
fn until(input: &mut Input, end: &str) -> Result<String, Read> {
    let rest = input.rest();
    let Some(at) = rest.find(|c| matches!(c, '<' | '\n') || end.starts_with(c)) else {
        input.advance_to_end();
        return Err(Read::More);
    };
    input.advance(at);
    match input.begins(&[end]) {
        Begins::With(_) => {
            let name = input.token().trim().to_owned();
            input.advance(end.len());
            Ok(name)
        }
        Begins::Maybe => Err(Read::More),
        Begins::No => Err(Read::Malformed),
    }
}

/// Reads a name before a line end or a tag.
fn until_line_or_tag(input: &mut Input) -> Result<String, Read> {
    let rest = input.rest();
    let Some(at) = rest.find(['<', '\n']) else {
        input.advance_to_end();
        return Err(Read::More);
    };
    input.advance(at);
    Ok(input.token().trim().to_owned())
}
