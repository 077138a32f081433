//! Scheduling as pure functions: how the tokens of one step are shared, and which prompt waits for another.

use std::ops::Range;

use gristmill_kernels::kv::KV_BLOCK;

/// Tokens of one slot that are not in its state yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pending {
    pub(super) slot: usize,
    /// Their positions; one in decode, many in prefill. Not empty.
    pub(super) positions: Range<usize>,
    /// Whether the logits of each are wanted, or those of the text's last token alone.
    pub(super) all_rows: bool,
}

/// Shares the tokens of a step, and its rows of logits, of which each slot gets one at least. So a decoding slot, which
/// wants one token, never waits for a prefill, and a short prompt does not wait for a long one. If there are more slots
/// than tokens or rows, the first slots listed are served.
///
/// The chunks are in the order of `pending`; each is a beginning of what was pending.
pub(super) fn share(pending: &[Pending], tokens: usize, rows: usize) -> Vec<Pending> {
    let served = &pending[..pending.len().min(tokens).min(rows)];
    let wanted_rows = served.iter().map(|pending| if pending.all_rows { pending.positions.len() } else { 1 });
    let rows = max_min(&wanted_rows.collect::<Vec<_>>(), rows);
    let limit = |(pending, rows): (&Pending, usize)| if pending.all_rows { rows } else { pending.positions.len() };
    let granted = max_min(&served.iter().zip(rows).map(limit).collect::<Vec<_>>(), tokens);
    let chunk = |(pending, n): (&Pending, usize)| {
        let start = pending.positions.start;
        Pending { positions: start..start + n, ..pending.clone() }
    };
    served.iter().zip(granted).map(chunk).collect()
}

/// Shares a budget by max-min fairness: who wants less than an equal share gets all that they want, the others share the
/// rest.
fn max_min(wanted: &[usize], budget: usize) -> Vec<usize> {
    let mut by_size: Vec<usize> = (0..wanted.len()).collect();
    by_size.sort_by_key(|&i| wanted[i]);
    let mut left = budget;
    let mut granted = vec![0; wanted.len()];
    for (n, &i) in by_size.iter().enumerate() {
        granted[i] = wanted[i].min(left / (wanted.len() - n));
        left -= granted[i];
    }
    granted
}

/// Whether the prefix cache will have more soon of what a prompt can reuse, since a running text begins with the same blocks
/// and the last of them is not `computed` yet.
pub(super) fn is_being_computed(reusable: &[u32], text: &[u32], computed: usize) -> bool {
    let common = reusable.iter().zip(text).take_while(|(a, b)| a == b).count();
    common / KV_BLOCK > computed / KV_BLOCK
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn lengths(wanted: &[usize], budget: usize) -> Vec<usize> {
        let pending: Vec<Pending> = wanted
            .iter()
            .enumerate()
            .map(|(slot, &n)| Pending { slot, positions: 10..10 + n, all_rows: false })
            .collect();
        let chunks = share(&pending, budget, wanted.len());
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

    #[test]
    fn rows_bound_the_chunks_that_want_all() {
        let of = |slot, n: usize, all_rows| Pending { slot, positions: 5..5 + n, all_rows };
        let pending = [of(0, 100, true), of(1, 100, false), of(2, 1, false), of(3, 3, true), of(4, 100, true)];
        let lengths =
            |tokens, rows| share(&pending, tokens, rows).iter().map(|c| c.positions.len()).collect::<Vec<_>>();
        assert_eq!(lengths(300, 25), [10, 100, 1, 3, 10]);
        assert_eq!(lengths(40, 25), [10, 16, 1, 3, 10]);
        assert_eq!(lengths(300, 5), [1, 100, 1, 1, 1]);
        assert_eq!(lengths(300, 2), [1, 100]);
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
        assert!(!is_being_computed(&text[..31], &text, 16));
        assert!(!is_being_computed(&same(60), &text[..20], 16));
        assert!(!is_being_computed(&[], &text, 0));
    }
}
