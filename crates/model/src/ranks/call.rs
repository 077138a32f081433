//! The calls of a runner that every rank makes.

use serde::{Deserialize, Serialize};

use super::Pictures;
use crate::batch::Batch;
use crate::program::forced::ForcedExperts;
use crate::state::SequenceId;

/// A call that changes the state of a runner, or in which ranks exchange sums.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Call {
    Open,
    OpenWith { tenant: u64, tokens: Vec<u32> },
    KeepPrefix { sequence: SequenceId, tokens: Vec<u32> },
    Retire { sequence: SequenceId, tokens: Vec<u32> },
    EvictPrefix { sequence: SequenceId },
    EvictTenant { tenant: u64 },
    Fork { sequence: SequenceId },
    Close { sequence: SequenceId },
    Truncate { sequence: SequenceId, len: usize },
    PlanCheckpoint { sequence: SequenceId, len: usize },
    CountExperts { is_on: bool },
    Forward { batch: Box<Batch>, pictures: Pictures, experts: Option<Vec<ForcedExperts>>, lengths: Vec<usize> },
    Draft { orders: Vec<DraftCall> },
    FindNotFinite { token: Option<u32> },
}

/// An order with the token that follows the sequence's, as all ranks get it.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct DraftCall {
    pub(crate) sequence: SequenceId,
    /// `None` if the text has no such token.
    pub(crate) token: Option<u32>,
    pub(crate) count: usize,
}

/// A call, and what became of the one before it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(super) call: Call,
    /// Whether the last call succeeded on rank 0.
    pub(super) has_succeeded: bool,
}
