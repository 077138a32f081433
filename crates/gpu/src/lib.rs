//! Common parts of all GPU backends: the trait [`Gpu`], which a driver or a simulator implements, and the host side of
//! operations.
//!
//! A launch is data: which kernel of which source, how many blocks, which arguments with what access. An implementer of
//! [`Gpu`] allocates, copies and launches; it knows no operation. From here: [`GpuBackend`] runs operations, those that
//! all GPUs do alike by [`common`], the others by a [`Vendor`]; [`layout`] says how weights lie, [`source`] has the
//! kernels' sources, [`precompile`] compiles what will be launched.

#![deny(unsafe_code)]

#[macro_use]
pub mod shared_struct;

pub mod activation;
pub mod attention;
mod backend;
pub mod common;
mod device;
mod device_api;
pub mod epilogue;
pub mod experts;
mod host_link;
pub mod layout;
pub mod matmul;
mod membership;
pub mod precompile;
pub mod product;
mod rank_link;
mod ranks;
mod raw;
pub mod source;
pub mod storage;
pub mod upload;
mod vendor;

pub use backend::GpuBackend;
pub use device::{Device, Scratch};
pub use device_api::{
    Access, Arg, Gpu, Kernel, Launch, Properties, Region, TensorMap, Unit, host_link, read_now, region_of,
    region_of_view_mut,
};
pub use host_link::HostLink;
pub use rank_link::{GroupMember, RankLink};
pub use vendor::Vendor;
