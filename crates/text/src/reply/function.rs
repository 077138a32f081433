//! Calls whose name, keys and values stand between tags, as in Qwen3-Coder's
//! `<function=NAME><parameter=KEY>value</parameter>…</function>`.
//!
//! Values are not escaped, so a value may contain any tag. What follows a tag decides:
//!
//! - The end of a value counts if another parameter follows, or the end of the call and what may follow a call. Within
//!   a value that must be JSON, it does not count in a string.
//! - A parameter that begins within a value ends it, for a model that omits the end, if the tool has a parameter of this
//!   name that was not given, and its tag is at a line's start as the tag before was. Where an end of a value follows
//!   that does not count, it was text.
//! - A call within a value is text up to its end. If the reply ends before, the tag was text.
//! - If a value ends twice, if a parameter is given twice, or if a parameter lacks that the tool requires or is no JSON where it must be
//!   while a tag was taken for text, nothing says what the model meant, and there is no call.

use std::collections::HashSet;
use std::ops::Range;

use serde::de::IgnoredAny;
use serde_json::{Map, Value as Json};

use super::call::ToolCall;
use super::calls::Read;
use super::input::{Begins, Input};
use super::names::is_name;
use super::schema;
use super::tags::{Lines, Tags};
use super::value::Value;

/// Places are counted from the beginning of the text that is held.
#[derive(Debug, Clone, Copy)]
enum State {
    Name,
    /// Before the first parameter.
    Start,
    /// In the name of a parameter whose tag is here; after the end of the value before, which is there.
    Key {
        at: usize,
        end: Option<usize>,
    },
    /// After a parameter's name.
    BeforeValue {
        at: usize,
        end: Option<usize>,
    },
    Value,
    /// In the name after a tag within the value, which is here.
    Call {
        at: usize,
    },
    /// After the tag that ends a value, if what follows agrees.
    Ended {
        at: usize,
    },
    /// After the tags that end a value and a call, likewise.
    Closed {
        at: usize,
    },
}

#[derive(Debug)]
struct Parameter {
    value: Value,
    range: Range<usize>,
}

/// Reads a call after [`Tags::function`].
#[derive(Debug)]
pub(super) struct Function {
    tags: &'static Tags,
    state: State,
    /// Where the name begins.
    begin: usize,
    name: String,
    parameters: Vec<Parameter>,
    /// The names of the parameters that have begun.
    keys: HashSet<String>,
    /// The value that is read.
    value: Option<Value>,
    /// The first parameter whose end was omitted.
    repaired: Option<usize>,
    /// No more text follows.
    is_last: bool,
}

impl Function {
    /// The input stands at the name. `is_last`: no more text follows, so a call within a value that has no end is text.
    pub(super) fn new(tags: &'static Tags, input: &mut Input, is_last: bool) -> Function {
        input.begin_token();
        Function {
            tags,
            state: State::Name,
            begin: input.offset(),
            name: String::new(),
            parameters: Vec::new(),
            keys: HashSet::new(),
            value: None,
            repaired: None,
            is_last,
        }
    }

    pub(super) fn read(&mut self, input: &mut Input, schemas: &Map<String, Json>) -> Read {
        loop {
            let next = match self.state {
                State::Name => self.read_name(input),
                State::Start => self.read_start(input, schemas),
                State::Key { at, end } => self.read_key(input, at, end, schemas),
                State::BeforeValue { at, end } => self.read_before_value(input, at, end, schemas),
                State::Value => self.read_value(input),
                State::Call { at } => self.read_call(input, at, schemas),
                State::Ended { at } => self.read_ended(input, at, schemas),
                State::Closed { at } => self.read_closed(input, at, schemas),
            };
            match next {
                Ok(state) => self.state = state,
                Err(read) => return read,
            }
        }
    }

    /// All text is read, and the model ended it here.
    pub(super) fn finish(&mut self, input: &mut Input, schemas: &Map<String, Json>) -> Read {
        if !self.is_last && !self.can_end(input) {
            input.return_to(self.begin);
            *self = Function::new(self.tags, input, true);
            match self.read(input, schemas) {
                Read::More => {}
                read => return read,
            }
        }
        match self.state {
            State::Closed { at } if self.can_end(input) => self.call(at, input, schemas),
            _ => {
                input.advance_to_end();
                Read::Malformed
            }
        }
    }

    /// Whether the reply may end here.
    fn can_end(&self, input: &Input) -> bool {
        matches!(self.state, State::Closed { .. }) && self.tags.close.starts_with(input.rest())
    }

    fn read_name(&mut self, input: &mut Input) -> Result<State, Read> {
        self.name = match self.tags.name_end {
            Some(end) => until(input, end)?.ok_or(Read::Malformed)?,
            None => until_line_or_tag(input)?,
        };
        Ok(State::Start)
    }

    fn read_start(&mut self, input: &mut Input, schemas: &Map<String, Json>) -> Result<State, Read> {
        input.advance_over_space();
        match input.begins(&[self.tags.key, self.tags.end]) {
            Begins::With(0) => Ok(self.begin_key(input, None)),
            Begins::With(_) => {
                input.advance(self.tags.end.len());
                Err(self.made(input, schemas))
            }
            Begins::Maybe => Err(Read::More),
            Begins::No => Err(Read::Malformed),
        }
    }

    /// The input stands at the tag before a name.
    fn begin_key(&self, input: &mut Input, end: Option<usize>) -> State {
        let at = input.offset();
        input.advance(self.tags.key.len());
        input.begin_token();
        State::Key { at, end }
    }

    fn read_key(
        &mut self,
        input: &mut Input,
        at: usize,
        end: Option<usize>,
        schemas: &Map<String, Json>,
    ) -> Result<State, Read> {
        match until(input, self.tags.key_end)? {
            Some(key) if key.is_empty() => self.no_key(input, at, end),
            Some(_) if self.tags.value.is_empty() => self.begin_value(input, at, end, schemas),
            Some(_) => Ok(State::BeforeValue { at, end }),
            None => self.no_key(input, at, end),
        }
    }

    fn read_before_value(
        &mut self,
        input: &mut Input,
        at: usize,
        end: Option<usize>,
        schemas: &Map<String, Json>,
    ) -> Result<State, Read> {
        input.advance_over_space();
        match input.begins(&[self.tags.value]) {
            Begins::With(_) => {
                input.advance(self.tags.value.len());
                self.begin_value(input, at, end, schemas)
            }
            Begins::Maybe => Err(Read::More),
            Begins::No => self.no_key(input, at, end),
        }
    }

    /// The tag here begins no parameter.
    fn no_key(&mut self, input: &Input, at: usize, end: Option<usize>) -> Result<State, Read> {
        match (&self.value, end) {
            // It is where one would be.
            (Some(value), Some(_)) if value.is_at_line == is_at_line(input, at) => Err(Read::Malformed),
            (Some(_), Some(_)) => Ok(self.go_on()),
            (Some(_), None) => Ok(State::Value),
            (None, _) => Err(Read::Malformed),
        }
    }

    /// A parameter's tags are read, of which the first is here; its value may begin.
    fn begin_value(
        &mut self,
        input: &Input,
        at: usize,
        end: Option<usize>,
        schemas: &Map<String, Json>,
    ) -> Result<State, Read> {
        let key = input.text(at + self.tags.key.len()..input.offset());
        let key = key.split_once(self.tags.key_end).map_or(key, |(key, _)| key).trim();
        let (is_given, is_at_line) = (self.keys.contains(key), is_at_line(input, at));
        let is_known = schema::has_parameter(schemas, &self.name, key);
        if let Some(value) = &mut self.value {
            let is_alike = is_at_line == value.is_at_line;
            match end {
                Some(_) if is_given => return Err(Read::Malformed),
                Some(end) if is_known || is_alike => self.end_value(input, end)?,
                Some(_) => return Ok(self.go_on()),
                None if is_given || !is_known || !is_alike => {
                    value.opened += 1;
                    return Ok(State::Value);
                }
                // Of two faults, nothing says which there is.
                None if value.is_uncertain => return Err(Read::Malformed),
                None => {
                    self.repaired.get_or_insert(self.parameters.len());
                    // The line end before the tag is not part of the value.
                    let is_open = !input.text(value.begin..at).starts_with('\n') || self.tags.lines == Lines::Never;
                    let line = input.text(0..at).trim_end_matches([' ', '\t']);
                    let end = if is_at_line && is_open { line.len() - 1 } else { at };
                    self.end_value(input, end)?;
                }
            }
        }
        let is_json = !self.is_last && !schema::allows_text(schemas, &self.name, key);
        self.keys.insert(key.to_owned());
        self.value = Some(Value::new(key, input.offset(), is_at_line, is_json));
        Ok(State::Value)
    }

    /// The value that is read ends here.
    fn end_value(&mut self, input: &Input, end: usize) -> Result<(), Read> {
        if let Some(value) = self.value.take() {
            if value.ended_before(end) {
                return Err(Read::Malformed);
            }
            let range = value.begin..end.max(value.begin);
            debug_assert!(range.end <= input.offset());
            self.parameters.push(Parameter { value, range });
        }
        Ok(())
    }

    fn read_value(&mut self, input: &mut Input) -> Result<State, Read> {
        let Some(value) = &mut self.value else { return Err(Read::Malformed) };
        let tags = self.tags;
        let marks: &[&str] = match value.calls {
            0 => &[tags.first(), tags.key, tags.value_end],
            _ => &[tags.first(), tags.close],
        };
        let (len, found) = input.find(marks);
        input.advance(len);
        let Begins::With(mark) = found else { return Err(Read::More) };
        let at = input.offset();
        match (value.calls, mark) {
            (0, 1) => return Ok(self.begin_key(input, None)),
            (_, 0) => {
                input.advance(tags.first().len());
                input.begin_token();
                return Ok(State::Call { at });
            }
            (0, _) => {
                let ends = !value.is_within_string(input.text(value.begin..at));
                input.advance(tags.value_end.len());
                return Ok(if ends { State::Ended { at } } else { State::Value });
            }
            _ => {
                let ends = tags.function.is_empty() || tags.is_after_call(input.text(value.begin..at));
                input.advance(tags.close.len());
                value.calls -= usize::from(ends);
            }
        }
        Ok(State::Value)
    }

    /// Reads the name after a tag within a value, which may begin a call.
    fn read_call(&mut self, input: &mut Input, at: usize, schemas: &Map<String, Json>) -> Result<State, Read> {
        let name = match self.tags.name_end {
            Some(end) => until(input, end)?,
            None => Some(until_line_or_tag(input)?),
        };
        let (Some(name), Some(value)) = (name, &mut self.value) else { return Ok(State::Value) };
        let before = input.text(value.begin..at);
        let opening = self.tags.opening(before).map(|at| value.begin + at);
        let is_known = schemas.is_empty() || schemas.contains_key(&name);
        let is_next = if opening.is_some() { self.is_last } else { self.tags.is_after_call(before) };
        if is_known && is_next {
            // White space is before that call, and not in this one.
            let end = input.text(0..opening.unwrap_or(at)).trim_end().len();
            input.return_to(end);
            return Err(Read::Malformed);
        }
        if opening.is_some() && is_name(&name) {
            value.is_about_calls = true;
            value.calls += usize::from(!self.is_last);
        }
        Ok(State::Value)
    }

    /// Whether the tags that end a call may be those of an example.
    fn is_example(&self) -> bool {
        self.is_last && self.value.as_ref().is_some_and(|value| value.is_about_calls)
    }

    fn read_ended(&mut self, input: &mut Input, at: usize, schemas: &Map<String, Json>) -> Result<State, Read> {
        input.advance_over_space();
        match input.begins(&[self.tags.key, self.tags.end]) {
            Begins::With(0) => Ok(self.begin_key(input, Some(at))),
            Begins::With(_) => {
                input.advance(self.tags.end.len());
                let ends_all = self.tags.end == self.tags.close;
                if ends_all && !self.is_example() {
                    return Err(self.call(at, input, schemas));
                }
                Ok(State::Closed { at })
            }
            Begins::Maybe => Err(Read::More),
            Begins::No => {
                let next = input.offset();
                let state = self.go_on();
                if let Some(value) = &mut self.value {
                    value.may_end_again(input.text(value.begin..at.max(value.begin)), next, self.tags.lines);
                }
                Ok(state)
            }
        }
    }

    fn read_closed(&mut self, input: &mut Input, at: usize, schemas: &Map<String, Json>) -> Result<State, Read> {
        input.advance_over_space();
        let Tags { open, close, function, .. } = self.tags;
        let rest = input.rest();
        if self.is_example() {
            // Text follows where the tags were an example.
            let rest = rest.strip_prefix(close).unwrap_or(rest).trim_start();
            let ends = rest.is_empty() || rest.starts_with(open);
            return if ends { Err(self.call(at, input, schemas)) } else { Ok(self.go_on()) };
        }
        // The end of all tags may lack before another call.
        let next = rest.strip_prefix(open).map(str::trim_start);
        if self.is_last && next.is_some_and(|next| next.starts_with(function)) {
            return Err(self.call(at, input, schemas));
        }
        match input.begins(&[close, self.tags.first()]) {
            Begins::With(_) => Err(self.call(at, input, schemas)),
            Begins::Maybe => Err(Read::More),
            Begins::No => Ok(self.go_on()),
        }
    }

    /// The tag that was read last does not end the value.
    fn go_on(&mut self) -> State {
        if let Some(first) = self.repaired.take() {
            // It belongs to a tag that was not a parameter either.
            let keys = self.parameters.drain(first..).map(|parameter| parameter.value);
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
        State::Value
    }

    /// The call whose last value ends here.
    fn call(&mut self, end: usize, input: &Input, schemas: &Map<String, Json>) -> Read {
        match self.end_value(input, end) {
            Ok(()) => self.made(input, schemas),
            Err(read) => read,
        }
    }

    /// The call of the parameters.
    fn made(&self, input: &Input, schemas: &Map<String, Json>) -> Read {
        let is_uncertain = self.parameters.iter().any(|parameter| parameter.value.is_uncertain);
        if is_uncertain && schema::required(schemas, &self.name).any(|key| !self.keys.contains(key)) {
            return Read::Malformed;
        }
        let mut arguments = "{".to_owned();
        for Parameter { value, range } in &self.parameters {
            if arguments.len() > 1 {
                arguments.push_str(", ");
            }
            let text = self.tags.trimmed(input.text(range.clone()));
            let must_be_json = !schema::allows_text(schemas, &self.name, &value.key);
            if value.is_uncertain && must_be_json && serde_json::from_str::<IgnoredAny>(text).is_err() {
                return Read::Malformed;
            }
            arguments.push_str(&Json::from(value.key.as_str()).to_string());
            arguments.push_str(": ");
            arguments.push_str(&schema::argument(schemas, &self.name, &value.key, text));
        }
        arguments.push('}');
        ToolCall::new(&self.name, &arguments).map_or(Read::Malformed, Read::Call)
    }
}

/// Whether a tag is the first of a line.
fn is_at_line(input: &Input, at: usize) -> bool {
    input.text(0..at).trim_end_matches([' ', '\t']).ends_with('\n')
}

/// Reads a name and the mark after it; `None` if the mark does not follow.
fn until(input: &mut Input, end: &str) -> Result<Option<String>, Read> {
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
            Ok(Some(name))
        }
        Begins::Maybe => Err(Read::More),
        Begins::No => Ok(None),
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
