//! Calls whose name, keys and values are between tags, as in Qwen3-Coder's
//! `<function=NAME><parameter=KEY>value</parameter>…</function>`.
//!
//! Values are not escaped, so a value may contain any tag. What follows a tag decides:
//!
//! - The end of a value counts if another parameter follows, or the end of the call and what may follow a call. Within
//!   a value that must be JSON, it does not count in a string.
//! - If a model omits the end of a value, the tag of the next parameter ends it. The tool must have a parameter of this
//!   name without a value so far, and the tag must be at the start of a line, as the previous tag was. If an unmatched
//!   end of a value follows, the tag was text.
//! - A call within a value is text up to its end. If the reply ends before, the tag was text. If the end of the
//!   value is before it, or of a call that did not start in the value, it is the next call, and this one has no end.
//! - There is no call if its meaning is unclear: a value ends twice; a parameter occurs twice or after the end of its
//!   call; or a tag was read as text, and a required parameter is missing or is not valid JSON.

use serde_json::{Map, Value as Json};

use super::calls::Read;
use super::input::{Begins, Input};
use super::list::next;
use super::names::is_name;
use super::parameters::Parameters;
use super::schema;
use super::tags::Tags;
use super::value::Value;

/// Places are counted from the start of the text that is held.
#[derive(Debug, Clone, Copy)]
enum FunctionState {
    Name,
    /// In the number after the name.
    Number,
    /// Before the first parameter.
    Start,
    /// In the name of a parameter, or after its name.
    Key {
        tag: KeyTag,
        is_named: bool,
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

/// The tag before a parameter's name.
#[derive(Debug, Clone, Copy)]
struct KeyTag {
    at: usize,
    /// The end of the value before, if the tag follows it.
    end: Option<usize>,
}

/// Reads a call after [`Tags::function`].
#[derive(Debug)]
pub(super) struct Function {
    tags: &'static Tags,
    state: FunctionState,
    /// Where the name starts.
    begin: usize,
    name: String,
    parameters: Parameters,
    /// No more text follows.
    is_last: bool,
}

impl Function {
    /// The input is at the name. `is_last`: no more text follows, so a call within a value that has no end is text.
    pub(super) fn new(tags: &'static Tags, input: &mut Input, is_last: bool) -> Function {
        input.begin_token();
        Function {
            tags,
            state: FunctionState::Name,
            begin: input.offset(),
            name: String::new(),
            parameters: Parameters::new(tags),
            is_last,
        }
    }

    pub(super) fn read(&mut self, input: &mut Input, schemas: &Map<String, Json>) -> Read {
        loop {
            let next = match self.state {
                FunctionState::Name => self.read_name(input),
                FunctionState::Number => self.read_number(input),
                FunctionState::Start => self.read_start(input),
                FunctionState::Key { tag, is_named } => self.read_key(input, tag, is_named, schemas),
                FunctionState::Value => self.read_value(input),
                FunctionState::Call { at } => self.read_call(input, at, schemas),
                FunctionState::Ended { at } => self.read_ended(input, at),
                FunctionState::Closed { at } => self.read_closed(input, at, schemas),
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
            FunctionState::Closed { at } if self.can_end(input) => self.call(at, input, schemas),
            _ => self.cut(input, schemas),
        }
    }

    /// All text is read, and a limit ended it here.
    pub(super) fn cut(&mut self, input: &mut Input, schemas: &Map<String, Json>) -> Read {
        match self.state {
            FunctionState::Closed { at } if self.needs_no_close() => self.call(at, input, schemas),
            _ => {
                input.advance_to_end();
                Read::Malformed
            }
        }
    }

    /// Whether the reply may end here.
    fn can_end(&self, input: &Input) -> bool {
        matches!(self.state, FunctionState::Closed { .. }) && self.tags.close.starts_with(input.rest())
    }

    fn read_name(&mut self, input: &mut Input) -> Result<FunctionState, Read> {
        self.name = match self.tags.name_end {
            Some(end) => until(input, end)?.ok_or(Read::Malformed)?,
            None => until_line_or_tag(input)?,
        };
        input.begin_token();
        Ok(if self.tags.number_end.is_empty() { FunctionState::Start } else { FunctionState::Number })
    }

    fn read_number(&self, input: &mut Input) -> Result<FunctionState, Read> {
        until(input, self.tags.number_end)?.map(|_| FunctionState::Start).ok_or(Read::Malformed)
    }

    fn read_start(&mut self, input: &mut Input) -> Result<FunctionState, Read> {
        input.advance_over_space();
        match input.begins(&[self.tags.key, self.tags.end]) {
            Begins::With(0) => Ok(self.begin_key(input, None)),
            Begins::With(_) => Ok(self.close(input, input.offset())),
            Begins::Maybe => Err(Read::More),
            Begins::No => Err(Read::Malformed),
        }
    }

    /// Reads the tag that ends a call, whose last value ended here.
    fn close(&self, input: &mut Input, at: usize) -> FunctionState {
        input.advance(self.tags.end.len());
        FunctionState::Closed { at }
    }

    /// The input is at the tag before a name.
    fn begin_key(&self, input: &mut Input, end: Option<usize>) -> FunctionState {
        let at = input.offset();
        input.advance(self.tags.key.len());
        input.begin_token();
        FunctionState::Key { tag: KeyTag { at, end }, is_named: false }
    }

    /// Reads the name of a parameter, or what follows it, up to the value.
    fn read_key(
        &mut self,
        input: &mut Input,
        tag: KeyTag,
        is_named: bool,
        schemas: &Map<String, Json>,
    ) -> Result<FunctionState, Read> {
        let is_read = match is_named {
            false => until(input, self.tags.key_end)?.is_some_and(|key| !key.is_empty()),
            true => match self.tags.types {
                Some(types) => until(input, self.tags.value)?.is_some_and(|named| types.has(&named)),
                None => next(input, &[self.tags.value])?.is_some(),
            },
        };
        input.begin_token();
        match is_read {
            false => self.no_key(input, tag),
            true if is_named || self.tags.value.is_empty() => self.begin_value(input, tag, schemas),
            true => Ok(FunctionState::Key { tag, is_named: true }),
        }
    }

    /// This tag starts no parameter.
    fn no_key(&mut self, input: &Input, tag: KeyTag) -> Result<FunctionState, Read> {
        match (&self.parameters.value, tag.end) {
            // It is where one would be.
            (Some(value), Some(_)) if value.is_at_line == is_at_line(input, tag.at) => Err(Read::Malformed),
            (Some(_), Some(_)) => Ok(self.go_on()),
            (Some(_), None) => Ok(FunctionState::Value),
            (None, _) => Err(Read::Malformed),
        }
    }

    /// A parameter's tags are read: its value may start.
    fn begin_value(&mut self, input: &Input, tag: KeyTag, schemas: &Map<String, Json>) -> Result<FunctionState, Read> {
        let key = input.text(tag.at + self.tags.key.len()..input.offset());
        let (key, rest) = key.split_once(self.tags.key_end).unwrap_or((key, ""));
        let key = key.trim();
        let named_type = rest.strip_suffix(self.tags.value).unwrap_or_default().trim();
        let is_text = self.tags.types.map(|types| named_type == types.of_text());
        let is_given = self.parameters.has(key);
        let is_at_line = is_at_line(input, tag.at);
        let is_known = schema::has_parameter(schemas, &self.name, key);
        if let Some(value) = &mut self.parameters.value {
            let is_alike = is_at_line == value.is_at_line;
            match tag.end {
                Some(_) if is_given => return Err(Read::Malformed),
                Some(end) if is_known || is_alike => self.parameters.end_value(input, end)?,
                Some(_) => return Ok(self.go_on()),
                None if is_given || !is_known || !is_alike => {
                    value.opened += 1;
                    return Ok(FunctionState::Value);
                }
                // With two faults, the meaning is unclear.
                None if value.is_uncertain => return Err(Read::Malformed),
                None => self.parameters.repair(input, tag.at, is_at_line)?,
            }
        }
        let mut value = Value::new(key, input.offset(), is_at_line);
        value.is_text = is_text;
        if is_text.map_or_else(|| !schema::allows_text(schemas, &self.name, key), |is_text| !is_text) {
            value.must_be_json(self.is_last);
        }
        self.parameters.begin_value(value);
        Ok(FunctionState::Value)
    }

    fn read_value(&mut self, input: &mut Input) -> Result<FunctionState, Read> {
        let Some(value) = &mut self.parameters.value else { return Err(Read::Malformed) };
        let tags = self.tags;
        if let Some([open, close]) = tags.quotes {
            if input.offset() == value.begin {
                match input.begins(&[open]) {
                    Begins::With(_) => value.is_quoted = true,
                    Begins::Maybe => return Err(Read::More),
                    Begins::No => {}
                }
            }
            if value.is_quoted {
                if !input.advance_to(close) {
                    return Err(Read::More);
                }
                input.advance(close.len());
                value.is_quoted = false;
            }
        }
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
                return Ok(FunctionState::Call { at });
            }
            (0, _) => {
                let ends = !value.is_within_string(input.text(value.begin..at));
                input.advance(tags.value_end.len());
                return Ok(if ends { FunctionState::Ended { at } } else { FunctionState::Value });
            }
            _ => {
                let ends = tags.function.is_empty() || tags.is_after_call(input.text(value.begin..at));
                input.advance(tags.close.len());
                value.end_call(ends, input.offset());
            }
        }
        Ok(FunctionState::Value)
    }

    /// Reads the name after a tag within a value, which may start a call.
    fn read_call(&mut self, input: &mut Input, at: usize, schemas: &Map<String, Json>) -> Result<FunctionState, Read> {
        let name = match self.tags.name_end {
            Some(end) => until(input, end)?,
            None => Some(until_line_or_tag(input)?),
        };
        let (Some(name), Some(value)) = (name, &mut self.parameters.value) else { return Ok(FunctionState::Value) };
        let before = input.text(value.begin..at);
        let opening = self.tags.opening_in(before).map(|at| value.begin + at);
        let is_known = schemas.is_empty() || schemas.contains_key(&name);
        let is_next = match opening {
            Some(opening) => self.is_last || value.is_before_other_call(input.text(value.begin..opening), self.tags),
            None => self.tags.is_after_call(before),
        };
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
        Ok(FunctionState::Value)
    }

    /// Whether the tags that end a call may be those of an example.
    fn is_example(&self) -> bool {
        self.is_last && self.parameters.value.as_ref().is_some_and(|value| value.is_about_calls)
    }

    fn read_ended(&mut self, input: &mut Input, at: usize) -> Result<FunctionState, Read> {
        input.advance_over_space();
        match input.begins(&[self.tags.key, self.tags.end]) {
            Begins::With(0) => Ok(self.begin_key(input, Some(at))),
            Begins::With(_) => Ok(self.close(input, at)),
            Begins::Maybe => Err(Read::More),
            Begins::No => {
                let next = input.offset();
                let state = self.go_on();
                if let Some(value) = &mut self.parameters.value {
                    value.may_end_again(input.text(value.begin..at.max(value.begin)), next);
                }
                Ok(state)
            }
        }
    }

    fn read_closed(
        &mut self,
        input: &mut Input,
        at: usize,
        schemas: &Map<String, Json>,
    ) -> Result<FunctionState, Read> {
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
        match input.begins(&[close, self.tags.first(), self.tags.key, self.tags.value_end]) {
            Begins::With(0 | 1) => Err(self.call(at, input, schemas)),
            Begins::Maybe if !self.is_last || !self.needs_no_close() => Err(Read::More),
            // A parameter behind the end of its call.
            Begins::With(2) => Err(Read::Malformed),
            Begins::With(_) if self.parameters.value.is_none() => Err(Read::Malformed),
            Begins::Maybe | Begins::No if self.needs_no_close() => Err(self.call(at, input, schemas)),
            _ => Ok(self.go_on()),
        }
    }

    /// Whether the tag that ends a call suffices, because it ends all or no value may have it.
    fn needs_no_close(&self) -> bool {
        self.tags.end == self.tags.close || self.parameters.value.is_none()
    }

    /// The tag that was read last does not end the value.
    fn go_on(&mut self) -> FunctionState {
        self.parameters.go_on();
        FunctionState::Value
    }

    /// The call whose last value ends here.
    fn call(&mut self, end: usize, input: &Input, schemas: &Map<String, Json>) -> Read {
        match self.parameters.end_value(input, end) {
            Ok(()) => self.parameters.call(&self.name, input, schemas),
            Err(read) => read,
        }
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
