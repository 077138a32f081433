//! The calls of a runner that every rank makes.

use serde::{Deserialize, Serialize};

use crate::batch::Batch;
use crate::error::{Error, Result};
use crate::program::forced::ForcedExperts;
use crate::runner::Runner;
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
    Forward { batch: Batch, experts: Option<Vec<ForcedExperts>>, lengths: Vec<usize> },
    FindNotFinite { token: Option<u32> },
}

impl Call {
    /// Makes the call on the runner of another rank, which computes no logits.
    pub(crate) fn repeat(self, runner: &mut Runner) -> Result<()> {
        match self {
            Self::Open => runner.open_sequence().map(drop),
            Self::OpenWith { tenant, tokens } => runner.open_sequence_with(tenant, &tokens).map(drop),
            Self::KeepPrefix { sequence, tokens } => runner.keep_prefix(sequence, &tokens),
            Self::Retire { sequence, tokens } => runner.retire_sequence(sequence, &tokens),
            Self::EvictPrefix { sequence } => runner.evict_prefix(sequence),
            Self::EvictTenant { tenant } => {
                runner.evict_tenant(tenant);
                Ok(())
            }
            Self::Fork { sequence } => runner.fork_sequence(sequence).map(drop),
            Self::Close { sequence } => runner.close_sequence(sequence),
            Self::Truncate { sequence, len } => runner.truncate(sequence, len),
            Self::PlanCheckpoint { sequence, len } => runner.plan_checkpoint(sequence, len),
            Self::CountExperts { is_on } => {
                runner.count_experts(is_on);
                Ok(())
            }
            Self::Forward { batch, experts, lengths } => {
                if runner.lengths(&batch).ok() != Some(lengths) {
                    return Err(Error::RankState);
                }
                match experts {
                    None => runner.forward(&batch).map(drop),
                    Some(experts) => runner.forward_forced(&batch, &experts).map(drop),
                }
            }
            Self::FindNotFinite { token } => {
                runner.not_finite_token(token);
                Ok(())
            }
        }
    }
}
