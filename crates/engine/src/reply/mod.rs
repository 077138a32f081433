//! A model's reply, taken apart as it is generated: reasoning, content, and calls of tools.
//!
//! How models mark these differs; a chat template shows which form its model writes:
//!
//! - Harmony (gpt-oss), if the template has `<|channel|>`: messages on channels. Those to `functions.NAME` are calls,
//!   those on the channel `final` content, others reasoning.
//! - Mistral, if it has `[TOOL_CALLS]`: `[TOOL_CALLS][{"name": …, "arguments": {…}}, …]` or
//!   `[TOOL_CALLS]NAME[ARGS]{…}`. Reasoning is in `[THINK]…[/THINK]`, if the template has that.
//! - Llama 3.1 and later, if it has `<|python_tag|>` or the role `ipython`, and no `<tool_call>`:
//!   `{"name": …, "parameters": {…}}` as the whole reply or after `<|python_tag|>`, several separated by `;`.
//! - Qwen and Hermes, otherwise: `<tool_call>{"name": …, "arguments": {…}}</tool_call>`; of Qwen3-Coder also
//!   `<tool_call><function=NAME><parameter=KEY>value</parameter></function></tool_call>`, where the outer mark may be
//!   missing if the template has `<function=`.
//!
//! Reasoning is in `<think>…</think>` unless said otherwise. For all forms:
//!
//! - However the text is cut into pieces, the events tell the same.
//! - A call is one event, when its arguments are complete and valid: the text of a JSON object as the model wrote it.
//!   Arguments that are a string with such a text are unwrapped. Missing arguments are `{}`, unless nothing but its
//!   JSON announces the call.
//! - A call that is malformed or unfinished is content, its marks included: up to the first character that is wrong,
//!   from which on the text is read as content, in which new calls may begin.
//! - White space between reasoning and answer is dropped, around calls too. Except in Harmony, reasoning only begins a
//!   reply.
//! - A call may name a tool that the request lacks; the caller decides.
//!
//! A parser takes any text in linear time and holds at most a call and the white space before it, or a message's head.

mod call;
mod calls;
mod form;
mod function;
mod harmony;
mod hermes;
mod input;
mod llama;
mod marked;
mod mistral;
mod output;
mod scan;
mod schema;
#[cfg(test)]
mod tests;

pub use call::ToolCall;
pub use form::{ParsedReply, ReplyForm};
pub use output::ReplyEvent;

use serde_json::{Map, Value as Json};

use crate::template::Tool;
use calls::Calls;
use harmony::Harmony;
use hermes::Hermes;
use input::Input;
use llama::Llama;
use marked::Marked;
use mistral::Mistral;
use output::Output;

/// How a reply is to be read.
#[derive(Debug, Clone, PartialEq)]
pub struct ReplyOptions {
    /// Calls of tools are events. Otherwise they are content, in Harmony reasoning.
    pub tools: bool,
    /// The JSON schemas of the tools' parameters by the tools' names, as far as they are known. They give the types of
    /// arguments that a model writes as XML, and tell a call from other JSON where nothing marks calls.
    pub schemas: Map<String, Json>,
    /// Several calls are events. Otherwise the first one is, and further ones are dropped.
    pub parallel_calls: bool,
}

impl Default for ReplyOptions {
    fn default() -> ReplyOptions {
        ReplyOptions { tools: false, schemas: Map::new(), parallel_calls: true }
    }
}

impl ReplyOptions {
    /// For the tools of a conversation. Calls are events if there are tools.
    pub fn for_tools(tools: &[Tool]) -> ReplyOptions {
        let schemas = tools.iter().map(|tool| (tool.name.clone(), tool.parameters.clone().unwrap_or_default()));
        ReplyOptions { tools: !tools.is_empty(), schemas: schemas.collect(), ..ReplyOptions::default() }
    }
}

/// Parses a reply from its text in pieces. A mark may span pieces.
///
/// ```
/// use gristmill_engine::reply::{Reply, ReplyEvent, ReplyOptions};
/// let mut reply = Reply::new(None, "<|im_start|>assistant\n", ReplyOptions::default());
/// assert_eq!(reply.push("<think>Two sac"), [ReplyEvent::Reasoning("Two sac".into())]);
/// assert_eq!(reply.push("ks.</thi"), [ReplyEvent::Reasoning("ks.".into())]);
/// assert_eq!(reply.push("nk>\n\nTwo."), [ReplyEvent::Content("Two.".into())]);
/// assert_eq!(reply.finish(), []);
/// ```
#[derive(Debug)]
pub struct Reply {
    input: Input,
    parser: Parser,
    control_tokens: bool,
    /// Number of calls that were found.
    calls: usize,
    parallel_calls: bool,
}

#[derive(Debug)]
enum Parser {
    /// All is content.
    Plain,
    /// All is one call.
    OneCall,
    Marked(Marked),
    Harmony(Harmony),
}

impl Reply {
    /// For the reply to a prompt, of which the end is enough: it may already open the reasoning. The form is that of
    /// the model's chat template.
    pub fn new(template: Option<&str>, prompt_end: &str, options: ReplyOptions) -> Reply {
        let template = template.unwrap_or_default();
        let ReplyOptions { tools, schemas, parallel_calls } = options;
        if harmony::ends_prompt(prompt_end) || template.contains(harmony::CHANNEL) {
            let parser = Parser::Harmony(Harmony::new(prompt_end, tools, schemas));
            return Reply { control_tokens: true, parallel_calls, ..Reply::with(parser) };
        }
        let in_brackets = template.contains(marked::BRACKET_THINK.open);
        let reasoning = if in_brackets { marked::BRACKET_THINK } else { marked::THINK };
        let (calls, marks_are_control): (Box<dyn Calls>, bool) = match template {
            _ if template.contains(mistral::MARK) => (Box::new(Mistral::new()), true),
            _ if template.contains(hermes::OPEN) => (Box::new(Hermes::new(template, schemas)), false),
            _ if [llama::MARK, "ipython"].iter().any(|mark| template.contains(mark)) => {
                (Box::new(Llama::new(schemas)), true)
            }
            _ => (Box::new(Hermes::new(template, schemas)), false),
        };
        let parser = Parser::Marked(Marked::new(prompt_end, reasoning, tools.then_some(calls)));
        let control_tokens = in_brackets || (tools && marks_are_control);
        Reply { control_tokens, parallel_calls, ..Reply::with(parser) }
    }

    /// For a continued text, all of which is content.
    pub fn plain() -> Reply {
        Reply::with(Parser::Plain)
    }

    /// For a text that is one call. If it is cut, nothing is given out.
    fn one_call() -> Reply {
        Reply::with(Parser::OneCall)
    }

    fn with(parser: Parser) -> Reply {
        Reply { input: Input::default(), parser, control_tokens: false, calls: 0, parallel_calls: true }
    }

    /// Whether the marks are control tokens, which the generated text then has to include
    /// ([`Request::control_tokens`](crate::Request::control_tokens)).
    pub fn marks_are_control_tokens(&self) -> bool {
        self.control_tokens
    }

    /// Whether the text so far ends within reasoning.
    pub fn is_reasoning(&self) -> bool {
        match &self.parser {
            Parser::Plain | Parser::OneCall => false,
            Parser::Marked(parser) => parser.is_reasoning(),
            Parser::Harmony(parser) => parser.is_reasoning(),
        }
    }

    /// Whether the text so far has a call.
    pub fn has_calls(&self) -> bool {
        self.calls > 0
    }

    /// Takes the next piece of the text.
    pub fn push(&mut self, text: &str) -> Vec<ReplyEvent> {
        let (input, mut output) = (&mut self.input, Output::default());
        input.push(text);
        match &mut self.parser {
            Parser::Plain => {
                input.advance_to_end();
                output.content(input.take());
            }
            Parser::OneCall => input.advance_to_end(),
            Parser::Marked(parser) => while parser.step(input, &mut output) {},
            Parser::Harmony(parser) => while parser.step(input, &mut output) {},
        }
        self.counted(output.0)
    }

    /// Ends the text and returns what was held. Further text is content.
    pub fn finish(&mut self) -> Vec<ReplyEvent> {
        let mut output = Output::default();
        match &mut self.parser {
            Parser::Plain => {}
            Parser::OneCall => ToolCall::from_object(self.input.read()).into_iter().for_each(|call| output.call(call)),
            Parser::Marked(parser) => parser.finish(&mut self.input, &mut output),
            Parser::Harmony(parser) => parser.finish(&mut self.input, &mut output),
        }
        self.parser = Parser::Plain;
        self.counted(output.0)
    }

    /// Counts calls, and drops those that may not be there.
    fn counted(&mut self, mut events: Vec<ReplyEvent>) -> Vec<ReplyEvent> {
        events.retain(|event| {
            let is_call = matches!(event, ReplyEvent::ToolCall(_));
            self.calls += usize::from(is_call);
            !is_call || self.parallel_calls || self.calls == 1
        });
        events
    }
}
