//! The handler of every interface that generates: a request in, a reply out.
//!
//! # One request, one reply
//!
//! A parser turns the JSON of an interface into an `ApiRequest`. `handler.rs` runs the request, and a `Writer` writes
//! the growing `Reply`: complete, or as events for the changes of each token. *No interface imports another. A fifth
//! interface needs a parser, a writer and a route.*

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;
use axum::response::sse::Event;
use futures_util::{Stream, StreamExt, stream};
use tokio::time::timeout;

use crate::error::ApiError;
use crate::fields::{self, Fields};
use crate::generation::Running;
use crate::log::Counts;
use crate::models::{ServedModel, Slot};
use crate::request::ApiRequest;
use crate::state::App;
use crate::stream::{self as events, Writer};
use crate::tenant::Tenant;

/// How long the head of a reply in events waits for a model that is being loaded. An error within this time has its own
/// status.
const HEAD_WAITS: Duration = Duration::from_secs(1);
/// How often a reply in events says how much of its model is loaded.
const PROGRESS: Duration = Duration::from_secs(1);

/// An interface's way to read a request, once its model is loaded.
pub(crate) trait Read<W>:
    FnOnce(&ServedModel, Fields) -> Result<(ApiRequest, W), ApiError> + Send + 'static
{
}

impl<W, R: FnOnce(&ServedModel, Fields) -> Result<(ApiRequest, W), ApiError> + Send + 'static> Read<W> for R {}

/// The events of a reply.
type Events = Pin<Box<dyn Stream<Item = Event> + Send>>;

/// Runs a request and writes its reply. A request to a model that is not loaded waits for it; a reply in events has
/// comments meanwhile.
pub(crate) async fn serve<W: Writer>(
    app: App,
    tenant: Tenant,
    fields: Fields,
    read: impl Read<W>,
) -> Result<Response, ApiError> {
    let slot = app.models.find(fields.model()?.as_deref())?.clone();
    let is_stream = fields.is_true("stream");
    let loaded = slot.clone();
    let mut load = Box::pin(async move { app.load(&loaded).await });
    let model = match is_stream {
        true => match timeout(HEAD_WAITS, &mut load).await {
            Ok(model) => model?,
            Err(_) => {
                let counts = Counts::new();
                let counted = counts.clone();
                let start = async move { start(&load.await?, tenant, fields, read, counted).await };
                let mut response = events::response(waiting::<W>(slot, start));
                response.extensions_mut().insert(counts);
                return Ok(response);
            }
        },
        false => load.await?,
    };
    let counts = Counts::new();
    let (header, mut response) = match is_stream {
        true => {
            let (running, writer) = running(&model, tenant, fields, read, counts.clone()).await?;
            (fields::ignored_header(&running.ignored), events::response(events::events(running, writer)))
        }
        false => {
            let (request, writer) = read(&model, fields)?;
            let running = Running::start(&model, tenant, request, counts.clone()).await?;
            (fields::ignored_header(&running.ignored), writer.whole(&running.collect().await?))
        }
    };
    response.headers_mut().extend(header);
    response.extensions_mut().insert(counts);
    Ok(response)
}

/// Starts a reply in events, and waits for the first.
async fn running<W: Writer>(
    model: &ServedModel,
    tenant: Tenant,
    fields: Fields,
    read: impl Read<W>,
    counts: Counts,
) -> Result<(Running, W), ApiError> {
    let (request, writer) = read(model, fields)?;
    let mut running = Running::start(model, tenant, request, counts).await?;
    running.begin().await?;
    Ok((running, writer))
}

async fn start<W: Writer>(
    model: &ServedModel,
    tenant: Tenant,
    fields: Fields,
    read: impl Read<W>,
    counts: Counts,
) -> Result<Events, ApiError> {
    let (running, writer) = running(model, tenant, fields, read, counts).await?;
    Ok(Box::pin(events::events(running, writer)))
}

/// The events of a reply whose model is being loaded: comments, then those of the reply, or an error.
fn waiting<W: Writer>(
    slot: Arc<Slot>,
    start: impl Future<Output = Result<Events, ApiError>> + Send + 'static,
) -> impl Stream<Item = Event> + Send {
    let comments = stream::unfold(Some(Box::pin(start)), move |start| {
        let slot = slot.clone();
        async move {
            let mut start = start?;
            Some(match timeout(PROGRESS, &mut start).await {
                Ok(Ok(events)) => (events, None),
                Ok(Err(error)) => (one(W::refusal(&error)), None),
                Err(_) => (one(slot.progress()), Some(start)),
            })
        }
    });
    comments.flatten()
}

/// A stream of one event.
fn one(event: Event) -> Events {
    Box::pin(stream::once(std::future::ready(event)))
}
