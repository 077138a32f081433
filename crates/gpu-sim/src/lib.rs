//! Runs GPU kernels on the CPU, so that they can be tested where there is no GPU.
//!
//! A kernel's text is compiled as C++ by the system's compiler, after a prelude in which the words of the kernel
//! language are C++ (`include/`). Each GPU thread is a fibre. What is shown is what a kernel computes; what is not shown:
//! whether the device's own compiler takes the text, registers, occupancy, time.
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
mod program;
// As above.
#[cfg_attr(not(all(target_arch = "x86_64", unix)), allow(dead_code))]
mod tensor_map;

#[cfg(not(all(target_arch = "x86_64", unix)))]
pub use elsewhere::Program;
pub use error::{Error, Result};
pub use fault::{Fault, Kind, Place};
pub use launch::{Access, Arg, Launch, Order, SHARED_LIMIT, STATIC_SHARED_LIMIT};
#[cfg(all(target_arch = "x86_64", unix))]
pub use program::Program;
pub use tensor_map::{Swizzle, TensorMap};

/// The twin in plain C++ of a text `ptx.cuh` that holds a program's inline PTX; its functions are listed there. The text
/// of a program that includes such a file is given to [`Program::compile`] with this one in its place.
pub const PTX: &str = include_str!("../include/ptx.cuh");

/// The same of a text `hopper.cuh`, whose instructions devices of compute capability 9.0 have. It goes after [`PTX`].
pub const HOPPER: &str = include_str!("../include/hopper.cuh");

/// How a text is compiled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// To compute as fast as can be.
    #[default]
    Fast,
    /// With a look at every access; see [`Kind`] for what is found. About ten times slower.
    Checked,
}

/// A kernel's text and how it is compiled.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// What the text is called in messages, unless it has `#line` directives.
    pub name: &'a str,
    /// The text, with its inclusions put in their places.
    pub text: &'a str,
    /// Macros and their values.
    pub defines: &'a [(&'a str, &'a str)],
    /// How.
    pub mode: Mode,
}
