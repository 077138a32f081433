//! Sources that replace headers of a program.

/// The inline PTX functions of a program's `ptx.cuh` in plain C++. For a source that includes `ptx.cuh`, call
/// [`crate::Program::compile`] with this source instead.
pub const PTX: &str = include_str!("../include/ptx.cuh");

/// The functions of `system.cuh`: words that kernels share with threads of the host. It must follow `device.h`.
pub const SYSTEM: &str = include_str!("../include/system.cuh");

/// The functions of `hopper.cuh`, the instructions of compute capability 9.0. It must follow [`PTX`].
pub const HOPPER: &str = include_str!("../include/hopper.cuh");
