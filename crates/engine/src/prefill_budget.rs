//! How many tokens of prompts a step reads, so that texts that are being generated do not wait long for it.

use std::time::Duration;

/// The time limit of a step while sequences decode. If decoding needs more than half of it, prompts get the same time
/// as decoding.
const LONGEST: f64 = 0.1;

/// Prompt tokens of a step, at least: fewer would read a prompt at the rate of decoding.
const FEWEST: usize = 32;

/// The same as long as nothing is learned: a step of a large batch could take seconds.
const UNLEARNED: usize = 512;

/// The weight of the last step in what is learned.
const LAST: f64 = 0.25;

/// The times of a step, in seconds, as a constant and a part for each token of a prompt.
#[derive(Debug, Default)]
pub(super) struct PrefillBudget {
    /// The time of steps without prompts.
    decode: Option<f64>,
    /// The time that each token of a prompt adds.
    per_token: Option<f64>,
}

impl PrefillBudget {
    /// The most prompt tokens of a step in which texts are generated.
    pub(super) fn prompt_tokens(&self) -> usize {
        let Some(per_token) = self.per_token else { return UNLEARNED };
        let decode = self.decode.unwrap_or(0.0);
        // A cast of a large float saturates, also of an infinite one.
        ((decode.max(LONGEST - decode) / per_token) as usize).max(FEWEST)
    }

    /// Learns from a step with this number of tokens of prompts.
    pub(super) fn learn(&mut self, prompt_tokens: usize, time: Duration) {
        let learn = |known: &mut Option<f64>, new: f64| {
            *known = Some(known.map_or(new, |known| known + LAST * (new - known)));
        };
        let time = time.as_secs_f64();
        match prompt_tokens {
            0 => learn(&mut self.decode, time),
            // The constant part hides what few tokens take.
            1..FEWEST => {}
            _ => learn(&mut self.per_token, (time - self.decode.unwrap_or(0.0)).max(0.0) / prompt_tokens as f64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tokens that are granted after steps of a machine with this constant and this time for each token.
    fn learned(decode: f64, per_token: f64) -> usize {
        let mut budget = PrefillBudget::default();
        assert_eq!(budget.prompt_tokens(), UNLEARNED);
        let mut granted = 512;
        for _ in 0..50 {
            budget.learn(0, Duration::from_secs_f64(decode));
            budget.learn(5, Duration::from_secs_f64(decode * 1.5));
            budget.learn(granted, Duration::from_secs_f64(decode + per_token * granted as f64));
            granted = budget.prompt_tokens().min(512);
        }
        granted
    }

    #[test]
    fn steps_take_what_they_may() {
        // 10 ms of decode leave 90 ms.
        assert!((89..=91).contains(&learned(0.01, 0.001)));
        // 80 ms of decode leave as much again.
        assert!((79..=81).contains(&learned(0.08, 0.001)));
        // Fast machines read whole batches, slow ones a few tokens.
        assert_eq!(learned(0.002, 0.00004), 512);
        assert_eq!(learned(0.01, 0.1), FEWEST);
        let mut budget = PrefillBudget::default();
        budget.learn(512, Duration::ZERO);
        assert_eq!(budget.prompt_tokens(), usize::MAX);
    }
}
