//! Access control: keys, hosts, origins.

use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::Response;
use tower_http::cors::{AllowHeaders, AllowOrigin, AllowPrivateNetwork, CorsLayer};

use crate::error::{ApiError, refuse};
use crate::fields::IGNORED;
use crate::keys::Keys;
use crate::options::Access;
use crate::page;
use crate::request_id::{ANTHROPIC_REQUEST_ID, REQUEST_ID};
use crate::state::App;
use crate::tenant::Tenant;
use crate::{health, host};

/// How long a browser may keep the answer to its question whether a page may ask.
const PREFLIGHT_LASTS: Duration = Duration::from_secs(600);

/// Lets requests pass that may ask, with their [`Tenant`].
pub(crate) async fn check(State(app): State<App>, mut request: Request, next: Next) -> Response {
    match of(&app.options.access, &app.keys, &request) {
        Ok(tenant) => {
            request.extensions_mut().insert(tenant.clone());
            let mut response = next.run(request).await;
            // For the access log.
            response.extensions_mut().insert(tenant);
            response
        }
        Err(error) => refuse(error, request.uri(), request.headers()),
    }
}

/// Answers the questions that browsers ask before a page's request, and lets pages of allowed origins read replies.
pub(crate) fn cors(access: &Access) -> CorsLayer {
    let (access, asked) = (access.clone(), access.clone());
    CorsLayer::new()
        .allow_origin(AllowOrigin::predicate(move |origin, _| access.allows(origin)))
        // A page of the internet may ask a server of the user's own network.
        .allow_private_network(AllowPrivateNetwork::predicate(move |origin, _| asked.allows(origin)))
        .allow_methods([Method::GET, Method::POST])
        .allow_headers(AllowHeaders::mirror_request())
        .expose_headers([header::RETRY_AFTER, IGNORED, REQUEST_ID, ANTHROPIC_REQUEST_ID])
        .max_age(PREFLIGHT_LASTS)
}

impl Access {
    /// Whether pages of this origin may use the server, next to its own.
    fn allows(&self, origin: &HeaderValue) -> bool {
        origin.to_str().is_ok_and(|origin| self.origins.iter().any(|listed| listed.allows(origin)))
    }
}

fn of(access: &Access, keys: &Keys, request: &Request) -> Result<Tenant, ApiError> {
    let headers = request.headers();
    let path = request.uri().path();
    check_one_host(headers)?;
    if health::PATHS.contains(&path) {
        return Ok(Tenant::default());
    }
    let host = asked_host(headers, request.uri())?;
    host::check(&access.hosts, host)?;
    check_origin(access, headers, host)?;
    if page::has(path) {
        return Ok(Tenant::default());
    }
    tenant(keys, headers)
}

/// Refuses several headers `Host`, of which a proxy could choose another one (RFC 9112, section 3.2).
fn check_one_host(headers: &HeaderMap) -> Result<(), ApiError> {
    match headers.get_all(header::HOST).iter().nth(1) {
        Some(_) => Err(ApiError::new(StatusCode::BAD_REQUEST, "the request has several headers Host; send one")),
        None => Ok(()),
    }
}

/// The header `Host`, or the authority of an absolute address.
fn asked_host<'a>(headers: &'a HeaderMap, uri: &'a Uri) -> Result<&'a str, ApiError> {
    let refuse = || ApiError::new(StatusCode::BAD_REQUEST, "the request has no header Host");
    if let Some(authority) = uri.authority() {
        return Ok(authority.as_str());
    }
    headers.get(header::HOST).and_then(|host| host.to_str().ok()).ok_or_else(refuse)
}

/// A browser sends the origin of the page. Pages of other hosts can send requests if their origin is allowed.
fn check_origin(access: &Access, headers: &HeaderMap, host: &str) -> Result<(), ApiError> {
    let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
    let own = |origin: &str| origin.split_once("://").is_some_and(|(_, page)| page.eq_ignore_ascii_case(host));
    if access.allows(origin) || origin.to_str().is_ok_and(own) {
        return Ok(());
    }
    let origin = origin.to_str().unwrap_or("ORIGIN");
    let message = format!(
        "the origin {origin} is not allowed; start the server with --allow-origin {origin} to accept requests of its \
         pages"
    );
    Err(ApiError::new(StatusCode::FORBIDDEN, message))
}

/// The tenant whose key the request names.
fn tenant(keys: &Keys, headers: &HeaderMap) -> Result<Tenant, ApiError> {
    if !keys.required() {
        return Ok(Tenant::default());
    }
    let bearer = |value: &str| value.strip_prefix("Bearer ").or(value.strip_prefix("bearer ")).map(str::to_owned);
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let given = text("authorization").and_then(bearer).or(text("x-api-key").map(str::to_owned));
    let refuse = |message: &str| ApiError::new(StatusCode::UNAUTHORIZED, message).with_code("invalid_api_key");
    let given = given.ok_or_else(|| {
        refuse("this server requires a key; send it as Authorization: Bearer KEY or as x-api-key: KEY")
    })?;
    let client = keys.find(given.trim()).ok_or_else(|| refuse("the key is not one of this server's"))?;
    Ok(Tenant(Some(client)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::Key;
    use axum::body::Body;

    /// The name of the key of an accepted request; empty for none.
    fn ask(access: &Access, headers: &[(&str, &str)]) -> Result<String, StatusCode> {
        let mut request = Request::builder().uri("/v1/models");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::empty()).expect("a request");
        let tenant = of(access, &Keys::new(&access.keys), &request).map_err(|error| error.status)?;
        Ok(tenant.0.map_or(String::new(), |client| client.name.to_string()))
    }

    #[test]
    fn hosts_and_origins() {
        let access = Access { hosts: vec!["box.lan".parse().expect("a name")], ..Access::default() };
        for (host, expected) in [("localhost", Ok(String::new())), ("box.lan:1", Ok(String::new()))] {
            assert_eq!(ask(&access, &[("host", host)]), expected, "{host}");
        }
        assert_eq!(ask(&access, &[("host", "evil.example")]), Err(StatusCode::FORBIDDEN));
        assert_eq!(ask(&access, &[]), Err(StatusCode::BAD_REQUEST));
        for second in ["localhost", "evil.example"] {
            assert_eq!(ask(&access, &[("host", "localhost"), ("host", second)]), Err(StatusCode::BAD_REQUEST));
        }
        let from = |origin| ask(&access, &[("host", "localhost:8080"), ("origin", origin)]);
        assert_eq!(from("http://localhost:8080"), Ok(String::new()));
        for origin in ["http://localhost:3000", "https://evil.example", "null", ""] {
            assert_eq!(from(origin), Err(StatusCode::FORBIDDEN), "{origin}");
        }
        let origins = vec!["https://chat.example".parse().expect("an origin")];
        let access = Access { origins, ..Access::default() };
        let from = |origin| ask(&access, &[("host", "localhost:8080"), ("origin", origin)]);
        assert!(from("https://chat.example").is_ok() && from("http://localhost:8080").is_ok());
        assert_eq!(from("https://chat.example.evil"), Err(StatusCode::FORBIDDEN));
    }

    #[test]
    fn keys() {
        let named: Key = "second anna".parse().expect("a key");
        let access = Access { keys: vec!["first".into(), named], ..Access::default() };
        let with = |name, value| ask(&access, &[("host", "localhost"), (name, value)]);
        assert_eq!(with("authorization", "Bearer first"), Ok("key-1".to_owned()));
        assert_eq!(with("x-api-key", "second"), Ok("anna".to_owned()));
        for (name, value) in [("authorization", "first"), ("authorization", "Bearer firs"), ("x-api-key", "")] {
            assert_eq!(with(name, value), Err(StatusCode::UNAUTHORIZED), "{name}: {value}");
        }
        assert_eq!(ask(&access, &[("host", "localhost")]), Err(StatusCode::UNAUTHORIZED));
    }
}
