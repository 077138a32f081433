//! How well a model predicts a text.

use std::sync::Arc;

use gristmill_engine::{Batch, Limits, Model, Outputs, Runner};

/// The perplexity of tokens in windows that do not overlap. Of a window, the second half is scored, without its first
/// token, as llama.cpp's llama-perplexity does. (It would start each window with BOS if this model had one.)
pub(crate) fn perplexity(model: &Arc<Model>, tokens: &[u32], window: usize) -> (f64, usize) {
    let half = window / 2;
    let limits = Limits { context: Some(window), batch_tokens: window, output_rows: Some(half), ..Limits::default() };
    let mut runner = Runner::new(model.clone(), limits).unwrap();
    let vocab = model.spec().vocab;
    let (mut nll, mut scored) = (0.0, 0);
    for window in tokens.chunks_exact(window) {
        let sequence = runner.open_sequence().unwrap();
        let mut batch = Batch::new();
        batch.push(sequence, &window[..half], Outputs::None);
        batch.push(sequence, &window[half..window.len() - 1], Outputs::All);
        let logits = runner.forward(&batch).unwrap().to_vec().unwrap();
        for (row, &next) in logits.chunks_exact(vocab).zip(&window[half + 1..]) {
            let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let sum: f64 = row.iter().map(|&logit| f64::from((logit - max).exp())).sum();
            nll += sum.ln() - f64::from(row[next as usize] - max);
            scored += 1;
        }
        runner.close_sequence(sequence).unwrap();
    }
    ((nll / f64::from(scored)).exp(), scored as usize)
}
