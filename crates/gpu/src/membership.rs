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

#[cfg(test)]
mod tests {
    use super::*;

    /// A group that works until it is aborted.
    #[derive(Debug, Default)]
    struct Group(Mutex<Vec<String>>);

    impl GroupMember for Group {
        fn library(&self) -> String {
            "a test".to_owned()
        }
        fn all_reduce(&self, _address: u64, _values: usize) -> Result<()> {
            Ok(())
        }
        fn all_gather(&self, _from: u64, _to: u64, _values: usize) -> Result<()> {
            Ok(())
        }
        fn check(&self) -> Result<()> {
            Ok(())
        }
        fn abort(&self, reason: &str) {
            lock(&self.0).push(reason.to_owned());
        }
    }

    const DEVICE: DeviceId = DeviceId::Cuda(7);

    #[test]
    fn a_wait_that_lasts_longer_than_the_deadline_is_a_failure_and_an_abort_ends_it() {
        let (membership, group) = (Membership::default(), Arc::new(Group::default()));
        let (rank, size, deadline) = (0, 2, Duration::from_millis(20));
        membership.enter(Member { rank, size, deadline, group: group.clone() });
        let short = membership.wait();
        assert!(membership.check(DEVICE).is_ok());
        drop(short);
        let long = membership.wait();
        std::thread::sleep(2 * deadline);
        let error = membership.check(DEVICE).unwrap_err().to_string();
        assert!(error.contains("the device has not ended its work after 0.02 s"), "{error}");
        assert_eq!(membership.outcome(DEVICE, Ok(1)).unwrap(), 1);
        membership.abort("rank 1 is lost");
        membership.abort("another reason");
        drop(long);
        let error = membership.outcome(DEVICE, Ok(1)).unwrap_err().to_string();
        assert!(error.contains("rank 1 is lost"), "{error}");
        assert_eq!(*lock(&group.0), ["rank 1 is lost", "another reason"]);
        assert!(membership.check(DEVICE).is_ok());
        membership.leave();
        assert_eq!(membership.outcome(DEVICE, Ok(1)).unwrap(), 1);
    }
}
