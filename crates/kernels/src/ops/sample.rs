//! Argmax and sampling of logits.

use super::check::*;
use super::operation::{Check, Operation};
use super::sampling::SamplingOptions;
use crate::error::Result;
use crate::random;
use crate::tensor::{DeviceId, View, ViewMut};

/// Index of the largest element of each row, the smaller index on a tie. [`PADDING`] if an element of the row is not
/// finite.
#[derive(Debug)]
pub struct Argmax<'a> {
    /// R × columns.
    pub x: View<'a, f32>,
    /// R × 1.
    pub out: ViewMut<'a, u32>,
}

constructor! { Argmax<'a>(x: View<'a, f32>, out: ViewMut<'a, u32>) }

impl Check for Argmax<'_> {
    fn check(&mut self, device: DeviceId) -> Result<()> {
        let Self { x, out } = self;
        on_device(Self::NAME, device, &[x.device()])?;
        column(Self::NAME, "rows of the output", device, &out.as_view(), x.rows())?;
        countable(Self::NAME, "columns", x.rows(), x.cols())
    }
}

/// Fails unless token ids (u32) can index the columns, if there are rows.
fn countable(op: &'static str, what: &'static str, rows: usize, columns: usize) -> Result<()> {
    let fits = rows == 0 || (1..=PADDING as usize).contains(&columns);
    require(fits, op, what, columns, "from 1 to 2^32 - 1")
}

/// Sampling parameters of one row of logits, applied in this order: mask, bias, penalties, temperature, top-k, top-p,
/// min-p, sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling<'a> {
    /// Bit `i % 32` of word `i / 32` allows token `i` (a grammar); `None` allows all.
    pub mask: Option<&'a [u32]>,
    /// Added to the logits of these tokens.
    pub bias: &'a [(u32, f32)],
    /// How often each token occurs in the sequence so far, for penalties. Each token occurs at most once in the list.
    pub counts: &'a [(u32, u32)],
    /// Penalties, filters and the seed.
    pub options: SamplingOptions,
    /// The counter of the random numbers: the position of the token to sample.
    pub position: u64,
}

impl Sampling<'_> {
    /// The random number of this position, in [0, 1).
    pub fn uniform(&self) -> f64 {
        random::uniform(self.options.seed.unwrap_or(0), self.position)
    }

    /// Whether the sampled token equals that of [`Argmax`] for any logits.
    pub fn is_argmax(&self) -> bool {
        let counted = self.options.penalises() && !self.counts.is_empty();
        self.options.temperature == 0.0 && self.mask.is_none() && self.bias.is_empty() && !counted
    }

    fn check(&self, op: &'static str, vocabulary: usize) -> Result<()> {
        self.options.check(op)?;
        for (index, &(token, bias)) in self.bias.iter().enumerate() {
            id(op, "biased token", token, index, vocabulary)?;
            require(!bias.is_nan(), op, "bias", bias, "must be a number")?;
        }
        for (index, &(token, _)) in self.counts.iter().enumerate() {
            id(op, "counted token", token, index, vocabulary)?;
        }
        let Some(mask) = self.mask else { return Ok(()) };
        expect(op, "words of the mask", mask.len(), vocabulary.div_ceil(32))?;
        let tail = vocabulary % 32;
        let allows = mask.iter().enumerate().any(|(i, &word)| {
            let last = i + 1 == mask.len() && tail != 0;
            (if last { word & ((1 << tail) - 1) } else { word }) != 0
        });
        require(allows, op, "allowed tokens", 0, "the mask must allow at least one token")
    }
}

/// Samples one token per row of logits, and leaves the logits penalised. [`PADDING`] if a logit of the row is not
/// finite before mask and penalties. The random number is a function of (seed, position), never of the batch row.
#[derive(Debug)]
pub struct Sample<'a> {
    /// R × vocabulary.
    pub logits: ViewMut<'a, f32>,
    /// One entry per row.
    pub parameters: &'a [Sampling<'a>],
    /// R × 1.
    pub out: ViewMut<'a, u32>,
}

constructor! { Sample<'a>(logits: ViewMut<'a, f32>, parameters: &'a [Sampling<'a>], out: ViewMut<'a, u32>) }

impl Check for Sample<'_> {
    fn check(&mut self, device: DeviceId) -> Result<()> {
        let Self { logits, parameters, out } = self;
        on_device(Self::NAME, device, &[logits.device()])?;
        expect(Self::NAME, "number of parameter sets", parameters.len(), logits.rows())?;
        column(Self::NAME, "rows of the output", device, &out.as_view(), logits.rows())?;
        countable(Self::NAME, "vocabulary", logits.rows(), logits.cols())?;
        parameters.iter().try_for_each(|p| p.check(Self::NAME, logits.cols()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_logits_or_draws_is_no_argmax() {
        let options = SamplingOptions { repeat_penalty: 1.1, ..SamplingOptions::greedy() };
        let greedy = Sampling { mask: None, bias: &[], counts: &[], options, position: 3 };
        assert!(greedy.is_argmax());
        let unpenalised = SamplingOptions { repeat_penalty: 1.0, ..options };
        assert!(Sampling { counts: &[(5, 1)], options: unpenalised, ..greedy }.is_argmax());
        for other in [
            Sampling { mask: Some(&[1]), ..greedy },
            Sampling { bias: &[(5, 1.0)], ..greedy },
            Sampling { counts: &[(5, 1)], ..greedy },
            Sampling { options: SamplingOptions { temperature: 0.1, ..options }, ..greedy },
        ] {
            assert!(!other.is_argmax(), "{other:?}");
        }
    }
}
