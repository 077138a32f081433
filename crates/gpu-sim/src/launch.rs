//! A launch as data, and what is checked before it runs.

use crate::error::{Error, Result};
use crate::tensor_map::TensorMap;

/// Shared memory of a block, in bytes: what devices of compute capability 9.0 allow.
pub const SHARED_LIMIT: u32 = 227 << 10;
/// The part of it that variables of fixed size can have.
pub const STATIC_SHARED_LIMIT: u32 = 48 << 10;
/// Bytes of all parameters of a kernel.
const PARAMETER_LIMIT: usize = 32_764;

/// How one parameter of a kernel is passed. Twin of the struct in `include/sim.h`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Parameter {
    /// 1 for an address, 0 for a value.
    pub(crate) pointer: u32,
    pub(crate) bytes: u32,
}

/// What a kernel may do with a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Read it.
    Read,
    /// Write it, and read what it has written.
    Write,
    /// Both.
    ReadWrite,
}

/// An argument.
#[derive(Clone, Copy, Debug)]
pub enum Arg<'a> {
    /// Memory of the host.
    Buffer {
        /// First byte.
        address: *mut u8,
        /// Bytes that the kernel may touch from there.
        bytes: usize,
        /// How.
        access: Access,
        /// No launch that may still run when this one begins writes it: it may be read before `dependency_wait`.
        settled: bool,
    },
    /// A null pointer: a buffer that is not there.
    Null,
    /// A struct by value.
    Bytes(&'a [u8]),
    /// A matrix to be copied in tiles; the kernel may read it.
    TensorMap(TensorMap),
}

/// In which order threads and blocks run where the kernel does not say. A correct kernel gives the same in each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Order {
    /// By their numbers.
    #[default]
    Ascending,
    /// Backwards.
    Descending,
    /// At random, the same for the same seed.
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
    /// Dynamic shared memory of a block, in bytes.
    pub shared: u32,
    /// Arguments, in the order of the text.
    pub args: &'a [Arg<'a>],
    /// Whose turn it is.
    pub order: Order,
    /// It may begin before those before it have ended: its blocks wait by themselves (`dependency_wait`). Here none
    /// overlaps; checked mode sees to it that they wait.
    pub overlaps: bool,
}

impl Launch<'_> {
    /// Fails unless a device would take it.
    pub(crate) fn check(&self, parameters: &[Parameter]) -> Result<()> {
        let limit = |what, given: u64, least, most| {
            let kernel = self.kernel.to_owned();
            if (least..=most).contains(&given) {
                Ok(())
            } else {
                Err(Error::Limit { kernel, what, given, least, most })
            }
        };
        let [grid, block] = [self.grid, self.block].map(|sizes| sizes.map(u64::from));
        limit("the grid's x", grid[0], 1, (1 << 31) - 1)?;
        limit("the grid's y", grid[1], 1, 65_535)?;
        limit("the grid's z", grid[2], 1, 65_535)?;
        limit("the block's x", block[0], 1, 1_024)?;
        limit("the block's y", block[1], 1, 1_024)?;
        limit("the block's z", block[2], 1, 64)?;
        limit("the number of a block's threads", block.iter().product(), 1, 1_024)?;
        limit("dynamic shared memory", self.shared.into(), 0, SHARED_LIMIT.into())?;
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
            match (arg, parameter.pointer != 0) {
                (Arg::Buffer { .. } | Arg::Null, true) => {}
                (Arg::Buffer { .. } | Arg::Null, false) => {
                    return Err(Error::ArgumentKind { kernel: kernel(), argument, wanted: "a struct by value" });
                }
                (Arg::Bytes(_) | Arg::TensorMap(_), true) => {
                    return Err(Error::ArgumentKind { kernel: kernel(), argument, wanted: "a buffer" });
                }
                (Arg::Bytes(_) | Arg::TensorMap(_), false) => {
                    let given = match arg {
                        Arg::Bytes(bytes) => bytes.len(),
                        _ => size_of::<[u64; 16]>(),
                    };
                    let wanted = parameter.bytes as usize;
                    if wanted != given {
                        return Err(Error::ArgumentSize { kernel: kernel(), argument, wanted, given });
                    }
                    if let Arg::TensorMap(map) = arg
                        && let Some(wrong) = map.wrong()
                    {
                        return Err(Error::TensorMap { kernel: kernel(), argument, wrong });
                    }
                }
            }
        }
        Ok(())
    }
}
