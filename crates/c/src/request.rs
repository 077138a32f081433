//! A request runs on a thread of its own, which calls the callback.
//!
//! # Callbacks end before `free` returns
//!
//! *After [`Request::free`] has returned, no event is delivered.* The thread of the request delivers events, and `free` waits
//! for its end. In its own callback, `free` cannot wait: it forbids further events instead, and the thread ends after the
//! callback. Checked by `scripts/c/check.sh`, where the callback of a freed request would write to freed memory.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::{Response, header};
use futures_util::future::{Either, select};
use http_body_util::BodyExt;
use tokio::sync::watch;

use crate::abi::{gm_event_kind, gm_status};
use crate::engine::{Engine, Field, with_field};
use crate::event::{Event, events};
use crate::failure::Failure;
use crate::sse::Sse;

/// Receives the events of a request. The status is that of the last event.
pub(crate) type Deliver = Box<dyn FnMut(&Event, gm_status) + Send>;

type Outcome = Result<(), Failure>;

/// A request that runs or has ended.
#[derive(Debug)]
pub(crate) struct Request {
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    cancel: watch::Sender<bool>,
    /// Whether no further event may be delivered.
    is_closed: AtomicBool,
    outcome: Mutex<Option<Outcome>>,
    ended: Condvar,
}

/// Where a thread delivers the events of its request.
struct Delivery {
    shared: Arc<Shared>,
    deliver: Deliver,
}

impl Request {
    /// Starts a request of this path.
    pub(crate) fn start(
        engine: Arc<Engine>,
        path: &'static str,
        body: &str,
        deliver: Deliver,
    ) -> Result<Request, Failure> {
        let body = with_field(body, "stream", true, Field::Default);
        let (cancel, cancelled) = watch::channel(false);
        let shared = Arc::new(Shared {
            cancel,
            is_closed: AtomicBool::new(false),
            outcome: Mutex::new(None),
            ended: Condvar::new(),
        });
        let mut delivery = Delivery { shared: shared.clone(), deliver };
        let run = move || {
            let run = || delivery.run(&engine, path, body, cancelled);
            let outcome =
                catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| Err(Failure::internal("the request panicked")));
            delivery.finish(outcome);
        };
        let thread = thread::Builder::new().name("gristmill-request".to_owned()).spawn(run);
        let thread = thread.map_err(|error| Failure::internal(format!("thread: cannot be started: {error}")))?;
        Ok(Request { shared, thread })
    }

    /// Ends the request early. Its last event follows.
    pub(crate) fn cancel(&self) {
        self.shared.cancel.send_replace(true);
    }

    /// Waits for the end of the request, or for a time.
    ///
    /// # Errors
    /// The failure of the request; `GM_TIMEOUT` if it still runs.
    pub(crate) fn wait(&self, time: Option<Duration>) -> Outcome {
        if self.is_own_callback() {
            return Err(Failure::bad("gm_wait: a callback cannot wait for its own request; return from it instead"));
        }
        let until = time.and_then(|time| Instant::now().checked_add(time));
        let mut outcome = self.shared.outcome();
        loop {
            if let Some(outcome) = &*outcome {
                return outcome.clone();
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            outcome = match left {
                None => self.shared.ended.wait(outcome).unwrap_or_else(PoisonError::into_inner),
                Some(Duration::ZERO) => return Err(Failure::new(gm_status::GM_TIMEOUT, "the request still runs")),
                Some(left) => self.shared.ended.wait_timeout(outcome, left).unwrap_or_else(PoisonError::into_inner).0,
            };
        }
    }

    /// Cancels the request, and waits for its thread, except in its own callback.
    pub(crate) fn free(self) {
        self.shared.is_closed.store(true, Ordering::SeqCst);
        self.cancel();
        if !self.is_own_callback() {
            // The thread catches its panics.
            let _ = self.thread.join();
        }
    }

    fn is_own_callback(&self) -> bool {
        self.thread.thread().id() == thread::current().id()
    }
}

impl Shared {
    fn outcome(&self) -> MutexGuard<'_, Option<Outcome>> {
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Delivery {
    fn run(&mut self, engine: &Engine, path: &str, body: String, cancelled: watch::Receiver<bool>) -> Outcome {
        // The callback is called outside of `block_on`: it may free the last handle of the engine, and a runtime must not be
        // dropped inside of it.
        let wait = Wait { engine, cancelled };
        let response = wait.unless_cancelled(engine.send(path, body.into_bytes()))??;
        if is_whole(&response) {
            let reply = wait.unless_cancelled(response.into_body().collect())?.map_err(broken)?.to_bytes();
            self.event(gm_event_kind::GM_EVENT_REPLY, String::from_utf8_lossy(&reply).into_owned());
            return Ok(());
        }
        let (mut body, mut sse) = (response.into_body(), Sse::default());
        while let Some(frame) = wait.unless_cancelled(body.frame())? {
            let Ok(bytes) = frame.map_err(broken)?.into_data() else { continue };
            for data in sse.push(&bytes) {
                if data == "[DONE]" {
                    return Ok(());
                }
                events(data)?.iter().for_each(|event| self.deliver(event, gm_status::GM_OK));
            }
        }
        Ok(())
    }

    /// Delivers the last event, and wakes who waits.
    fn finish(&mut self, outcome: Outcome) {
        let (status, text) = match &outcome {
            Ok(()) => (gm_status::GM_OK, String::new()),
            Err(failure) => (failure.status, failure.message.clone()),
        };
        let last = Event { kind: gm_event_kind::GM_EVENT_END, choice: 0, text };
        // A callback that has panicked is not called again by a thread that would end without waking anyone.
        let _ = catch_unwind(AssertUnwindSafe(|| self.deliver(&last, status)));
        *self.shared.outcome() = Some(outcome);
        self.shared.ended.notify_all();
    }

    fn event(&mut self, kind: gm_event_kind, text: String) {
        self.deliver(&Event { kind, choice: 0, text }, gm_status::GM_OK);
    }

    fn deliver(&mut self, event: &Event, status: gm_status) {
        if !self.shared.is_closed.load(Ordering::SeqCst) {
            (self.deliver)(event, status);
        }
    }
}

/// Waits on the engine's runtime until a request is cancelled.
struct Wait<'a> {
    engine: &'a Engine,
    cancelled: watch::Receiver<bool>,
}

impl Wait<'_> {
    fn unless_cancelled<T>(&self, future: impl Future<Output = T>) -> Result<T, Failure> {
        let mut cancelled = self.cancelled.clone();
        self.engine.runtime().block_on(async {
            match select(pin!(cancelled.wait_for(|&is_cancelled| is_cancelled)), pin!(future)).await {
                Either::Left(_) => Err(Failure::cancelled()),
                Either::Right((value, _)) => Ok(value),
            }
        })
    }
}

/// Whether the reply is one object instead of events.
fn is_whole(response: &Response<Body>) -> bool {
    let kind = response.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    kind.is_some_and(|kind| kind.starts_with("application/json"))
}

fn broken(error: axum::Error) -> Failure {
    Failure::internal(format!("the reply ended early: {error}"))
}
