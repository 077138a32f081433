//! Records of operations.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

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

    pub(super) fn add(&self, call: Record) {
        let mut records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        match records.entry((call.operation, call.weight.clone())) {
            Entry::Occupied(mut sum) => sum.get_mut().add(&call),
            Entry::Vacant(first) => {
                first.insert(call);
            }
        }
    }
}
