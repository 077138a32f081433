//! Settings of a client.

use std::path::PathBuf;
use std::time::Duration;

use crate::token::Token;

/// The address of the public hub.
pub const ENDPOINT: &str = "https://huggingface.co";

/// Settings of a client.
#[derive(Clone, Debug)]
pub struct Options {
    /// The address of the hub: `https://HOST`, or `http://HOST:PORT`.
    pub endpoint: String,
    /// The folder of the cache.
    pub cache: PathBuf,
    /// The user's token, which only the host of `endpoint` gets.
    pub token: Option<Token>,
    /// Whether only the cache may be used.
    pub offline: bool,
    /// Connections at a time for one file.
    pub connections: usize,
    /// Bytes of one request.
    pub piece: u64,
    /// The wait before a request is repeated; doubled each time.
    pub patience: Duration,
    /// The longest wait for a connection, a reply or the next bytes.
    pub timeout: Duration,
    /// Whether the proxy of the environment is used (`HTTPS_PROXY`, `NO_PROXY`).
    pub system_proxy: bool,
}

impl Options {
    /// The public hub with a cache in this folder: no token, four connections of 64 MiB at a time.
    pub fn new(cache: impl Into<PathBuf>) -> Options {
        Options {
            endpoint: ENDPOINT.to_owned(),
            cache: cache.into(),
            token: None,
            offline: false,
            connections: 4,
            piece: 64 << 20,
            patience: Duration::from_millis(500),
            timeout: Duration::from_secs(30),
            system_proxy: false,
        }
    }
}
