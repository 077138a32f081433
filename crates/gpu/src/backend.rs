//! The GPU backend: what all GPUs do alike, over what a [`Vendor`] does by itself.

use crate::common::on_device::OnDevice;
use crate::common::{
    activations, add_norm, elementwise, group, kv, latent_write, multiply_act, norm_act, qkv_write, route,
};
use crate::device::Device;
use crate::device_api::{Gpu, Region};
use crate::layout::GpuWeight;
use crate::storage::{ActOutput, GpuAct};
use crate::vendor::Vendor;
use crate::{attention, experts, layout, matmul, precompile};
use gristmill_kernels::act::{Act, ActReader, Precision, Representations};
use gristmill_kernels::error::{Error, Result};
use gristmill_kernels::groups::Tiling;
use gristmill_kernels::kv::{KvCache, KvSpec};
use gristmill_kernels::ops::*;
use gristmill_kernels::ranks::DeviceRanks;
use gristmill_kernels::storage::Storage;
use gristmill_kernels::tensor::{DeviceId, DeviceMemory};
use gristmill_kernels::weight::{Footprint, Prepared, Role, TensorShape, TensorView, Weight};
use gristmill_kernels::{Backend, with_operations};
use std::any::Any;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The kernels of a GPU.
#[derive(Debug)]
pub struct GpuBackend<V> {
    vendor: V,
    /// [`Backend::exclusive`].
    exclusive: Mutex<()>,
}

impl<V: Vendor> GpuBackend<V> {
    /// Kernels of one kind of GPU.
    pub fn new(vendor: V) -> Self {
        Self { vendor, exclusive: Mutex::default() }
    }

    /// The same kernels over another device.
    ///
    /// # Errors
    /// Those of the vendor.
    pub fn over(&self, gpu: Arc<dyn Gpu>) -> Result<Self> {
        self.vendor.over(gpu).map(Self::new)
    }

    /// The kind of GPU.
    pub fn vendor(&self) -> &V {
        &self.vendor
    }

    pub(crate) fn gpu(&self) -> &Device {
        self.vendor.device()
    }

    /// The representations that products of a reader with a weight in the device's memory may read.
    pub fn wanted_by(&self, weight: &Weight, precision: Precision, reader: &ActReader) -> Representations {
        let wanted = |part| self.vendor.wanted(part, precision, reader).0;
        let Ok(parts) = layout::parts("name_readers", weight) else { return Representations::ALL };
        Representations(parts.iter().map(wanted).fold(0, |all, wanted| all | wanted))
    }
}

impl Heap for Device {
    fn allocate(&self, bytes: usize, what: &'static str) -> Result<Box<dyn DeviceMemory>> {
        Ok(Box::new(Region::zeroed(self.gpu(), bytes, what)?))
    }

    fn write(&self, to: &dyn DeviceMemory, offset: usize, bytes: &[u8]) -> Result<()> {
        self.write_region_at(region("upload", to)?, offset, bytes)
    }

    fn read(&self, from: &dyn DeviceMemory, offset: usize, bytes: &mut [u8]) -> Result<()> {
        self.read_region(region("download", from)?, offset, bytes)
    }

    fn start_read(&self, from: &dyn DeviceMemory, offset: usize, bytes: usize) -> Result<Box<dyn PendingRead>> {
        self.start_read_region(region("start_download", from)?, offset, bytes)
    }

    fn copy(&self, from: (&dyn DeviceMemory, usize), to: (&dyn DeviceMemory, usize), bytes: usize) -> Result<()> {
        let op = "copy";
        self.copy_region((region(op, from.0)?, from.1), (region(op, to.0)?, to.1), bytes)
    }
}

/// The region that memory of a GPU is.
fn region<'a>(op: &'static str, memory: &'a dyn DeviceMemory) -> Result<&'a Region> {
    let any: &dyn Any = memory;
    any.downcast_ref().ok_or(Error::ForeignLayout { op, what: "a buffer" })
}

/// An operation, with what its vendor does.
trait OnVendor<V>: Sized {
    fn run(call: Checked<Self>, vendor: &V) -> Result<()>;
}

impl<V: Vendor, O: OnDevice> OnVendor<V> for O {
    fn run(call: Checked<Self>, vendor: &V) -> Result<()> {
        call.into_inner().run(vendor.device())
    }
}

impl<V: Vendor> OnVendor<V> for PrepareActivations<'_> {
    fn run(call: Checked<Self>, vendor: &V) -> Result<()> {
        let PrepareActivations { x, act } = call.into_inner();
        activations::prepare_activations(vendor.device(), x, ActOutput::new(PrepareActivations::NAME, act)?)
    }
}

impl<V: Vendor> OnVendor<V> for Matmul<'_> {
    fn run(call: Checked<Self>, vendor: &V) -> Result<()> {
        matmul::matmul(vendor, call.into_inner())
    }
}

impl<V: Vendor> OnVendor<V> for GateUp<'_> {
    fn run(call: Checked<Self>, vendor: &V) -> Result<()> {
        matmul::gate_up(vendor, call.into_inner(), None)
    }
}

impl<V: Vendor> OnVendor<V> for Route<'_> {
    fn run(call: Checked<Self>, vendor: &V) -> Result<()> {
        route::route(vendor.device(), &call.into_inner())
    }
}

impl<V: Vendor> OnVendor<V> for GroupByExpert<'_> {
    fn run(call: Checked<Self>, vendor: &V) -> Result<()> {
        let (ids, lists) = call.into_lists();
        *lists.tile_rows = vendor.tile_rows(lists.counts.len(), ids.rows() * ids.cols(), false);
        group::group_by_expert(vendor.device(), ids, &lists)
    }
}

impl<V: Vendor> OnVendor<V> for MoeMatmul<'_> {
    fn run(call: Checked<Self>, vendor: &V) -> Result<()> {
        matmul::moe_matmul(vendor, call.into_inner())
    }
}

impl<V: Vendor> OnVendor<V> for MoeGateUp<'_> {
    fn run(call: Checked<Self>, vendor: &V) -> Result<()> {
        matmul::moe_gate_up(vendor, call.into_inner(), None)
    }
}

impl<V: Vendor> OnVendor<V> for MoeCombine<'_> {
    fn run(call: Checked<Self>, vendor: &V) -> Result<()> {
        elementwise::moe_combine(vendor.device(), call.into_inner(), false)
    }
}

impl<V: Vendor> OnVendor<V> for Attention<'_> {
    fn run(call: Checked<Self>, vendor: &V) -> Result<()> {
        attention::attention(vendor, call.into_inner(), None)
    }
}

macro_rules! operations {
    ($($kernel:ident($Operation:ident),)*) => {
        $(fn $kernel(&self, call: Checked<$Operation>) -> Result<()> {
            OnVendor::run(call, &self.vendor)
        })*
    };
}

/// Compositions that a function of [`crate::common`] runs on the device, one line for each.
macro_rules! compositions {
    ($($composition:ident($Composition:ident) => $run:path,)*) => {
        $(fn $composition(&self, call: &mut Checked<$Composition>) -> Result<Fused> {
            $run(self.gpu(), call)
        })*
    };
}

impl<V: Vendor> Kernels for GpuBackend<V> {
    fn name(&self) -> String {
        let properties = self.gpu().gpu().properties();
        let how = if self.deterministic() { ", deterministic" } else { "" };
        format!("{}, {}{how}", properties.id, properties.name)
    }

    fn device(&self) -> DeviceId {
        self.gpu().id()
    }

    fn arithmetic(&self) -> Vec<String> {
        let deterministic = self.deterministic().then(|| "deterministic".to_owned());
        [self.gpu().gpu().properties().name.clone()].into_iter().chain(deterministic).collect()
    }

    fn deterministic(&self) -> bool {
        self.vendor.deterministic()
    }

    fn heap(&self) -> Option<&dyn Heap> {
        Some(self.gpu())
    }

    fn synchronize(&self) -> Result<()> {
        self.gpu().synchronize()
    }

    fn is_asynchronous(&self) -> bool {
        self.gpu().gpu().reads_later()
    }

    fn free_memory(&self) -> Result<Option<u64>> {
        self.gpu().gpu().free_memory().map(Some)
    }

    fn rates(&self) -> Result<Option<Rates>> {
        self.vendor.rates()
    }

    fn batch_bucket(&self, rows: usize) -> usize {
        self.vendor.batch_bucket(rows)
    }

    fn context_bucket(&self, columns: usize) -> usize {
        self.vendor.context_bucket(columns)
    }

    fn capture(&self, work: &mut dyn FnMut() -> Result<()>) -> Result<Option<Box<dyn Graph>>> {
        self.gpu().capture(work)
    }

    fn make_ready(
        &self,
        work: &mut dyn FnMut(&Backend) -> Result<()>,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<()> {
        let mut over = |gpu| work(&Backend::new(self.over(gpu)?));
        precompile::make_ready(self.gpu().gpu(), &mut over, progress)
    }

    fn exclusive(&self) -> Option<MutexGuard<'_, ()>> {
        Some(self.exclusive.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn ranks(&self) -> Option<&dyn DeviceRanks> {
        Some(self)
    }

    fn notice(&self) -> Option<String> {
        self.gpu().gpu().notice()
    }

    fn code_report(&self) -> Option<String> {
        self.gpu().gpu().code_report()
    }

    fn alloc_act(&self, precision: Precision, rows: usize, cols: usize) -> Result<Act> {
        GpuAct::alloc(self.gpu().gpu(), precision, V::ROUNDS_ACTIVATIONS, rows, cols)
    }

    fn wanted(&self, precision: Precision, reader: &ActReader) -> Representations {
        self.wanted_by(reader.weight, precision, reader)
    }

    fn alloc_kv(&self, spec: KvSpec, blocks: usize) -> Result<KvCache> {
        kv::alloc_kv(self.gpu(), spec, blocks)
    }

    fn kv_bytes(&self, spec: KvSpec, blocks: usize) -> u64 {
        kv::bytes(spec, blocks)
    }

    fn tiling(&self) -> Tiling {
        V::TILING
    }

    fn footprint(&self, shape: &TensorShape, _role: Role) -> Footprint {
        self.vendor.footprint(shape)
    }

    fn prepare(&self, tensors: &[TensorView], role: Role) -> Result<Prepared> {
        let parts = self.vendor.prepare(tensors, role)?;
        let owned_bytes = parts.iter().map(|part| part.bytes()).sum();
        Ok(Prepared { storage: Storage::new(GpuWeight(parts)), owned_bytes })
    }

    with_operations!(operations);

    compositions! {
        add_norm(AddNorm) => add_norm::add_norm,
        add_norm_act(AddNormAct) => add_norm::add_norm_act,
        add_norms(AddNorms) => add_norm::add_norms,
        norm_act(NormAct) => norm_act::norm_act,
        multiply_act(MultiplyAct) => multiply_act::multiply_act,
        qkv_write(QkvWrite) => qkv_write::qkv_write,
        latent_write(LatentWrite) => latent_write::latent_write,
    }

    fn norm_matmul(&self, call: &mut Checked<NormMatmul>) -> Result<Fused> {
        self.vendor.norm_matmul(call)
    }

    fn gate_up_act(&self, call: &mut Checked<GateUpAct>) -> Result<Fused> {
        let GateUpAct { gate_up, act } = &mut **call;
        matmul::gate_up(&self.vendor, gate_up.reborrow(), Some(act)).map(|()| Fused::Yes)
    }

    fn route_and_group(&self, call: &mut Checked<RouteAndGroup>) -> Result<Fused> {
        let pairs = call.groups.total_pairs();
        let (route, lists) = call.lists();
        *lists.tile_rows = self.vendor.tile_rows(lists.counts.len(), pairs, false);
        route::route_and_group(self.gpu(), route, &lists)
    }

    fn moe_gate_up_act(&self, call: &mut Checked<MoeGateUpAct>) -> Result<Fused> {
        let MoeGateUpAct { gate_up, act } = &mut **call;
        matmul::moe_gate_up(&self.vendor, gate_up.reborrow(), Some(act)).map(|()| Fused::Yes)
    }

    fn experts(&self, call: &mut Checked<Experts>) -> Result<Fused> {
        experts::experts(&self.vendor, call)
    }

    fn attention_act(&self, call: &mut Checked<AttentionAct>) -> Result<Fused> {
        let AttentionAct { attention: call, act, by_head } = &mut **call;
        // Rows of whole blocks are the same numbers in both shapes.
        if *by_head && !call.cache.spec().value_width.is_multiple_of(32) {
            return Ok(Fused::No);
        }
        attention::attention(&self.vendor, call.reborrow(), Some(act)).map(|()| Fused::Yes)
    }

    fn attend(&self, call: &mut Checked<Attend>) -> Result<Fused> {
        self.vendor.attend(call)
    }
}
