//! The body of a request: one JSON object.

use axum::body::{Body, HttpBody};
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, StatusCode, header};
use http_body_util::BodyExt;
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use crate::blocking::blocking;
use crate::error::ApiError;
use crate::fields::Fields;
use crate::json::{self, Malformed, mend_surrogates};
use crate::state::App;

/// Bytes of a body that is parsed at once. A longer one would hold up the other connections of a thread.
const PARSED_AT_ONCE: usize = 64 << 10;
/// The maximum number of values in a body; texts, lists and objects count as several. A value needs 72 bytes of memory,
/// and at least 2 bytes of JSON. The maximum needs 29 MB, and is read and refused within 50 ms (measured: 110 ns for a
/// number, 250 to 500 ns for a text in a list, 1 µs for a text and a number in an object, 600 ns for a list of one
/// number).
const MOST_VALUES: usize = 400_000;
/// A text takes the time of this number of numbers; the name of a field is a text.
const VALUES_OF_TEXT: usize = 7;
/// A list of one value or an object with one field needs the memory of this number of values.
const VALUES_OF_PARTS: usize = 10;
/// The most fields of a body: each of them is looked for among those that the interface has.
const MOST_FIELDS: usize = 1_000;

/// Some clients write it before JSON.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

impl FromRequest<App> for Fields {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &App) -> Result<Fields, ApiError> {
        check_encoding(request.headers())?;
        let (most, patience) = (app.options.body_bytes, app.options.patience);
        let end = Instant::now() + patience;
        // A client that waits for `100 Continue` sends nothing after a refusal.
        let waits = request.headers().contains_key(header::EXPECT);
        let mut body = request.into_body();
        if body.size_hint().lower() > most as u64 {
            if !waits {
                tokio::spawn(timeout_at(end, discard(body)));
            }
            return Err(too_long(most));
        }
        let bytes = match timeout_at(end, read(&mut body, most)).await {
            Ok(Ok(Some(bytes))) => bytes,
            Ok(Ok(None)) => {
                tokio::spawn(timeout_at(end, discard(body)));
                return Err(too_long(most));
            }
            Ok(Err(error)) => return Err(bad(&format!("the body of the request cannot be read: {error}"))),
            Err(_) => {
                let message = format!("the body of the request did not arrive within {} s", patience.as_secs());
                return Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, message));
            }
        };
        if bytes.len() <= PARSED_AT_ONCE { parse(bytes) } else { blocking(move || parse(bytes)).await }
    }
}

/// The bytes of a body, or `None` if there are more than `most`. They are copied as they arrive, so a body is in memory
/// once.
async fn read(body: &mut Body, most: usize) -> Result<Option<Vec<u8>>, axum::Error> {
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(most);
    let mut bytes = Vec::with_capacity(announced.min(most));
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        if data.len() > most - bytes.len() {
            return Ok(None);
        }
        bytes.extend_from_slice(&data);
    }
    Ok(Some(bytes))
}

/// A compressed body could have any size, so compressed bodies are refused.
fn check_encoding(headers: &HeaderMap) -> Result<(), ApiError> {
    match headers.get(header::CONTENT_ENCODING) {
        Some(encoding) if encoding != "identity" => {
            let message = format!("the body of the request is encoded ({encoding:?}); send plain JSON");
            Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message))
        }
        _ => Ok(()),
    }
}

/// Reads the rest of a body that is refused: a client that is still sending when the connection is closed may lose the
/// refusal.
async fn discard(mut body: Body) {
    while let Some(Ok(_)) = body.frame().await {}
}

fn parse(mut bytes: Vec<u8>) -> Result<Fields, ApiError> {
    mend_surrogates(&mut bytes);
    let bytes = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&bytes);
    let values = values(bytes);
    if values > MOST_VALUES {
        let message = format!(
            "the body of the request has more than {MOST_VALUES} values, where a text counts as {VALUES_OF_TEXT}, and \
             a list or an object as {VALUES_OF_PARTS}; send fewer"
        );
        return Err(ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, message));
    }
    match json::parse(bytes) {
        Ok(Value::Object(fields)) if fields.len() > MOST_FIELDS => {
            let message =
                format!("the body of the request has {} fields; at most {MOST_FIELDS} are accepted", fields.len());
            Err(bad(&message))
        }
        Ok(Value::Object(fields)) => Ok(Fields::new(fields)),
        Ok(_) => Err(bad("the body of the request is not a JSON object; send one")),
        Err(Malformed::Syntax(error)) => Err(bad(&format!("the body of the request is not valid JSON: {error}"))),
        Err(Malformed::Twice(path)) => Err(ApiError::param(&path, format!("{path} is sent twice; send it once"))),
    }
}

/// An upper bound of the values in a JSON text, where texts, lists and objects count as several. Each value but the
/// first follows one of `,`, `[`, `{` and `:`.
fn values(json: &[u8]) -> usize {
    let (mut values, mut in_string, mut escaped) = (1, false, false);
    for &byte in json {
        match (in_string, byte) {
            (true, _) if escaped => escaped = false,
            (true, b'\\') => escaped = true,
            (true, b'"') => in_string = false,
            (false, b'"') => (in_string, values) = (true, values + VALUES_OF_TEXT - 1),
            (false, b',' | b':') => values += 1,
            (false, b'[' | b'{') => values += VALUES_OF_PARTS,
            _ => {}
        }
    }
    values
}

fn too_long(most: usize) -> ApiError {
    let message = format!("the body of the request has more than {most} bytes; send a shorter one");
    ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, message)
}

fn bad(message: &str) -> ApiError {
    ApiError::new(StatusCode::BAD_REQUEST, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Map;

    #[test]
    fn values_are_counted() {
        assert_eq!(values(br#"[1,2,"a,[b\"],",3]"#), VALUES_OF_PARTS + 3 + VALUES_OF_TEXT);
        assert_eq!(values(br#"{"a":{},"b":[{}]}"#), 1 + 4 * VALUES_OF_PARTS + 3 + 2 * (VALUES_OF_TEXT - 1));
        assert_eq!(values(b""), 1);
        assert!(size_of::<Value>() <= 72);
    }

    #[test]
    fn a_byte_order_mark_is_not_a_part_of_json() {
        assert!(parse("\u{feff}{\"prompt\":\"a\"}".into()).is_ok());
        assert!(parse("\u{feff}\u{feff}{}".into()).is_err() && parse("\u{feff}".into()).is_err());
    }

    #[test]
    fn too_many_values_are_refused() {
        let list = |item: &str, count: usize| format!("{{\"a\":[{}1]}}", format!("{item},").repeat(count));
        assert!(parse(list("1", MOST_VALUES - 50).into_bytes()).is_ok());
        let texts = list("\"\"", MOST_VALUES / VALUES_OF_TEXT);
        let [lists, objects] = ["[]", "{}"].map(|item| list(item, MOST_VALUES / VALUES_OF_PARTS));
        for text in [list("1", MOST_VALUES), texts, lists, objects] {
            let refused = parse(text.into_bytes()).expect_err("refused");
            assert_eq!(refused.status, StatusCode::PAYLOAD_TOO_LARGE);
        }
        let fields =
            |count: usize| (0..count).map(|number| (number.to_string(), number.into())).collect::<Map<_, Value>>();
        let written = |count: usize| Value::Object(fields(count)).to_string();
        assert!(parse(written(MOST_FIELDS).into_bytes()).is_ok());
        let refused = parse(written(MOST_FIELDS + 1).into_bytes()).expect_err("refused");
        assert!(refused.message.contains("1001 fields"), "{}", refused.message);
    }
}
