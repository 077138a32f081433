//! A request whose reply has ended, for the access log of the program.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Takes each request when its reply has ended.
#[derive(Clone)]
pub struct Log(pub(crate) Arc<dyn Fn(&LoggedRequest) + Send + Sync>);

impl Log {
    /// A log that calls this function, from any thread.
    pub fn new(take: impl Fn(&LoggedRequest) + Send + Sync + 'static) -> Log {
        Log(Arc::new(take))
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("Log")
    }
}

/// A request whose reply has ended.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct LoggedRequest {
    /// When the request arrived.
    pub time: SystemTime,
    /// The method, such as `POST`.
    pub method: String,
    /// The path without the query.
    pub path: String,
    /// The status of the reply.
    pub status: u16,
    /// The header `x-request-id` of the reply: that of the request, or one that the server made.
    pub request_id: String,
    /// The name of its key; `None` without keys, and where the request named none of them.
    pub key: Option<String>,
    /// The tokens of a request that generates or embeds.
    pub tokens: Option<Tokens>,
    /// The time until the head of the reply and all of its body were taken by the connection.
    pub duration: Duration,
    /// Whether the whole reply was sent. False if the client went away.
    pub complete: bool,
}

/// Tokens of a request, over all choices.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tokens {
    /// Tokens of the prompts.
    pub prompt: u64,
    /// Prompt tokens that were in the prefix cache.
    pub cached: u64,
    /// Generated tokens.
    pub generated: u64,
    /// The time until the first generated token.
    pub first: Option<Duration>,
}
