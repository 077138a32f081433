//! The measurement: windows of a text, their scores, and what is compared with saved logits.

use std::path::Path;
use std::time::Instant;

use gristmill_engine::Runner;
use gristmill_text::tokenizer::{EncodeOptions, Tokenizer};
use serde::Serialize;

use super::divergence::{Divergence, Divergences};
use super::saved::{self, Recorder, Saved};
use super::score::Scorer;
use crate::error::LabError;

/// The result.
#[derive(Debug, Serialize)]
pub struct Report {
    /// e to the power of `nll`.
    pub perplexity: f64,
    /// Mean negative logarithm of the probability of a scored token.
    pub nll: f64,
    /// Tokens whose probabilities were measured.
    pub tokens_scored: usize,
    /// Of the text.
    pub windows: usize,
    /// Tokens of a window.
    pub ctx: usize,
    /// Of the measurement.
    pub seconds: f64,
    /// From saved logits, if there are some.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub divergence: Option<Divergence>,
}

/// The text as whole windows of `ctx` tokens, at least one. Each starts with BOS if the model adds BOS.
///
/// # Errors
/// If the text has less than one window.
pub fn windows(tokenizer: &Tokenizer, text: &str, parse_special: bool, ctx: usize) -> Result<Vec<u32>, LabError> {
    let mut tokens = tokenizer.encode(text, EncodeOptions { add_special: true, parse_special })?;
    let count = tokens.len() / ctx;
    if count == 0 {
        return Err(LabError::ShortText { found: tokens.len(), window: ctx });
    }
    tokens.truncate(count * ctx);
    if let Some(bos) = tokenizer.bos().filter(|_| tokenizer.adds_bos()) {
        tokens.iter_mut().step_by(ctx).for_each(|first| *first = bos);
    }
    Ok(tokens)
}

/// What is measured next to the perplexity.
#[derive(Default)]
pub struct Options<'a> {
    /// Logits with which those of the model are compared.
    pub base: Option<&'a Saved>,
    /// Where the model's logits are written.
    pub save: Option<&'a Path>,
}

/// What the caller sees of a measurement, and how it stops one.
pub trait Watch {
    /// A window of `windows` is scored; the perplexity so far.
    fn scored(&self, windows: usize, perplexity: f64);

    /// Whether to stop, which is asked while logits are written.
    fn is_stopped(&self) -> bool;
}

/// Scores windows of `ctx` tokens.
///
/// # Errors
/// If a pass fails, the saved logits are not of this text and model, or logits cannot be written.
pub fn measure(
    runner: Runner,
    tokens: &[u32],
    ctx: usize,
    options: &Options<'_>,
    watch: &dyn Watch,
) -> Result<Report, LabError> {
    let vocab = runner.model().spec().vocab;
    if let Some(base) = options.base {
        base.check(vocab, ctx, tokens)?;
    }
    let start = Instant::now();
    let windows = tokens.len() / ctx;
    let mut scorer = Scorer::new(runner);
    let mut divergences = options.base.map(Divergences::new);
    let mut score = |mut recorder: Option<&mut Recorder>| -> Result<(), LabError> {
        for window in tokens.chunks_exact(ctx) {
            scorer.window(window, &mut |row, next| {
                divergences.as_mut().map_or(Ok(()), |divergences| divergences.add(row, next))?;
                recorder.as_mut().map_or(Ok(()), |recorder| recorder.add(row))
            })?;
            watch.scored(windows, scorer.mean_nll().exp());
        }
        Ok(())
    };
    match options.save {
        None => score(None)?,
        Some(path) => {
            saved::save(path, vocab, ctx, tokens, &|| watch.is_stopped(), |recorder| score(Some(recorder)))?;
        }
    }
    let nll = scorer.mean_nll();
    Ok(Report {
        perplexity: nll.exp(),
        nll,
        tokens_scored: scorer.scored(),
        windows,
        ctx,
        seconds: start.elapsed().as_secs_f64(),
        divergence: divergences.map(Divergences::summary),
    })
}
