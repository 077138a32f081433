//! Counts of the experts that routers choose.

use gristmill_engine::model::spec::{MlpSpec, MoeSpec};
use gristmill_engine::{Batch, Outputs, Runner};
use gristmill_files::gguf::WriteError;
use serde::Serialize;

use crate::error::LabError;
use crate::routing::TraceWriter;

/// The counts of all layers.
#[derive(Debug, Serialize)]
pub struct Report {
    /// `general.name`, or the path.
    pub model: String,
    /// Of the text.
    pub tokens: usize,
    /// The layers with experts.
    pub layers: Vec<LayerUsage>,
}

/// The use of one layer's experts.
#[derive(Debug, Serialize)]
pub struct LayerUsage {
    /// Its index in the model.
    pub layer: usize,
    /// Experts chosen for each token.
    pub top_k: usize,
    /// Tokens of each expert.
    pub counts: Vec<u64>,
    /// `−Σ p · ln p / ln E`.
    pub entropy: f64,
    /// The share of the least used expert, relative to an even distribution.
    pub least: f64,
    /// The share of the most used expert, relative to an even distribution.
    pub most: f64,
    /// Experts without a token.
    pub unused: usize,
}

impl LayerUsage {
    /// The use of a layer with these counts.
    pub fn new(layer: usize, top_k: usize, counts: Vec<u64>) -> LayerUsage {
        let mut this = LayerUsage { layer, top_k, counts, entropy: 0.0, least: 0.0, most: 0.0, unused: 0 };
        let shares = this.shares();
        let even = shares.len() as f64;
        let sum: f64 = shares.iter().map(|share| share / even).map(|p| if p > 0.0 { -p * p.ln() } else { 0.0 }).sum();
        this.entropy = if even > 1.0 { sum / even.ln() } else { 1.0 };
        this.least = shares.iter().copied().fold(f64::INFINITY, f64::min);
        this.most = shares.iter().copied().fold(0.0, f64::max);
        this.unused = this.counts.iter().filter(|&&count| count == 0).count();
        this
    }

    /// Each expert's share, relative to an even distribution.
    pub fn shares(&self) -> Vec<f64> {
        let all: u64 = self.counts.iter().sum();
        let even = all as f64 / self.counts.len() as f64;
        self.counts.iter().map(|&count| count as f64 / even).collect()
    }
}

/// Experts that a layer chooses for each token; `None` without experts.
pub fn top_k(mlp: &MlpSpec) -> Option<usize> {
    match mlp {
        MlpSpec::Moe(MoeSpec { routing, .. }) => Some(routing.top_k),
        _ => None,
    }
}

/// Counts the tokens of each expert of each layer, and writes the experts of each token. `progress` takes
/// the tokens of each batch.
///
/// # Errors
/// If a pass fails, or the trace cannot be written.
pub fn count(
    runner: &mut Runner,
    tokens: &[u32],
    ctx: usize,
    mut trace: Option<TraceWriter>,
    progress: &mut dyn FnMut(usize),
) -> Result<Vec<Vec<u64>>, LabError> {
    runner.count_experts(true);
    let mut counts: Vec<Vec<u64>> = Vec::new();
    let mut batch = Batch::new();
    for window in tokens.chunks(ctx) {
        let sequence = runner.open_sequence()?;
        for chunk in window.chunks(runner.limits().batch_tokens) {
            batch.clear();
            batch.push(sequence, chunk, Outputs::None);
            runner.forward(&batch)?;
            counts.resize(runner.expert_counts().len(), Vec::new());
            for (sums, new) in counts.iter_mut().zip(runner.expert_counts()) {
                sums.resize(new.len(), 0);
                sums.iter_mut().zip(new).for_each(|(sum, &n)| *sum += u64::from(n));
            }
            if let Some(trace) = &mut trace {
                trace.write(&runner.routing()?).map_err(WriteError::from)?;
            }
            progress(chunk.len());
        }
        runner.close_sequence(sequence)?;
    }
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn balance_and_entropy_are_those_of_the_definitions() {
        let even = LayerUsage::new(3, 2, vec![5; 8]);
        assert_eq!((even.layer, even.least, even.most, even.unused), (3, 1.0, 1.0, 0));
        assert!((even.entropy - 1.0).abs() < 1e-12);
        let one = LayerUsage::new(0, 1, vec![0, 7, 0, 0]);
        assert_eq!((one.entropy, one.least, one.most, one.unused), (0.0, 0.0, 4.0, 3));
        let half = LayerUsage::new(0, 1, vec![9, 9, 0, 0]);
        assert!((half.entropy - 0.5).abs() < 1e-12);
        assert_eq!(LayerUsage::new(0, 1, vec![4]).entropy, 1.0);
    }
}
