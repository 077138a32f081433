//! Runs the model over windows and scores their tokens.

use gristmill_engine::{Batch, Outputs, Runner, SequenceId};

use crate::error::LabError;

/// Rows of logits of one forward pass: 80 MB with the largest vocabularies.
pub const BATCH_ROWS: usize = 128;

/// Scored tokens of a window of `ctx` tokens. The last position predicts a token of the next window, so it has none.
pub(super) fn rows(ctx: usize) -> usize {
    ctx - ctx / 2 - 1
}

/// Takes each row of logits and the token that follows.
pub(super) type Listener<'a> = dyn FnMut(&[f32], u32) -> Result<(), LabError> + 'a;

pub(super) struct Scorer {
    runner: Runner,
    batch: Batch,
    /// Sum of the negative logarithms of probabilities.
    nll: f64,
    scored: usize,
}

impl Scorer {
    pub(super) fn new(runner: Runner) -> Self {
        Self { runner, batch: Batch::new(), nll: 0.0, scored: 0 }
    }

    /// Scores the second half of a window but for its first token, which the first half predicts.
    pub(super) fn window(&mut self, tokens: &[u32], listener: &mut Listener) -> Result<(), LabError> {
        let half = tokens.len() / 2;
        let sequence = self.runner.open_sequence()?;
        for chunk in tokens[..half].chunks(self.runner.limits().batch_tokens) {
            self.batch.clear();
            self.batch.push(sequence, chunk, Outputs::None);
            self.runner.forward(&self.batch)?;
        }
        let mut at = half;
        for chunk in tokens[half..tokens.len() - 1].chunks(BATCH_ROWS) {
            self.score(sequence, chunk, &tokens[at + 1..], listener)?;
            at += chunk.len();
        }
        Ok(self.runner.close_sequence(sequence)?)
    }

    /// Scores `next[i]`, the token that follows `chunk[i]`.
    fn score(
        &mut self,
        sequence: SequenceId,
        chunk: &[u32],
        next: &[u32],
        listener: &mut Listener,
    ) -> Result<(), LabError> {
        self.batch.clear();
        self.batch.push(sequence, chunk, Outputs::All);
        let mut logits = self.runner.forward(&self.batch)?;
        let vocab = logits.vocab();
        for (row, &token) in logits.to_vec()?.chunks_exact(vocab).zip(next) {
            self.nll -= log_probability(row, token);
            self.scored += 1;
            listener(row, token)?;
        }
        Ok(())
    }

    /// Mean negative logarithm of a scored token's probability.
    pub(super) fn mean_nll(&self) -> f64 {
        self.nll / self.scored as f64
    }

    pub(super) fn scored(&self) -> usize {
        self.scored
    }
}

/// `ln Σ e^logit`: a logit less this is the logarithm of a probability.
pub(super) fn log_sum(logits: &[f32]) -> f64 {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|&x| f64::from(x - max).exp()).sum();
    f64::from(max) + sum.ln()
}

/// `ln softmax(logits)[token]`.
pub(super) fn log_probability(logits: &[f32], token: u32) -> f64 {
    let logit = logits.get(token as usize).copied().unwrap_or(f32::NEG_INFINITY);
    f64::from(logit) - log_sum(logits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_probabilities() {
        let p = |token| log_probability(&[1000.0, 1000.0 + 2_f32.ln(), 1000.0], token).exp();
        assert!((p(0) - 0.25).abs() < 1e-4 && (p(1) - 0.5).abs() < 1e-4);
        assert!(log_probability(&[0.0], 5).is_infinite());
        assert!(log_probability(&[f32::NAN, 0.0], 1).is_nan());
    }
}
