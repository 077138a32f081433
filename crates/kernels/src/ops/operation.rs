//! An operation, independent of the backends that compute it.

use crate::error::Result;
use crate::tensor::DeviceId;

/// An operation with its arguments, for [`crate::Backend::run`].
pub trait Operation: Check {
    /// The name of its method in [`super::Kernels`].
    const NAME: &'static str;
}

/// The check of an operation's arguments. Sealed: the module is private.
pub trait Check: Sized {
    /// Fails unless all dimensions agree, all ids are in range and every buffer is on the device. Then records in
    /// prepared activations and groups what the operation will fill. Writes nothing else.
    fn check(&mut self, device: DeviceId) -> Result<()>;
}
