//! The CPU's part in experts outside a device: it reads experts from files, and multiplies experts for a GPU.

mod kernels;
pub(crate) mod readers;
pub(crate) mod streamed;
