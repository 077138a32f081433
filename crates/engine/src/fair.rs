//! Fairness between tenants, over time and at a time.
//!
//! `Shares` counts what each tenant was given so far, as in Sheng et al. 2024, "Fairness in Serving Large Language
//! Models". `Standing` has what each tenant holds now: each of the active tenants may have an equal number of sequences.
//! A tenant that has fewer starts first; among equals, the tenant with the fewest tokens so far.
//!
//! # Tenants share sequences, blocks and time
//!
//! See `engine/fair.rs`, `engine/worker/sharing.rs`. The share of each of *n* active tenants is one *n*-th of the
//! sequences, at least one, and one *n*-th of the KV cache. Waiting requests are ordered by the sequences of their
//! tenant up to its share, then by the tenant's tokens so far, then by priority. If the first of them lacks a sequence
//! or blocks, and its tenant is below its share, a running request is preempted for it: the newest of the tenant that
//! has the most, if that is more than its share and not its only one. Otherwise, if the waiting tenant has no sequence,
//! it is the newest request that has had its slice, of a tenant with more tokens so far. A slice is 64 generated
//! tokens, and one more for each eight tokens that the request had to compute again when it started.
//!
//! - *Invariant: two tenants do not preempt each other in turn; because a tenant that gives up a sequence then has its
//!   share (test `shares_are_reached`), and a request that has been preempted is preempted for another tenant only
//!   after a slice (test `short_requests_do_not_preempt_a_long_one_each_time`).*
//! - *With one tenant, no request is preempted for another one (test `one_tenant_loses_nothing`).*

use std::collections::HashMap;

/// A generated token takes about as long as this number of tokens of a prompt. The ratio differs between machines: on a
/// CPU it is 3 to 10 for one sequence, and less for several in a step.
const OF_PROMPT: u64 = 4;

/// Tokens of each tenant so far: computed of its prompts, and generated.
#[derive(Debug, Default)]
pub(super) struct Shares {
    /// In tokens of prompts.
    tokens: HashMap<u64, u64>,
}

impl Shares {
    /// A tenant without requests sends one; `active` are the tenants that have some. It has no credit for the time in
    /// which it had none.
    pub(super) fn arrive(&mut self, tenant: u64, active: impl Iterator<Item = u64>) {
        let least = active.map(|other| self.tokens(other)).min();
        // Tenants with fewer tokens would be raised as well when they come back.
        self.tokens.retain(|_, tokens| Some(*tokens) >= least);
        let tokens = self.tokens.entry(tenant).or_default();
        *tokens = (*tokens).max(least.unwrap_or(0));
    }

    /// Counts tokens of a tenant's prompt.
    pub(super) fn give_prompt(&mut self, tenant: u64, tokens: usize) {
        *self.tokens.entry(tenant).or_default() += tokens as u64;
    }

    /// Counts a generated token of a tenant.
    pub(super) fn give_token(&mut self, tenant: u64) {
        *self.tokens.entry(tenant).or_default() += OF_PROMPT;
    }

    /// Tokens of a tenant so far, in tokens of prompts.
    pub(super) fn tokens(&self, tenant: u64) -> u64 {
        self.tokens.get(&tenant).copied().unwrap_or(0)
    }

    /// No tenant has requests.
    pub(super) fn clear(&mut self) {
        self.tokens.clear();
    }
}

/// How many sequences each tenant has, and how many it may have while others wait.
#[derive(Debug)]
pub(super) struct Standing {
    /// In the order of the tenants.
    running: Vec<(u64, usize)>,
    /// Tenants with requests that run or wait.
    active: usize,
    /// Sequences of the engine.
    sequences: usize,
}

impl Standing {
    /// For an engine with this number of sequences, and the tenant of each request that runs and of each that waits.
    pub(super) fn new(
        sequences: usize,
        running: impl Iterator<Item = u64>,
        waiting: impl Iterator<Item = u64>,
    ) -> Standing {
        let mut running: Vec<u64> = running.collect();
        running.sort_unstable();
        let running: Vec<(u64, usize)> = running.chunk_by(u64::eq).map(|same| (same[0], same.len())).collect();
        let mut all: Vec<u64> = running.iter().map(|&(tenant, _)| tenant).chain(waiting).collect();
        all.sort_unstable();
        all.dedup();
        Standing { active: all.len(), running, sequences }
    }

    /// Sequences of a tenant.
    pub(super) fn running(&self, tenant: u64) -> usize {
        self.running.binary_search_by_key(&tenant, |&(known, _)| known).map_or(0, |at| self.running[at].1)
    }

    /// Tenants that have sequences.
    pub(super) fn tenants(&self) -> impl Iterator<Item = u64> {
        self.running.iter().map(|&(tenant, _)| tenant)
    }

    /// The share of a tenant in a resource of which the engine has this much.
    pub(super) fn share(&self, all: usize) -> usize {
        (all / self.active.max(1)).max(1)
    }

    /// Whether a tenant has fewer sequences than its share.
    ///
    /// Invariant: if no sequence is free, some tenant has more than its share, or there are more tenants than sequences;
    /// because all shares together are at most the sequences. Such a tenant gives up one, and has its share then (test
    /// `shares_are_reached`).
    pub(super) fn is_below(&self, tenant: u64) -> bool {
        self.running(tenant) < self.share(self.sequences)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn absence_gives_no_credit_and_no_pardon() {
        let mut shares = Shares::default();
        shares.arrive(1, [].into_iter());
        shares.give_prompt(1, 100);
        shares.arrive(2, [1].into_iter());
        assert_eq!((shares.tokens(1), shares.tokens(2)), (100, 100));
        shares.give_prompt(2, 50);
        // The second leaves and returns, and still has more; the first leaves, and returns when all have more.
        shares.arrive(2, [1].into_iter());
        assert_eq!((shares.tokens(1), shares.tokens(2)), (100, 150));
        shares.give_prompt(2, 50);
        shares.arrive(3, [2].into_iter());
        shares.arrive(1, [2, 3].into_iter());
        assert_eq!((shares.tokens(1), shares.tokens(2), shares.tokens(3)), (200, 200, 200));
        // Nobody is remembered for longer than it matters.
        for tenant in 4..1000 {
            shares.give_prompt(3, 10);
            shares.arrive(tenant, [3].into_iter());
        }
        assert!(shares.tokens.len() < 5, "{}", shares.tokens.len());
        shares.clear();
        assert_eq!(shares.tokens(3), 0);
        shares.give_prompt(1, 10);
        shares.give_token(2);
        assert!(shares.tokens(1) > shares.tokens(2) && shares.tokens(2) > 1, "a token that is generated costs more");
    }

    proptest! {
        /// Whoever waits below its share finds a tenant above, and no two tenants take a sequence from each other.
        #[test]
        fn shares_are_reached(
            sequences in 1usize..20,
            running in prop::collection::vec(0u64..8, 0..20),
            waiting in prop::collection::vec(0u64..8, 0..20),
        ) {
            let mut running: Vec<u64> = running.into_iter().take(sequences).collect();
            let mut moves = 0;
            loop {
                let standing = Standing::new(sequences, running.iter().copied(), waiting.iter().copied());
                let Some(&poor) = waiting.iter().find(|&&tenant| standing.is_below(tenant)) else { break };
                if running.len() == sequences {
                    let Some(at) = running.iter().position(|&tenant| standing.running(tenant) > standing.share(sequences)) else {
                        prop_assert!(standing.active > sequences);
                        break;
                    };
                    prop_assert!(standing.running(running[at]) > 1);
                    let rich = running.swap_remove(at);
                    let waits = waiting.iter().copied().chain([rich]);
                    prop_assert!(!Standing::new(sequences, running.iter().copied(), waits).is_below(rich));
                }
                running.push(poor);
                moves += 1;
                prop_assert!(moves <= sequences);
            }
        }
    }
}
