//! Early ends of jobs: a pass fails, or a device.
//!
//! # A device failure ends the engine
//!
//! A device failure ends the engine, not the process. `worker.rs` distinguishes an error of the device from an error of
//! a step, ends all requests, and ends its thread. *Nothing runs on a device after its first error. A new engine is
//! needed to continue.*

use std::sync::mpsc::Receiver;
use std::sync::{Arc, OnceLock};

use super::{Running, Worker};
use crate::EngineError;
use crate::Error;
use crate::job::{Job, Order};

/// Why the device can no longer be used; empty as long as it works.
pub(crate) type Failure = Arc<OnceLock<Arc<Error>>>;

impl Worker {
    /// Ends the jobs of slots whose pass failed, and discards their state.
    pub(super) fn fail(&mut self, slots: impl IntoIterator<Item = usize>, error: Error) {
        tracing::error!(%error, "step failed");
        let error = Arc::new(error);
        for slot in slots {
            self.discard_in_flight(slot);
            let Some(Running { sequence, job, .. }) = &mut self.slots[slot] else { continue };
            job.fail(EngineError::Step(error.clone()));
            let sequence = *sequence;
            let closed = self.runner.evict_prefix(sequence).and_then(|()| self.runner.close_sequence(sequence));
            if let Err(error) = closed {
                tracing::error!(%error, "closing a sequence failed");
            }
            self.slots[slot] = None;
            self.freed += 1;
        }
    }

    /// Ends all jobs, and with them the engine: the device has failed.
    pub(super) fn shut_down_after_device_error(mut self, error: Error, inbox: &Receiver<Order>) {
        tracing::error!(%error, "the device has failed");
        let error = Arc::new(error);
        // Set before the jobs end, so that retried requests are refused.
        let _ = self.failure.set(error.clone());
        let running = self.slots.iter_mut().filter_map(Option::take).map(|running| running.job);
        let arrived = inbox.try_iter().filter_map(|order| match order {
            Order::Run(job) => Some(*job),
            Order::EvictPrefixes(_) | Order::Listen(_) => None,
        });
        let jobs: Vec<Job> = running.chain(self.waiting.drain(..)).chain(arrived).collect();
        self.report();
        for mut job in jobs {
            job.fail(EngineError::Device(error.clone()));
        }
    }
}
