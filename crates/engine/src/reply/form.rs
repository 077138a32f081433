//! The form in which the replies to one prompt are parsed.

use super::call::ToolCall;
use super::marked::{BRACKET_THINK, THINK};
use super::output::ReplyEvent;
use super::{Reply, ReplyOptions, harmony, hermes};

/// The form of the replies to one prompt: each reply has a parser of its own.
#[derive(Debug, Clone)]
pub struct ReplyForm {
    /// The end of the prompt.
    prompt_end: String,
    kind: Kind,
}

#[derive(Debug, Clone)]
enum Kind {
    Marks { template: String, options: ReplyOptions },
    Plain,
    OneCall,
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
    pub(crate) fn new(template: &str, prompt: &str, options: ReplyOptions) -> ReplyForm {
        let end = prompt.char_indices().rev().nth(PROMPT_END - 1).map_or(0, |(at, _)| at);
        let kind = Kind::Marks { template: template.to_owned(), options };
        ReplyForm { prompt_end: prompt[end..].to_owned(), kind }
    }

    /// A continued text, all of which is content.
    pub fn plain() -> ReplyForm {
        ReplyForm { prompt_end: String::new(), kind: Kind::Plain }
    }

    /// A text that is one call, `{"name": …, "arguments": {…}}`.
    pub(crate) fn one_call() -> ReplyForm {
        ReplyForm { prompt_end: String::new(), kind: Kind::OneCall }
    }

    /// A parser for one reply.
    pub fn parser(&self) -> Reply {
        match &self.kind {
            Kind::Marks { template, options } => Reply::new(Some(template), &self.prompt_end, options.clone()),
            Kind::Plain => Reply::plain(),
            Kind::OneCall => Reply::one_call(),
        }
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

    /// Whether the marks are control tokens, which the generated text then has to include
    /// ([`Request::control_tokens`](crate::Request::control_tokens)).
    pub fn marks_are_control_tokens(&self) -> bool {
        self.parser().marks_are_control_tokens()
    }

    /// What has to follow a prompt before an answer can begin, for models that reason first.
    pub(crate) fn answer_opening(prompt: &str) -> &'static str {
        match prompt.trim_end() {
            end if end.ends_with(THINK.open) => "\n</think>\n\n",
            end if end.ends_with(BRACKET_THINK.open) => BRACKET_THINK.close,
            end if harmony::ends_prompt(end) => "<|channel|>final<|message|>",
            _ => "",
        }
    }

    /// What announces a call.
    pub(crate) fn call_opening(template: &str) -> &'static str {
        if template.contains(hermes::OPEN) { "<tool_call>\n" } else { "" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_begin_after_reasoning() {
        for (prompt, opening) in [
            ("<|im_start|>assistant\n<think>\n", "\n</think>\n\n"),
            ("<|im_start|>assistant\n<think>\n\n</think>\n\n", ""),
            ("<|start|>assistant", "<|channel|>final<|message|>"),
            ("assistant:", ""),
        ] {
            assert_eq!(ReplyForm::answer_opening(prompt), opening);
        }
    }

    #[test]
    fn a_required_call_is_whole_or_nothing() {
        let call = ToolCall { name: "f".into(), arguments: r#"{"b": 1, "a": 2}"#.into() };
        let form = ReplyForm::one_call();
        let parsed = form.parse(r#"{"name": "f", "arguments": {"b": 1, "a": 2}}"#);
        assert_eq!(parsed, ParsedReply { calls: vec![call], ..ParsedReply::default() });
        assert_eq!(form.parse(r#"{"name": "f", "arg"#), ParsedReply::default());
    }
}
