//! Names of the machine that requests may ask for: the header `Host`.

use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

use axum::http::StatusCode;
use thiserror::Error;

use crate::error::ApiError;

/// A name in the header `Host` that is accepted: `llm.example.org`, or `*.example.org` for every name that ends with
/// `.example.org`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPattern(String);

/// A text is no name of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0:?} is not a host name; write it without port, as llm.example.org, or *.example.org for all names below it")]
pub struct HostPatternError(String);

impl HostPattern {
    pub(crate) fn allows(&self, name: &str) -> bool {
        match self.0.strip_prefix('*') {
            // At least one character stands for the star.
            Some(end) => {
                let at = name.len().checked_sub(end.len()).filter(|&at| at > 0);
                at.and_then(|at| name.get(at..)).is_some_and(|last| last.eq_ignore_ascii_case(end))
            }
            None => self.0.eq_ignore_ascii_case(name),
        }
    }
}

impl FromStr for HostPattern {
    type Err = HostPatternError;

    fn from_str(text: &str) -> Result<HostPattern, HostPatternError> {
        let wrong = || HostPatternError(text.to_owned());
        let name = text.strip_prefix("*.").unwrap_or(text);
        let is_label = |label: &str| {
            !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
        };
        let is_name = name.split('.').all(is_label);
        if is_name { Ok(HostPattern(text.to_owned())) } else { Err(wrong()) }
    }
}

/// Refuses a `Host` that is neither an address, nor `localhost`, nor in the list.
pub(crate) fn check(hosts: &[HostPattern], host: &str) -> Result<(), ApiError> {
    let Some(name) = name(host) else {
        let message = format!("the host {host:?} is not a name or an address with a port; correct the header Host");
        return Err(ApiError::new(StatusCode::FORBIDDEN, message));
    };
    let is_own = name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok();
    if is_own || hosts.iter().any(|listed| listed.allows(name)) {
        return Ok(());
    }
    let message = format!(
        "the host name {name:?} is not allowed; use an IP address or localhost, or start the server with --allow-host \
         {name}"
    );
    Err(ApiError::new(StatusCode::FORBIDDEN, message))
}

/// The name or address in `host:port`, without the brackets of an IPv6 address and without a final dot.
fn name(host: &str) -> Option<&str> {
    let (name, port) = match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']').filter(|(address, _)| address.parse::<Ipv6Addr>().is_ok())?,
        None => host.split_at(host.find(':').unwrap_or(host.len())),
    };
    let is_port = port.is_empty()
        || port.strip_prefix(':').is_some_and(|digits| digits.bytes().all(|digit| digit.is_ascii_digit()));
    is_port.then(|| name.strip_suffix('.').unwrap_or(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_addresses() {
        let listed = ["Box.lan", "*.svc.cluster.local"].map(|name| name.parse().expect("a name"));
        for host in [
            "localhost",
            "LOCALHOST:80",
            "localhost.",
            "127.0.0.1:8080",
            "[::1]:8080",
            "[::1]",
            "192.168.0.7",
            "box.lan:1",
            "gristmill.default.svc.cluster.local",
            "a.SVC.cluster.local.:8080",
        ] {
            assert!(check(&listed, host).is_ok(), "{host}");
        }
        for host in [
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example:80",
            "",
            "[127.0.0.1]evil.com",
            "[127.0.0.1]",
            "[::1]evil.com",
            "[::1",
            "::1",
            "localhost:evil.com",
            "localhost:80:80",
            "svc.cluster.local",
            ".svc.cluster.local",
            "svc.cluster.local.evil.com",
            "evilsvc.cluster.local",
            "x.box.lan",
            "\u{e9}svc.cluster.local",
        ] {
            let refused = check(&listed, host).map_err(|error| error.status);
            assert_eq!(refused, Err(StatusCode::FORBIDDEN), "{host}");
        }
    }

    #[test]
    fn patterns_are_read() {
        for text in ["box", "llm.example.org", "*.example.org", "a_b-c.local"] {
            assert!(text.parse::<HostPattern>().is_ok(), "{text}");
        }
        for text in ["", "*", "*.", "a.*.b", "*example.org", "box:80", "http://box", "a b", ".box", "box."] {
            assert_eq!(text.parse::<HostPattern>(), Err(HostPatternError(text.to_owned())), "{text}");
        }
    }
}
