//! Log-probabilities of tokens.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// Log-probabilities of a token and of the most likely tokens in its place: natural logarithms, before bias, penalties
/// and temperature.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Logprob {
    /// The token.
    pub token: u32,
    /// Its log-probability.
    pub logprob: f32,
    /// The most likely tokens, as many as were requested, with their log-probabilities: the most likely first, the
    /// smaller id first among equals.
    pub top: Vec<(u32, f32)>,
}

impl Logprob {
    /// From a row of finite logits.
    pub(super) fn new(logits: &[f32], token: u32, top: usize) -> Logprob {
        let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f64 = logits.iter().map(|&x| (f64::from(x) - f64::from(max)).exp()).sum();
        let total = f64::from(max) + sum.ln();
        let of = |token: u32| (f64::from(logits[token as usize]) - total) as f32;
        let top = likeliest(logits, top).into_iter().map(|token| (token, of(token))).collect();
        Logprob { token, logprob: of(token), top }
    }
}

/// A token with its logit, by how likely it is.
#[derive(PartialEq)]
struct Candidate(f32, u32);

impl Eq for Candidate {}

impl Ord for Candidate {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0).then(other.1.cmp(&self.1))
    }
}

impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The `n` tokens with the largest logits, in descending order.
fn likeliest(logits: &[f32], n: usize) -> Vec<u32> {
    // The least likely of those found so far is on top.
    let mut found: BinaryHeap<Reverse<Candidate>> = BinaryHeap::with_capacity(n.min(logits.len()));
    for (&logit, token) in logits.iter().zip(0..) {
        let candidate = Reverse(Candidate(logit, token));
        if found.len() < n {
            found.push(candidate);
        } else if let Some(mut least) = found.peek_mut()
            && candidate < *least
        {
            *least = candidate;
        }
    }
    found.into_sorted_vec().into_iter().map(|Reverse(Candidate(_, token))| token).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn of_a_known_row() {
        // Probabilities 1/8, 1/2, 1/4 and 1/8, at an offset that exp() alone would not survive.
        let logits = [1, 4, 2, 1].map(|n: i32| 1000.0 + (n as f32).ln());
        let found = Logprob::new(&logits, 2, 3);
        let close = |a: f32, b: f32| (a - b.ln()).abs() < 1e-4;
        assert!(found.token == 2 && close(found.logprob, 0.25));
        let expected = [(1, 0.5), (2, 0.25), (0, 0.125)];
        assert!(found.top.len() == 3 && found.top.iter().zip(expected).all(|(a, b)| a.0 == b.0 && close(a.1, b.1)));
        assert_eq!(Logprob::new(&[3.0], 0, 0), Logprob { token: 0, logprob: 0.0, top: vec![] });
    }

    proptest! {
        #[test]
        fn the_likeliest_are_those_of_a_sort(logits in prop::collection::vec(-4i8..4, 1..60), n in 0usize..70) {
            let logits: Vec<f32> = logits.into_iter().map(f32::from).collect();
            let mut all: Vec<u32> = (0..logits.len() as u32).collect();
            all.sort_by(|&a, &b| logits[b as usize].total_cmp(&logits[a as usize]).then(a.cmp(&b)));
            all.truncate(n);
            prop_assert_eq!(likeliest(&logits, n), all);
        }
    }
}
