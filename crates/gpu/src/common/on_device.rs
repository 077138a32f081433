//! Operations that all GPUs run alike.

use crate::Device;
use gristmill_kernels::error::Result;
use gristmill_kernels::ops::Operation;

/// An operation that needs only a device. [`crate::GpuBackend`] runs it without a line of its own.
pub(crate) trait OnDevice: Operation {
    /// Launches it.
    fn run(self, device: &Device) -> Result<()>;
}

/// Names the functions that run operations, in the file of these functions: `scale(Scale)`.
macro_rules! on_device {
    ($($function:ident($Operation:ident)),+) => {
        $(impl $crate::common::on_device::OnDevice for $Operation<'_> {
            fn run(self, device: &Device) -> Result<()> {
                $function(device, self)
            }
        })+
    };
}
