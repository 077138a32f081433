//! Calls of Llama 3.1 to 3.3: `{"name": …, "parameters": {…}}` as the whole reply or after `<|python_tag|>`, several
//! separated by `;`.

use serde_json::{Map, Value as Json};

use super::call::ToolCall;
use super::calls::{Calls, Read};
use super::follow::Follow;
use super::frame::{Frame, Item};
use super::hermes;
use super::input::{Begins, Input};
use super::marked::{Frames, Marked};
use super::scan::{Scan, Scanner};
use super::syntax::{CallBody, CallSyntax, Syntax, THINK};

/// The form of Llama 3.1 to 3.3.
pub(super) const SYNTAX: Syntax = Syntax {
    name: "Llama",
    is_shown_by: |template, _| {
        [MARK, "ipython"].iter().any(|mark| template.contains(mark)) && !template.contains(hermes::OPEN)
    },
    reasoning: &[THINK],
    answer: None,
    frames: Frames::NONE,
    call: CallSyntax {
        body: CallBody::Json(Frame { item: Item::Object(["name", "parameters"]), ..Frame::PLAIN }),
        is_control: true,
    },
    parser: |syntax, start| {
        let schemas = start.options.schemas.clone();
        Marked::parser(start, syntax.frames, Box::new(Llama::new(schemas)))
    },
};

const MARK: &str = "<|python_tag|>";

#[derive(Debug)]
enum LlamaState {
    Object(Scanner),
    /// After a call.
    Between,
    /// After `;`.
    Separated,
}

#[derive(Debug)]
pub(super) struct Llama {
    state: LlamaState,
    /// The calls follow [`MARK`].
    marked: bool,
    schemas: Map<String, Json>,
}

impl Llama {
    fn new(schemas: Map<String, Json>) -> Llama {
        Llama { state: LlamaState::Between, marked: false, schemas }
    }

    /// A call without a mark must be of a known tool if tools are known, because a reply may be JSON of another kind.
    fn call(&self, object: &str) -> Option<ToolCall> {
        if self.marked {
            return ToolCall::from_object(object);
        }
        let is_known = |call: &ToolCall| self.schemas.is_empty() || self.schemas.contains_key(&call.name);
        ToolCall::from_unmarked_object(object).filter(is_known)
    }

    fn begin_object(&mut self, input: &mut Input) {
        input.begin_token();
        self.state = LlamaState::Object(Scanner::new());
    }
}

impl Calls for Llama {
    fn marks(&self) -> &[&'static str] {
        &[MARK]
    }

    fn unmarked(&self) -> &[char] {
        &['{']
    }

    fn follow(&self) -> Follow {
        Follow { marks: vec![MARK], separator: Some(';'), list_end: None }
    }

    fn begin(&mut self, mark: Option<usize>, input: &mut Input) {
        self.marked = mark.is_some();
        self.begin_object(input);
    }

    fn read(&mut self, input: &mut Input) -> Read {
        loop {
            let (mark, on_other) = match &mut self.state {
                LlamaState::Object(scanner) => match scanner.read(input) {
                    Scan::More => return Read::More,
                    Scan::Invalid => return Read::Malformed,
                    Scan::End => {
                        let Some(call) = self.call(input.token()) else { return Read::Malformed };
                        self.state = LlamaState::Between;
                        return Read::Call(call);
                    }
                },
                LlamaState::Between => (";", Read::End),
                LlamaState::Separated => ("{", Read::Malformed),
            };
            input.advance_over_space();
            match input.begins(&[mark]) {
                Begins::With(_) if mark == "{" => self.begin_object(input),
                Begins::With(_) => {
                    input.advance(1);
                    self.state = LlamaState::Separated;
                }
                Begins::Maybe => return Read::More,
                Begins::No => return on_other,
            }
        }
    }

    fn is_within_call(&self) -> bool {
        matches!(self.state, LlamaState::Object(_))
    }
}
