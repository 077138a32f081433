//! Scheduling as pure functions: how the tokens of one step are shared, and which prompt waits for another.

use std::ops::Range;

use gristmill_kernels::kv::KV_BLOCK;

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

/// Whether the prefix cache will have more of a prompt soon, since a running text begins with the same blocks and the last
/// of them is not `computed` yet. The prompt's last token is computed in any case.
pub(super) fn is_being_computed(prompt: &[u32], text: &[u32], computed: usize) -> bool {
    let reusable = &prompt[..prompt.len().saturating_sub(1)];
    let common = reusable.iter().zip(text).take_while(|(a, b)| a == b).count();
    common / KV_BLOCK > computed / KV_BLOCK
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
    fn a_prompt_waits_for_blocks_that_are_being_computed() {
        let text: Vec<u32> = (0..40).collect();
        let same = |n: usize| (0..60).map(|i| if (i as usize) < n { i } else { 99 }).collect::<Vec<u32>>();
        assert!(is_being_computed(&same(32), &text, 31));
        assert!(!is_being_computed(&same(32), &text, 32));
        assert!(!is_being_computed(&same(31), &text, 16));
        assert!(is_being_computed(&same(31), &text, 15));
        // The 32nd token is the prompt's last: two blocks cannot be reused.
        assert!(!is_being_computed(&text[..32], &text, 16));
        assert!(!is_being_computed(&same(60), &text[..20], 16));
        assert!(!is_being_computed(&[], &text, 0));
    }
}
