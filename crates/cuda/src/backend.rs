//! CUDA's part of a backend.

use super::options::{Choice, Options};
use super::plan::Card;
use gristmill_gpu::{Device, Gpu, GpuBackend};
use gristmill_kernels::Backend;
use gristmill_kernels::error::{Error, Result};
use gristmill_offload::{HostExperts, OffloadBackend};
use std::sync::Arc;

/// CUDA's part of a backend.
#[derive(Debug)]
pub struct Cuda {
    pub(crate) device: Device,
    pub(crate) card: Card,
}

impl Cuda {
    /// A backend over a device of the caller's, for instance a simulator's. [`backend`](crate::CudaDevice::backend) of
    /// [`CudaDevice`](crate::CudaDevice) is that of a real one.
    ///
    /// # Errors
    /// [`Error::Device`] if the device has no kernels of the family that the options name.
    pub fn backend(gpu: Arc<dyn Gpu>, options: Options) -> Result<Backend> {
        Ok(Backend::new(GpuBackend::new(Self::new(gpu, options)?)))
    }

    /// The same, with experts in host memory that the CPU computes.
    ///
    /// # Errors
    /// Also [`Error::Device`] if the system does not pin memory.
    pub fn backend_with_host_experts(gpu: Arc<dyn Gpu>, options: Options, host: HostExperts) -> Result<Backend> {
        Ok(Backend::new(OffloadBackend::start(Self::new(gpu, options)?, host)?))
    }

    pub(crate) fn new(gpu: Arc<dyn Gpu>, options: Options) -> Result<Self> {
        let properties = gpu.properties();
        if let Choice::Family(family) = options.choice
            && !family.runs_on(properties.architecture)
        {
            let what = format!("kernels of the family {family}");
            let capability = properties.architecture;
            let reason = format!("they are not for compute capability {}.{}", capability / 10, capability % 10);
            return Err(Error::Device { device: properties.id, what, reason });
        }
        let card = Card::new(properties, options.choice);
        Ok(Self { device: Device::new(gpu)?, card })
    }
}
