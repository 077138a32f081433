//! Bodies that a reply leaves unread. The connection ends with such a reply, because the rest of the body would be read
//! as the next request, and the reply has to announce it: a client that keeps connections open sends its next request
//! on this one otherwise.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::extract::Request;
use axum::http::{HeaderValue, Version, header};
use axum::middleware::Next;
use axum::response::Response;
use hyper::body::Body as _;

use crate::watched::watched;

/// Announces the end of the connection if a part of the request's body was not read.
pub(crate) async fn announce(request: Request, next: Next) -> Response {
    // Later versions have no such header, and need none.
    if request.body().is_end_stream() || request.version() > Version::HTTP_11 {
        return next.run(request).await;
    }
    let dropped = Arc::new(AtomicBool::new(false));
    let end = {
        let dropped = dropped.clone();
        move |is_read: bool| dropped.store(!is_read, Ordering::Relaxed)
    };
    let request = request.map(|body| watched(body, end));
    let mut response = next.run(request).await;
    if dropped.load(Ordering::Relaxed) {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}
