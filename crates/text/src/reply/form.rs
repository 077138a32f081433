//! The form in which the replies to one prompt are parsed.

use super::call::ToolCall;
use super::output::ReplyEvent;
use super::syntax::{Plain, Start, Syntax};
use super::{Reply, ReplyOptions};

/// The form of the replies to one prompt: each reply has a parser of its own.
#[derive(Debug, Clone)]
pub struct ReplyForm {
    /// `None` for a text without marks.
    syntax: Option<&'static Syntax>,
    template: String,
    prompt_end: String,
    /// The beginning of the reply, which the prompt has already.
    begun: String,
    options: ReplyOptions,
    only_calls: bool,
}

/// A whole reply.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ParsedReply {
    /// The text of the reasoning.
    pub reasoning: String,
    /// The text of the answer.
    pub content: String,
    /// The calls, in order.
    pub calls: Vec<ToolCall>,
}

/// Characters of a prompt's end that a parser looks at; marks are shorter.
const PROMPT_END: usize = 200;

impl ReplyForm {
    /// The form of the replies to this prompt, of which the end is kept.
    pub fn new(syntax: &'static Syntax, template: &str, prompt: &str, options: ReplyOptions) -> ReplyForm {
        let end = prompt.char_indices().rev().nth(PROMPT_END - 1).map_or(0, |(at, _)| at);
        let (template, prompt_end) = (template.to_owned(), prompt[end..].to_owned());
        ReplyForm { syntax: Some(syntax), template, prompt_end, begun: String::new(), options, only_calls: false }
    }

    /// A continued text, all of which is content.
    pub fn plain() -> ReplyForm {
        let (template, prompt_end, begun) = Default::default();
        ReplyForm { syntax: None, template, prompt_end, begun, options: ReplyOptions::default(), only_calls: false }
    }

    /// The form of replies whose beginning stands in the prompt. Its events are left out.
    pub fn begun(self, text: impl Into<String>) -> ReplyForm {
        ReplyForm { begun: text.into(), ..self }
    }

    /// The form of replies that must be calls: other text is that of a call which was cut, and is left out.
    pub fn only_calls(self) -> ReplyForm {
        ReplyForm { only_calls: true, ..self }
    }

    /// The name of the form, such as `Harmony`; `None` for a text without marks.
    pub fn name(&self) -> Option<&'static str> {
        self.syntax.map(|syntax| syntax.name)
    }

    /// A parser for one reply.
    pub fn parser(&self) -> Reply {
        let ReplyOptions { parallel_calls, .. } = self.options;
        let parser = match self.syntax {
            Some(syntax) => {
                let (reasoning, options) = (syntax.reasoning(&self.template), self.options.clone());
                (syntax.parser)(Start { prompt_end: &self.prompt_end, reasoning, options })
            }
            None => Box::new(Plain),
        };
        Reply::begin(parser, &self.begun, parallel_calls, self.only_calls)
    }

    /// Parses a whole reply.
    pub fn parse(&self, text: &str) -> ParsedReply {
        let mut parser = self.parser();
        let mut reply = ParsedReply::default();
        for event in parser.push(text).into_iter().chain(parser.finish()) {
            match event {
                ReplyEvent::Reasoning(text) => reply.reasoning += &text,
                ReplyEvent::Content(text) => reply.content += &text,
                ReplyEvent::ToolCall(call) => reply.calls.push(call),
            }
        }
        reply
    }

    /// Whether the marks are control tokens, which the generated text then has to include.
    pub fn marks_are_control_tokens(&self) -> bool {
        self.syntax.is_some_and(|syntax| {
            syntax.reasoning(&self.template).is_control || (self.options.tools && syntax.call.is_control)
        })
    }
}
