//! A model's reply, taken apart as it is generated: reasoning, content, and calls of tools.
//!
//! How models mark these differs; a chat template shows which form its model writes. The forms are a table (`table`), in
//! the order in which a template is compared with them. The text of each form's file describes it, and its `is_shown_by`
//! has the marks of its templates. If none of these reads the calls which a template writes, a form is derived from them
//! (`derive`).
//!
//! Reasoning is in `<think>…</think>` unless said otherwise. For all forms:
//!
//! - However the text is split into pieces, the events are the same.
//! - A call is one event, when its arguments are complete and valid: the text of a JSON object as the model wrote it.
//!   Arguments that are a string with such a text are unwrapped. Missing arguments are `{}`, unless only its
//!   JSON announces the call. An object with fields that calls do not have is no call, nor
//!   one after which text follows as within a call (`follow`). Closing brackets that are too many are left out.
//! - A call that is malformed or unfinished is content, its marks included: up to the first character that is wrong,
//!   from which on the text is read as content, in which new calls may start. They must be of tools of the request, if
//!   these are known, because their marks may be in a value of the malformed call.
//! - Values between tags are not escaped. The text after a tag decides whether the tag ends a value or is text. The
//!   tool's schema lists the parameters (`function`). If this is not enough to decide, there is no call, so a call
//!   never has other arguments than the model wrote.
//! - White space between reasoning and answer is dropped, around calls too. Except in Harmony and Muse, reasoning only
//!   starts a reply. Where other marks divide a text, its white space is kept. Texts that a call or a message of Harmony
//!   or Muse separates are joined by a line end (`output`).
//! - A call within reasoning is reasoning, unless the reply ends with it, or with it and the end of reasoning
//!   (`draft`): some models start a call without ending their reasoning. It must be of a tool of the request.
//! - A call may otherwise name a tool that the request lacks, if it looks like a name; the caller decides.
//!
//! A parser takes any text in linear time and holds at most a call and the white space before it, or a message's head.
//!
//! # A reply is parsed as it is generated
//!
//! A reply is parsed as it is generated, into reasoning, content and tool calls. The template determines the form. The
//! forms are a table (`reply/table.rs`). The parser reads the same marks that start an answer after reasoning and a
//! required call. If the prompt contains the start of the reply (an opened call, a continued message), the parser reads
//! it too, so a mark can span prompt and reply. A call is emitted only when it is complete, so its arguments are a JSON
//! object. *The events do not depend on how the text is split, and time is linear. A malformed or unfinished call is
//! content, or nothing if a call is required.*

mod call;
mod calls;
mod command;
mod derive;
mod draft;
mod ernie;
mod follow;
mod form;
mod frame;
mod framed;
mod function;
mod gemma4;
mod glm;
mod harmony;
mod hermes;
mod hunyuan;
mod hy3;
mod input;
mod lfm2;
mod list;
mod lists;
mod literals;
mod llama;
mod llama4;
mod marked;
mod message;
mod minimax;
mod minimax_m3;
mod mistral;
mod muse;
mod names;
mod objects;
mod options;
mod output;
mod parameters;
mod parser;
mod python;
mod scan;
mod schema;
mod sections;
mod seed;
mod syntax;
mod table;
mod tags;
#[cfg(test)]
mod tests;
mod typed;
mod value;
mod write;

pub use call::ToolCall;
pub(crate) use derive::{Samples, Words, derived};
pub use form::{ParsedReply, ReplyForm};
pub use frame::{Frame, Item, Named};
pub use options::ReplyOptions;
pub use output::{Joiner, ReplyEvent};
pub use parser::Reply;
pub use syntax::{CallBody, CallSyntax, ReasoningMarks, Syntax};
pub use tags::{Lines, Tags, Types};
pub use write::Written;
pub(crate) use write::json as written_json;
