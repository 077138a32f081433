//! Conversations: from messages and tools to a prompt, and to the form in which its reply is parsed.
//!
//! # A conversation becomes a request and the form of its reply
//!
//! A conversation becomes a request and the form of its reply, for the server and the command line. Messages and tools
//! are typed. Only `template/context.rs` contains the fields in which templates look for them. Rendered test
//! conversations show what a template does with tools and reasoning (`template/support.rs`), because a template can
//! read a variable and not print it. The form of calls is the one whose parser reads the call that the template writes.
//! If none reads it, the form is derived from calls that the template writes (`reply/derive.rs`). A form is data
//! (`reply/frame.rs`, `reply/tags.rs`): its reader, the grammar of a required call and the text of earlier calls follow
//! from it. If a template does not show tools, or its calls could not be read, messages spell the tools out
//! (`template/tools.rs`). If a template refuses a conversation, or leaves out a part of it, the conversation is
//! repaired (`template/repairs.rs`, a table). *A skeleton of the conversation, in which each text is one word, shows
//! whether a part is left out (`template/draft.rs`). So the answer does not depend on the content of messages.*

mod call;
mod conversation;
mod enforce;
mod gemma;
mod images;
mod lark;
mod nested;
mod options;
mod parts;
mod python;
mod render;
mod tagged;
mod template;
#[cfg(test)]
mod tests;

pub use conversation::Conversation;
pub use enforce::{Unenforced, check_tools};
pub use images::ChatImage;
pub use options::{ConverseOptions, ToolChoice};
pub use template::ModelTemplate;
