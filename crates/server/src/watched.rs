//! A body that reports its end: that all of it was read, or that it was dropped before.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use hyper::body::{Body as HttpBody, Frame, SizeHint};

/// A body, and a function that is called when the body ends: with true if all of it was read.
struct Watched<F: FnOnce(bool)> {
    body: Body,
    is_read: bool,
    end: Option<F>,
}

/// Calls `end` when the body is dropped, with whether all of it was read.
pub(crate) fn watched(body: Body, end: impl FnOnce(bool) + Send + Unpin + 'static) -> Body {
    Body::new(Watched { body, is_read: false, end: Some(end) })
}

impl<F: FnOnce(bool) + Unpin> HttpBody for Watched<F> {
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

impl<F: FnOnce(bool)> Drop for Watched<F> {
    fn drop(&mut self) {
        let is_read = self.is_read || self.body.is_end_stream();
        if let Some(end) = self.end.take() {
            end(is_read);
        }
    }
}
