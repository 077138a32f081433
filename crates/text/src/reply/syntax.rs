//! The forms in which models write replies, as data, and what their parsers do.

use std::fmt::Debug;

use serde_json::{Map, Value as Json};

use super::ReplyOptions;
use super::calls::Calls;
use super::frame::Frame;
use super::framed::Framed;
use super::gemma4::{self, Gemma4};
use super::hermes::Hermes;
use super::input::Input;
use super::marked::{Frames, Marked};
use super::minimax_m3::{self, Nested};
use super::output::Output;
use super::tags::Tags;

/// The form in which a model writes replies.
#[derive(Debug)]
pub struct Syntax {
    /// See [`ReplyForm::name`](super::ReplyForm::name).
    pub(super) name: &'static str,
    /// Whether a template, or the end of a prompt, shows that the model writes this form.
    pub(super) is_shown_by: fn(template: &str, prompt_end: &str) -> bool,
    /// Marks around reasoning: the first that the template has are the model's, or else the last.
    pub(super) reasoning: &'static [ReasoningMarks],
    /// The text that opens an answer after a prompt with this end.
    pub(super) answer: Option<(&'static str, &'static str)>,
    /// Marks around an answer, which are no part of it.
    pub(super) frames: Frames,
    /// The form of a call.
    pub call: CallSyntax,
    /// Makes a parser. [`marked`], unless calls have other readers, or the reply consists of messages.
    pub(super) parser: fn(&'static Syntax, Start) -> Box<dyn Parser>,
}

/// Marks around reasoning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReasoningMarks {
    /// The text before reasoning. A prompt may end with it.
    pub open: &'static str,
    /// The first mark after reasoning.
    pub close: &'static str,
    /// The text between reasoning and an answer, as models write it.
    pub ending: &'static str,
    /// The marks are control tokens.
    pub(super) is_control: bool,
}

/// The marks around reasoning of Qwen, DeepSeek and most others.
pub(super) const THINK: ReasoningMarks =
    ReasoningMarks { open: "<think>", close: "</think>", ending: "\n</think>\n\n", is_control: false };

/// The form of a call of a tool.
#[derive(Debug)]
pub struct CallSyntax {
    /// How the model writes calls.
    pub body: CallBody,
    /// The marks are control tokens.
    pub(super) is_control: bool,
}

/// How a model writes calls, as data.
#[derive(Debug)]
#[non_exhaustive]
pub enum CallBody {
    /// The arguments are JSON.
    Json(Frame),
    /// Name, keys and values are between tags.
    Tags(&'static Tags),
    /// `<|tool_call>call:NAME{KEY:VALUE, …}<tool_call|>`, with strings between `<|"|>`.
    Gemma,
    /// Nested tags, each after the token `]<]minimax[>[`: `<invoke name="NAME"><KEY>VALUE</KEY>…</invoke>`.
    Nested,
}

impl CallBody {
    /// The text that announces a call, or a list of calls.
    pub fn opening(&self) -> String {
        match self {
            CallBody::Json(frame) => frame.opening(),
            CallBody::Tags(tags) => tags.opening(),
            CallBody::Gemma => gemma4::OPEN.to_owned(),
            CallBody::Nested => [minimax_m3::OPEN, "\n"].concat(),
        }
    }

    /// A reader of such calls of tools with these schemas.
    fn reader(&self, schemas: Map<String, Json>) -> Box<dyn Calls> {
        match self {
            CallBody::Json(frame) => Box::new(Framed::new(*frame)),
            CallBody::Tags(tags) => Box::new(Hermes::new(tags, schemas)),
            CallBody::Gemma => Box::new(Gemma4::new()),
            CallBody::Nested => Box::new(Nested::new(schemas)),
        }
    }
}

/// A parser of replies whose form is all data.
pub(super) fn marked(syntax: &'static Syntax, start: Start) -> Box<dyn Parser> {
    let schemas = start.options.schemas.clone();
    Marked::parser(start, syntax.frames, syntax.call.body.reader(schemas))
}

/// The start of a reply, for a parser.
pub(super) struct Start<'t> {
    pub(super) prompt_end: &'t str,
    pub(super) reasoning: ReasoningMarks,
    pub(super) options: ReplyOptions,
    /// See [`ReplyForm::answer_or_calls`](super::ReplyForm::answer_or_calls).
    pub(super) answer_or_calls: bool,
    /// What opens an answer after this prompt, and what ends one before a call.
    pub(super) answer: [&'static str; 2],
}

/// Finds events in the text of a reply.
pub(super) trait Parser: Debug + Send + Sync {
    /// Reads in one state. Returns whether to continue; more text is needed otherwise.
    fn step(&mut self, input: &mut Input, output: &mut Output) -> bool;

    /// Takes the rest at the end of the reply. `is_cut`: the model did not end it.
    fn finish(&mut self, input: &mut Input, output: &mut Output, is_cut: bool);

    /// Whether the text so far ends within reasoning.
    fn is_reasoning(&self) -> bool {
        false
    }
}

/// A text without marks: all of it is content.
#[derive(Debug)]
pub(super) struct Plain;

impl Parser for Plain {
    fn step(&mut self, input: &mut Input, output: &mut Output) -> bool {
        input.advance_to_end();
        output.content(input.take());
        false
    }

    fn finish(&mut self, _: &mut Input, _: &mut Output, _: bool) {}
}

impl Syntax {
    /// The marks of reasoning of a model with this template.
    pub fn marks_of_reasoning(&self, template: &str) -> ReasoningMarks {
        self.reasoning(template)
    }

    /// Whether reasoning may come back after other text: in forms whose answers are opened by a mark.
    pub fn reasoning_repeats(&self) -> bool {
        self.answer.is_some()
    }

    /// The name of the form, such as `Harmony`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The marks of reasoning.
    pub(super) fn reasoning(&self, template: &str) -> ReasoningMarks {
        let marks = self.reasoning.iter().find(|marks| template.contains(marks.open)).or(self.reasoning.last());
        marks.copied().unwrap_or(THINK)
    }

    /// Marks of reasoning in an assistant's earlier texts, which a template searches for to leave out the reasoning. If
    /// the marks of turns are the same, a text has none.
    pub(crate) fn history_marks(&self, template: &str) -> Vec<&'static str> {
        let marks = self.reasoning(template);
        if self.answer.is_some() { Vec::new() } else { vec![marks.open, marks.close] }
    }

    /// The text that ends the reasoning which a prompt has started.
    pub fn reasoning_ending(&self, prompt: &str) -> &'static str {
        let end = prompt.trim_end();
        self.reasoning.iter().find(|marks| end.ends_with(marks.open)).map_or("", |marks| marks.ending)
    }

    /// The text that opens an answer after a prompt.
    pub fn answer_opening(&self, prompt: &str) -> &'static str {
        self.answer.filter(|(end, _)| prompt.trim_end().ends_with(end)).map_or("", |(_, opening)| opening)
    }

    /// The text that announces a call after a prompt, which may end with it, or with the mark before an answer.
    pub fn opening_of_call(&self, prompt: &str) -> String {
        let opening = self.call.body.opening();
        if !opening.is_empty() && prompt.ends_with(&opening) {
            return String::new();
        }
        [self.answer_closing(prompt), &opening].concat()
    }

    /// The text that ends an answer which a prompt has opened.
    pub(super) fn answer_closing(&self, prompt: &str) -> &'static str {
        // The mark after an answer follows the one before it.
        let within = self.frames.within;
        let answer = within.iter().position(|mark| prompt.ends_with(mark));
        answer.and_then(|at| within.get(at + 1)).copied().unwrap_or_default()
    }

    /// Reasoning as the model writes it before an answer.
    pub fn written_reasoning(&self, template: &str, reasoning: &str) -> String {
        let marks = self.reasoning(template);
        [marks.open, reasoning, marks.ending].concat()
    }
}
