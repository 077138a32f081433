//! Ranks that are CUDA devices, over NCCL: calls are work of a stream, in the memory of a device, and a graph can capture them.
//!
//! The order of a sum is NCCL's. It is the same from run to run for the same devices, sizes and settings, as long as NCCL chooses the
//! same algorithm, and each rank gets the same bits. With two ranks there is one order.

mod communicator;
mod library;
mod multicast;

pub use communicator::{Nccl, NcclGroup, NcclLibrary};
pub use multicast::disable_multicast;
