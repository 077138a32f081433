//! A rendered conversation, of which requests are made.

use gristmill_text::reply::ReplyForm;

use crate::options::Required;
use crate::{GenerationOptions, Prompt, ReplyParser, Request};

/// A rendered conversation: its prompt, what the prompt requires of a request, and the form in which replies are parsed.
/// Several requests can be made of it.
#[derive(Debug, Clone)]
#[must_use]
pub struct Conversation {
    pub(super) required: Required,
    pub(super) form: ReplyForm,
}

impl Conversation {
    /// The prompt.
    pub fn prompt(&self) -> &Prompt {
        &self.required.prompt
    }

    /// The request for one reply. Without sampling in the options, it is sampled as the model recommends.
    pub fn request(&self, options: GenerationOptions) -> Request {
        self.required.clone().request(options)
    }

    /// A parser for one reply.
    pub fn parser(&self) -> ReplyParser {
        ReplyParser::new(self.form.parser())
    }

    /// The form of the replies. [`parser`](Self::parser) reads the pieces of a reply; [`ReplyForm::parse`] reads a whole
    /// text.
    pub fn form(&self) -> &ReplyForm {
        &self.form
    }
}
