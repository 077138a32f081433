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
#[cfg(all(target_arch = "x86_64", unix))]
mod program;
// Unused there too.
#[cfg_attr(not(all(target_arch = "x86_64", unix)), allow(dead_code))]
mod tensor_map;

pub use error::{Error, Result};
pub use fault::{Fault, Kind, Place};
pub use launch::{Access, Arg, Launch, Order, SHARED_LIMIT, STATIC_SHARED_LIMIT, THREADGROUP_LIMIT};
#[cfg(all(target_arch = "x86_64", unix))]
pub use program::Program;
pub use tensor_map::{Swizzle, TensorMap};
#[cfg(not(all(target_arch = "x86_64", unix)))]
pub use unsupported::Program;

/// The inline PTX functions of a program's `ptx.cuh` in plain C++. For a source that includes `ptx.cuh`, call
/// [`Program::compile`] with this source instead.
pub const PTX: &str = include_str!("../include/ptx.cuh");

/// The functions of `system.cuh`: words that kernels share with threads of the host. It must follow `device.h`.
pub const SYSTEM: &str = include_str!("../include/system.cuh");

/// The functions of `hopper.cuh`, the instructions of compute capability 9.0. It must follow [`PTX`].
pub const HOPPER: &str = include_str!("../include/hopper.cuh");

/// Checks the address spaces of a Metal source, which [`Program`] does not check. Fails if a pointer or reference to
/// one address space is used as another. Clang compiles the source as C++ for OpenCL; without Clang the error is
/// [`Error::NoClang`]. Sources that passed are recorded in the folder `cache`.
#[cfg(all(target_arch = "x86_64", unix))]
pub fn check_address_spaces(source: &Source, cache: &std::path::Path) -> Result<()> {
    msl::address_spaces(source, cache)
}

/// Fails, because the simulator is not available.
#[cfg(not(all(target_arch = "x86_64", unix)))]
pub fn check_address_spaces(_: &Source, _: &std::path::Path) -> Result<()> {
    Err(Error::Host)
}

/// How a source is compiled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Without checks.
    #[default]
    Fast,
    /// Checks every access; [`Kind`] lists the faults. About ten times slower.
    Checked,
}

/// The language of a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Language {
    /// CUDA C++.
    #[default]
    Cuda,
    /// The Metal Shading Language 3.1: kernels only, without textures.
    Metal,
}

/// The value of a function constant of Metal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Constant {
    /// `bool`.
    Bool(bool),
    /// `int`.
    Int(i32),
    /// `uint`.
    Uint(u32),
    /// `float`.
    Float(f32),
}

impl Constant {
    /// Its type in Metal.
    #[cfg_attr(not(all(target_arch = "x86_64", unix)), allow(dead_code))]
    fn type_name(self) -> &'static str {
        match self {
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Uint(_) => "uint",
            Self::Float(_) => "float",
        }
    }

    /// Its value in C++.
    #[cfg_attr(not(all(target_arch = "x86_64", unix)), allow(dead_code))]
    fn literal(self) -> String {
        match self {
            Self::Bool(value) => value.to_string(),
            Self::Int(value) => format!("(int){}u", value as u32),
            Self::Uint(value) => format!("{value}u"),
            Self::Float(value) => format!("as_type<float>({}u)", value.to_bits()),
        }
    }
}

/// A kernel source and how it is compiled.
#[derive(Clone, Copy, Debug, Default)]
pub struct Source<'a> {
    /// Its language.
    pub language: Language,
    /// The source's name in messages, unless it has `#line` directives.
    pub name: &'a str,
    /// The translation unit, with its includes expanded.
    pub text: &'a str,
    /// Macros and their values.
    pub defines: &'a [(&'a str, &'a str)],
    /// Values of function constants by index, for Metal only. They are compiled into the source, as a device
    /// specialises a pipeline.
    pub constants: &'a [(u32, Constant)],
    /// Fast or checked mode.
    pub mode: Mode,
}
