//! The sockets for events of the prefix caches.

use clap::Args;
use gristmill_server::KvEvents;

use crate::failure::Failure;

#[derive(Args)]
pub(crate) struct KvEventsArgs {
    /// Publish changes of the prefix cache on this ZeroMQ socket (PUB), in vLLM's format, for routers that know the
    /// cached prefixes: tcp://127.0.0.1:5557. Events contain the tokens of all prompts and replies, and the socket has no
    /// keys.
    #[arg(long, value_name = "tcp://ADDRESS:PORT", help_heading = "Operation")]
    kv_events: Option<String>,
    /// Replay published events on this socket (ROUTER), for a router that has missed some: the last 10,000 messages.
    #[arg(long, value_name = "tcp://ADDRESS:PORT", requires = "kv_events", help_heading = "Operation")]
    kv_events_replay: Option<String>,
}

impl KvEventsArgs {
    /// Binds the sockets, if they are wanted.
    pub(super) async fn bind(&self) -> Result<Option<KvEvents>, Failure> {
        let Some(address) = &self.kv_events else { return Ok(None) };
        Ok(Some(KvEvents::bind(address, self.kv_events_replay.as_deref()).await?))
    }
}
