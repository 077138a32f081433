//! Makes draft tokens by the source of an engine.

use gristmill_kernels::ops::Sampling;
use gristmill_model::{DraftOrder, Limits, Model, Result, Runner, SequenceId};

use super::lookup;
use super::model::DraftModel;
use super::source::DraftSource;
use crate::error::EngineError;
use crate::output::Drafting;

/// How the draft tokens of a text are sampled.
pub(crate) trait DraftSampling {
    /// The sampling of the draft token at a position.
    fn sampling_of_draft(&self, position: usize) -> Sampling<'_>;
}

/// A sequence whose next tokens are drafted.
pub(crate) struct DraftRequest<'a> {
    pub(crate) slot: usize,
    pub(crate) sequence: SequenceId,
    /// Tokens in the state of the sequence, and the one after them.
    pub(crate) text: &'a [u32],
    /// Draft tokens, at most.
    pub(crate) count: usize,
    /// How its draft tokens are sampled.
    pub(crate) sampling: &'a dyn DraftSampling,
}

/// Makes draft tokens.
#[derive(Debug)]
pub(crate) enum Drafter {
    Lookup,
    Heads,
    Model(Box<DraftModel>),
    Replay(Replay),
}

impl Drafter {
    /// For an engine of `model` with these limits and this context.
    ///
    /// # Errors
    /// [`EngineError::NoPredictionHeads`], [`EngineError::DraftModel`], [`EngineError::Model`].
    pub(crate) fn new(
        source: DraftSource,
        model: &Model,
        limits: Limits,
        context: usize,
    ) -> std::result::Result<Drafter, EngineError> {
        let needs_heads = matches!(source, DraftSource::Heads | DraftSource::Replay(_));
        if needs_heads && model.prediction_heads() == 0 {
            return Err(EngineError::NoPredictionHeads);
        }
        Ok(match source {
            DraftSource::Lookup => Drafter::Lookup,
            DraftSource::Heads => Drafter::Heads,
            DraftSource::Model(draft) => Drafter::Model(Box::new(DraftModel::new(draft, model, limits, context)?)),
            DraftSource::Replay(chances) => Drafter::Replay(Replay { chances, checked: 0 }),
        })
    }

    /// What the usage of requests says.
    pub(crate) fn drafting(&self) -> Drafting {
        match self {
            Drafter::Lookup => Drafting::Lookup,
            Drafter::Heads | Drafter::Replay(_) => Drafting::Heads,
            Drafter::Model(_) => Drafting::Model,
        }
    }

    /// The most draft tokens of a sequence in a step of this model.
    pub(crate) fn most(&self, model: &Model) -> usize {
        match self {
            Drafter::Heads | Drafter::Replay(_) => model.most_drafts(),
            Drafter::Lookup | Drafter::Model(_) => usize::MAX,
        }
    }

    /// The draft tokens of each request, at most as many as it asks for.
    ///
    /// # Errors
    /// The errors of a forward pass.
    pub(crate) fn make(&mut self, runner: &mut Runner, requests: &[DraftRequest<'_>]) -> Result<Vec<Vec<u32>>> {
        match self {
            Drafter::Lookup => Ok(requests.iter().map(|one| lookup::look_up(one.text, one.count)).collect()),
            Drafter::Model(model) => model.make_drafts(requests),
            Drafter::Heads | Drafter::Replay(_) => {
                let orders = requests.iter().map(|&DraftRequest { sequence, text, count, .. }| DraftOrder {
                    sequence,
                    text,
                    count,
                });
                runner.draft(&orders.collect::<Vec<_>>())
            }
        }
    }

    /// In a replay, replaces the tokens sampled in the rows of a sequence, so that its next draft tokens are accepted.
    pub(crate) fn replay(&mut self, draft: &[u32], sampled: &mut [u32]) {
        if let Drafter::Replay(replay) = self {
            replay.decide(draft, sampled);
        }
    }
}

/// The acceptance of draft tokens by chance.
#[derive(Debug)]
pub(crate) struct Replay {
    chances: Vec<f64>,
    /// Draft tokens that were decided.
    checked: u64,
}

impl Replay {
    /// Makes a token that follows each accepted draft token equal to the next one, up to the first that is rejected.
    fn decide(&mut self, draft: &[u32], sampled: &mut [u32]) {
        for (place, (&draft, sampled)) in draft.iter().zip(sampled).enumerate() {
            let chance = self.chances.get(place).or(self.chances.last()).copied().unwrap_or(0.0);
            self.checked += 1;
            if uniform(self.checked) < chance {
                *sampled = draft;
            } else {
                // Another token of the vocabulary, which has at least two.
                *sampled = if *sampled == draft { draft.checked_sub(1).unwrap_or(1) } else { *sampled };
                return;
            }
        }
    }
}

/// Number `n` of a fixed pseudo-random sequence, in [0, 1): SplitMix64 (Steele, Lea and Flood, *Fast Splittable
/// Pseudorandom Number Generators*, 2014).
fn uniform(n: u64) -> f64 {
    let mut z = n.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replay_rejects_with_a_token_of_the_vocabulary() {
        let mut replay = Replay { chances: vec![0.0], checked: 0 };
        for (draft, other) in [(0, 1), (1, 0), (4, 3)] {
            let mut sampled = [draft];
            replay.decide(&[draft], &mut sampled);
            assert_eq!(sampled, [other], "of a vocabulary of 5");
        }
    }

    #[test]
    fn a_replay_accepts_the_given_shares() {
        let mut replay = Replay { chances: vec![0.8, 0.5], checked: 0 };
        let mut accepted = [0; 3];
        for _ in 0..10_000 {
            let mut sampled = [7, 2, 9, 4];
            replay.decide(&[7, 8, 9], &mut sampled);
            assert_eq!(sampled[3], 4);
            let count = [7, 8, 9].iter().zip(&sampled).take_while(|(a, b)| a == b).count();
            (0..count).for_each(|place| accepted[place] += 1);
        }
        let share = |place: usize, of: f64| f64::from(accepted[place]) / of;
        assert!((share(0, 1e4) - 0.8).abs() < 0.02 && (share(1, f64::from(accepted[0])) - 0.5).abs() < 0.03);
        assert!((share(2, f64::from(accepted[1])) - 0.5).abs() < 0.03, "{accepted:?}");
    }
}
