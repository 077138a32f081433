//! Errors before and while a kernel runs.

use crate::fault::Fault;
use std::path::PathBuf;

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of the simulator. Sizes are in bytes; arguments are counted from 0.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Fibres switch by x86-64 code, and libraries are loaded as on Unix.
    #[error("the simulator runs on x86-64 Unix machines only")]
    Host,
    /// No compiler answered.
    #[error("no C++ compiler: none of {tried:?} can be run; install g++ or clang++")]
    NoCompiler {
        /// Names that were tried.
        tried: &'static [&'static str],
    },
    /// No Clang answered, with which address spaces are looked at.
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
        /// Why.
        source: std::io::Error,
    },
    /// A compiled source cannot be loaded.
    #[error("{path} cannot be loaded: {reason}")]
    Load {
        /// The library.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// No memory for stacks or shared memory.
    #[error("no memory for the threads of a block: {0}")]
    Memory(std::io::Error),
    /// The source has no such kernel.
    #[error("no kernel {kernel:?}; the source has {known:?}")]
    UnknownKernel {
        /// The name that was requested.
        kernel: String,
        /// Names of the kernels that there are.
        known: Vec<String>,
    },
    /// Arguments are missing, or there are too many.
    #[error("kernel {kernel}: takes {wanted} arguments, not {given}")]
    ArgumentCount {
        /// The kernel.
        kernel: String,
        /// How many it takes.
        wanted: usize,
        /// How many it was given.
        given: usize,
    },
    /// A buffer for a value, or a value for a buffer.
    #[error("kernel {kernel}, argument {argument}: takes {wanted}")]
    ArgumentKind {
        /// The kernel.
        kernel: String,
        /// Which argument.
        argument: usize,
        /// The kind that it takes.
        wanted: &'static str,
    },
    /// A struct of another size than the kernel's.
    #[error("kernel {kernel}, argument {argument}: the kernel's struct has {wanted} bytes, the given one {given}")]
    ArgumentSize {
        /// The kernel.
        kernel: String,
        /// Which argument.
        argument: usize,
        /// Bytes of the kernel's parameter.
        wanted: usize,
        /// Bytes given.
        given: usize,
    },
    /// A map of a matrix that no driver makes.
    #[error("kernel {kernel}, argument {argument}, a tensor map: {wrong}")]
    TensorMap {
        /// The kernel.
        kernel: String,
        /// Which argument.
        argument: usize,
        /// The fault of the map.
        wrong: String,
    },
    /// A launch that no device takes.
    #[error("kernel {kernel}: {what} is {given}, which must be from {least} to {most}")]
    Limit {
        /// The kernel.
        kernel: String,
        /// The number that is out of range.
        what: &'static str,
        /// The number that was requested.
        given: u64,
        /// The smallest that is possible.
        least: u64,
        /// The largest.
        most: u64,
    },
    /// A length of threadgroup memory that Metal does not take.
    #[error("kernel {kernel}: {given} bytes of threadgroup memory, which must be a multiple of {of}")]
    Multiple {
        /// The kernel.
        kernel: String,
        /// Bytes requested.
        given: u32,
        /// The divisor that it must have.
        of: u32,
    },
    /// The kernel did something wrong.
    #[error("{0}")]
    Fault(Box<Fault>),
}
