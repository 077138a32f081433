//! The divergence of predictions from saved ones.

use serde::Serialize;

use super::saved::Saved;
use super::score::{log_probability, log_sum};
use crate::error::LabError;

/// Statistics over all scored tokens.
#[derive(Debug, Serialize)]
pub struct Divergence {
    /// Perplexity of the saved predictions.
    pub base_perplexity: f64,
    /// Kullback-Leibler divergence in nats: Σ p · ln(p / q), p of the saved predictions and q of the model.
    pub mean: f64,
    /// In nats, as all of these.
    pub median: f64,
    /// 99% of the tokens have at most this.
    pub percentile_99: f64,
    /// Of any token.
    pub largest: f64,
    /// Share of positions at which both have the same most likely token.
    pub same_top: f64,
}

/// Accumulates the comparison row by row.
pub(super) struct Divergences<'a> {
    base: &'a Saved,
    row: Vec<f32>,
    found: Vec<f64>,
    base_nll: f64,
    same_top: usize,
}

impl<'a> Divergences<'a> {
    pub(super) fn new(base: &'a Saved) -> Self {
        Self { base, row: Vec::new(), found: Vec::new(), base_nll: 0.0, same_top: 0 }
    }

    /// Adds the next row of logits, and the token that follows.
    pub(super) fn add(&mut self, logits: &[f32], next: u32) -> Result<(), LabError> {
        let row = self.base.row(self.found.len(), &mut self.row);
        row.ok_or_else(|| self.base.wrong("it has fewer rows than the text".to_owned()))?;
        self.found.push(divergence(&self.row, logits));
        self.base_nll -= log_probability(&self.row, next);
        self.same_top += usize::from(top(&self.row) == top(logits));
        Ok(())
    }

    pub(super) fn summary(mut self) -> Divergence {
        // NaN sorts last and becomes the largest value.
        self.found.sort_by(f64::total_cmp);
        let count = self.found.len();
        let quantile = |share: f64| {
            let index = (share * count as f64) as usize;
            self.found.get(index.min(count.saturating_sub(1))).copied().unwrap_or(f64::NAN)
        };
        Divergence {
            base_perplexity: (self.base_nll / count as f64).exp(),
            mean: self.found.iter().sum::<f64>() / count as f64,
            median: quantile(0.5),
            percentile_99: quantile(0.99),
            largest: quantile(1.0),
            same_top: self.same_top as f64 / count as f64,
        }
    }
}

/// Σ p · ln(p / q) of the softmax of two rows of logits.
fn divergence(p: &[f32], q: &[f32]) -> f64 {
    let (p_sum, q_sum) = (log_sum(p), log_sum(q));
    let term = |(&p, &q): (&f32, &f32)| {
        let log_p = f64::from(p) - p_sum;
        match log_p.exp() {
            0.0 => 0.0,
            p => p * (log_p - (f64::from(q) - q_sum)),
        }
    };
    p.iter().zip(q).map(term).sum()
}

/// The first index of the largest.
fn top(logits: &[f32]) -> usize {
    logits.iter().enumerate().fold(0, |best, (i, &x)| if x > logits[best] { i } else { best })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn divergence_is_that_of_the_definition() {
        let logits = |p: &[f32]| p.iter().map(|p| p.ln() + 7.0).collect::<Vec<_>>();
        let expected = 0.5 * (0.5_f64 / 0.25).ln() + 0.5 * (0.5_f64 / 0.75).ln();
        let found = divergence(&logits(&[0.5, 0.5]), &logits(&[0.25, 0.75]));
        assert!((found - expected).abs() < 1e-6, "{found} {expected}");
        assert!(divergence(&logits(&[0.1, 0.9]), &logits(&[0.1, 0.9])).abs() < 1e-9);
        // A probability of 0 contributes 0 in the base, and infinity in the model alone.
        let sure = [0.0, f32::NEG_INFINITY];
        assert!((divergence(&sure, &[0.0, 0.0]) - 2_f64.ln()).abs() < 1e-9);
        assert_eq!(divergence(&[0.0, 0.0], &sure), f64::INFINITY);
        assert!(divergence(&[0.0, f32::NAN], &[0.0, 0.0]).is_nan());
        assert_eq!((top(&[1.0, 3.0, 3.0]), top(&[f32::NAN, 1.0])), (1, 0));
    }
}
