//! Files of public hosts, by addresses that a stranger may have written.
//!
//! The requests are those of images in prompts. A redirect is not followed, and a host that has only addresses of a
//! private network is not asked: the address that a name resolves to is checked, and it is the one that the connection
//! goes to. A proxy is not used, because it would resolve the name itself.

use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use thiserror::Error;
use ureq::Agent;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{DefaultConnector, NextTimeout};

use crate::{Error, tls};

/// How long a file may take, from the name of its host to its last byte.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Why a file was not fetched.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PublicError {
    /// The address cannot be used.
    #[error("{0:?} is not an address of a file; write https://HOST/PATH")]
    Address(String),
    /// The server cannot be reached, or the host has no public address.
    #[error("{host} cannot be reached ({reason}); send the file itself")]
    Connection {
        /// The host.
        host: String,
        /// What is wrong.
        reason: String,
    },
    /// The server sent no file.
    #[error(
        "{host} sent no file (found the status {status}, expected 200; redirects are not followed); send the file itself"
    )]
    Status {
        /// The host.
        host: String,
        /// The status of the reply.
        status: u16,
    },
    /// The file is too long.
    #[error("the file of {host} has more than {limit} bytes; send a smaller one")]
    TooLong {
        /// The host.
        host: String,
        /// The limit.
        limit: u64,
    },
}

/// Fetches files of public hosts.
#[derive(Debug)]
pub struct PublicFiles {
    agent: Agent,
    most: u64,
}

impl PublicFiles {
    /// A client that fetches at most `most` bytes of a file.
    ///
    /// # Errors
    /// If the CPU lacks instructions for encrypted connections, or the system has no certificates.
    pub fn new(most: u64) -> Result<PublicFiles, Error> {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .proxy(None)
            .user_agent(concat!("gristmill/", env!("CARGO_PKG_VERSION")))
            .accept_encoding("identity")
            .timeout_global(Some(TIMEOUT))
            .tls_config(tls::config()?)
            .build();
        let agent = Agent::with_parts(config, DefaultConnector::default(), PublicOnly(DefaultResolver::default()));
        Ok(PublicFiles { agent, most })
    }

    /// The bytes of an address of http or https.
    ///
    /// # Errors
    /// If the host has no public address, sends no file, or one that is too long.
    pub fn fetch(&self, address: &str) -> Result<Vec<u8>, PublicError> {
        let wrong = || PublicError::Address(address.chars().take(100).collect());
        let uri: Uri = address.parse().map_err(|_| wrong())?;
        let host =
            uri.host().filter(|_| matches!(uri.scheme_str(), Some("http" | "https"))).ok_or_else(wrong)?.to_owned();
        let failed = |reason: String| PublicError::Connection { host: host.clone(), reason };
        let response = self.agent.get(&uri).call().map_err(|error| failed(error.to_string()))?;
        let status = response.status().as_u16();
        if status != 200 {
            return Err(PublicError::Status { host, status });
        }
        let mut bytes = Vec::new();
        let body = response.into_body().into_reader();
        body.take(self.most.saturating_add(1)).read_to_end(&mut bytes).map_err(|error| failed(error.to_string()))?;
        match bytes.len() as u64 > self.most {
            true => Err(PublicError::TooLong { host, limit: self.most }),
            false => Ok(bytes),
        }
    }
}

/// Resolves names to public addresses only.
struct PublicOnly(DefaultResolver);

impl std::fmt::Debug for PublicOnly {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PublicOnly")
    }
}

impl Resolver for PublicOnly {
    fn resolve(&self, uri: &Uri, config: &Config, timeout: NextTimeout) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let found = self.0.resolve(uri, config, timeout)?;
        let mut public = self.empty();
        found.iter().filter(|address| is_public(address.ip())).for_each(|address| public.push(*address));
        match public.is_empty() {
            true => Err(ureq::Error::Io(io::Error::other("it has only addresses of a private network"))),
            false => Ok(public),
        }
    }
}

/// Whether an address is one of the public network (the registries of special addresses: RFC 6890 and its updates).
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => match address.to_ipv4_mapped() {
            Some(address) => is_public_v4(address),
            None => is_public_v6(address),
        },
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let is_special = matches!(
        (a, b, c),
        (0 | 10 | 127 | 224.., ..)
            | (100, 64..128, _)
            | (169, 254, _)
            | (172, 16..32, _)
            | (192, 0, 0 | 2)
            | (192, 88, 99)
            | (192, 168, _)
            | (198, 18..20, _)
            | (198, 51, 100)
            | (203, 0, 113)
    );
    !is_special
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let segments = address.segments();
    // Global addresses start with the bits 001. Some of them carry an address of version 4, or are for documents.
    let is_special =
        matches!((segments[0], segments[1]), (0x2001, 0..0x200 | 0xdb8) | (0x2002, _) | (0x3fff, 0..0x1000));
    segments[0] & 0xe000 == 0x2000 && !is_special
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::TcpListener;

    #[test]
    fn addresses_of_private_networks_are_known() {
        for address in [
            "0.0.0.0",
            "10.1.2.3",
            "100.64.0.1",
            "127.0.0.1",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.8",
            "192.0.2.1",
            "192.168.1.1",
            "198.18.0.1",
            "203.0.113.7",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:10.0.0.1",
            "::ffff:127.0.0.1",
            "fc00::1",
            "fd12::1",
            "fe80::1",
            "ff02::1",
            "64:ff9b::a00:1",
            "2001:db8::1",
            "2001::1",
            "2002:a00:1::",
            "::10.0.0.1",
        ] {
            assert!(!is_public(address.parse().unwrap()), "{address}");
        }
        for address in [
            "1.1.1.1",
            "100.63.0.1",
            "172.32.0.1",
            "192.0.1.1",
            "223.255.255.255",
            "::ffff:1.1.1.1",
            "2606:4700::1",
            "2a00::1",
        ] {
            assert!(is_public(address.parse().unwrap()), "{address}");
        }
    }

    #[test]
    fn a_private_host_is_not_asked() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let files = PublicFiles::new(100).unwrap();
        let port = listener.local_addr().unwrap().port();
        for host in ["127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "2130706433", "0x7f.1"] {
            let error = files.fetch(&format!("http://{host}:{port}/a.png")).unwrap_err();
            assert!(matches!(error, PublicError::Connection { .. }), "{host}: {error}");
        }
        for address in ["ftp://a.example/x", "file:///etc/passwd", "a.png", "https:///x"] {
            assert!(matches!(files.fetch(address), Err(PublicError::Address(_))), "{address}");
        }
        assert!(listener.accept().is_err(), "a connection");
    }

    #[test]
    fn files_have_a_limit_and_redirects_are_not_followed() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            let replies = [
                "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc",
                "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nabcde",
                "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1/\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
            ];
            for reply in replies {
                let (mut stream, _) = listener.accept().unwrap();
                let mut head = [0; 1024];
                let _ = stream.read(&mut head);
                stream.write_all(reply.as_bytes()).unwrap();
            }
        });
        // The same agent without the check of addresses, which the test before has.
        let files =
            PublicFiles { agent: Agent::new_with_config(PublicFiles::new(4).unwrap().agent.config().clone()), most: 4 };
        let address = format!("http://127.0.0.1:{port}/a.png");
        assert_eq!(files.fetch(&address).unwrap(), b"abc");
        assert!(matches!(files.fetch(&address), Err(PublicError::TooLong { limit: 4, .. })));
        assert!(matches!(files.fetch(&address), Err(PublicError::Status { status: 302, .. })));
    }
}
