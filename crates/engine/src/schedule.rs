//! Scheduling as pure functions: how the tokens of one step are shared, and which prompt waits for another.

use std::ops::Range;

use gristmill_kernels::kv::KV_BLOCK;

/// Tokens of one slot that are not in its state yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pending {
    pub(super) slot: usize,
    /// Their positions; in decode the last token and the draft after it, in prefill many. Not empty.
    pub(super) positions: Range<usize>,
    /// Whether the logits of each token are needed, or only of the text's last token.
    pub(super) all_rows: bool,
    /// Whether the first of them is the last token of a text that is being generated.
    pub(super) decodes: bool,
    /// Smaller for slots that started earlier.
    pub(super) priority: u64,
    /// Positions of images whose tokens see each other, ascending: a step has all that are pending of one, or none.
    pub(super) whole: Vec<Range<usize>>,
}

impl Pending {
    /// The most tokens, up to this number, after which a step can end.
    fn cut(&self, tokens: usize) -> usize {
        let Range { start, end } = self.positions;
        let wanted = start.saturating_add(tokens).min(end);
        let inside = self.whole.iter().find(|image| image.start < wanted && wanted < image.end.min(end));
        inside.map_or(wanted, |image| image.start.max(start)) - start
    }

    /// The fewest tokens that a step can have.
    pub(super) fn least(&self) -> usize {
        let Range { start, end } = self.positions;
        self.whole.iter().find(|image| image.contains(&start)).map_or(1, |image| image.end.min(end) - start)
    }
}

/// The share of a step's tokens that the prompt that started first gets, however many shorter ones there are.
const OF_THE_OLDEST: usize = 4;

/// Shares the tokens of a step, and its rows of logits. A decoding slot gets at least one token and one row. The
/// shortest prompts are computed first, because that minimises the mean time to the first token. A quarter of the
/// tokens is for the prompt that started first, so that short prompts cannot delay a long one forever. Each slot has
/// one row; slots that need more share the other rows in the same way.
///
/// The chunks are in the order of `pending`; each is a start of what was pending. There are at least as many rows
/// as slots, and as many tokens as decoding slots.
pub(super) fn share(pending: &[Pending], tokens: usize, rows: usize) -> Vec<Pending> {
    let more_rows = rows.saturating_sub(pending.len());
    let mut left = Left { tokens, more_rows, granted: vec![0; pending.len()] };
    for (at, one) in pending.iter().enumerate().filter(|(_, one)| one.decodes) {
        left.grant(at, one, 1, 0);
    }
    let prompts = || pending.iter().enumerate().filter(|(_, one)| !one.decodes);
    if let Some((at, oldest)) = prompts().min_by_key(|(_, one)| one.priority) {
        let tokens = left.tokens.div_ceil(OF_THE_OLDEST).max(oldest.least());
        left.grant(at, oldest, tokens, left.more_rows.div_ceil(OF_THE_OLDEST));
    }
    let mut shortest: Vec<(usize, &Pending)> = pending.iter().enumerate().collect();
    shortest.sort_by_key(|(_, one)| (one.positions.len(), one.priority));
    for (at, one) in shortest {
        left.grant(at, one, usize::MAX, usize::MAX);
    }
    let chunk = |(one, granted): (&Pending, usize)| {
        let start = one.positions.start;
        Pending { positions: start..start + granted, ..one.clone() }
    };
    pending.iter().zip(left.granted).filter(|(_, granted)| *granted > 0).map(chunk).collect()
}

/// The tokens and rows of a step that are not granted yet, and the tokens that are, for each pending slot.
struct Left {
    tokens: usize,
    /// Rows beyond one for each slot.
    more_rows: usize,
    granted: Vec<usize>,
}

impl Left {
    /// Grants at most this number of further tokens, with at most this number of rows beyond the slot's own.
    fn grant(&mut self, at: usize, one: &Pending, tokens: usize, more_rows: usize) {
        let granted = &mut self.granted[at];
        let mut more = (one.positions.len() - *granted).min(tokens).min(self.tokens);
        if one.all_rows {
            let own = usize::from(*granted == 0);
            more = more.min(self.more_rows.min(more_rows).saturating_add(own));
        }
        more = one.cut(*granted + more).saturating_sub(*granted);
        if one.all_rows && more > 0 {
            let own = usize::from(*granted == 0);
            self.more_rows -= more.saturating_sub(own);
        }
        self.tokens -= more;
        *granted += more;
    }
}

/// Tokens that a prompt can reuse of a running text, which starts alike.
pub(super) fn common(reusable: &[u32], text: &[u32]) -> usize {
    reusable.iter().zip(text).take_while(|(a, b)| a == b).count()
}

/// Whether the prefix cache will soon have a longer prefix of a prompt: a running sequence with the same prefix
/// `leaves` this number of tokens, and their last block is not `computed` yet.
pub(super) fn is_being_computed(leaves: usize, computed: usize) -> bool {
    leaves / KV_BLOCK > computed / KV_BLOCK
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Slots that started in this order; those that want one token decode.
    fn pending(wanted: &[usize]) -> Vec<Pending> {
        let one = |(slot, &n): (usize, &usize)| Pending {
            slot,
            positions: 10..10 + n,
            all_rows: false,
            decodes: n == 1,
            priority: slot as u64,
            whole: Vec::new(),
        };
        wanted.iter().enumerate().map(one).collect()
    }

    /// A step ends before an image, or after it: that of the oldest prompt gets its tokens, and others wait.
    #[test]
    fn images_are_whole() {
        let mut some = pending(&[1, 40, 30]);
        some[1].whole = vec![14..30, 40..45];
        some[2].whole = vec![Range { start: 8, end: 20 }];
        // The oldest prompt has four tokens before its image, and the shorter one starts within one.
        assert_eq!(granted(&some, 10, 3), [1, 4, 0]);
        assert_eq!(granted(&some, 17, 3), [1, 4, 12]);
        assert_eq!(granted(&some, 42, 3), [1, 4, 30]);
        some[1].positions.start = 14;
        assert_eq!(some[1].least(), 16);
        assert_eq!(share(&some, 17, 3)[1].positions, 14..30);
        assert_eq!(share(&some, 100, 3)[1].positions, 14..50);
    }

    /// The tokens that each slot gets.
    fn granted(pending: &[Pending], tokens: usize, rows: usize) -> Vec<usize> {
        let mut granted = vec![0; pending.len()];
        for chunk in share(pending, tokens, rows) {
            assert_eq!(chunk.positions.start, 10);
            granted[chunk.slot] = chunk.positions.len();
        }
        granted
    }

    #[test]
    fn decode_comes_first_then_short_prompts() {
        let granted = |wanted: &[usize], tokens| granted(&pending(wanted), tokens, wanted.len());
        assert_eq!(granted(&[1000, 1, 1], 64), [62, 1, 1]);
        // A quarter for the oldest, then the shortest.
        assert_eq!(granted(&[1000, 10, 1000], 64), [54, 10, 0]);
        assert_eq!(granted(&[1000, 40, 30, 1000], 64), [16, 18, 30, 0]);
        assert_eq!(granted(&[40, 40, 1000], 80), [40, 40, 0]);
        assert_eq!(granted(&[3, 1], 64), [3, 1]);
        assert_eq!(granted(&[], 8), [0; 0]);
    }

    #[test]
    fn rows_bound_the_chunks_that_want_all() {
        let mut pending = pending(&[100, 100, 1, 3, 100]);
        [0, 3, 4].into_iter().for_each(|at| pending[at].all_rows = true);
        // A quarter of 20 rows is for the oldest.
        assert_eq!(granted(&pending, 300, 25), [19, 100, 1, 3, 1]);
        assert_eq!(granted(&pending, 40, 25), [19, 17, 1, 3, 0]);
        assert_eq!(granted(&pending, 300, 5), [1, 100, 1, 1, 1]);
    }

    #[test]
    fn drafts_give_way_to_decode() {
        let mut pending = pending(&[9, 1, 9, 200]);
        for at in [0, 2] {
            (pending[at].all_rows, pending[at].decodes) = (true, true);
        }
        assert_eq!(granted(&pending, 64, 64), [9, 1, 9, 45]);
        assert_eq!(granted(&pending, 64, 6), [3, 1, 1, 59]);
        assert_eq!(granted(&pending, 3, 4), [1, 1, 1, 0]);
    }

    proptest! {
        #[test]
        fn nothing_is_left_and_nobody_starves(
            wanted in prop::collection::vec(1usize..100, 1..20),
            tokens in 20usize..200,
        ) {
            let pending = pending(&wanted);
            let got = granted(&pending, tokens, 20);
            prop_assert_eq!(got.iter().sum::<usize>(), tokens.min(wanted.iter().sum()));
            prop_assert!(pending.iter().zip(&got).all(|(one, &n)| n <= one.positions.len() && (n > 0 || !one.decodes)));
            let decoding = wanted.iter().filter(|&&n| n == 1).count();
            let oldest = wanted.iter().position(|&n| n > 1);
            if let Some(oldest) = oldest {
                prop_assert!(got[oldest] >= wanted[oldest].min((tokens - decoding) / 4));
            }
            for (at, &n) in wanted.iter().enumerate().filter(|&(at, &n)| got[at] < n && Some(at) != oldest) {
                // Whoever is longer got nothing.
                let longer = |other: usize| wanted[other] > n && Some(other) != oldest;
                prop_assert!((0..wanted.len()).all(|other| !longer(other) || got[other] == 0), "{at}");
            }
        }
    }

    #[test]
    fn a_prompt_waits_for_blocks_that_are_being_computed() {
        let text: Vec<u32> = (0..40).collect();
        let is_being_computed =
            |reusable: &[u32], text: &[u32], computed| super::is_being_computed(common(reusable, text), computed);
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
