//! The reference backend on a device that fails on request of a test, or that is asynchronous.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use gristmill_kernels::act::{Act, Precision};
use gristmill_kernels::groups::Tiling;
use gristmill_kernels::kv::{KvCache, KvSpec};
use gristmill_kernels::ops::*;
use gristmill_kernels::reference::Reference;
use gristmill_kernels::tensor::DeviceId;
use gristmill_kernels::weight::{Footprint, Prepared, Role, TensorShape, TensorView};
use gristmill_kernels::{Backend, Error, Result, with_operations};

/// Makes the device of a backend fail, and work again.
#[derive(Clone)]
pub(crate) struct Device {
    /// Operations that still work.
    left: Arc<AtomicUsize>,
}

/// A backend, and its device.
pub(crate) fn backend() -> (Arc<Backend>, Device) {
    let device = Device { left: Arc::new(AtomicUsize::new(usize::MAX)) };
    (Arc::new(Backend::new(Failing { device: device.clone(), behind: false })), device)
}

/// A backend that reports that it is asynchronous.
pub(crate) fn behind() -> Backend {
    Backend::new(Failing { device: Device { left: Arc::new(AtomicUsize::new(usize::MAX)) }, behind: true })
}

impl Device {
    /// Fails each operation after the next few.
    pub(crate) fn fail_after(&self, operations: usize) {
        self.left.store(operations, Ordering::Relaxed);
    }

    pub(crate) fn repair(&self) {
        self.fail_after(usize::MAX);
    }

    fn work(&self, what: &str) -> Result<()> {
        let less = |left: usize| if left == usize::MAX { Some(left) } else { left.checked_sub(1) };
        let worked = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        let failed =
            |_| Error::Device { device: DeviceId::Cpu, what: what.to_owned(), reason: "the device is gone".to_owned() };
        worked.map(drop).map_err(failed)
    }
}

struct Failing {
    device: Device,
    behind: bool,
}

macro_rules! operations {
    ($($kernel:ident($Operation:ident),)*) => {
        $(fn $kernel(&self, call: Checked<$Operation>) -> Result<()> {
            self.device.work(stringify!($kernel))?;
            Reference.$kernel(call)
        })*
    };
}

impl Kernels for Failing {
    fn name(&self) -> String {
        Reference.name()
    }

    fn device(&self) -> DeviceId {
        Reference.device()
    }

    fn is_asynchronous(&self) -> bool {
        self.behind
    }

    fn deterministic(&self) -> bool {
        Reference.deterministic()
    }

    fn alloc_act(&self, precision: Precision, rows: usize, cols: usize) -> Result<Act> {
        Reference.alloc_act(precision, rows, cols)
    }

    fn alloc_kv(&self, spec: KvSpec, blocks: usize) -> Result<KvCache> {
        Reference.alloc_kv(spec, blocks)
    }

    fn tiling(&self) -> Tiling {
        Reference.tiling()
    }

    fn footprint(&self, shape: &TensorShape, role: Role) -> Footprint {
        Reference.footprint(shape, role)
    }

    fn prepare(&self, tensors: &[TensorView], role: Role) -> Result<Prepared> {
        Reference.prepare(tensors, role)
    }

    with_operations!(operations);
}
