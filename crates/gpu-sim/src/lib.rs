//! Runs GPU kernels on the CPU, so they can be tested without a GPU.
//!
//! The system's compiler compiles a kernel source as C++, after a prelude that defines the qualifiers and intrinsics of
//! the kernel language (`include/`). Each GPU thread is a fibre. The simulator shows what a kernel computes. It does
//! not show whether the device's compiler accepts the source, nor registers, occupancy or time.
//!
//! CUDA C++ is compiled unchanged. Metal source is translated first (`msl`), because address spaces, attributes and
//! threadgroup variables are not C++. The translator rejects what is not Metal.
//!
//! [`compile`] compiles a source to a library, `program` loads it and launches its kernels, and `engine` runs their
//! blocks.
//!
//! # Kernel sources run as C++
//!
//! Each thread is a fibre, so the op suite and golden models test kernels without a GPU. A token pass first translates
//! MSL (`src/msl`) and refuses what MSL 3.1 lacks. Clang, as C++ for OpenCL, checks address spaces. The core of the
//! simulator is independent of CUDA and Metal.
//!
//! # What the simulator cannot show
//!
//! What the simulator cannot show:
//!
//! - whether a device's own compiler accepts the source (`cargo xtask kernels` asks NVRTC, without a device);
//! - fast mathematics and contraction, and the order in which a device sums lanes and fragments;
//! - registers, occupancy and time;
//! - a fragment layout that kernel and simulator misread alike.

mod address_spaces;
#[cfg(all(target_arch = "x86_64", unix))]
mod check;
#[cfg(all(target_arch = "x86_64", unix))]
mod code;
#[cfg(all(target_arch = "x86_64", unix))]
mod compile;
#[cfg(all(target_arch = "x86_64", unix))]
mod engine;
mod error;
mod fault;
#[cfg(not(all(target_arch = "x86_64", unix)))]
mod unsupported;
// Unused on hosts without the simulator.
#[cfg_attr(not(all(target_arch = "x86_64", unix)), allow(dead_code))]
mod launch;
#[cfg(all(target_arch = "x86_64", unix))]
mod msl;
mod prelude;
#[cfg(all(target_arch = "x86_64", unix))]
mod program;
mod source;
// Unused there too.
#[cfg_attr(not(all(target_arch = "x86_64", unix)), allow(dead_code))]
mod tensor_map;

pub use address_spaces::check_address_spaces;
pub use error::{Error, Result};
pub use fault::{Fault, Kind, Place};
pub use launch::{Access, Arg, Launch, Order, SHARED_LIMIT, STATIC_SHARED_LIMIT, THREADGROUP_LIMIT};
pub use prelude::{HOPPER, PTX, SYSTEM};
#[cfg(all(target_arch = "x86_64", unix))]
pub use program::Program;
pub use source::{Constant, Language, Mode, Source};
pub use tensor_map::{Swizzle, TensorMap};
#[cfg(not(all(target_arch = "x86_64", unix)))]
pub use unsupported::Program;
