//! The thread of the host that answers a mailbox.
//!
//! The host counts the requests that it has submitted, also those of replayed graphs. While the device has some of them left,
//! the thread polls; otherwise it parks. A failure of the host is stored for the message, and ends all waits of the device.

use crate::compute::{self, HostLayer};
use crate::inserter::Inserter;
use crate::mailbox::HostEnd;
use gristmill_kernels::Backend;
use gristmill_kernels::error::{Error, Result};
use gristmill_kernels::offload::{HostMatrices, SlotUsage};
use gristmill_kernels::ops::{Experts, Graph, Operation};
use std::any::Any;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long the thread polls after an answer before it parks: longer than the gap between two steps.
const LINGER: Duration = Duration::from_millis(5);
/// How long the thread polls without a pause, and its pauses afterwards: a step can wait for other work of the device.
const POLLING: Duration = Duration::from_millis(50);
const PAUSE: Duration = Duration::from_micros(100);
/// Polls between two looks at the clock.
const POLLS: u32 = 1000;

/// The thread, and what the callers of operations share with it.
#[derive(Debug)]
pub(super) struct Worker {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    host: Arc<Backend>,
    layers: RwLock<Vec<Arc<HostLayer>>>,
    inserter: Inserter,
    /// Requests so far, modulo 2³².
    submitted: AtomicU32,
    /// Requests in the graph that is being captured.
    captured: Mutex<Option<u32>>,
    stop: AtomicBool,
    failure: Arc<OnceLock<String>>,
}

impl Worker {
    /// Starts the thread. `failure` receives the reason if the host fails.
    pub(super) fn start(
        host: Arc<Backend>,
        inserter: Inserter,
        end: HostEnd,
        failure: Arc<OnceLock<String>>,
    ) -> Result<Self> {
        let (layers, submitted, captured, stop) = Default::default();
        let shared = Arc::new(Shared { host, layers, inserter, submitted, captured, stop, failure });
        let own = Arc::clone(&shared);
        let thread = thread::Builder::new().name("gristmill-experts".to_owned()).spawn(move || own.serve(end));
        let thread = thread.map_err(|error| Error::Threads { threads: 1, reason: error.to_string() })?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// The layer that `is` finds, or the one that `make` returns, and its number.
    pub(super) fn layer(
        &self,
        is: impl Fn(&HostLayer) -> bool,
        make: impl FnOnce() -> Result<HostLayer>,
    ) -> Result<(u32, Arc<HostLayer>)> {
        let find =
            |layers: &[Arc<HostLayer>], is: &dyn Fn(&HostLayer) -> bool| layers.iter().position(|layer| is(layer));
        let layers = self.shared.layers.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = find(&layers, &is) {
            return Ok((known as u32, Arc::clone(&layers[known])));
        }
        drop(layers);
        let layer = Arc::new(make()?);
        let mut layers = self.shared.layers.write().unwrap_or_else(PoisonError::into_inner);
        let own = Arc::clone(&layer);
        match find(&layers, &HostLayer::is_dropped) {
            Some(free) => {
                // Its slots' memory is freed without the lock: that waits for the device, which can be waiting for the thread.
                let dropped = mem::replace(&mut layers[free], own);
                drop(layers);
                drop(dropped);
                Ok((free as u32, layer))
            }
            None => {
                layers.push(own);
                Ok((layers.len() as u32 - 1, layer))
            }
        }
    }

    /// The layers with these weights.
    pub(super) fn layers_of(&self, weights: [&Arc<HostMatrices>; 2]) -> Vec<Arc<HostLayer>> {
        let layers = self.shared.layers.read().unwrap_or_else(PoisonError::into_inner);
        layers.iter().filter(|layer| layer.has(weights)).cloned().collect()
    }

    /// Places experts that have arrived, before a layer or a step that is not being captured.
    pub(super) fn place_arrived(&self) -> Result<()> {
        if self.is_capturing() {
            return Ok(());
        }
        self.shared.inserter.publish(self.shared.submitted.load(Ordering::SeqCst))
    }

    /// Whether a graph is being captured.
    pub(super) fn is_capturing(&self) -> bool {
        self.captured().is_some()
    }

    /// Records choices of a batch that was not posted.
    pub(super) fn streamed(&self, layer: &Arc<HostLayer>, ids: &[u32]) {
        self.shared.inserter.chosen(layer, ids);
    }

    /// See [`gristmill_kernels::offload::Offload::slot_usage`].
    pub(super) fn slot_usage(&self) -> SlotUsage {
        self.shared.inserter.usage()
    }

    /// Counts a request that is submitted or captured.
    pub(super) fn submit(&self) {
        match &mut *self.captured() {
            Some(captured) => *captured += 1,
            None => self.expect(1),
        }
    }

    /// Counts the requests of a graph that is replayed.
    fn expect(&self, requests: u32) {
        self.shared.submitted.fetch_add(requests, Ordering::SeqCst);
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }

    fn captured(&self) -> MutexGuard<'_, Option<u32>> {
        self.shared.captured.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Captures a graph by `capture`; its replays count its requests.
    pub(super) fn capture(
        self: &Arc<Self>,
        capture: impl FnOnce() -> Result<Option<Box<dyn Graph>>>,
    ) -> Result<Option<Box<dyn Graph>>> {
        *self.captured() = Some(0);
        let graph = capture();
        let requests = self.captured().take().unwrap_or(0);
        let counting =
            |graph| -> Box<dyn Graph> { Box::new(CountingGraph { graph, requests, worker: Arc::clone(self) }) };
        Ok(graph?.map(counting))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // Panics in a request are caught.
            let _ = thread.join();
        }
    }
}

/// A graph whose requests are counted.
#[derive(Debug)]
struct CountingGraph {
    graph: Box<dyn Graph>,
    requests: u32,
    worker: Arc<Worker>,
}

impl Graph for CountingGraph {
    fn replay(&self) -> Result<()> {
        self.worker.place_arrived()?;
        self.worker.expect(self.requests);
        self.graph.replay()
    }
}

impl Shared {
    /// Answers requests until the backend is dropped or a request fails.
    fn serve(&self, mut end: HostEnd) {
        let outcome = catch_unwind(AssertUnwindSafe(|| self.answer_all(&mut end)));
        let reason = match outcome {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error.to_string(),
            Err(panic) => format!("a thread panicked: {}", message(&*panic)),
        };
        let _ = self.failure.set(reason);
        // The control words are inside the mailbox.
        let _ = end.fail();
    }

    fn answer_all(&self, end: &mut HostEnd) -> Result<()> {
        let (mut answered, mut scratch) = (0, None);
        while self.wait(end, answered)? {
            let request = end.request()?;
            let layer = self.layers.read().unwrap_or_else(PoisonError::into_inner).get(request.layer).cloned();
            let unknown = Error::ForeignLayout { op: Experts::NAME, what: "a layer of another backend" };
            let layer = layer.ok_or(unknown)?;
            let ids = compute::answer(&self.host, &mut scratch, &layer, request, end)?;
            // The device works meanwhile.
            if request.is_shared {
                self.inserter.count_shared(ids);
            } else {
                self.inserter.chosen(&layer, ids);
                self.inserter.count(ids);
            }
            self.inserter.posted(request.number);
            answered = request.number;
        }
        Ok(())
    }

    /// Waits for a request after `answered`. False if the thread must stop.
    fn wait(&self, end: &HostEnd, answered: u32) -> Result<bool> {
        let mut start = Instant::now();
        let mut polls = 0_u32;
        loop {
            if end.request()?.number != answered {
                return Ok(true);
            }
            polls += 1;
            if !polls.is_multiple_of(POLLS) {
                std::hint::spin_loop();
                continue;
            }
            if self.stop.load(Ordering::SeqCst) {
                return Ok(false);
            }
            let waited = start.elapsed();
            if waited > LINGER && self.submitted.load(Ordering::SeqCst) == answered {
                self.host.offload().stay_awake(false);
                thread::park();
                self.host.offload().stay_awake(true);
                start = Instant::now();
            } else if waited > POLLING {
                thread::sleep(PAUSE);
            } else {
                thread::yield_now();
            }
        }
    }
}

/// The message of a panic.
fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned())).unwrap_or_default()
}
