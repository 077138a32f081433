//! Origins of web pages that may use the server.

use std::str::FromStr;

use axum::http::Uri;
use thiserror::Error;

/// Web pages that may use a server from a browser: those of one origin, such as `http://localhost:3000`, or all of them
/// (`*`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin(String);

/// A text is no origin.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "{0:?} is not an origin; write scheme, host and port without a path, as http://localhost:3000, or * for every page"
)]
pub struct OriginError(String);

impl Origin {
    /// Whether pages that send this as their header `Origin` may use the server.
    pub(crate) fn allows(&self, origin: &str) -> bool {
        self.0 == "*" || self.0.eq_ignore_ascii_case(origin)
    }
}

impl FromStr for Origin {
    type Err = OriginError;

    fn from_str(text: &str) -> Result<Origin, OriginError> {
        let is_origin = |uri: Uri| {
            let bare = uri.path() == "/" && uri.query().is_none() && !text.ends_with('/');
            bare && uri.scheme().is_some() && uri.authority().is_some_and(|host| !host.as_str().contains('@'))
        };
        if text == "*" || text.parse().is_ok_and(is_origin) {
            return Ok(Origin(text.to_owned()));
        }
        Err(OriginError(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_read() {
        for text in ["*", "http://localhost:3000", "https://chat.example", "tauri://localhost", "http://[::1]:80"] {
            assert!(text.parse::<Origin>().is_ok(), "{text}");
        }
        for text in [
            "",
            "null",
            "localhost:3000",
            "chat.example",
            "http://",
            "http://a/",
            "http://a/b",
            "http://a?b",
            "http://u@a",
            "*.example",
            "http://a b",
            "/",
        ] {
            assert_eq!(text.parse::<Origin>(), Err(OriginError(text.to_owned())), "{text}");
        }
    }

    #[test]
    fn an_origin_is_whole() {
        let origin: Origin = "http://Localhost:3000".parse().expect("an origin");
        assert!(origin.allows("http://localhost:3000"));
        for other in ["http://localhost", "https://localhost:3000", "http://localhost:30001", "null", "*", ""] {
            assert!(!origin.allows(other), "{other}");
        }
    }
}
