//! What all GPUs share: the seam [`Gpu`], under which a driver or a simulator lies, and the host side of operations.
//!
//! A launch is data: which kernel of which source, how many blocks, which arguments with what access. An implementer of
//! [`Gpu`] allocates, copies and launches; it knows no operation. [`source`] holds the kernels' sources, which all
//! implementers compile. From here: [`backend`] runs operations, [`common`] the ones that GPUs share; [`cuda`] and
//! [`metal`] are what differs; [`layout`] says how weights lie, [`ahead`] compiles what will be launched.

#[macro_use]
pub(crate) mod shared_struct;

pub(crate) mod activation;
pub mod ahead;
mod backend;
pub(crate) mod common;
pub mod cuda;
mod device;
pub(crate) mod epilogue;
pub mod layout;
pub mod metal;
pub(crate) mod product;
mod seam;
pub mod source;
pub(crate) mod storage;
mod vendor;

pub use backend::GpuBackend;
pub use device::Device;
pub use seam::{Access, Arg, Gpu, Kernel, Launch, Properties, Region, Unit};
pub use vendor::Vendor;
