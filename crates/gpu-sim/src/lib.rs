//! Runs GPU kernels on the CPU, so that they can be tested where there is no GPU.
//!
//! The system's compiler compiles a kernel source as C++, after a prelude that defines the kernel language's qualifiers
//! and intrinsics (`include/`). Each GPU thread is a fibre. The simulator shows what a kernel computes. It does not
//! show whether the device's own compiler takes the source, nor registers, occupancy or time.
//!
//! CUDA C++ is compiled as it is. Metal source is translated first (`msl`), because address spaces, attributes and
//! threadgroup variables are not C++; the translator refuses what is not Metal.
//!
//! [`compile`] makes a library of a source, `program` loads it and launches its kernels, `engine` runs their blocks.

#[cfg(all(target_arch = "x86_64", unix))]
mod check;
#[cfg(all(target_arch = "x86_64", unix))]
mod code;
#[cfg(all(target_arch = "x86_64", unix))]
mod compile;
#[cfg(not(all(target_arch = "x86_64", unix)))]
mod elsewhere;
#[cfg(all(target_arch = "x86_64", unix))]
mod engine;
mod error;
mod fault;
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

#[cfg(not(all(target_arch = "x86_64", unix)))]
pub use elsewhere::Program;
pub use error::{Error, Result};
pub use fault::{Fault, Kind, Place};
pub use launch::{Access, Arg, Launch, Order, SHARED_LIMIT, STATIC_SHARED_LIMIT, THREADGROUP_LIMIT};
#[cfg(all(target_arch = "x86_64", unix))]
pub use program::Program;
pub use tensor_map::{Swizzle, TensorMap};

/// The inline PTX functions of a program's `ptx.cuh` in plain C++. A source that includes `ptx.cuh` is given to
/// [`Program::compile`] with this one in its place.
pub const PTX: &str = include_str!("../include/ptx.cuh");

/// The same for `hopper.cuh`, the instructions of compute capability 9.0. It goes after [`PTX`].
pub const HOPPER: &str = include_str!("../include/hopper.cuh");

/// Checks the address spaces of a Metal source, which [`Program`] does not know: fails where a pointer or a reference
/// to one is taken for another. Clang compiles the source as C++ for OpenCL; without Clang the error is
/// [`Error::NoClang`]. Sources that passed are noted in the folder `cache`.
#[cfg(all(target_arch = "x86_64", unix))]
pub fn check_address_spaces(source: &Source, cache: &std::path::Path) -> Result<()> {
    msl::address_spaces(source, cache)
}

/// The same where there is no simulator: it fails.
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
    /// Every access is checked; [`Kind`] lists the faults found. About ten times slower.
    Checked,
}

/// The language of a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Language {
    /// CUDA C++.
    #[default]
    Cuda,
    /// The Metal Shading Language 3.1: kernels alone, without textures.
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
    /// Values of function constants by index, for Metal only. The source is compiled with them, where a device
    /// specialises a pipeline.
    pub constants: &'a [(u32, Constant)],
    /// How.
    pub mode: Mode,
}
