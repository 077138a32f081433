//! The parser of a reply, whatever its form.

use super::form::ReplyForm;
use super::input::Input;
use super::options::ReplyOptions;
use super::output::{Output, ReplyEvent};
use super::syntax::{Parser, Plain, Syntax};

/// Parses a reply from its text in pieces. A mark may span pieces.
///
/// ```
/// use gristmill_text::reply::{Reply, ReplyEvent, ReplyOptions};
/// let mut reply = Reply::new(None, "<|im_start|>assistant\n", ReplyOptions::default());
/// assert_eq!(reply.push("<think>Two sac"), [ReplyEvent::Reasoning("Two sac".into())]);
/// assert_eq!(reply.push("ks.</thi"), [ReplyEvent::Reasoning("ks.".into())]);
/// assert_eq!(reply.push("nk>\n\nTwo."), [ReplyEvent::Content("Two.".into())]);
/// assert_eq!(reply.finish(), []);
/// ```
#[derive(Debug)]
pub struct Reply {
    input: Input,
    parser: Box<dyn Parser>,
    output: Output,
    only_calls: bool,
}

impl Reply {
    /// For the reply to a prompt. Only the prompt's end is needed: it can already open the reasoning. The model's chat
    /// template sets the form. A [`ReplyForm`] creates parsers.
    pub fn new(template: Option<&str>, prompt_end: &str, options: ReplyOptions) -> Reply {
        let template = template.unwrap_or_default();
        ReplyForm::new(Syntax::of(template, prompt_end), template, prompt_end, options).parser()
    }

    /// For a continued text, all of which is content.
    pub fn plain() -> Reply {
        ReplyForm::plain().parser()
    }

    /// For a reply that starts with this text, whose events are left out.
    pub(super) fn begin(parser: Box<dyn Parser>, started: &str, parallel_calls: bool, only_calls: bool) -> Reply {
        let (input, output) = (Input::started(started), Output::new(parallel_calls));
        let mut reply = Reply { input, parser, output, only_calls };
        reply.advance();
        reply.output.discard();
        reply
    }

    /// Whether the text so far ends within reasoning.
    pub fn is_reasoning(&self) -> bool {
        self.parser.is_reasoning()
    }

    /// Whether the text so far has a call.
    pub fn has_calls(&self) -> bool {
        self.output.has_calls()
    }

    /// Takes the next piece of the text.
    #[must_use = "events that are not read are lost"]
    pub fn push(&mut self, text: &str) -> Vec<ReplyEvent> {
        self.input.push(text);
        self.advance();
        self.allowed()
    }

    /// Ends the text where the model ended it, and returns what was held. Further text is content.
    #[must_use = "events that are not read are lost"]
    pub fn finish(&mut self) -> Vec<ReplyEvent> {
        self.end(false)
    }

    /// Ends the text at a limit, as [`finish`](Self::finish) does; but what the model could have continued is no call.
    #[must_use = "events that are not read are lost"]
    pub fn cut(&mut self) -> Vec<ReplyEvent> {
        self.end(true)
    }

    fn end(&mut self, is_cut: bool) -> Vec<ReplyEvent> {
        self.parser.finish(&mut self.input, &mut self.output, is_cut);
        self.parser = Box::new(Plain);
        self.allowed()
    }

    fn advance(&mut self) {
        while self.parser.step(&mut self.input, &mut self.output) {}
    }

    /// Takes the events, but for those that may not be there.
    fn allowed(&mut self) -> Vec<ReplyEvent> {
        let mut events = self.output.take();
        events.retain(|event| !self.only_calls || matches!(event, ReplyEvent::ToolCall(_)));
        events
    }
}
