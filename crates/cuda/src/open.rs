//! A device of NVIDIA, opened once and shared by backends.

use std::path::PathBuf;
use std::sync::Arc;

use crate::driver::Driver;
use crate::{Cuda, Options};
use gristmill_gpu::precompile::make_ready;
use gristmill_gpu::{Gpu, Properties, Unit};
use gristmill_kernels::Backend;
use gristmill_kernels::error::Result;
use gristmill_offload::HostExperts;

/// Opens a backend.
pub type OpenBackend<'a> = &'a dyn Fn() -> Result<Backend>;

/// An opened CUDA device.
///
/// ```no_run
/// use gristmill_cuda::{CudaDevice, Options};
/// let cuda = CudaDevice::open(0)?.backend(Options::default())?;
/// println!("{}", cuda.name());
/// # Ok::<(), gristmill_kernels::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct CudaDevice {
    pub(crate) driver: Arc<Driver>,
}

impl CudaDevice {
    /// Opens a device by its number.
    ///
    /// # Errors
    /// [`Error::Device`](gristmill_kernels::Error::Device): there is no driver or device, it is too old, or there is no
    /// NVRTC.
    pub fn open(number: u32) -> Result<Self> {
        Self::open_with(number, &[])
    }

    /// The same with folders of kernels that were compiled [`ahead`](crate::ahead). If a folder has kernels of the device's
    /// architecture, NVRTC may be missing.
    ///
    /// # Errors
    /// As of [`Self::open`].
    pub fn open_with(number: u32, ahead: &[PathBuf]) -> Result<Self> {
        Driver::open(number, ahead).map(|driver| Self { driver })
    }

    /// A backend over the device. Several backends of one device share its stream and its compiled kernels.
    ///
    /// # Errors
    /// [`Error::Device`](gristmill_kernels::Error::Device) if the device has no kernels of the family that the options
    /// name.
    pub fn backend(&self, options: Options) -> Result<Backend> {
        Cuda::backend(self.driver.clone(), options)
    }

    /// The same, with experts in host memory that the CPU computes.
    ///
    /// # Errors
    /// Also [`Error::Device`](gristmill_kernels::Error::Device) if the system does not pin memory.
    pub fn backend_with_host_experts(&self, options: Options, host: HostExperts) -> Result<Backend> {
        Cuda::backend_with_host_experts(self.driver.clone(), options, host)
    }

    /// Limits the memory that [`Self::free_memory`] and the backends report as free, so that at most this number of bytes is in use
    /// at once, counted from the time when the device was opened.
    pub fn limit_memory(&self, bytes: u64) {
        self.driver.limit_memory(bytes);
    }

    /// The device's properties.
    pub fn properties(&self) -> &Properties {
        self.driver.properties()
    }

    /// Bytes that can still be allocated.
    pub fn free_memory(&self) -> Result<u64> {
        self.driver.free_memory()
    }

    /// Compiles a unit of [`crate::units::all`], or reads it from the cache. From any thread.
    pub fn prepare(&self, unit: &Unit) -> Result<()> {
        self.driver.prepare(unit)
    }

    /// Compiles the kernels that `work` launches on backends that it gets from its argument, which compute nothing: see
    /// [`Backend::make_ready`].
    ///
    /// # Errors
    /// Those of `work`, and of the compilation.
    pub fn make_ready(
        &self,
        work: &mut dyn FnMut(OpenBackend) -> Result<()>,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<()> {
        let gpu: Arc<dyn Gpu> = self.driver.clone();
        let mut over = |dry: Arc<dyn Gpu>| work(&|| Cuda::backend(dry.clone(), Options::default()));
        make_ready(&gpu, &mut over, progress)
    }

    /// A warning for the user: that compiled kernels cannot be kept.
    pub fn notice(&self) -> Option<String> {
        self.driver.notice()
    }
}
