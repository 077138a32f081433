//! Qwen3-Coder's calls: `<function=NAME><parameter=KEY>value</parameter>…</function>`.

use serde_json::{Map, Value as Json};

use super::call::ToolCall;
use super::calls::Read;
use super::input::{Begins, Input};
use super::schema;

const PARAMETER: &str = "<parameter=";
const PARAMETER_END: &str = "</parameter>";
const END: &str = "</function>";

#[derive(Debug, Clone, Copy)]
enum State {
    Name,
    BetweenParameters,
    Key,
    Value,
}

/// Reads a call after `<function=`.
#[derive(Debug)]
pub(super) struct Function {
    state: State,
    name: String,
    key: String,
    /// The JSON object, without its closing brace.
    arguments: String,
}

impl Function {
    /// The input stands at the name.
    pub(super) fn new(input: &mut Input) -> Function {
        input.begin_token();
        Function { state: State::Name, name: String::new(), key: String::new(), arguments: "{".to_owned() }
    }

    pub(super) fn read(&mut self, input: &mut Input, schemas: &Map<String, Json>) -> Read {
        loop {
            let next = match self.state {
                State::Name => self.read_name(input),
                State::BetweenParameters => self.read_between(input),
                State::Key => self.read_key(input),
                State::Value => self.read_value(input, schemas),
            };
            match next {
                Ok(state) => self.state = state,
                Err(read) => return read,
            }
        }
    }

    fn read_name(&mut self, input: &mut Input) -> Result<State, Read> {
        self.name = until_bracket(input)?;
        Ok(State::BetweenParameters)
    }

    fn read_between(&mut self, input: &mut Input) -> Result<State, Read> {
        input.advance_over_space();
        match input.begins(&[PARAMETER, END]) {
            Begins::With(0) => {
                input.advance(PARAMETER.len());
                input.begin_token();
                Ok(State::Key)
            }
            Begins::With(_) => {
                input.advance(END.len());
                let arguments = std::mem::take(&mut self.arguments) + "}";
                Err(ToolCall::new(&self.name, &arguments).map_or(Read::Malformed, Read::Call))
            }
            Begins::Maybe => Err(Read::More),
            Begins::No => Err(Read::Malformed),
        }
    }

    fn read_key(&mut self, input: &mut Input) -> Result<State, Read> {
        self.key = until_bracket(input)?;
        input.begin_token();
        Ok(State::Value)
    }

    /// A value stands on lines of its own, or between the marks without line ends.
    fn read_value(&mut self, input: &mut Input, schemas: &Map<String, Json>) -> Result<State, Read> {
        if !input.advance_to(PARAMETER_END) {
            return Err(Read::More);
        }
        let text = input.token();
        let text = text.strip_prefix('\n').unwrap_or(text);
        let text = text.strip_suffix('\n').unwrap_or(text);
        if self.arguments.len() > 1 {
            self.arguments.push_str(", ");
        }
        self.arguments.push_str(&Json::from(self.key.as_str()).to_string());
        self.arguments.push_str(": ");
        self.arguments.push_str(&schema::argument(schemas, &self.name, &self.key, text));
        input.advance(PARAMETER_END.len());
        Ok(State::BetweenParameters)
    }
}

/// Reads a name and the `>` after it.
fn until_bracket(input: &mut Input) -> Result<String, Read> {
    let rest = input.rest();
    let Some((at, end)) = rest.char_indices().find(|&(_, c)| matches!(c, '>' | '<' | '\n')) else {
        input.advance_to_end();
        return Err(Read::More);
    };
    input.advance(at);
    if end != '>' {
        return Err(Read::Malformed);
    }
    let name = input.token().trim().to_owned();
    input.advance(1);
    Ok(name)
}
