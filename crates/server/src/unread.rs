//! Bodies that a reply leaves unread. The connection ends with such a reply, because the rest of the body would be read
//! as the next request, and the reply has to announce it: a client that keeps connections open sends its next request
//! on this one otherwise.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::{HeaderValue, Version, header};
use axum::middleware::Next;
use axum::response::Response;
use hyper::body::{Body as HttpBody, Frame, SizeHint};

/// Announces the end of the connection if a part of the request's body was not read.
pub(crate) async fn announce(request: Request, next: Next) -> Response {
    // Later versions have no such header, and need none.
    if request.body().is_end_stream() || request.version() > Version::HTTP_11 {
        return next.run(request).await;
    }
    let dropped = Arc::new(AtomicBool::new(false));
    let request = request.map(|body| Body::new(Watched { body, is_read: false, dropped: dropped.clone() }));
    let mut response = next.run(request).await;
    if dropped.load(Ordering::Relaxed) {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// A body that reports when it is dropped before its end.
struct Watched {
    body: Body,
    is_read: bool,
    dropped: Arc<AtomicBool>,
}

impl HttpBody for Watched {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        self.is_read |= matches!(frame, Poll::Ready(None));
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if !self.is_read && !self.body.is_end_stream() {
            self.dropped.store(true, Ordering::Relaxed);
        }
    }
}
