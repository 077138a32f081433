//! Fairness between tenants: the next request to start is of the tenant with the fewest tokens so far. The counters are
//! those of Sheng et al. 2024, "Fairness in Serving Large Language Models", with one price for tokens of prompts and of
//! completions.

use std::collections::HashMap;

/// Tokens of each tenant so far: computed of its prompts, and generated.
#[derive(Debug, Default)]
pub(super) struct Shares {
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

    /// Counts tokens of a tenant.
    pub(super) fn give(&mut self, tenant: u64, tokens: usize) {
        *self.tokens.entry(tenant).or_default() += tokens as u64;
    }

    /// Tokens of a tenant so far.
    pub(super) fn tokens(&self, tenant: u64) -> u64 {
        self.tokens.get(&tenant).copied().unwrap_or(0)
    }

    /// No tenant has requests.
    pub(super) fn clear(&mut self) {
        self.tokens.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absence_gives_no_credit_and_no_pardon() {
        let mut shares = Shares::default();
        shares.arrive(1, [].into_iter());
        shares.give(1, 100);
        shares.arrive(2, [1].into_iter());
        assert_eq!((shares.tokens(1), shares.tokens(2)), (100, 100));
        shares.give(2, 50);
        // The second leaves and returns, and still has more; the first leaves, and returns when all have more.
        shares.arrive(2, [1].into_iter());
        assert_eq!((shares.tokens(1), shares.tokens(2)), (100, 150));
        shares.give(2, 50);
        shares.arrive(3, [2].into_iter());
        shares.arrive(1, [2, 3].into_iter());
        assert_eq!((shares.tokens(1), shares.tokens(2), shares.tokens(3)), (200, 200, 200));
        // Nobody is remembered for longer than it matters.
        for tenant in 4..1000 {
            shares.give(3, 10);
            shares.arrive(tenant, [3].into_iter());
        }
        assert!(shares.tokens.len() < 5, "{}", shares.tokens.len());
        shares.clear();
        assert_eq!(shares.tokens(3), 0);
    }
}
