//! Server-sent events of a reply that grows.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, StreamExt, stream};
use serde::Serialize;
use utoipa::ToSchema;

use crate::error::ApiError;
use crate::generation::Running;
use crate::reply::{Reply, Step};

/// An event, for `/openapi.json`.
#[derive(ToSchema)]
#[expect(dead_code, reason = "axum writes events")]
pub(crate) struct StreamEvent {
    /// Its type, in the interfaces that name it.
    event: Option<String>,
    /// JSON, or `[DONE]`.
    data: String,
}

/// An interface's way to write a reply.
pub(crate) trait Writer: Send + 'static {
    /// The reply as a whole.
    fn whole(self, reply: &Reply) -> Response;
    /// The events before the first token.
    fn begin(&mut self, reply: &Reply) -> Vec<Event>;
    /// The events of one token, whose effect the reply already has.
    fn step(&mut self, reply: &Reply, step: Step) -> Vec<Event>;
    /// The events after the last token of all choices.
    fn end(&mut self, reply: &Reply) -> Vec<Event>;
    /// The events after an error, which ends the reply.
    fn error(&mut self, _: &Reply, error: &ApiError) -> Vec<Event> {
        vec![Self::refusal(error)]
    }
    /// The event of an error.
    fn refusal(error: &ApiError) -> Event;
}

/// The events of a reply, as tokens arrive. A client that goes away drops them, which cancels the choices.
pub(crate) fn events(running: Running, mut writer: impl Writer) -> impl Stream<Item = Event> + Send {
    let ready = writer.begin(&running.reply).into();
    stream::unfold(Sending { running, writer, ready, ended: false }, |mut sending| async {
        let event = sending.next().await?;
        Some((event, sending))
    })
}

/// A response that sends events.
pub(crate) fn response(events: impl Stream<Item = Event> + Send + 'static) -> Response {
    // Comments keep proxies from closing a connection that waits for a long prompt.
    let keep_alive = KeepAlive::new().interval(Duration::from_secs(15));
    Sse::new(events.map(Ok::<_, Infallible>)).keep_alive(keep_alive).into_response()
}

struct Sending<W> {
    running: Running,
    writer: W,
    ready: VecDeque<Event>,
    ended: bool,
}

impl<W: Writer> Sending<W> {
    async fn next(&mut self) -> Option<Event> {
        while self.ready.is_empty() && !self.ended {
            let step = self.running.next().await;
            let reply = &self.running.reply;
            self.ended = !matches!(step, Some(Ok(_)));
            self.ready.extend(match step {
                Some(Ok(step)) => self.writer.step(reply, step),
                Some(Err(error)) => self.writer.error(reply, &error),
                None => self.writer.end(reply),
            });
        }
        self.ready.pop_front()
    }
}

/// An event of JSON. This server's types can be written as JSON.
pub(crate) fn json(data: &impl Serialize) -> Event {
    Event::default().data(serde_json::to_string(data).unwrap_or_default())
}

/// An event like that of [`json`], with a name before the data.
pub(crate) fn named(name: &str, data: &impl Serialize) -> Event {
    Event::default().event(name).data(serde_json::to_string(data).unwrap_or_default())
}
