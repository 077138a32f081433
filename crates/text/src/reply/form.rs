//! The form in which the replies to one prompt are parsed.

use super::call::ToolCall;
use super::output::{Joiner, ReplyEvent};
use super::syntax::{Plain, Start, Syntax};
use super::{Reply, ReplyOptions};

/// The form of the replies to one prompt: each reply has a parser of its own.
#[derive(Debug, Clone)]
pub struct ReplyForm {
    /// `None` for a text without marks.
    syntax: Option<&'static Syntax>,
    template: String,
    prompt_end: String,
    /// The start of the reply, which the prompt has already.
    started: String,
    options: ReplyOptions,
    answer_or_calls: bool,
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
        let template = template.to_owned();
        let prompt_end = prompt[end..].to_owned();
        ReplyForm { syntax: Some(syntax), template, prompt_end, options, ..ReplyForm::plain() }
    }

    /// A continued text, all of which is content.
    pub fn plain() -> ReplyForm {
        let (template, prompt_end, started) = Default::default();
        let (options, answer_or_calls, only_calls) = Default::default();
        ReplyForm { syntax: None, template, prompt_end, started, options, answer_or_calls, only_calls }
    }

    /// The form of replies whose beginning is in the prompt. Its events are left out.
    pub fn started(self, text: impl Into<String>) -> ReplyForm {
        ReplyForm { started: text.into(), ..self }
    }

    /// The form of replies that are either an answer or calls, without reasoning. The start of the reply decides: the
    /// marks within an answer are text.
    pub fn answer_or_calls(self) -> ReplyForm {
        ReplyForm { answer_or_calls: true, ..self }
    }

    /// The form of replies that must be calls: other text belongs to a truncated call, and is left out.
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
                let reasoning = syntax.reasoning(&self.template);
                let options = self.options.clone();
                let prompt_end = &*self.prompt_end;
                let answer_or_calls = self.answer_or_calls;
                let answer = [syntax.answer_opening(prompt_end), syntax.answer_closing(prompt_end)];
                (syntax.parser)(syntax, Start { prompt_end, reasoning, options, answer_or_calls, answer })
            }
            None => Box::new(Plain),
        };
        Reply::begin(parser, &self.started, parallel_calls, self.only_calls)
    }

    /// Parses a whole reply.
    pub fn parse(&self, text: &str) -> ParsedReply {
        let mut parser = self.parser();
        ParsedReply::joined(parser.push(text).into_iter().chain(parser.finish()))
    }

    /// Whether the marks are control tokens, which the generated text then has to include.
    pub fn marks_are_control_tokens(&self) -> bool {
        self.syntax.is_some_and(|syntax| {
            syntax.reasoning(&self.template).is_control || (self.options.tools && syntax.call.is_control)
        })
    }
}

impl ParsedReply {
    /// The whole reply of all its events.
    pub fn joined(events: impl IntoIterator<Item = ReplyEvent>) -> ParsedReply {
        let (mut reply, mut joiner) = (ParsedReply::default(), Joiner::default());
        for event in events {
            let separator = joiner.separator(&event);
            match event {
                ReplyEvent::Reasoning(text) => reply.reasoning.extend([separator, &text]),
                ReplyEvent::Content(text) => reply.content.extend([separator, &text]),
                ReplyEvent::ToolCall(call) => reply.calls.push(call),
            }
        }
        reply
    }
}
