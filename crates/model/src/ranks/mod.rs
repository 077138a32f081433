//! One model over several devices.
//!
//! # Ranks run the same pass
//!
//! Each device is a rank. It has a backend, its part of the weights, a program, a state and a runner of its own. Rank 0 belongs to
//! the caller: it schedules and samples. The other ranks are threads, or processes (`group`). They repeat its calls in the same order
//! (`call`, `team`), so every rank has the same sequences, blocks and positions, and nothing of the state is exchanged. Only sums
//! are: `program/split.rs` cuts matrices and inserts a node `AllReduce` where each rank has a part of a sum. Their order, and what
//! happens when a rank is missing, are decisions of `collective/src/lib.rs`.
//!
//! GPUs with a library of collectives sum in their own memory (`sums`), as a part of their work, which a graph captures. Others, and CPUs,
//! sum through host memory.
//!
//! *Invariant: between two nodes, every value that is not a part of a sum has the same bits on all ranks; because a sum over ranks
//! is added in the order of ranks and copied to all (by a library of GPUs in an order of its own, but copied too), and because ranks have the same arithmetic. So all routers choose the same
//! experts. Loading refuses devices whose arithmetic differs.*
//!
//! A rank that fails ends the group, and a wait for a rank has a deadline: the caller gets an error, and every later call does.

mod call;
mod choose;
mod deadline;
mod group;
mod load;
mod part;
mod pictures;
mod spec;
pub(crate) mod sums;
mod team;
mod watch;

pub(crate) use call::{Call, DraftCall};
pub use choose::{SplitChoice, SplitEstimate};
pub(crate) use choose::{agree, choose};
pub use deadline::DEADLINE;
pub(crate) use group::{Message, RankGroup};
pub use load::ExpertLoad;
pub(crate) use part::RankPart;
pub use part::Split;
pub(crate) use pictures::{PictureValues, Pictures};
pub(crate) use spec::{check_layers, own_spec};
pub use sums::Sums;
pub(crate) use team::{Team, follow};
pub(crate) use watch::watch;
