//! The backend of a GPU with experts in host memory: every operation but [`Experts`] is the GPU's.

use crate::options::HostExperts;
use crate::path::HostPath;
use crate::vendor::OffloadVendor;
use crate::weights::{are_on_host, slots_of};
use gristmill_gpu::{Device, GpuBackend, precompile};
use gristmill_kernels::act::{Act, ActReader, Precision, Representations};
use gristmill_kernels::error::{Error, Result};
use gristmill_kernels::groups::Tiling;
use gristmill_kernels::kv::{KvCache, KvSpec};
use gristmill_kernels::offload::{OffloadKernels, SlotUsage};
use gristmill_kernels::ops::*;
use gristmill_kernels::ranks::DeviceRanks;
use gristmill_kernels::storage::Storage;
use gristmill_kernels::tensor::DeviceId;
use gristmill_kernels::weight::{Footprint, Location, Prepared, Role, TensorShape, TensorView, Weight};
use gristmill_kernels::{Backend, with_compositions, with_operations};
use std::sync::{Arc, MutexGuard};

/// The kernels of a GPU with experts in host memory.
#[derive(Debug)]
pub struct OffloadBackend<V> {
    gpu: GpuBackend<V>,
    path: HostPath,
}

impl<V: OffloadVendor> OffloadBackend<V> {
    /// Kernels of one kind of GPU.
    ///
    /// # Errors
    /// [`gristmill_kernels::Error::Device`] if the device cannot wait for the host, or the system does not pin memory.
    pub fn start(vendor: V, host: HostExperts) -> Result<Self> {
        let path = HostPath::start(vendor.device(), host, vendor.deterministic())?;
        Ok(Self { gpu: GpuBackend::new(vendor), path })
    }

    fn device_of_gpu(&self) -> &Device {
        self.gpu.vendor().device()
    }

    /// For a reader in host memory: what the CPU gets, and what products with slots and with copied experts read.
    fn wanted_on_host(&self, precision: Precision, reader: &ActReader) -> Representations {
        let ActReader { weight, rows, .. } = *reader;
        let of_cpu = self.path.representation(precision, weight).unwrap_or(Representations::ALL);
        let Some(slots) = slots_of(weight) else { return of_cpu };
        let of_device = self.gpu.wanted_by(slots, precision, reader);
        // The CPU gets the inputs of a layer's experts, and its rows have their own activations.
        let is_posted = weight.role() != Role::Matrix && (!self.path.streams(rows, weight) || self.path.shares(rows));
        if is_posted { Representations(of_cpu.0 | of_device.0) } else { of_device }
    }
}

impl<V: OffloadVendor> OffloadKernels for OffloadBackend<V> {
    fn host(&self) -> Option<&Arc<Backend>> {
        Some(self.path.backend())
    }

    fn pin(&self, weight: &Weight) -> Result<Option<Storage>> {
        self.path.pin(self.device_of_gpu(), weight).map(Some)
    }

    fn free_slots(&self, weights: [&Weight; 2]) -> Result<u64> {
        self.path.free_slots(self.device_of_gpu(), weights)
    }

    fn slot_usage(&self) -> Option<SlotUsage> {
        Some(self.path.slot_usage())
    }

    fn largest_captured(&self) -> usize {
        self.path.largest_captured()
    }
}

/// Methods of the GPU's backend.
macro_rules! of_gpu {
    ($(fn $name:ident($($arg:ident: $ty:ty),*) -> $ret:ty;)*) => {
        $(fn $name(&self, $($arg: $ty),*) -> $ret {
            self.gpu.$name($($arg),*)
        })*
    };
}

macro_rules! operations {
    ($($kernel:ident($Kernel:ident),)*) => {
        of_gpu! { $(fn $kernel(call: Checked<$Kernel>) -> Result<()>;)* }
    };
}

macro_rules! composition {
    (experts($Experts:ident)) => {
        fn experts(&self, call: &mut Checked<$Experts>) -> Result<Fused> {
            if !are_on_host(call) {
                return self.gpu.experts(call);
            }
            let groups = &call.scratch.groups;
            if !groups.is_whole() {
                let (expected, found) = (groups.all(), groups.experts());
                return Err(Error::Shape {
                    op: $Experts::NAME,
                    what: "grouped experts in host memory",
                    expected,
                    found,
                });
            }
            self.path.experts(self.gpu.vendor(), call).map(|()| Fused::Yes)
        }
    };
    ($composition:ident($Composition:ident)) => {
        of_gpu! { fn $composition(call: &mut Checked<$Composition>) -> Result<Fused>; }
    };
}

macro_rules! compositions {
    ($($composition:ident($Composition:ident),)*) => {
        $(composition! { $composition($Composition) })*
    };
}

impl<V: OffloadVendor> Kernels for OffloadBackend<V> {
    of_gpu! {
        fn device() -> DeviceId;
        fn heap() -> Option<&dyn Heap>;
        fn ranks() -> Option<&dyn DeviceRanks>;
        fn deterministic() -> bool;
        fn is_asynchronous() -> bool;
        fn synchronize() -> Result<()>;
        fn code_report() -> Option<String>;
        fn free_memory() -> Result<Option<u64>>;
        fn rates() -> Result<Option<Rates>>;
        fn batch_bucket(rows: usize) -> usize;
        fn context_bucket(columns: usize) -> usize;
        fn exclusive() -> Option<MutexGuard<'_, ()>>;
        fn alloc_act(precision: Precision, rows: usize, cols: usize) -> Result<Act>;
        fn alloc_kv(spec: KvSpec, blocks: usize) -> Result<KvCache>;
        fn kv_bytes(spec: KvSpec, blocks: usize) -> u64;
        fn tiling() -> Tiling;
        fn footprint(shape: &TensorShape, role: Role) -> Footprint;
        fn prepare(tensors: &[TensorView], role: Role) -> Result<Prepared>;
    }

    with_operations!(operations);
    with_compositions!(compositions);

    fn offload(&self) -> Option<&dyn OffloadKernels> {
        Some(self)
    }

    fn name(&self) -> String {
        format!("{}; experts on {}", self.gpu.name(), self.path.backend().name())
    }

    fn arithmetic(&self) -> Vec<String> {
        let of_host = self.path.backend().arithmetic();
        let of_host = of_host.iter().map(|part| format!("experts on cpu: {part}"));
        self.gpu.arithmetic().into_iter().chain(of_host).collect()
    }

    fn notice(&self) -> Option<String> {
        let notices = [self.gpu.notice(), self.path.notice()];
        notices.into_iter().flatten().reduce(|all, notice| all + "; " + &notice)
    }

    fn capture(&self, work: &mut dyn FnMut() -> Result<()>) -> Result<Option<Box<dyn Graph>>> {
        self.path.capture(|| self.gpu.capture(work))
    }

    fn make_ready(
        &self,
        work: &mut dyn FnMut(&Backend) -> Result<()>,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<()> {
        let mut over = |device| {
            let gpu = self.gpu.over(device)?;
            let path = self.path.dry(gpu.vendor().device())?;
            work(&Backend::new(Self { gpu, path }))
        };
        precompile::make_ready(self.device_of_gpu().gpu(), &mut over, progress)
    }

    fn wanted(&self, precision: Precision, reader: &ActReader) -> Representations {
        match reader.weight.location() {
            Location::Host => self.wanted_on_host(precision, reader),
            Location::Device | Location::File => self.gpu.wanted(precision, reader),
        }
    }
}
