//! What a device knows of the group that it has joined.
//!
//! # A sum that waits for a lost device ends
//!
//! A device that waits for another one in a sum never ends its work, and the host would wait for it for ever. So waits for the device note
//! when they start ([`Membership::wait`]). A thread of the host looks at that time, and at the state of the library
//! ([`Membership::check`]). If it aborts the group, the device ends its work with arbitrary values, and each wait returns the
//! reason instead of values.

use crate::rank_link::GroupMember;
use gristmill_kernels::error::{Error, Result};
use gristmill_kernels::tensor::DeviceId;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What a device knows of its group.
#[derive(Debug, Default)]
pub(crate) struct Membership {
    member: Mutex<Option<Member>>,
    failure: Mutex<Option<String>>,
    /// When the waits started that last.
    waits: Mutex<Vec<Instant>>,
}

/// A device in a group.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) rank: usize,
    pub(crate) size: usize,
    pub(crate) deadline: Duration,
    pub(crate) group: Arc<dyn GroupMember>,
}

/// A wait for the device, which lasts until it is dropped.
pub(crate) struct Wait<'a> {
    of: &'a Membership,
    start: Instant,
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        let mut waits = lock(&self.of.waits);
        if let Some(at) = waits.iter().position(|start| *start == self.start) {
            waits.swap_remove(at);
        }
    }
}

/// Nothing panics while it has a lock.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn failed(device: DeviceId, reason: String) -> Error {
    Error::Device { device, what: "sums over devices".to_owned(), reason }
}

impl Membership {
    /// Notes that the host waits for the device.
    pub(crate) fn wait(&self) -> Wait<'_> {
        let start = Instant::now();
        lock(&self.waits).push(start);
        Wait { of: self, start }
    }

    /// What a wait returned, or the failure of the group, after which the device's values are arbitrary.
    pub(crate) fn outcome<T>(&self, device: DeviceId, waited: Result<T>) -> Result<T> {
        match lock(&self.failure).clone() {
            Some(reason) => Err(failed(device, reason)),
            None => waited,
        }
    }

    pub(crate) fn member(&self) -> Option<Member> {
        lock(&self.member).clone()
    }

    pub(crate) fn check(&self, device: DeviceId) -> Result<()> {
        let Some(Member { deadline, group, .. }) = self.member() else { return Ok(()) };
        group.check()?;
        let longest = lock(&self.waits).iter().map(Instant::elapsed).max().unwrap_or_default();
        if longest <= deadline {
            return Ok(());
        }
        let seconds = deadline.as_secs_f64();
        let reason = format!(
            "the device has not ended its work after {seconds} s; another device may be lost: look at nvidia-smi, and start again"
        );
        Err(failed(device, reason))
    }

    /// Enters a group.
    pub(crate) fn enter(&self, member: Member) {
        *lock(&self.failure) = None;
        *lock(&self.member) = Some(member);
    }

    /// Leaves the group.
    pub(crate) fn leave(&self) {
        // A library may wait when it ends.
        let member = lock(&self.member).take();
        drop(member);
        *lock(&self.failure) = None;
    }

    /// Ends the group for a reason, which must be known before the device ends its work: the values are read then.
    pub(crate) fn abort(&self, reason: &str) {
        let Some(member) = self.member() else { return };
        lock(&self.failure).get_or_insert_with(|| reason.to_owned());
        member.group.abort(reason);
    }
}
