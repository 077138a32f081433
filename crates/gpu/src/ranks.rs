//! Sums of a device with the other devices of its group.

use crate::backend::GpuBackend;
use crate::common::elementwise;
use crate::device_api::{Access, Arg, region_of_view_mut};
use crate::membership::{Member, failed};
use crate::rank_link::RankLink;
use crate::vendor::Vendor;
use gristmill_kernels::error::Result;
use gristmill_kernels::ranks::{DeviceRanks, Joined};
use gristmill_kernels::tensor::ViewMut;
use std::sync::Arc;
use std::time::Duration;

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
        self.gpu().membership().enter(Member { rank, size, deadline, group });
        Ok(())
    }

    fn leave(&self) {
        self.gpu().membership().leave();
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
        self.gpu().membership().abort(reason);
    }
}
