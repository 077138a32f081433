//! Sharing of sequences and KV blocks between tenants: which running request is preempted for another tenant.
//!
//! A waiting request of a tenant with fewer sequences than its share does not wait for the end of others:
//!
//! 1. If a tenant has more than its share of what is lacking, its newest request is preempted, but not its only one.
//! 2. Else, if the waiting tenant has no sequence, the newest request that has had its slice is preempted, of the tenant
//!    with the most tokens so far. This is so if there are more tenants than sequences, or if single requests fill the
//!    KV cache.
//!
//! A request that has been preempted is not preempted again for another tenant before it has had its slice. So the tokens
//! that are computed again cost at most as much time as those that are generated, no two tenants preempt each other in
//! turn at once, and every request finishes.

use super::preemption::RESERVE;
use super::{Running, Worker};
use crate::SequenceId;
use crate::fair::Standing;
use crate::job::Job;

/// Tokens that a request generates in its slice. With one sequence and two tenants, each waits for this number of tokens
/// of the other; computing the tokens again of the last block (8 in the mean) costs a step.
const SLICE: usize = 64;
/// Tokens of a prompt that are computed in the time of a generated one, at least.
const RECOMPUTED: usize = 8;

/// What a waiting request lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lack {
    Sequence,
    Blocks,
}

impl Running {
    /// Whether the request has generated enough since it started, also in relation to what a preemption had cost.
    fn has_had_slice(&self) -> bool {
        self.tokens.len() - self.prompt >= SLICE + self.recomputed / RECOMPUTED
    }

    /// Whether the request may be preempted for a tenant with less than its share.
    fn yields(&self) -> bool {
        self.job.progress.usage.preemptions == 0 || self.has_had_slice()
    }
}

impl Worker {
    /// What tenants have.
    pub(super) fn standing(&self) -> Standing {
        let running = self.slots.iter().flatten().map(|running| running.job.tenant);
        Standing::new(self.slots.len(), running, self.waiting.iter().map(|job| job.tenant))
    }

    /// The slot whose request is preempted for a waiting job, the next that starts.
    pub(super) fn to_preempt(&self, job: &Job, lacks: Lack, standing: &Standing) -> Option<usize> {
        if !standing.is_below(job.tenant) {
            return None;
        }
        self.above_share(job, lacks, standing).or_else(|| self.after_slice(job.tenant, standing))
    }

    /// The newest request of the tenant that has the most of what is lacking, and more than its share.
    fn above_share(&self, job: &Job, lacks: Lack, standing: &Standing) -> Option<usize> {
        let has = |tenant: u64| match lacks {
            Lack::Sequence => standing.running(tenant),
            Lack::Blocks => self.kv_tokens(tenant),
        };
        let share = match lacks {
            Lack::Sequence => standing.share(self.slots.len()),
            Lack::Blocks => standing.share(self.runner.kv_usage().capacity),
        };
        // A request that needs more than its tenant's share waits until others end.
        if lacks == Lack::Blocks && has(job.tenant) + job.soon(job.text.len(), RESERVE) > share {
            return None;
        }
        let above = standing.tenants().filter(|&tenant| tenant != job.tenant && standing.running(tenant) > 1);
        let mut above: Vec<(usize, u64)> =
            above.map(|tenant| (has(tenant), tenant)).filter(|&(has, _)| has > share).collect();
        above.sort_unstable_by_key(|&(has, tenant)| (has, self.shares.tokens(tenant)));
        above.into_iter().rev().find_map(|(_, tenant)| {
            let oldest = self.of(tenant).map(|(_, running)| running.priority).min();
            let others = self.of(tenant).filter(|(_, running)| running.yields() && Some(running.priority) != oldest);
            others.max_by_key(|(_, running)| running.priority).map(|(slot, _)| slot)
        })
    }

    /// For a tenant without a sequence, the newest request that has had its slice, of a tenant that was given more.
    fn after_slice(&self, tenant: u64, standing: &Standing) -> Option<usize> {
        let given = self.shares.tokens(tenant);
        let others = self
            .running()
            .filter(|(_, running)| running.has_had_slice())
            .map(|(slot, running)| (self.shares.tokens(running.job.tenant), running.priority, slot))
            .filter(|&(others, ..)| others > given);
        others.max().filter(|_| standing.running(tenant) == 0).map(|(.., slot)| slot)
    }

    /// The slot of the request that is preempted when the KV cache is full: the newest of the tenant with the most blocks,
    /// of those with several sequences; else the newest of all. `None` if fewer than two run.
    pub(super) fn newest(&self) -> Option<usize> {
        let standing = self.standing();
        let several = standing.tenants().filter(|&tenant| standing.running(tenant) > 1);
        let of_tenant = several.max_by_key(|&tenant| (self.kv_tokens(tenant), self.shares.tokens(tenant)));
        let newest = self
            .running()
            .filter(|(_, running)| of_tenant.is_none_or(|tenant| running.job.tenant == tenant))
            .max_by_key(|(_, running)| running.priority);
        newest.filter(|_| self.running().count() > 1).map(|(slot, _)| slot)
    }

    /// Tokens of the KV cache that the running requests of a tenant have, or need for their texts.
    fn kv_tokens(&self, tenant: u64) -> usize {
        let sequences: Vec<SequenceId> = self.of(tenant).map(|(_, running)| running.sequence).collect();
        let missing: usize =
            self.of(tenant).map(|(_, running)| running.tokens.len().saturating_sub(running.computed)).sum();
        // The forward pass reports errors.
        self.runner.kv_tokens(&sequences).unwrap_or(0) + missing
    }

    /// The slots with requests of a tenant.
    fn of(&self, tenant: u64) -> impl Iterator<Item = (usize, &Running)> {
        self.running().filter(move |(_, running)| running.job.tenant == tenant)
    }

    /// The slots with requests.
    fn running(&self) -> impl Iterator<Item = (usize, &Running)> {
        self.slots.iter().enumerate().filter_map(|(slot, running)| Some((slot, running.as_ref()?)))
    }
}
