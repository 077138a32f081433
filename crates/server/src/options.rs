//! Options of a server.

use std::time::Duration;

use gristmill_engine::SamplingOptions;

use crate::host::HostPattern;
use crate::keys::Key;
use crate::log::Log;
use crate::origin::Origin;

/// Settings of a server. Write `Options { …, ..Options::new(name) }`: later versions may add fields.
#[derive(Debug, Clone)]
pub struct Options {
    /// The name of the model in replies.
    pub name: String,
    /// Other names by which requests may use the model. A `*` in a name stands for any characters; names without
    /// one are listed in `/v1/models`.
    pub aliases: Vec<String>,
    /// Access: keys, hosts and origins.
    pub access: Access,
    /// Refuse requests with fields that this server does not know, instead of naming them in a header of the reply.
    pub strict: bool,
    /// Obey the field `chat_template` of requests. It replaces the model's, and so everything that the model reads.
    pub allow_chat_template: bool,
    /// Serve a page at `/`, and its files under `/page/`. They need no key: the page asks its user for one. Off at
    /// first, because an application with a router of its own has a page there.
    pub page: bool,
    /// The largest body of a request in bytes.
    pub body_bytes: usize,
    /// How long a client may take to send the head of a request, and then its body, and how long a write may wait for
    /// the client to read. A connection without a request is closed after this time.
    pub patience: Duration,
    /// The most connections at a time; others wait in the system's queue until one ends.
    pub connections: usize,
    /// How long the server continues taking requests after the signal that ends it, while `/ready` is 503: load
    /// balancers need some time to send requests elsewhere.
    pub drain_delay: Duration,
    /// Default sampling of requests.
    pub sampling: SamplingOptions,
    /// The most draft tokens in each step of a reply: see [`Request::draft`](gristmill_engine::Request::draft).
    pub draft: usize,
    /// Report figures by the names of vLLM too.
    pub vllm_metrics: bool,
    /// Takes each request when its reply has ended, for an access log.
    pub log: Option<Log>,
}

impl Options {
    /// Settings for a model of this name, without keys.
    pub fn new(name: impl Into<String>) -> Options {
        Options {
            name: name.into(),
            aliases: Vec::new(),
            access: Access::default(),
            strict: false,
            allow_chat_template: false,
            page: false,
            // A prompt of a million tokens has about 4 MB.
            body_bytes: 8 << 20,
            patience: Duration::from_secs(30),
            // A process may usually have 1,024 files open.
            connections: 1_000,
            drain_delay: Duration::ZERO,
            sampling: SamplingOptions::default(),
            draft: 0,
            vllm_metrics: false,
            log: None,
        }
    }

    /// Whether requests may use the model by this name.
    pub(crate) fn is_named(&self, asked: &str) -> bool {
        asked == self.name || self.aliases.iter().any(|alias| matches(alias, asked))
    }

    /// The model's name, and its aliases that are names.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let aliases = self.aliases.iter().filter(|alias| !alias.contains('*') && **alias != self.name);
        std::iter::once(&self.name).chain(aliases).map(String::as_str)
    }
}

/// Whether a name is one of a pattern, in which `*` stands for any characters.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == name };
    let (middle, last) = rest.rsplit_once('*').unwrap_or(("", rest));
    let Some(mut name) = name.strip_prefix(first) else { return false };
    for part in middle.split('*') {
        let Some((_, behind)) = name.split_once(part) else { return false };
        name = behind;
    }
    name.ends_with(last)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_of_names() {
        for (pattern, name) in [
            ("a", "a"),
            ("*", ""),
            ("*", "any/name"),
            ("claude-*", "claude-"),
            ("claude-*", "claude-sonnet-5"),
            ("*-mini", "gpt-mini"),
            ("a*b*c", "abc"),
            ("a*b*c", "a-b-b-c-c"),
            ("*b*", "abc"),
            ("a**c", "abc"),
        ] {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [
            ("a", "ab"),
            ("", "a"),
            ("claude-*", "xclaude-1"),
            ("*-mini", "gpt-mini-2"),
            ("a*a", "a"),
            ("a*b*c", "acb"),
            ("a*b*b", "ab"),
        ] {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
    }
}
