//! An HTTP server for one model, with the interfaces of OpenAI and Anthropic.
//!
//! ```text
//! connection ─► access (key, host, origin) ─► body ─► openai, anthropic, tokens ─► generation ─► Engine::deliver
//!                                                            ▲                                        │ engine's thread
//!                                                            └──────────── channel of pieces ◄────────┘
//! ```
//! - `options` has what a server is started with, `routes` the paths, `listen` the connections and the end of the
//!   server, `patient` the time that a client has to read.
//! - `access` decides who may ask, by keys, hosts and `origin`; `body` and `fields` read a request, `error` says what was wrong with it.
//! - `reply` takes generated text apart; `generation` runs requests on the engine; `stream` makes server-sent events of their pieces.
//! - `openai` and `anthropic` translate requests and replies, `tokens` serves the tokenizer and the chat template; `base64`
//!   writes vectors.
//! - `metrics` counts.

#![forbid(unsafe_code)]

mod access;
mod anthropic;
mod base64;
mod body;
mod error;
mod fields;
mod generation;
mod listen;
mod metrics;
mod openai;
mod openapi;
mod options;
mod origin;
mod patient;
mod routes;
mod state;
mod stream;
mod tokens;

pub use listen::{ServeError, Server};
pub use options::{Access, Options};
pub use origin::{Origin, OriginError};
pub use routes::router;
