//! Requests to the hub: redirects, who gets the token, and what a status means.

use std::io::{self, Read};
use std::sync::OnceLock;
use std::time::Duration;

use ureq::http::header::{AUTHORIZATION, LOCATION, RANGE, RETRY_AFTER};
use ureq::http::{Response, Uri};
use ureq::{Agent, Body, Proxy};

use crate::{Error, Options, Token, tls};

/// Redirects that are followed, one after another.
const REDIRECTS: usize = 10;
/// The longest reply of the hub's interface.
const LONGEST_REPLY: u64 = 64 << 20;
const USER_AGENT: &str = concat!("gristmill/", env!("CARGO_PKG_VERSION"));

/// A client of one hub.
pub(crate) struct Client {
    endpoint: Url,
    token: Option<Token>,
    proxy: Option<Proxy>,
    timeout: Duration,
    plain: Agent,
    encrypted: OnceLock<Agent>,
}

/// A reply, and the address that sent it.
pub(crate) struct Reply {
    pub(crate) url: Url,
    pub(crate) status: u16,
    response: Response<Body>,
    /// Headers of the hub itself, if it sent the client elsewhere.
    first: Option<ureq::http::HeaderMap>,
}

/// An address of HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Url(Uri);

impl Client {
    pub(crate) fn new(options: &Options) -> Result<Client, Error> {
        let text = options.endpoint.trim().trim_end_matches('/');
        let endpoint = Url::parse(text).ok_or_else(|| Error::Endpoint(options.endpoint.clone()))?;
        let proxy = if options.system_proxy { Proxy::try_from_env() } else { None };
        let settings = settings(proxy.clone(), options.timeout);
        let plain = Agent::new_with_config(settings.build());
        let token = options.token.clone();
        Ok(Client { endpoint, token, proxy, timeout: options.timeout, plain, encrypted: OnceLock::new() })
    }

    /// The address of a path of the hub.
    pub(crate) fn url(&self, path: &str) -> Result<Url, Error> {
        let text = format!("{}{path}", self.endpoint.0.to_string().trim_end_matches('/'));
        Url::parse(&text).ok_or(Error::Endpoint(text))
    }

    /// Requests a page, or the bytes of a range. The status is one of success, or 416.
    pub(crate) fn get(&self, url: &Url, range: Option<(u64, u64)>, repo: &str) -> Result<Reply, Error> {
        let mut url = url.clone();
        let mut first = None;
        for _ in 0..=REDIRECTS {
            let response = self.send(&url, range)?;
            let status = response.status().as_u16();
            if !(300..400).contains(&status) {
                check(status, &url, &response, repo)?;
                return Ok(Reply { url, status, response, first });
            }
            let bad = |reason| Error::Redirect { url: url.to_string(), reason };
            let to = response.headers().get(LOCATION).and_then(|to| to.to_str().ok());
            let next = url.join(to.ok_or_else(|| bad("a redirect without an address"))?);
            let next = next.ok_or_else(|| bad("a redirect to an address that is not HTTP"))?;
            if url.is_encrypted() && !next.is_encrypted() {
                return Err(bad("a redirect from an encrypted connection to an open one"));
            }
            if url.origin() == self.endpoint.origin() {
                first = Some(response.headers().clone());
            }
            url = next;
        }
        Err(Error::Redirect { url: url.to_string(), reason: "more than 10 redirects, one after another" })
    }

    /// The body of a reply of the hub's interface.
    pub(crate) fn text(&self, url: &Url, repo: &str) -> Result<Vec<u8>, Error> {
        let reply = self.get(url, None, repo)?;
        let address = reply.url.to_string();
        let mut body = Vec::new();
        let failed = |error: io::Error| Error::Connection { url: address.clone(), reason: error.to_string() };
        reply.into_body().take(LONGEST_REPLY + 1).read_to_end(&mut body).map_err(failed)?;
        match body.len() as u64 > LONGEST_REPLY {
            true => Err(Error::Reply { url: address, reason: "longer than 64 MiB".to_owned() }),
            false => Ok(body),
        }
    }

    fn send(&self, url: &Url, range: Option<(u64, u64)>) -> Result<Response<Body>, Error> {
        let mut request = self.agent(url)?.get(&url.0);
        if let Some((start, end)) = range {
            request = request.header(RANGE, format!("bytes={start}-{end}"));
        }
        // No other host gets the token: not the CDN that the hub's redirects lead to.
        if let Some(token) = self.token.as_ref().filter(|_| url.origin() == self.endpoint.origin()) {
            request = request.header(AUTHORIZATION, token.header());
        }
        request.call().map_err(|error| Error::Connection { url: url.to_string(), reason: error.to_string() })
    }

    fn agent(&self, url: &Url) -> Result<&Agent, Error> {
        if !url.is_encrypted() {
            return Ok(&self.plain);
        }
        if let Some(agent) = self.encrypted.get() {
            return Ok(agent);
        }
        let settings = settings(self.proxy.clone(), self.timeout).tls_config(tls::config()?);
        Ok(self.encrypted.get_or_init(|| Agent::new_with_config(settings.build())))
    }
}

type Settings = ureq::config::ConfigBuilder<ureq::typestate::AgentScope>;

/// Redirects are followed by [`Client::get`], which decides about the token.
fn settings(proxy: Option<Proxy>, timeout: Duration) -> Settings {
    Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .proxy(proxy)
        .user_agent(USER_AGENT)
        .accept_encoding("identity")
        .timeout_resolve(Some(timeout))
        .timeout_connect(Some(timeout))
        .timeout_recv_response(Some(timeout))
        .timeout_per_read(Some(timeout))
}

/// Fails for a status without bytes. The caller handles 416, because it knows the file.
fn check(status: u16, url: &Url, response: &Response<Body>, repo: &str) -> Result<(), Error> {
    let (url, repo) = (url.to_string(), repo.to_owned());
    // The hub says more than the status: https://github.com/huggingface/huggingface_hub, utils/_http.py.
    let code = response.headers().get("x-error-code").and_then(|code| code.to_str().ok());
    Err(match status {
        401 | 403 if code == Some("GatedRepo") => Error::Gated { repo },
        200..300 | 416 => return Ok(()),
        401 => Error::Unauthorized { repo },
        403 => Error::Forbidden { repo },
        404 => Error::NotFound { url, repo },
        408 | 429 | 500.. => {
            let seconds =
                response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse().ok());
            Error::Busy { url, status, wait: seconds.map(Duration::from_secs) }
        }
        _ => Error::Status { url, status },
    })
}

impl Reply {
    /// A header of the hub itself, or of the only reply.
    pub(crate) fn of_hub(&self, name: &str) -> Option<&str> {
        self.first.as_ref().unwrap_or(self.response.headers()).get(name)?.to_str().ok()
    }

    /// The first byte of a partial reply, and the size of the whole file if the server says it.
    pub(crate) fn range(&self) -> Option<(u64, u64, Option<u64>)> {
        let value = self.response.headers().get("content-range")?.to_str().ok()?;
        let (range, total) = value.strip_prefix("bytes ")?.split_once('/')?;
        let (start, end) = range.split_once('-')?;
        Some((start.parse().ok()?, end.parse().ok()?, total.parse().ok()))
    }

    /// The length that the server announces.
    pub(crate) fn length(&self) -> Option<u64> {
        self.response.headers().get("content-length")?.to_str().ok()?.parse().ok()
    }

    pub(crate) fn into_body(self) -> impl Read {
        self.response.into_body().into_reader()
    }
}

impl Url {
    fn parse(text: &str) -> Option<Url> {
        let uri: Uri = text.parse().ok()?;
        let known = matches!(uri.scheme_str(), Some("http" | "https"));
        (known && uri.host().is_some_and(|host| !host.is_empty())).then_some(Url(uri))
    }

    fn is_encrypted(&self) -> bool {
        self.0.scheme_str() == Some("https")
    }

    /// Scheme, host and port.
    pub(crate) fn origin(&self) -> (bool, String, u16) {
        let port = self.0.port_u16().unwrap_or(if self.is_encrypted() { 443 } else { 80 });
        (self.is_encrypted(), self.0.host().unwrap_or_default().to_ascii_lowercase(), port)
    }

    /// The address that a redirect names, seen from this one.
    fn join(&self, to: &str) -> Option<Url> {
        let (scheme, authority) = (self.0.scheme_str()?, self.0.authority()?);
        let before_query = to.split(['?', '#']).next().unwrap_or(to);
        if before_query.contains("://") {
            Url::parse(to)
        } else if let Some(rest) = to.strip_prefix("//") {
            Url::parse(&format!("{scheme}://{rest}"))
        } else if to.starts_with('/') {
            Url::parse(&format!("{scheme}://{authority}{to}"))
        } else {
            let folder = self.0.path().rsplit_once('/').map_or("", |(folder, _)| folder);
            Url::parse(&format!("{scheme}://{authority}{folder}/{to}"))
        }
    }
}

/// Without the query, which may be a signature, and without user and password.
impl std::fmt::Display for Url {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        let host = self.0.authority().map_or("", |authority| authority.as_str());
        let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
        write!(f, "{}://{host}{}", self.0.scheme_str().unwrap_or_default(), self.0.path())
    }
}

/// The path of an address, with what has a meaning in addresses escaped. `/` stays where `slash` says so.
pub(crate) fn escape(text: &str, slash: bool) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b) || (slash && b == b'/');
    text.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_are_seen_from_where_they_come() {
        let url = Url::parse("https://hub:81/a/b?x=1").expect("an address");
        for (to, whole) in [
            ("http://cdn/x?sig=secret", Some("http://cdn/x")),
            ("//cdn/x", Some("https://cdn/x")),
            ("/c?u=http://e/", Some("https://hub:81/c")),
            ("c", Some("https://hub:81/a/c")),
            ("ftp://cdn/x", None),
            ("file:///etc/passwd", None),
        ] {
            assert_eq!(url.join(to).map(|url| url.to_string()).as_deref(), whole, "{to}");
        }
        assert_eq!(Url::parse("http://user:password@h/x?q").expect("an address").to_string(), "http://h/x");
    }

    #[test]
    fn an_origin_is_scheme_host_and_port() {
        let origin = |text: &str| Url::parse(text).expect(text).origin();
        assert_eq!(origin("https://Hub/x"), origin("https://hub:443"));
        assert!(
            ["http://hub", "https://hub:444", "https://hub.example"]
                .iter()
                .all(|url| origin(url) != origin("https://hub"))
        );
    }

    #[test]
    fn names_are_escaped() {
        assert_eq!(escape("refs/pr/1", false), "refs%2Fpr%2F1");
        assert_eq!(escape("Q8_0/a b#?.gguf", true), "Q8_0/a%20b%23%3F.gguf");
    }
}
