//! Timing of each operation and of each thread in it. A [`Cpu`] measures only if it has a [`Profile`].
//!
//! # One timer serves all operations
//!
//! With a `Profile`, each checked call is measured, with the minimum of bytes and operations that its arguments need.
//! Without a `Profile`, the timer costs one branch for an operation and one for a pool job.

mod work;

use super::Cpu;
use gristmill_kernels::ops::Checked;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
pub(super) use work::Measured;

/// Minimum bytes and operations of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Work {
    /// Bytes read and written; each byte counts once.
    pub bytes: f64,
    /// Multiplications and additions of matrix products, attention and the delta rule. Other operations count as 0.
    pub operations: f64,
}

/// All calls of one operation with weights of the same format and shape.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// Name of the operation, as in [`gristmill_kernels::ops::Operation::NAME`].
    pub operation: &'static str,
    /// Format, rows and columns of the weight, as in `Q4_K 2048×768`; empty without a weight.
    pub weight: String,
    /// Number of calls.
    pub calls: usize,
    /// Wall-clock time of all calls.
    pub time: Duration,
    /// Work, summed over all calls.
    pub work: Work,
    /// Busy time of each thread, the caller's thread first. For the rest of `time` the thread waited.
    pub working: Vec<Duration>,
}

impl Record {
    /// Adds the calls of another record of the same operation and weight.
    pub fn add(&mut self, other: &Record) {
        self.calls += other.calls;
        self.time += other.time;
        self.work.bytes += other.work.bytes;
        self.work.operations += other.work.operations;
        self.working.resize(self.working.len().max(other.working.len()), Duration::ZERO);
        self.working.iter_mut().zip(&other.working).for_each(|(sum, working)| *sum += *working);
    }
}

/// Collects the records of a CPU's operations.
#[derive(Debug, Default)]
pub struct Profile {
    records: Mutex<BTreeMap<(&'static str, String), Record>>,
}

impl Profile {
    /// Removes and returns the records since the last call, the longest first.
    pub fn take(&self) -> Vec<Record> {
        let records = std::mem::take(&mut *self.records.lock().unwrap_or_else(PoisonError::into_inner));
        let mut records: Vec<Record> = records.into_values().collect();
        records.sort_by_key(|record| std::cmp::Reverse(record.time));
        records
    }

    fn add(&self, call: Record) {
        let mut records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        match records.entry((call.operation, call.weight.clone())) {
            Entry::Occupied(mut sum) => sum.get_mut().add(&call),
            Entry::Vacant(first) => {
                first.insert(call);
            }
        }
    }
}

impl Cpu {
    /// Measures all operations from now on.
    #[must_use]
    pub fn profiled(mut self, profile: Arc<Profile>) -> Self {
        self.pool.measure();
        self.profile = Some(profile);
        self
    }

    /// Runs an operation; measures it if there is a profile.
    pub(super) fn measured<O: Measured, R>(&self, call: Checked<O>, run: impl FnOnce(Checked<O>) -> R) -> R {
        let Some(profile) = &self.profile else { return run(call) };
        let (weight, work) = (call.weight(), call.work());
        // Jobs of other callers between the two readings would count too, so a profile serves one caller only.
        let before = self.pool.clocks();
        let begun = Instant::now();
        let done = run(call);
        let time = begun.elapsed();
        let mut working: Vec<Duration> =
            self.pool.clocks().iter().zip(&before).map(|(after, before)| after.saturating_sub(*before)).collect();
        // The caller's thread also works outside of pool jobs, so its clock counts waiting time instead.
        if let Some(caller) = working.first_mut() {
            *caller = time.saturating_sub(*caller);
        }
        profile.add(Record { operation: O::NAME, weight, calls: 1, time, work, working });
        done
    }
}
