//! Runs the blocks of a launch, one after another, with each thread of a block as a fibre. It is independent of CUDA
//! and Metal.
//!
//! A thread runs until it waits for lanes of its warp (`converge`), for threads of its block (`barrier`, `named_barrier`), or for a
//! phase of a barrier in shared memory (`mbarrier`). Then the next ready thread runs. If no thread is ready, an
//! asynchronous copy completes (`tma`). A new thread reuses the stack of a finished thread, so a kernel without
//! barriers is a loop on one stack.
//!
//! Several fibres access the engine through one pointer. Invariant: no reference into the engine lives across a switch.

pub(crate) mod abi;
mod block;
mod copies;
mod fibre;
mod mbarrier;
mod named_barrier;
mod products;
mod run;
mod shared;
mod state;
mod tma;
mod touch;
mod warp_sync;

pub(crate) use abi::{EngineView, Entry, KernelView};
pub(crate) use state::{Engine, LaunchJob};
