//! Runs GPU kernels on the CPU, so that they can be tested where there is no GPU.
//!
//! A kernel's text is compiled as C++ by the system's compiler, after a prelude in which the words of the kernel
//! language are C++ (`include/`). Each GPU thread is a fibre. What is shown is what a kernel computes; what is not shown:
//! whether the device's own compiler takes the text, registers, occupancy, time.
//!
//! CUDA C++ is compiled as it is. A text in Metal's language is translated first (`msl`), because address spaces,
//! attributes and threadgroup variables are no C++; what is not of that language is refused there.
//!
//! [`compile`] makes a library of a text, `program` loads it and launches its kernels, `engine` runs their blocks.

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
// Where no program can be made, nothing launches one.
#[cfg_attr(not(all(target_arch = "x86_64", unix)), allow(dead_code))]
mod launch;
#[cfg(all(target_arch = "x86_64", unix))]
mod msl;
#[cfg(all(target_arch = "x86_64", unix))]
mod program;
// As above.
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

/// The twin in plain C++ of a text `ptx.cuh` that holds a program's inline PTX; its functions are listed there. The text
/// of a program that includes such a file is given to [`Program::compile`] with this one in its place.
pub const PTX: &str = include_str!("../include/ptx.cuh");

/// The same of a text `hopper.cuh`, whose instructions devices of compute capability 9.0 have. It goes after [`PTX`].
pub const HOPPER: &str = include_str!("../include/hopper.cuh");

/// Looks at the address spaces of a text in MSL, which [`Program`] does not know: fails where a pointer or a reference to
/// one is taken for another. Clang does that, with the text as C++ for OpenCL; without one the error is
/// [`Error::NoClang`]. What was found to be right is noted in the folder `cache`.
#[cfg(all(target_arch = "x86_64", unix))]
pub fn check_address_spaces(source: &Source, cache: &std::path::Path) -> Result<()> {
    msl::address_spaces(source, cache)
}

/// The same where there is no simulator: it fails.
#[cfg(not(all(target_arch = "x86_64", unix)))]
pub fn check_address_spaces(_: &Source, _: &std::path::Path) -> Result<()> {
    Err(Error::Host)
}

/// How a text is compiled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// To compute as fast as can be.
    #[default]
    Fast,
    /// With a look at every access; see [`Kind`] for what is found. About ten times slower.
    Checked,
}

/// The language of a text.
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

/// A kernel's text and how it is compiled.
#[derive(Clone, Copy, Debug, Default)]
pub struct Source<'a> {
    /// Its language.
    pub language: Language,
    /// What the text is called in messages, unless it has `#line` directives.
    pub name: &'a str,
    /// The text, with its inclusions put in their places.
    pub text: &'a str,
    /// Macros and their values.
    pub defines: &'a [(&'a str, &'a str)],
    /// Values of function constants by their indices. Of Metal only: where a device makes a pipeline of a function and
    /// its constants, here the text is compiled with them.
    pub constants: &'a [(u32, Constant)],
    /// How.
    pub mode: Mode,
}
