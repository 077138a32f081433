//! A device as one of several that run a model together.
//!
//! # A sum that waits for a lost device ends
//!
//! A device that waits for another one in a sum never ends its work, and the host would wait for it for ever. So waits for the device note
//! when they start ([`Membership::wait`]). A thread of the host looks at that time, and at the state of the library
//! ([`DeviceRanks::check`]). If it aborts the group, the device ends its work with arbitrary values, and each wait returns the
//! reason instead of values.

use crate::backend::GpuBackend;
use crate::common::elementwise;
use crate::device_api::{Access, Arg, region_of_view_mut};
use crate::rank_link::{GroupMember, RankLink};
use crate::vendor::Vendor;
use gristmill_kernels::error::{Error, Result};
use gristmill_kernels::ranks::{DeviceRanks, Joined};
use gristmill_kernels::tensor::{DeviceId, ViewMut};
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

#[derive(Clone, Debug)]
struct Member {
    rank: usize,
    size: usize,
    deadline: Duration,
    group: Arc<dyn GroupMember>,
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

fn failed(device: DeviceId, reason: String) -> Error {
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

    fn member(&self) -> Option<Member> {
        lock(&self.member).clone()
    }

    fn check(&self, device: DeviceId) -> Result<()> {
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
}

impl<V: Vendor> GpuBackend<V> {
    fn link(&self) -> Result<&dyn RankLink> {
        let device = self.gpu();
        let reason = "it has no sums with other devices".to_owned();
        device.gpu().rank_link().ok_or_else(|| failed(device.id(), reason))
    }
}

impl<V: Vendor> DeviceRanks for GpuBackend<V> {
    fn name_group(&self) -> Result<Vec<u8>> {
        self.link()?.name_group()
    }

    fn join(&self, group: &[u8], rank: usize, size: usize, deadline: Duration) -> Result<()> {
        let group = Arc::from(self.link()?.join(group, rank, size, deadline)?);
        let membership = self.gpu().membership();
        *lock(&membership.failure) = None;
        *lock(&membership.member) = Some(Member { rank, size, deadline, group });
        Ok(())
    }

    fn leave(&self) {
        let membership = self.gpu().membership();
        // A library may wait when it ends.
        let member = lock(&membership.member).take();
        drop(member);
        *lock(&membership.failure) = None;
    }

    fn joined(&self) -> Option<Joined> {
        let Member { rank, size, group, .. } = self.gpu().membership().member()?;
        Some(Joined { rank, size, library: group.library() })
    }

    fn all_reduce(&self, values: ViewMut<f32>) -> Result<()> {
        let device = self.gpu();
        let Some(Member { size, group, .. }) = device.membership().member() else { return Ok(()) };
        let (count, op) = (values.rows() * values.cols(), "all_reduce");
        let Some((region, layout)) = region_of_view_mut(&values).filter(|_| count > 0 && size > 1) else {
            return Ok(());
        };
        device.own(op, region)?;
        let (offset, bytes) = (layout.span().start * size_of::<f32>(), count * size_of::<f32>());
        let address = region.writable(op, offset, bytes)?;
        // Two devices have one order of a sum.
        if size == 2 || !self.vendor().deterministic() {
            return group.all_reduce(address, count);
        }
        let parts = device.workspace(size * bytes)?;
        group.all_gather(address, parts.range(0, size * bytes)?, count)?;
        device.copy(op, (&parts, 0), (region, offset), bytes)?;
        (1..size).try_for_each(|rank| {
            let part = Arg::Buffer { region: &parts, offset: rank * bytes, bytes, access: Access::Read };
            elementwise::add_part(device, part, &values)
        })
    }

    fn check(&self) -> Result<()> {
        self.gpu().membership().check(self.gpu().id())
    }

    fn abort(&self, reason: &str) {
        let membership = self.gpu().membership();
        let Some(member) = membership.member() else { return };
        // Before the device ends its work, because the values are read then.
        lock(&membership.failure).get_or_insert_with(|| reason.to_owned());
        member.group.abort(reason);
    }
}
