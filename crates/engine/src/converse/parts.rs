//! A prompt in parts, before its escapes are removed.

use gristmill_text::reply::Syntax;
use gristmill_text::template::{Escapes, Message};

use crate::Prompt;
use crate::prompt::PromptImage;

/// A prompt in parts, with placeholders where a control token could start in what the conversation says.
pub(super) struct Parts {
    /// The prompt, up to the reply.
    pub(super) prompt: String,
    /// The start of the reply.
    pub(super) started: String,
    pub(super) syntax: &'static Syntax,
    /// The source of the template.
    pub(super) template: String,
    pub(super) escapes: Escapes,
    pub(super) images: Vec<PromptImage>,
}

impl Parts {
    /// The prompt, and what of the reply it has.
    pub(super) fn finished(&self, started: &str) -> Prompt {
        let (text, plain) = self.escapes.unescape(&[&self.prompt, started].concat());
        Prompt::Rendered { text, plain, is_started: !started.is_empty(), images: self.images.clone() }
    }

    /// The parts of a prompt whose reply starts with a message.
    pub(super) fn continued(self, message: &Message) -> Parts {
        let Parts { mut prompt, syntax, template, escapes, images, .. } = self;
        prompt.push_str(syntax.reasoning_ending(&prompt));
        if let Some(reasoning) = &message.reasoning {
            prompt.push_str(&syntax.written_reasoning(&template, reasoning));
        }
        prompt.push_str(syntax.answer_opening(&prompt));
        Parts { prompt, started: message.text.clone(), syntax, template, escapes, images }
    }
}
