//! What a server is started with.

use std::time::Duration;

use gristmill_engine::SamplingOptions;

/// Settings of a server. Write `Options { …, ..Options::new(name) }`: later versions may add fields.
#[derive(Debug, Clone)]
pub struct Options {
    /// The name of the model in replies.
    pub name: String,
    /// Other names by which requests may ask for the model; `*` stands for every name.
    pub aliases: Vec<String>,
    /// Who may ask.
    pub access: Access,
    /// Refuse requests with fields that this server does not know, instead of naming them in a header of the reply.
    pub strict: bool,
    /// The largest body of a request in bytes.
    pub body_bytes: usize,
    /// How long a client may take to send the head of a request, and then its body, and how long a write may wait for the
    /// client to read. A connection without a request is closed after this time.
    pub patience: Duration,
    /// The most connections at a time; others wait in the system's queue until one ends.
    pub connections: usize,
    /// Sampling where a request says nothing.
    pub sampling: SamplingOptions,
    /// The most tokens that are guessed in each step of a reply: see [`Request::draft`](gristmill_engine::Request::draft).
    pub draft: usize,
}

impl Options {
    /// Settings for a model of this name, without keys.
    pub fn new(name: impl Into<String>) -> Options {
        Options {
            name: name.into(),
            aliases: Vec::new(),
            access: Access::default(),
            strict: false,
            body_bytes: 32 << 20,
            patience: Duration::from_secs(30),
            // A process may usually have 1,024 files open.
            connections: 1_000,
            sampling: SamplingOptions::default(),
            draft: 0,
        }
    }
}

/// Who may ask a server.
#[derive(Clone, Default)]
pub struct Access {
    /// A request must name one of these keys, unless there are none. Each key is a tenant: what one computes is not reused
    /// for another, and the engine shares its time between them.
    pub keys: Vec<String>,
    /// Names in the header `Host` that are accepted beside `localhost` and IP addresses. Another name is refused, because
    /// a page in a browser can make its own name point to this machine.
    pub hosts: Vec<String>,
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Access").field("keys", &self.keys.len()).field("hosts", &self.hosts).finish()
    }
}
