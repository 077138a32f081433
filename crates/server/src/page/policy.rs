//! What the page may load, and where it may connect to.

use std::str::FromStr;

use thiserror::Error;

use crate::origin::Origin;

/// The page loads only its own files: no inline script or style, no other host, no frame. HTML of a model's text enters
/// the page only through the sanitiser (`dompurify`). The page's own policy (`gristmill`) makes the address of its worker.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
                      require-trusted-types-for 'script'; trusted-types dompurify gristmill; connect-src 'self'";

/// The header `Content-Security-Policy` of a page that may connect to these MCP servers, and to its own server.
pub(super) fn policy(servers: &[McpOrigin]) -> String {
    servers.iter().fold(POLICY.to_owned(), |policy, McpOrigin(origin)| format!("{policy} {origin}"))
}

/// The origin of an MCP server that the page may connect to, such as `http://localhost:3000`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct McpOrigin(String);

/// A text is no origin of an MCP server.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "{0:?} is not the origin of an MCP server; write scheme, host and port without a path, as http://localhost:3000"
)]
pub struct McpOriginError(String);

impl FromStr for McpOrigin {
    type Err = McpOriginError;

    /// An origin with only those characters that cannot end a source of the policy. A policy cannot name IPv6 addresses.
    fn from_str(text: &str) -> Result<McpOrigin, McpOriginError> {
        let is_web = text.starts_with("http://") || text.starts_with("https://");
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-:/".contains(&byte);
        if is_web && text.bytes().all(is_plain) && text.parse::<Origin>().is_ok() {
            return Ok(McpOrigin(text.to_owned()));
        }
        Err(McpOriginError(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_of_servers_are_read() {
        for text in ["http://localhost:3000", "https://mcp.example", "http://127.0.0.1:1"] {
            assert!(text.parse::<McpOrigin>().is_ok(), "{text}");
        }
        for text in [
            "",
            "*",
            "https:",
            "http://",
            "http://*",
            "http://*.example",
            "http://a/mcp",
            "http://a/",
            "http://a;script-src",
            "http://a,b",
            "http://a b",
            "http://a'",
            "http://u@a",
            "http://[::1]:3000",
            "ws://a",
            "data:",
        ] {
            assert_eq!(text.parse::<McpOrigin>(), Err(McpOriginError(text.to_owned())), "{text}");
        }
    }

    #[test]
    fn only_named_servers_are_in_the_policy() {
        let connects =
            |policy: String| policy.split("; ").find(|part| part.starts_with("connect-src")).map(str::to_owned);
        assert_eq!(connects(policy(&[])).as_deref(), Some("connect-src 'self'"));
        let servers = ["http://localhost:3000", "https://mcp.example"].map(|text| text.parse().expect("an origin"));
        let both = connects(policy(&servers));
        assert_eq!(both.as_deref(), Some("connect-src 'self' http://localhost:3000 https://mcp.example"));
    }
}
