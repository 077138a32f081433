//! How tokens are drawn.

use serde::{Deserialize, Serialize};

use super::{EngineError, seed};

/// How tokens are drawn, in the order: grammar, logit bias and DRY (see [`Request`](super::Request)), penalties,
/// temperature, top-k, top-p, min-p. See [`Sampling`](gristmill_kernels::ops::Sampling) for the exact rules.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SamplingOptions {
    /// Divides the logits; 0 always takes the most likely token.
    pub temperature: f32,
    /// Keep the k most likely tokens; 0 keeps all.
    pub top_k: u32,
    /// Keep the smallest set of tokens with at least this much probability, in (0, 1]; 1 keeps all.
    pub top_p: f32,
    /// Drop tokens less likely than this share of the most likely, in [0, 1]; 0 keeps all.
    pub min_p: f32,
    /// Divides positive and multiplies negative logits of tokens that were generated before; 1 changes nothing.
    pub repeat_penalty: f32,
    /// Subtracted once from the logits of tokens that were generated before.
    pub presence_penalty: f32,
    /// Subtracted for each time that a token was generated before.
    pub frequency_penalty: f32,
    /// The same seed, prompt and options give the same text. `None`: one is drawn, and
    /// [`Finish::seed`](super::Finish::seed) returns it.
    #[serde(with = "seed::option")]
    pub seed: Option<u64>,
}

impl Default for SamplingOptions {
    fn default() -> Self {
        SamplingOptions {
            temperature: 0.7,
            top_k: 40,
            top_p: 0.95,
            min_p: 0.05,
            repeat_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            seed: None,
        }
    }
}

impl SamplingOptions {
    /// Always the most likely token.
    pub fn greedy() -> SamplingOptions {
        SamplingOptions { temperature: 0.0, ..SamplingOptions::default() }
    }

    /// Whether any penalty looks at the text so far.
    pub(super) fn penalises(&self) -> bool {
        self.repeat_penalty != 1.0 || self.presence_penalty != 0.0 || self.frequency_penalty != 0.0
    }

    /// Checks the range of every option.
    ///
    /// # Errors
    /// [`EngineError::Sampling`] names the first that is out of range. NaN is out of every range.
    pub fn check(&self) -> Result<(), EngineError> {
        let largest = f32::MAX;
        let rules = [
            ("temperature", self.temperature, 0.0..=largest, "0 or greater"),
            ("top-p", self.top_p, f32::MIN_POSITIVE..=1.0, "greater than 0 and at most 1"),
            ("min-p", self.min_p, 0.0..=1.0, "between 0 and 1"),
            ("repeat penalty", self.repeat_penalty, f32::MIN_POSITIVE..=largest, "greater than 0; 1 turns it off"),
            ("presence penalty", self.presence_penalty, -largest..=largest, "a finite number; 0 turns it off"),
            ("frequency penalty", self.frequency_penalty, -largest..=largest, "a finite number; 0 turns it off"),
        ];
        match rules.into_iter().find(|(_, value, range, _)| !range.contains(value)) {
            Some((what, value, _, rule)) => Err(EngineError::Sampling { what, value, rule }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sampling_ranges() {
        assert!(SamplingOptions::default().check().is_ok());
        assert!(SamplingOptions::greedy().check().is_ok());
        let set: [fn(&mut SamplingOptions, f32); 6] = [
            |s, x| s.temperature = x,
            |s, x| s.top_p = x,
            |s, x| s.min_p = x,
            |s, x| s.repeat_penalty = x,
            |s, x| s.presence_penalty = x,
            |s, x| s.frequency_penalty = x,
        ];
        for (i, set) in set.into_iter().enumerate() {
            let mut bad = vec![f32::NAN, f32::INFINITY, f32::NEG_INFINITY];
            match i {
                0 => bad.extend([-0.1]),
                1 => bad.extend([0.0, -1.0, 1.001]),
                2 => bad.extend([-0.1, 1.001]),
                3 => bad.extend([0.0, -1.0]),
                _ => {}
            }
            for value in bad {
                let mut sampling = SamplingOptions::default();
                set(&mut sampling, value);
                assert!(sampling.check().is_err(), "option {i} = {value}");
            }
        }
    }
}
