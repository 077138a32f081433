//! Texts on their way into a model and out of it, without the model.
//!
//! ```text
//! messages ── template ──► prompt ── tokenizer ──► tokens
//! tokens ── tokenizer ──► text ── reply ──► reasoning, content, calls of tools
//! grammar ──► which tokens may follow
//! ```
//!
//! ```
//! use gristmill_text::template::{Chat, ChatTemplate, Message, RenderOptions, Role};
//!
//! let source = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}";
//! let template = ChatTemplate::new(source)?;
//! let chat = Chat::new(vec![Message::new(Role::User, "Hello!")]);
//! assert_eq!(template.render(&chat, &RenderOptions::default())?, "<|user|>Hello!");
//! # Ok::<(), gristmill_text::template::TemplateError>(())
//! ```
//!
//! The tokenizer of a GGUF file is `gristmill_model::tokenizer`.

#![forbid(unsafe_code)]

pub mod clock;
pub mod grammar;
pub mod reply;
pub mod template;
pub mod tokenizer;

pub use serde_json;
