//! The body of a request: one JSON object.

use axum::body::Body;
use axum::extract::{FromRequest, Request};
use axum::http::StatusCode;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde_json::{Map, Value};

use crate::error::ApiError;
use crate::state::App;

/// The object that a request carries.
pub(crate) struct Object(pub(crate) Map<String, Value>);

impl FromRequest<App> for Object {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &App) -> Result<Object, ApiError> {
        let (most, patience) = (app.options.body_bytes, app.options.patience);
        let read = Limited::<Body>::new(request.into_body(), most).collect();
        let bytes = match tokio::time::timeout(patience, read).await {
            Ok(Ok(body)) => body.to_bytes(),
            Ok(Err(error)) if error.downcast_ref::<LengthLimitError>().is_some() => {
                let message = format!("the body of the request has more than {most} bytes; send a shorter one");
                return Err(ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, message));
            }
            Ok(Err(error)) => {
                let message = format!("the body of the request cannot be read: {error}");
                return Err(ApiError::new(StatusCode::BAD_REQUEST, message));
            }
            Err(_) => {
                let message = format!("the body of the request did not arrive within {} s", patience.as_secs());
                return Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, message));
            }
        };
        match serde_json::from_slice(&bytes) {
            Ok(Value::Object(fields)) => Ok(Object(fields)),
            Ok(_) => Err(bad("the body of the request is not a JSON object; send one")),
            Err(error) => Err(bad(&format!("the body of the request is not valid JSON: {error}"))),
        }
    }
}

fn bad(message: &str) -> ApiError {
    ApiError::new(StatusCode::BAD_REQUEST, message)
}
