//! The id of a request, by which its line in a log is found: the client's `x-request-id`, or one that the server makes.

use axum::http::{HeaderMap, HeaderName, HeaderValue};

use crate::reply::random_digits;

/// The header of requests and replies.
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The same in replies to Anthropic's clients.
pub(crate) const ANTHROPIC_REQUEST_ID: HeaderName = HeaderName::from_static("request-id");

/// The most bytes of a client's id. Proxies send 16 to 36.
const MOST_BYTES: usize = 128;

/// The client's id, if a line of a log can have it, or else 32 random digits.
pub(crate) fn of(headers: &HeaderMap) -> HeaderValue {
    let is_plain = |id: &&HeaderValue| {
        (1..=MOST_BYTES).contains(&id.len()) && id.as_bytes().iter().all(|byte| byte.is_ascii_graphic())
    };
    let made = || HeaderValue::from_str(&format!("{}{}", random_digits(), random_digits()));
    let id = headers.get(REQUEST_ID).filter(is_plain).cloned();
    // Digits can be written in a header.
    id.or_else(|| made().ok()).unwrap_or(HeaderValue::from_static("none"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_plain_id_is_the_clients() {
        let of = |id: &[u8]| {
            let mut headers = HeaderMap::new();
            headers.insert(REQUEST_ID, HeaderValue::from_bytes(id).expect("a header"));
            super::of(&headers).as_bytes().to_vec()
        };
        for id in ["a", "7f9c2d1e-0000-4000-8000-1234567890ab", "~!", &"x".repeat(MOST_BYTES)] {
            assert_eq!(of(id.as_bytes()), id.as_bytes());
        }
        for id in [&b""[..], b"two words", b"a\tb", "\u{e9}".as_bytes(), "x".repeat(MOST_BYTES + 1).as_bytes()] {
            let made = of(id);
            assert!(made != id && made.len() == 32 && made.iter().all(u8::is_ascii_hexdigit), "{made:?}");
        }
        assert_ne!(super::of(&HeaderMap::new()), super::of(&HeaderMap::new()));
    }
}
