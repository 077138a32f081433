//! The device in a group of NCCL, whose calls are work of the device's stream.

use super::Driver;
use super::context::{Context, error};
use crate::nccl;
use gristmill_collective::{Error as Lost, Nccl, NcclGroup};
use gristmill_gpu::{GroupMember, RankLink};
use gristmill_kernels::error::Result;
use gristmill_kernels::tensor::DeviceId;
use std::fmt::{self, Debug};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

struct Member {
    // Ends before the context does.
    nccl: Nccl,
    context: Arc<Context>,
    library: String,
}

impl Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Member({:?})", self.nccl)
    }
}

fn failed<T>(device: DeviceId, outcome: std::result::Result<T, Lost>) -> Result<T> {
    outcome.map_err(|lost| error(device, "sums over devices", lost.to_string()))
}

impl RankLink for Driver {
    fn name_group(&self) -> Result<Vec<u8>> {
        let group = nccl::library().and_then(|library| library.group());
        failed(self.properties.id, group).map(NcclGroup::to_bytes)
    }

    fn join(&self, group: &[u8], rank: usize, size: usize, deadline: Duration) -> Result<Box<dyn GroupMember>> {
        let id = self.properties.id;
        let named = || error(id, "sums over devices", "the group has another library than NCCL");
        let (group, library) = (NcclGroup::from_bytes(group).ok_or_else(named)?, failed(id, nccl::library())?);
        self.shared.enter()?;
        let nccl = failed(id, library.join(group, rank, size, deadline))?;
        let library = format!("NCCL {}", library.version());
        Ok(Box::new(Member { nccl, context: Arc::clone(&self.shared), library }))
    }
}

impl GroupMember for Member {
    fn library(&self) -> String {
        self.library.clone()
    }

    fn all_reduce(&self, address: u64, values: usize) -> Result<()> {
        self.context.enter()?;
        self.context.is_after_collective.store(true, Ordering::Relaxed);
        // SAFETY: `gristmill_gpu` has checked that the values are in a region of this device. The stream is of its context, and
        // runs all of its work in order, so nothing else uses the values meanwhile; `Backend::exclusive` keeps other threads away.
        failed(self.context.id, unsafe { self.nccl.all_reduce_device(address, values, self.context.stream.cast()) })
    }

    fn all_gather(&self, from: u64, to: u64, values: usize) -> Result<()> {
        self.context.enter()?;
        self.context.is_after_collective.store(true, Ordering::Relaxed);
        // SAFETY: as above; the target has room for the values of all ranks.
        failed(self.context.id, unsafe { self.nccl.all_gather_device(from, to, values, self.context.stream.cast()) })
    }

    fn check(&self) -> Result<()> {
        failed(self.context.id, self.nccl.check())
    }

    fn abort(&self, reason: &str) {
        // NCCL frees memory of the device.
        if self.context.enter().is_ok() {
            self.nccl.abort(reason);
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        // NCCL frees memory of the device; a failure here has no caller to report to.
        let _ = self.context.enter();
    }
}
