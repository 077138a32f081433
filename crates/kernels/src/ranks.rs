//! Devices that run one model together: what they sum stays in their memory.
//!
//! [`Backend::ranks`](crate::Backend::ranks) is the interface, and [`DeviceRanks`] what a backend implements for it. A device whose backend has none, or
//! whose library of collectives is missing, exchanges sums through the host's memory; that is its caller's task.

use crate::error::{Error, Result};
use crate::ops::check::{expect, on_device, require};
use crate::tensor::{DeviceId, ViewMut};
use std::time::Duration;

/// A group of devices that a device has joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joined {
    /// This device, from 0 on.
    pub rank: usize,
    /// The number of devices.
    pub size: usize,
    /// What sums: a library with its version, for people.
    pub library: String,
}

/// A backend's part of [`Ranks`].
pub trait DeviceRanks: Send + Sync {
    /// See [`Ranks::name_group`].
    fn name_group(&self) -> Result<Vec<u8>>;
    /// See [`Ranks::join`]. The rank is below the size, and the device is in no group.
    fn join(&self, group: &[u8], rank: usize, size: usize, deadline: Duration) -> Result<()>;
    /// See [`Ranks::leave`].
    fn leave(&self);
    /// See [`Ranks::joined`].
    fn joined(&self) -> Option<Joined>;
    /// See [`Ranks::all_reduce`]. The values are of this device, and have no gaps.
    fn all_reduce(&self, values: ViewMut<f32>) -> Result<()>;
    /// See [`Ranks::check`].
    fn check(&self) -> Result<()>;
    /// See [`Ranks::abort`].
    fn abort(&self, reason: &str);
}

/// The devices that run one model together with this one: [`Backend::ranks`](crate::Backend::ranks).
#[derive(Clone, Copy)]
pub struct Ranks<'a> {
    device: DeviceId,
    kernels: &'a dyn DeviceRanks,
}

impl<'a> Ranks<'a> {
    pub(crate) fn new(device: DeviceId, kernels: &'a dyn DeviceRanks) -> Self {
        Self { device, kernels }
    }

    /// Names a new group, which each of its devices needs to [`join`](Self::join) it.
    ///
    /// # Errors
    /// [`Error::Device`] if the device has no library of collectives, or the library fails.
    pub fn name_group(&self) -> Result<Vec<u8>> {
        self.kernels.name_group()
    }

    /// Joins a group, and waits for the other devices, which join on threads or in processes of their own. A later wait for the
    /// device ends with an error if it lasts longer than `deadline`, because a sum waits for a device that is missing.
    ///
    /// # Errors
    /// [`Error::Device`] if the library fails, or not all devices join before the deadline; [`Error::Range`] for a rank that is not
    /// in the group, or a device that is in one.
    pub fn join(&self, group: &[u8], rank: usize, size: usize, deadline: Duration) -> Result<()> {
        let op = "join";
        require(rank < size, op, "rank", rank, "must be below the number of ranks")?;
        let found = self.joined().map_or(0, |joined| joined.size);
        require(found == 0, op, "ranks of the device's group", found, "the device must leave it first")?;
        self.kernels.join(group, rank, size, deadline)
    }

    /// Leaves the group; nothing if the device is in none. No captured graph with a sum may be replayed after.
    pub fn leave(&self) {
        self.kernels.leave();
    }

    /// The group that the device has joined.
    pub fn joined(&self) -> Option<Joined> {
        self.kernels.joined()
    }

    /// Replaces values by their sums over all devices of the group, after the work submitted so far and before later work. Each device
    /// of the group must call it with as many values, and gets the same bits. It can be captured. In a deterministic backend the sums
    /// are added in the order of ranks, so their bits do not depend on the number of values.
    ///
    /// # Errors
    /// [`Error::ForeignBuffer`], [`Error::Shape`] for values with gaps, [`Error::Range`] if the device is in no group, and
    /// [`Error::Device`] if the library fails.
    pub fn all_reduce(&self, values: ViewMut<f32>) -> Result<()> {
        let op = "all_reduce";
        on_device(op, self.device, &[values.device()])?;
        expect(op, "elements from the first to the last", values.layout().span().len(), values.rows() * values.cols())?;
        if self.joined().is_none() {
            let (found, rule) = ("none".to_owned(), "the device must join one first");
            return Err(Error::Range { op, what: "group of the device", found, rule });
        }
        self.kernels.all_reduce(values)
    }

    /// Whether the group works: no sum has failed after it was submitted, and no wait for this device has lasted longer than the
    /// deadline. From any thread; a device in no group works.
    ///
    /// # Errors
    /// [`Error::Device`] with the failure.
    pub fn check(&self) -> Result<()> {
        self.kernels.check()
    }

    /// Ends the group for this device: sums that wait for others end with arbitrary values, and each later wait for the device fails
    /// with the reason. From any thread.
    pub fn abort(&self, reason: &str) {
        self.kernels.abort(reason);
    }
}
