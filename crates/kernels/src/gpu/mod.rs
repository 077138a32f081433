//! What all GPUs share: the seam [`Gpu`], under which a driver or a simulator lies, and the host side of operations.
//!
//! A launch is data: which kernel of which text, how many blocks, which arguments with what access. An implementer of
//! [`Gpu`] allocates, copies and launches; it knows no operation. [`source`] holds the text of the kernels, which all
//! implementers compile. From here: [`cuda`] and [`metal`] are the backends, [`small`] the operations that GPUs share,
//! [`layout`] how weights lie, [`ahead`] compiles what will be launched.

pub(crate) mod activation;
pub mod ahead;
pub mod cuda;
mod device;
pub(crate) mod finish;
pub mod layout;
mod memory;
pub mod metal;
pub(crate) mod product;
mod seam;
pub(crate) mod small;
pub mod source;
pub(crate) mod twin;

pub(crate) use device::Device;
pub use seam::{Access, Arg, Gpu, Kernel, Launch, Properties, Recording, Region, Text};
