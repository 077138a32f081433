//! The inputs of a template besides the conversation.

use std::time::SystemTime;

/// The inputs of a template besides the conversation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RenderOptions {
    /// Ends the prompt with the start of a reply.
    pub add_generation_prompt: bool,
    /// The text of the beginning-of-sequence token; undefined in the template if `None`.
    pub bos_token: Option<String>,
    /// The text of the end-of-sequence token; undefined in the template if `None`.
    pub eos_token: Option<String>,
    /// The time for `strftime_now`, in UTC; the present if `None`.
    pub now: Option<SystemTime>,
    /// The characters that stand for images in texts ([`Escapes::images`](super::Escapes::images)). A text with one is
    /// given to the template as a list of parts of the types `text` and `image`.
    pub images: Vec<char>,
    /// A text with images is given as it is, with these characters in it: for a template that knows no parts.
    pub images_are_text: bool,
}
