//! Errors before and during a kernel launch.

use crate::fault::Fault;
use std::path::PathBuf;

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of the simulator. Sizes are in bytes; arguments are counted from 0.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The host is not x86-64 Unix: fibres switch by x86-64 code, and libraries are loaded as on Unix.
    #[error("the simulator runs on x86-64 Unix machines only")]
    Host,
    /// No C++ compiler was found.
    #[error("no C++ compiler: none of {tried:?} can be run; install g++ or clang++")]
    NoCompiler {
        /// Names that were tried.
        tried: &'static [&'static str],
    },
    /// No Clang was found for the check of address spaces.
    #[error("no Clang, which looks at address spaces: none of {tried:?} can be run; install clang")]
    NoClang {
        /// Names that were tried.
        tried: &'static [&'static str],
    },
    /// The source does not compile.
    #[error("{name} does not compile:\n{log}")]
    Compile {
        /// The source's name.
        name: String,
        /// The compiler's messages.
        log: String,
    },
    /// The cache of compiled sources cannot be written or read.
    #[error("the cache of compiled kernels: {path}: {source}")]
    Cache {
        /// File or folder.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// A compiled source cannot be loaded.
    #[error("{path} cannot be loaded: {reason}")]
    Load {
        /// The library.
        path: PathBuf,
        /// The cause.
        reason: String,
    },
    /// Allocation of stacks or shared memory failed.
    #[error("no memory for the threads of a block: {0}")]
    Memory(std::io::Error),
    /// The source has no such kernel.
    #[error("no kernel {kernel:?}; the source has {known:?}")]
    UnknownKernel {
        /// The name that was requested.
        kernel: String,
        /// Names of the source's kernels.
        known: Vec<String>,
    },
    /// Wrong number of arguments.
    #[error("kernel {kernel}: takes {wanted} arguments, not {given}")]
    ArgumentCount {
        /// The kernel.
        kernel: String,
        /// Expected number of arguments.
        wanted: usize,
        /// Number of given arguments.
        given: usize,
    },
    /// A buffer instead of a value, or a value instead of a buffer.
    #[error("kernel {kernel}, argument {argument}: takes {wanted}")]
    ArgumentKind {
        /// The kernel.
        kernel: String,
        /// Index of the argument.
        argument: usize,
        /// The expected kind.
        wanted: &'static str,
    },
    /// A struct whose size differs from the kernel's.
    #[error("kernel {kernel}, argument {argument}: the kernel's struct has {wanted} bytes, the given one {given}")]
    ArgumentSize {
        /// The kernel.
        kernel: String,
        /// Index of the argument.
        argument: usize,
        /// Bytes of the kernel's parameter.
        wanted: usize,
        /// Bytes given.
        given: usize,
    },
    /// An invalid tensor map.
    #[error("kernel {kernel}, argument {argument}, a tensor map: {wrong}")]
    TensorMap {
        /// The kernel.
        kernel: String,
        /// Index of the argument.
        argument: usize,
        /// The fault of the map.
        wrong: String,
    },
    /// A launch that exceeds a limit of devices.
    #[error("kernel {kernel}: {what} is {given}, which must be from {least} to {most}")]
    Limit {
        /// The kernel.
        kernel: String,
        /// The number that is out of range.
        what: &'static str,
        /// The number that was requested.
        given: u64,
        /// The minimum.
        least: u64,
        /// The maximum.
        most: u64,
    },
    /// An invalid length of threadgroup memory in Metal.
    #[error("kernel {kernel}: {given} bytes of threadgroup memory, which must be a multiple of {of}")]
    Multiple {
        /// The kernel.
        kernel: String,
        /// Bytes requested.
        given: u32,
        /// The required divisor.
        of: u32,
    },
    /// A fault of the kernel.
    #[error("{0}")]
    Fault(Box<Fault>),
}
