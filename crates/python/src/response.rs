//! A request to the server's router, without a port.

use std::collections::VecDeque;
use std::process;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::Request;
use futures_util::StreamExt;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tower::ServiceExt;

use crate::engine::Engine;
use crate::errors::Raised;
use crate::wait::Awaited;

/// Status and headers.
type Head = (u16, Vec<(String, Vec<u8>)>);

/// What has arrived of a reply.
#[derive(Default)]
struct Arrived {
    head: Option<Head>,
    chunks: VecDeque<Bytes>,
    has_ended: bool,
    failed: Option<Raised>,
    /// Whether something arrived since the last read.
    is_fresh: bool,
    notify: Option<Py<PyAny>>,
}

/// A reply of the router as it arrives. Closing it, or dropping it, cancels its request.
#[pyclass(frozen, module = "gristmill._native")]
pub(crate) struct Response {
    arrived: Arc<Awaited<Arrived>>,
    task: AbortHandle,
    /// The process whose threads answer.
    process: u32,
    /// A request ends with its engine, which a program may have no other reference to.
    _engine: Py<Engine>,
}

impl Response {
    pub(crate) fn start(runtime: &Handle, router: Router, request: Request<Body>, engine: Py<Engine>) -> Response {
        let arrived = Arc::<Awaited<Arrived>>::default();
        // Its end is the end of the reply, also after a panic or a cancellation.
        let sender = Sender(arrived.clone());
        let task = runtime.spawn(async move {
            let Ok(response) = router.oneshot(request).await;
            let (parts, body) = response.into_parts();
            let headers = parts
                .headers
                .iter()
                .map(|(name, value)| (name.as_str().to_owned(), value.as_bytes().to_vec()))
                .collect();
            sender.update(|arrived| arrived.head = Some((parts.status.as_u16(), headers)));
            let mut body = body.into_data_stream();
            while let Some(chunk) = body.next().await {
                match chunk {
                    Ok(chunk) => sender.update(|arrived| arrived.chunks.push_back(chunk)),
                    Err(error) => {
                        let raised = Raised::new("InternalError", format!("the reply ended early: {error}"));
                        return sender.update(|arrived| arrived.failed = Some(raised));
                    }
                }
            }
            sender.update(|arrived| arrived.has_ended = true);
        });
        Response { arrived, task: task.abort_handle(), process: process::id(), _engine: engine }
    }

    fn check(&self, py: Python<'_>) -> PyResult<()> {
        check_process(py, self.process)
    }
}

/// Fails in a process that was forked from the given one.
pub(crate) fn check_process(py: Python<'_>, own: u32) -> PyResult<()> {
    match process::id() == own {
        true => Ok(()),
        false => {
            let message = "the engine's threads do not exist in this forked process; open the model here, after the \
                           fork, or start processes with multiprocessing's method \"spawn\"";
            Err(Raised::new("ForkError", message).exception(py))
        }
    }
}

/// The sender's side.
struct Sender(Arc<Awaited<Arrived>>);

impl Sender {
    fn update(&self, update: impl FnOnce(&mut Arrived)) {
        let notify = {
            let mut arrived = self.0.lock();
            update(&mut arrived);
            arrived.is_fresh = true;
            arrived.notify.take()
        };
        self.0.changed();
        if let Some(notify) = notify {
            // Without the lock, which a thread with the GIL may wait for. An event loop that was closed raises.
            Python::try_attach(|py| notify.call0(py).map(drop).unwrap_or_default());
        }
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.update(|arrived| {
            if !arrived.has_ended && arrived.failed.is_none() {
                arrived.failed = Some(Raised::new("ClosedError", "the request was cancelled, or its engine closed"));
            }
        });
    }
}

#[pymethods]
impl Response {
    /// Waits for status and headers.
    fn head(&self, py: Python<'_>) -> PyResult<Head> {
        self.check(py)?;
        let found = self.arrived.wait(py, |arrived| {
            arrived.is_fresh = false;
            arrived.head.take().map(Ok).or_else(|| arrived.failed.clone().map(Err))
        })?;
        found.map_err(|raised| raised.exception(py))
    }

    /// Waits for bytes and returns all that have arrived; none at the end.
    fn read<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        self.check(py)?;
        let found = self.arrived.wait(py, |arrived| {
            arrived.is_fresh = false;
            match arrived.chunks.is_empty() {
                false => Some(Ok(arrived.chunks.drain(..).collect::<Vec<Bytes>>())),
                true if arrived.has_ended => Some(Ok(Vec::new())),
                true => arrived.failed.clone().map(Err),
            }
        })?;
        let chunks = found.map_err(|raised| raised.exception(py))?;
        PyBytes::new_with(py, chunks.iter().map(Bytes::len).sum(), |mut bytes| {
            for chunk in &chunks {
                let (here, rest) = bytes.split_at_mut(chunk.len());
                here.copy_from_slice(chunk);
                bytes = rest;
            }
            Ok(())
        })
    }

    /// Whether something has arrived since the last read, which then does not wait. Else the callback is called once, from
    /// another thread, when something arrives.
    fn notify(&self, py: Python<'_>, callback: Py<PyAny>) -> PyResult<bool> {
        self.check(py)?;
        let mut arrived = self.arrived.lock();
        let is_ready = arrived.is_fresh || arrived.has_ended || arrived.failed.is_some();
        if !is_ready {
            // The old one, which is dropped without the lock.
            let old = arrived.notify.replace(callback);
            drop(arrived);
            drop(old);
        }
        Ok(is_ready)
    }

    /// Cancels the request.
    fn close(&self) {
        // In a forked child nobody holds the request.
        if process::id() == self.process {
            self.task.abort();
        }
    }
}

impl Drop for Response {
    fn drop(&mut self) {
        self.close();
    }
}
