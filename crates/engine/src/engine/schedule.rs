//! Scheduling as pure functions: how the tokens of one step are shared, and which slot serves a new prompt.

use std::ops::Range;

/// Tokens of one slot that are not in its state yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pending {
    pub(super) slot: usize,
    /// Their positions; one in decode, many in prefill. Not empty.
    pub(super) positions: Range<usize>,
}

/// Shares `budget` tokens among the slots by max-min fairness: a slot that wants less than an equal share gets all that
/// it wants, the others share the rest. So a decoding slot, which wants one token, never waits for a prefill, and a
/// short prompt does not wait for a long one. If there are more slots than tokens, the first slots listed are served.
///
/// The chunks are in the order of `pending`; each is a beginning of what was pending.
pub(super) fn share(pending: &[Pending], budget: usize) -> Vec<Pending> {
    let mut by_length: Vec<usize> = (0..pending.len().min(budget)).collect();
    by_length.sort_by_key(|&i| pending[i].positions.len());
    let mut left = budget;
    let mut granted = vec![0; by_length.len()];
    for (n, &i) in by_length.iter().enumerate() {
        let equal_share = left / (by_length.len() - n);
        granted[i] = pending[i].positions.len().min(equal_share);
        left -= granted[i];
    }
    let chunk = |(pending, n): (&Pending, usize)| {
        let start = pending.positions.start;
        Pending { slot: pending.slot, positions: start..start + n }
    };
    pending.iter().zip(granted).map(chunk).collect()
}

/// A slot without a request, as [`choose`] sees it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Idle<'a> {
    pub(super) slot: usize,
    /// Tokens whose state it still holds.
    pub(super) tokens: &'a [u32],
    /// The least length above 0 to which the state can be shortened.
    pub(super) shortest: usize,
    /// When it last served, in steps.
    pub(super) last_used: u64,
}

/// The slot for a prompt, and how many tokens of its state can be kept: the one that shares the longest beginning with
/// the prompt, the least recently used among equals. The last token of the prompt is always computed again: its logits
/// are needed.
pub(super) fn choose(idle: &[Idle], prompt: &[u32]) -> Option<(usize, usize)> {
    let reusable = prompt.len().saturating_sub(1);
    let common = |idle: &Idle| idle.tokens.iter().zip(&prompt[..reusable]).take_while(|(a, b)| a == b).count();
    let kept = |idle: &Idle| Some(common(idle)).filter(|&n| n >= idle.shortest).unwrap_or(0);
    let best = idle.iter().map(|idle| (kept(idle), idle)).max_by_key(|(n, idle)| (*n, u64::MAX - idle.last_used));
    best.map(|(n, idle)| (idle.slot, n))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn lengths(wanted: &[usize], budget: usize) -> Vec<usize> {
        let pending: Vec<Pending> =
            wanted.iter().enumerate().map(|(slot, &n)| Pending { slot, positions: 10..10 + n }).collect();
        let chunks = share(&pending, budget);
        for (chunk, pending) in chunks.iter().zip(&pending) {
            assert_eq!((chunk.slot, chunk.positions.start), (pending.slot, 10));
        }
        chunks.into_iter().map(|c| c.positions.len()).collect()
    }

    #[test]
    fn decode_comes_first_and_short_prompts_do_not_wait() {
        assert_eq!(lengths(&[1000, 1, 1], 64), [62, 1, 1]);
        assert_eq!(lengths(&[1000, 10, 1000], 64), [27, 10, 27]);
        assert_eq!(lengths(&[3, 1], 64), [3, 1]);
        assert_eq!(lengths(&[5, 5, 5], 2), [1, 1]);
        assert_eq!(lengths(&[], 8), [0; 0]);
    }

    proptest! {
        #[test]
        fn shares_are_max_min_fair(wanted in prop::collection::vec(1usize..100, 1..20), budget in 20usize..200) {
            let got = lengths(&wanted, budget);
            prop_assert_eq!(got.iter().sum::<usize>(), budget.min(wanted.iter().sum()));
            for (i, &n) in got.iter().enumerate() {
                prop_assert!(n >= 1 && n <= wanted[i]);
                // Nobody who got less than they wanted is more than one token behind anybody.
                prop_assert!(n == wanted[i] || got.iter().all(|&other| other <= n + 1));
            }
        }
    }

    #[test]
    fn the_longest_common_beginning_wins() {
        let idle = |slot, tokens, last_used| Idle { slot, tokens, shortest: 0, last_used };
        let slots = [idle(0, &[1, 2, 9], 5), idle(1, &[1, 2, 3, 4], 7), idle(2, &[], 1), idle(3, &[], 0)];
        assert_eq!(choose(&slots, &[1, 2, 3, 4, 5]), Some((1, 4)));
        assert_eq!(choose(&slots, &[1, 2, 3, 4]), Some((1, 3)));
        assert_eq!(choose(&slots, &[7, 8]), Some((3, 0)));
        assert_eq!(choose(&[], &[1]), None);
        // A slot that has forgotten its beginning keeps enough or nothing.
        let forgetful = |shortest| [idle(0, &[1, 2, 9], 5), Idle { shortest, ..idle(1, &[1, 2, 3, 4], 7) }];
        assert_eq!(choose(&forgetful(4), &[1, 2, 3, 4, 5]), Some((1, 4)));
        assert_eq!(choose(&forgetful(4), &[1, 2, 3, 5, 5]), Some((0, 2)));
        assert_eq!(choose(&forgetful(4)[1..], &[1, 2, 3, 5, 5]), Some((1, 0)));
    }
}
