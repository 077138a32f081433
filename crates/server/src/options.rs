//! Options of a server.

use std::time::Duration;

use crate::host::HostPattern;
use crate::images::ImageOptions;
use crate::keys::Key;
use crate::kv_events::KvEvents;
use crate::logged::Log;
use crate::origin::Origin;
use crate::page::McpOrigin;

/// Settings of a server. Write `Options { …, ..Options::default() }`: later versions may add fields.
#[derive(Debug, Clone)]
pub struct Options {
    /// Access: keys, hosts and origins.
    pub access: Access,
    /// Refuse requests with fields that this server does not know, instead of naming them in a header of the reply.
    pub strict: bool,
    /// Obey the field `chat_template` of requests. It replaces the model's, and so everything that the model reads.
    pub allow_chat_template: bool,
    /// Serve a page at `/`, and its files under `/page/`. They need no key: the page asks its user for one. Off at
    /// first, because an application with a router of its own has a page there.
    pub page: bool,
    /// Origins of MCP servers that the page may connect to. A browser lets the page connect to no other server.
    pub mcp_origins: Vec<McpOrigin>,
    /// Images in requests.
    pub images: ImageOptions,
    /// The largest body of a request in bytes.
    pub body_bytes: usize,
    /// The most bytes of responses that requests can continue by their id, in the memory of the server; 0 for none.
    pub response_bytes: usize,
    /// How long a client may take to send the head of a request, and then its body, and how long a write may wait for
    /// the client to read. A connection without a request is closed after this time.
    pub patience: Duration,
    /// The most connections at a time; others wait in the system's queue until one ends.
    pub connections: usize,
    /// How long the server continues taking requests after the signal that ends it, while `/ready` is 503: load
    /// balancers need some time to send requests elsewhere.
    pub drain_delay: Duration,
    /// How long a model that was loaded on demand may be idle before a [`Server`](crate::Server) unloads it; `None` for
    /// no limit.
    pub idle: Option<Duration>,
    /// Publishes the changes of the models' prefix caches.
    pub kv_events: Option<KvEvents>,
    /// Report figures by the names of vLLM too.
    pub vllm_metrics: bool,
    /// Takes each request when its reply has ended, for an access log.
    pub log: Option<Log>,
}

impl Default for Options {
    /// Without keys.
    fn default() -> Options {
        Options {
            access: Access::default(),
            strict: false,
            allow_chat_template: false,
            page: false,
            mcp_origins: Vec::new(),
            images: ImageOptions::default(),
            // A prompt of a million tokens has about 4 MB, and a screenshot 1 MB.
            body_bytes: 32 << 20,
            // Some hundred conversations of agents.
            response_bytes: 64 << 20,
            patience: Duration::from_secs(30),
            // A process may usually have 1,024 files open.
            connections: 1_000,
            drain_delay: Duration::ZERO,
            idle: None,
            kv_events: None,
            vllm_metrics: false,
            log: None,
        }
    }
}

/// Access to a server: keys, hosts and origins.
#[derive(Debug, Clone, Default)]
pub struct Access {
    /// A request must name one of these keys, unless there are none. Each key is a tenant; all keys of one name are one
    /// tenant. Tenants share no cached prefixes, each has its own queue limit, and the engine shares its time between
    /// them. [`Server::keys`](crate::Server::keys) replaces them while a server runs.
    pub keys: Vec<Key>,
    /// Names in the header `Host` that are accepted next to `localhost` and IP addresses. Another name is refused,
    /// because a page in a browser can make its own name point to this machine.
    pub hosts: Vec<HostPattern>,
    /// Origins of web pages that may use the server, next to its own. Browsers let no other page read a reply.
    pub origins: Vec<Origin>,
}
