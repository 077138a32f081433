//! An HTTP server for models, with the interfaces of OpenAI and Anthropic.
//!
//! ```no_run
//! use gristmill_engine::{Engine, Limits, LoadOptions, Model};
//! use gristmill_server::{OfferedModel, Options, Server};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let model = Model::open("model.gguf", LoadOptions::default())?;
//! let engine = Engine::start(model.into(), Limits { sequences: 4, ..Limits::default() })?.with_queue(64);
//! tokio::runtime::Runtime::new()?.block_on(async {
//!     let server = Server::bind("127.0.0.1:8080", vec![OfferedModel::loaded("model", engine)], Options::default()).await?;
//!     server.run(std::future::pending()).await;
//!     Ok(())
//! })
//! # }
//! ```
//!
//! [`router`] is the same as a `Router` of axum, for an application with pages of its own.
//!
//! ```text
//! connection ─► access ─► body ─► chat, completions, responses, messages ─► ApiRequest ─► handler ─► generation
//!                                     (four parsers: Fields ─► structs)                                 │ Engine
//! events or JSON ◄── four writers ◄───────────────── Reply, with the changes of each token ◄────────────┘
//! ```
//! - `options` contains a server's options, `routes` the paths, `listen` the connections and the end of the server,
//!   `patient` the time limit of a client to read, `unread` the handling of unread bodies.
//! - `models` loads the models on demand and unloads them. `state` is what all requests share.
//! - `access` accepts or refuses requests by `keys`, `host` and `origin`. `body` (with `json`) and `fields` read a
//!   request, `policy` lists refused fields, `error` reports problems by the caller's names.
//! - `request` is the common request of all interfaces, with its `tools`, `sampling`, `limit` and `thinking`. `handler`
//!   runs it by `generation` on the engine. `reply` is the common reply, which grows; `stream` sends it as events.
//! - `openai` and `anthropic` have a parser and a writer for each interface, and share only what has no interface:
//!   `content`, `images`, and `details` of how a reply came about. `openai` also serves models, vectors and the
//!   tokenizer.
//! - `page` serves the page at `/`, whose files are in `crates/server/page`; `model`, `info`, `worker` and `health`
//!   tell clients, routers and probes about the model and the server.
//! - `kv_events` publishes the changes of prefix caches for routers.
//! - `metrics` counts; `log` follows each request for an access log, by its `request_id`; `blocking` runs what takes
//!   milliseconds.

#![forbid(unsafe_code)]

mod access;
mod anthropic;
mod blocking;
mod body;
mod content;
mod details;
mod elsewhere;
mod endpoints;
mod error;
mod fields;
mod generation;
mod handler;
mod health;
mod host;
mod images;
mod info;
mod json;
mod keys;
mod kv_events;
mod limit;
mod listen;
mod log;
mod logged;
mod metrics;
mod model;
mod models;
mod openai;
mod openapi;
mod options;
mod origin;
mod page;
mod patient;
mod policy;
mod reply;
mod request;
mod request_id;
mod routes;
mod sampling;
mod state;
mod stream;
mod tenant;
mod thinking;
mod tools;
mod unread;
mod watched;
mod worker;

pub use host::{HostPattern, HostPatternError};
pub use images::{ImageFetch, ImageOptions};
pub use keys::{Key, KeyError, KeyLimits, Keys};
pub use kv_events::{KvEvents, KvEventsError};
pub use listen::{Loading, ServeError, Server, Sockets};
pub use logged::{Log, LoggedRequest, Tokens};
pub use models::{LoadError, LoadProgress, LoadedModel, OfferedModel};
pub use options::{Access, Options};
pub use origin::{Origin, OriginError};
pub use page::{McpOrigin, McpOriginError};
pub use routes::router;
