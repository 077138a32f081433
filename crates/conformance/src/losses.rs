//! The loss of each token of given sequences.

use std::error::Error;
use std::sync::Arc;

use gristmill_engine::{Batch, Limits, LoadOptions, Model, Outputs, Precision, Runner};
use gristmill_files::gguf::GgufFile;

type Fails = Box<dyn Error>;

/// The loss of each token but the first of each sequence, on one thread of the CPU.
///
/// # Errors
/// Why the model does not run.
pub fn losses(file: GgufFile, sequences: &[Vec<u32>]) -> Result<Vec<Vec<f64>>, Fails> {
    let options = LoadOptions { precision: Precision::Exact, threads: Some(1), ..LoadOptions::default() };
    let model = Arc::new(Model::from_file(file, options)?);
    sequences.iter().map(|tokens| of_sequence(&model, tokens)).collect()
}

fn of_sequence(model: &Arc<Model>, tokens: &[u32]) -> Result<Vec<f64>, Fails> {
    let limits = Limits { context: Some(tokens.len()), output_rows: Some(tokens.len()), ..Limits::default() };
    let mut runner = Runner::new(model.clone(), limits)?;
    let mut batch = Batch::new();
    batch.push(runner.open_sequence()?, tokens, Outputs::All);
    let logits = runner.forward(&batch)?.to_vec()?;
    let rows = logits.chunks(logits.len() / tokens.len());
    Ok(rows.zip(&tokens[1..]).map(|(row, &next)| loss(row, next as usize)).collect())
}

/// Minus the logarithm of the probability of the next token.
fn loss(row: &[f32], next: usize) -> f64 {
    let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = row.iter().map(|&logit| f64::from(logit - most).exp()).sum();
    sum.ln() - f64::from(row[next] - most)
}
