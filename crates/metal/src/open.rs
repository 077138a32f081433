//! A device of Apple, opened once and shared by backends.

use std::sync::Arc;

use crate::driver::Driver;
use crate::{Metal, Options};
use gristmill_gpu::{Gpu, Properties, Unit};
use gristmill_kernels::Backend;
use gristmill_kernels::error::Result;

/// An opened Metal device.
#[derive(Clone, Debug)]
pub struct MetalDevice {
    driver: Arc<Driver>,
}

impl MetalDevice {
    /// Opens a device by its number.
    ///
    /// # Errors
    /// [`Error::Device`](gristmill_kernels::Error::Device): there is no such device, or it is not one of Apple's own.
    pub fn open(number: u32) -> Result<Self> {
        Driver::open(number).map(|driver| Self { driver })
    }

    /// A backend over the device. Several backends of one device share its queue and its compiled kernels.
    pub fn backend(&self, options: Options) -> Result<Backend> {
        Metal::backend(self.driver.clone(), options)
    }

    /// The device's properties.
    pub fn properties(&self) -> &Properties {
        self.driver.properties()
    }

    /// Compiles a unit of [`crate::units::all`]. From any thread.
    pub fn prepare(&self, unit: &Unit) -> Result<()> {
        self.driver.prepare(unit)
    }
}
