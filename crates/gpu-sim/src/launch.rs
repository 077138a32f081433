//! A launch as data, and its checks.

use crate::error::{Error, Result};
use crate::source::Language;
use crate::tensor_map::TensorMap;

/// Shared memory of a block in bytes: the limit of compute capability 9.0.
pub const SHARED_LIMIT: u32 = 227 << 10;
/// The limit for variables of fixed size.
pub const STATIC_SHARED_LIMIT: u32 = 48 << 10;
/// Limit for all parameters of a kernel, in bytes.
const PARAMETER_LIMIT: usize = 32_764;

/// Threadgroup memory of a Metal kernel in bytes: the minimum of Apple's GPUs.
pub const THREADGROUP_LIMIT: u32 = 32 << 10;
/// The length of `[[threadgroup(0)]]` must be a multiple of this.
const THREADGROUP_STEP: u32 = 16;
/// Maximum bytes of a Metal command for a buffer (`setBytes`).
const BYTES_LIMIT: usize = 4_096;

/// How one parameter of a kernel is passed. Shared struct; kernels' side in `include/sim.h`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Parameter {
    /// One of [`pass`].
    pub(crate) pass: u32,
    pub(crate) bytes: u32,
}

/// Kinds of arguments: a value; a pointer; a pointer to at least `bytes` bytes, where 0 means an unused index.
pub(crate) mod pass {
    pub(crate) const VALUE: u32 = 0;
    pub(crate) const POINTER: u32 = 1;
    pub(crate) const MEMORY: u32 = 2;
}

/// A kernel's properties for a launch.
#[derive(Debug)]
pub(crate) struct Signature {
    pub(crate) parameters: Vec<Parameter>,
    /// Maximum threads per block.
    pub(crate) threads: Option<u32>,
}

/// Limits of shared memory in bytes: for variables, and for variables plus the dynamic part.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Limits {
    pub(crate) variables: u32,
    pub(crate) shared: u32,
}

impl Limits {
    pub(crate) fn of(language: Language) -> Self {
        match language {
            Language::Cuda => Self { variables: STATIC_SHARED_LIMIT, shared: SHARED_LIMIT },
            Language::Metal => Self { variables: THREADGROUP_LIMIT, shared: THREADGROUP_LIMIT },
        }
    }
}

/// A kernel's access to a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Read only.
    Read,
    /// Write, and read what the kernel has written.
    Write,
    /// Read and write.
    ReadWrite,
}

/// An argument.
#[derive(Clone, Copy, Debug)]
pub enum Arg<'a> {
    /// Host memory.
    Buffer {
        /// Start address.
        address: *mut u8,
        /// Number of bytes that the kernel can access.
        bytes: usize,
        /// The access.
        access: Access,
        /// Whether no earlier launch that may still run writes it: then it can be read before `dependency_wait`.
        settled: bool,
    },
    /// A null pointer: the buffer is absent.
    Null,
    /// A struct by value.
    Bytes(&'a [u8]),
    /// A matrix to copy in tiles; read-only for the kernel.
    TensorMap(TensorMap),
}

/// The order of threads and blocks that the kernel does not order. A correct kernel gives equal results in each order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Order {
    /// Ascending.
    #[default]
    Ascending,
    /// Descending.
    Descending,
    /// Random; equal seeds give equal orders.
    Shuffled(u64),
}

/// A kernel with its grid and arguments.
#[derive(Clone, Copy, Debug)]
pub struct Launch<'a> {
    /// The kernel's name.
    pub kernel: &'a str,
    /// Blocks; none of the three is 0.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Dynamic shared memory of a block in bytes; for Metal the length of `[[threadgroup(0)]]`.
    pub shared: u32,
    /// Arguments in the kernel's order; for Metal by index, with [`Arg::Null`] for unused indices.
    pub args: &'a [Arg<'a>],
    /// The order in which threads run.
    pub order: Order,
    /// Whether the launch can start before earlier launches finish: its blocks must call `dependency_wait`. The
    /// simulator never overlaps launches; checked mode checks the waits.
    pub overlaps: bool,
}

impl Launch<'_> {
    /// Fails unless a device would accept the launch.
    pub(crate) fn check(&self, signature: &Signature, language: Language) -> Result<()> {
        let limit = |what, given: u64, least, most| {
            let kernel = self.kernel.to_owned();
            if (least..=most).contains(&given) {
                Ok(())
            } else {
                Err(Error::Limit { kernel, what, given, least, most })
            }
        };
        let parameters = &signature.parameters;
        let [grid, block] = [self.grid, self.block].map(|sizes| sizes.map(u64::from));
        let most_threads = signature.threads.unwrap_or(1_024).min(1_024);
        limit("the block's x", block[0], 1, 1_024)?;
        limit("the block's y", block[1], 1, 1_024)?;
        limit("the block's z", block[2], 1, if language == Language::Cuda { 64 } else { 1_024 })?;
        limit("the number of a block's threads", block.iter().product(), 1, most_threads.into())?;
        limit("dynamic shared memory", self.shared.into(), 0, Limits::of(language).shared.into())?;
        if language == Language::Metal {
            // A thread's position has 32 bits.
            for ((what, grid), block) in ["x", "y", "z"].into_iter().zip(grid).zip(block) {
                limit(what, grid * block, 1, u32::MAX.into())?;
            }
            limit(
                "the number of threadgroups",
                grid[0].saturating_mul(grid[1]).saturating_mul(grid[2]),
                1,
                u32::MAX.into(),
            )?;
            if !self.shared.is_multiple_of(THREADGROUP_STEP) {
                return Err(Error::Multiple {
                    kernel: self.kernel.to_owned(),
                    given: self.shared,
                    of: THREADGROUP_STEP,
                });
            }
            return self.check_arguments(parameters);
        }
        limit("the grid's x", grid[0], 1, (1 << 31) - 1)?;
        limit("the grid's y", grid[1], 1, 65_535)?;
        limit("the grid's z", grid[2], 1, 65_535)?;
        limit(
            "the size of all arguments",
            parameters.iter().map(|parameter| u64::from(parameter.bytes)).sum(),
            0,
            PARAMETER_LIMIT as u64,
        )?;
        self.check_arguments(parameters)
    }

    fn check_arguments(&self, parameters: &[Parameter]) -> Result<()> {
        let kernel = || self.kernel.to_owned();
        if self.args.len() != parameters.len() {
            return Err(Error::ArgumentCount { kernel: kernel(), wanted: parameters.len(), given: self.args.len() });
        }
        for (argument, (arg, parameter)) in self.args.iter().zip(parameters).enumerate() {
            let wanted_kind = |wanted| Err(Error::ArgumentKind { kernel: kernel(), argument, wanted });
            let wanted = parameter.bytes as usize;
            let size = |given| Err(Error::ArgumentSize { kernel: kernel(), argument, wanted, given });
            match (arg, parameter.pass) {
                (Arg::Buffer { .. } | Arg::Null, pass::POINTER) => {}
                (Arg::Buffer { .. } | Arg::Null, pass::VALUE) => return wanted_kind("a struct by value"),
                (Arg::Bytes(_) | Arg::TensorMap(_), pass::POINTER) => return wanted_kind("a buffer"),
                (Arg::TensorMap(_), pass::MEMORY) => return wanted_kind("a buffer or bytes"),
                // A reference must lead to something; a pointer may be null.
                (Arg::Null, pass::MEMORY) if wanted > 0 => return wanted_kind("a buffer or bytes"),
                (Arg::Null, _) => {}
                (Arg::Buffer { bytes, .. }, pass::MEMORY) if *bytes < wanted => return size(*bytes),
                (Arg::Buffer { .. }, pass::MEMORY) => {}
                (Arg::Bytes(bytes), pass::MEMORY) if wanted > 0 && bytes.len() != wanted => return size(bytes.len()),
                (Arg::Bytes(bytes), pass::MEMORY) if bytes.len() > BYTES_LIMIT => {
                    return Err(Error::Limit {
                        kernel: kernel(),
                        what: "the number of bytes of an argument",
                        given: bytes.len() as u64,
                        least: 0,
                        most: BYTES_LIMIT as u64,
                    });
                }
                (Arg::Bytes(_), pass::MEMORY) => {}
                (Arg::Bytes(_) | Arg::TensorMap(_), pass::VALUE) => {
                    let given = match arg {
                        Arg::Bytes(bytes) => bytes.len(),
                        _ => size_of::<[u64; 16]>(),
                    };
                    if wanted != given {
                        return size(given);
                    }
                    if let Arg::TensorMap(map) = arg
                        && let Some(wrong) = map.wrong()
                    {
                        return Err(Error::TensorMap { kernel: kernel(), argument, wrong });
                    }
                }
                (Arg::Buffer { .. } | Arg::Bytes(_) | Arg::TensorMap(_), _) => {
                    return wanted_kind("nothing: it has no parameter of this number");
                }
            }
        }
        Ok(())
    }
}
