//! Server-sent events of the pieces of a reply.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use gristmill_engine::engine::Piece;
use serde::Serialize;
use utoipa::ToSchema;

use crate::error::ApiError;
use crate::generation::{Choices, Outcome};
use crate::state::App;

/// An event, for `/openapi.json`.
#[derive(ToSchema)]
#[expect(dead_code, reason = "axum writes events")]
pub(crate) struct StreamEvent {
    /// Its type, in the interfaces that name it.
    event: Option<String>,
    /// JSON, or `[DONE]`.
    data: String,
}

/// An interface's way to write a reply as events.
pub(crate) trait Writer: Send + 'static {
    /// Before the first piece.
    fn begin(&mut self) -> Vec<Event>;
    /// One piece of a choice.
    fn piece(&mut self, choice: usize, piece: Piece) -> Vec<Event>;
    /// After the last piece of all choices.
    fn end(&mut self, outcome: Outcome) -> Vec<Event>;
    /// Instead of the rest.
    fn error(&mut self, error: &ApiError) -> Vec<Event>;
}

/// A response that sends events as pieces arrive. A client that goes away drops it, which cancels the choices.
pub(crate) fn respond(app: &App, choices: Choices, mut writer: impl Writer) -> Response {
    let (app, ready) = (app.clone(), writer.begin().into());
    let events = stream::unfold(Sending { app, choices, writer, ready, ended: false }, |mut sending| async {
        let event = sending.next().await?;
        Some((Ok::<_, Infallible>(event), sending))
    });
    // Comments keep proxies from closing a connection that waits for a long prompt.
    Sse::new(events).keep_alive(KeepAlive::new().interval(Duration::from_secs(15))).into_response()
}

struct Sending<W> {
    app: App,
    choices: Choices,
    writer: W,
    ready: VecDeque<Event>,
    ended: bool,
}

impl<W: Writer> Sending<W> {
    async fn next(&mut self) -> Option<Event> {
        while self.ready.is_empty() && !self.ended {
            let events = match self.choices.next().await {
                Some(Ok((choice, piece))) => self.writer.piece(choice, piece),
                Some(Err(error)) => {
                    self.ended = true;
                    self.writer.error(&error)
                }
                None => {
                    self.ended = true;
                    self.writer.end(self.choices.outcome(&self.app))
                }
            };
            self.ready.extend(events);
        }
        self.ready.pop_front()
    }
}

/// An event of JSON. What this server writes can be written as JSON.
pub(crate) fn json(data: &impl Serialize) -> Event {
    Event::default().data(serde_json::to_string(data).unwrap_or_default())
}
