//! An Apple GPU, opened once and shared by backends.

use std::sync::Arc;

use crate::driver::Driver;
use crate::{Metal, Options};
use gristmill_gpu::{Gpu, Properties, Unit};
use gristmill_kernels::Backend;
use gristmill_kernels::error::Result;

/// An opened Metal device.
#[derive(Clone, Debug)]
pub struct MetalDevice {
    pub(crate) driver: Arc<Driver>,
}

impl MetalDevice {
    /// Opens a device by index.
    ///
    /// # Errors
    /// [`Error::Device`](gristmill_kernels::Error::Device) if there is no such device, or if it is not an Apple GPU.
    pub fn open(number: u32) -> Result<Self> {
        Driver::open(number).map(|driver| Self { driver })
    }

    /// A backend on the device. Several backends of one device share its queue and its compiled kernels.
    pub fn backend(&self, options: Options) -> Result<Backend> {
        Metal::backend(self.driver.clone(), options)
    }

    /// The device's properties.
    pub fn properties(&self) -> &Properties {
        self.driver.properties()
    }

    /// Compiles a unit of [`crate::units::all`]. Can be called from any thread.
    pub fn prepare(&self, unit: &Unit) -> Result<()> {
        self.driver.prepare(unit)
    }
}
