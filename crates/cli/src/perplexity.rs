//! `perplexity`: how well a model predicts a text.

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use gristmill_engine::tokenizer::EncodeOptions;
use gristmill_engine::{Batch, Limits, Outputs, Runner, SequenceId};
use serde::Serialize;

use crate::args::{DeviceArgs, ModelArg, Verbosity};
use crate::failure::Failure;
use crate::{console, load};

/// Measure how well the model predicts a text.
///
/// The text is cut into windows of --ctx tokens that do not overlap; the tokens of each window's second half are scored,
/// as llama.cpp's llama-perplexity does. If the model begins its texts with a BOS token, that replaces the first token of
/// each window.
#[derive(Args)]
pub(crate) struct PerplexityArgs {
    #[command(flatten)]
    model: ModelArg,
    /// The text; - reads it from stdin.
    #[arg(short, long, value_name = "TEXT")]
    file: PathBuf,
    /// Tokens of one window.
    #[arg(long, value_name = "TOKENS", default_value_t = 512)]
    ctx: usize,
    #[command(flatten)]
    device: DeviceArgs,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    say: Verbosity,
}

#[derive(Serialize)]
struct Report {
    /// e to the power of `nll`.
    perplexity: f64,
    /// Mean negative logarithm of the probability of a scored token.
    nll: f64,
    tokens_scored: usize,
    windows: usize,
    ctx: usize,
    seconds: f64,
}

/// Rows of logits at a time: with the largest vocabularies they take 80 MB.
const SCORED_AT_A_TIME: usize = 128;

pub(crate) fn run(args: &PerplexityArgs) -> Result<(), Failure> {
    if args.ctx < 4 {
        let found = args.ctx;
        return Err(Failure::new(format!("--ctx is {found}; a window needs at least 4 tokens (512 is usual)")));
    }
    let text = if args.file.as_os_str() == "-" { console::read_stdin()? } else { read(&args.file)? };
    let limits = Limits {
        context: Some(args.ctx),
        sequences: 1,
        batch_tokens: args.ctx.min(512),
        output_rows: Some(SCORED_AT_A_TIME.min(args.ctx)),
    };
    let model = load::model(args.model.path("perplexity")?, &args.device, limits, &args.say)?;
    let tokenizer = model.tokenizer()?;
    let tokens = tokenizer.encode(&text, EncodeOptions { add_special: true, parse_special: false })?;
    let windows = tokens.len() / args.ctx;
    if windows == 0 {
        let (found, ctx) = (tokens.len(), args.ctx);
        let remedy = "give a longer text, or a smaller --ctx";
        return Err(Failure::new(format!("the text has {found} tokens, one window of --ctx has {ctx}; {remedy}")));
    }
    let bos = tokenizer.bos().filter(|_| tokenizer.adds_bos());

    let start = Instant::now();
    let mut scorer = Scorer { runner: Runner::new(model.clone(), limits)?, batch: Batch::new(), nll: 0.0, scored: 0 };
    let bar = load::bar(&args.say, "window {pos}/{len} {bar:40} {msg}");
    bar.set_length(windows as u64);
    for window in tokens.chunks_exact(args.ctx) {
        let mut window = window.to_vec();
        if let Some(bos) = bos {
            window[0] = bos;
        }
        scorer.window(&window)?;
        bar.inc(1);
        bar.set_message(format!("perplexity {:.4}", scorer.mean_nll().exp()));
    }
    bar.finish_and_clear();

    let (nll, seconds) = (scorer.mean_nll(), start.elapsed().as_secs_f64());
    let report = Report { perplexity: nll.exp(), nll, tokens_scored: scorer.scored, windows, ctx: args.ctx, seconds };
    match args.json {
        true => console::print_json(&report),
        false => {
            console::print_line(format_args!("perplexity {:.4}", report.perplexity))?;
            let Report { tokens_scored, windows, ctx, .. } = report;
            let rate = (windows * ctx) as f64 / seconds;
            args.say.info(format_args!(
                "nll {nll:.6} over {tokens_scored} tokens in {windows} windows of {ctx}, {rate:.1} tok/s"
            ));
            Ok(())
        }
    }
}

fn read(path: &PathBuf) -> Result<String, Failure> {
    let bytes = std::fs::read(path)
        .map_err(|e| Failure::new(format!("cannot read {}: {e}; give the path of a text file", path.display())))?;
    console::utf8(bytes, path.display())
}

struct Scorer {
    runner: Runner,
    batch: Batch,
    /// Sum.
    nll: f64,
    scored: usize,
}

impl Scorer {
    /// Scores the second half of a window: each token but the half's first, given all before it. (What the last token
    /// predicts lies in the next window, and the first one's prediction is that of an unscored position.)
    fn window(&mut self, tokens: &[u32]) -> Result<(), Failure> {
        let half = tokens.len() / 2;
        let sequence = self.runner.open_sequence()?;
        for chunk in tokens[..half].chunks(self.runner.limits().batch_tokens) {
            self.batch.clear();
            self.batch.push(sequence, chunk, Outputs::None);
            self.runner.forward(&self.batch)?;
        }
        let mut at = half;
        for chunk in tokens[half..tokens.len() - 1].chunks(SCORED_AT_A_TIME) {
            self.score(sequence, chunk, &tokens[at + 1..])?;
            at += chunk.len();
        }
        Ok(self.runner.close_sequence(sequence)?)
    }

    /// Scores `next[i]`, the token that follows `chunk[i]`.
    fn score(&mut self, sequence: SequenceId, chunk: &[u32], next: &[u32]) -> Result<(), Failure> {
        self.batch.clear();
        self.batch.push(sequence, chunk, Outputs::All);
        let logits = self.runner.forward(&self.batch)?;
        let vocab = logits.vocab();
        for (row, &token) in logits.to_vec()?.chunks_exact(vocab).zip(next) {
            self.nll += negative_log_probability(row, token);
            self.scored += 1;
        }
        Ok(())
    }

    fn mean_nll(&self) -> f64 {
        self.nll / self.scored as f64
    }
}

/// `−ln softmax(logits)[token]`.
fn negative_log_probability(logits: &[f32], token: u32) -> f64 {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|&x| f64::from(x - max).exp()).sum();
    let logit = logits.get(token as usize).copied().unwrap_or(f32::NEG_INFINITY);
    sum.ln() - f64::from(logit - max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_probabilities() {
        let p = |token| (-negative_log_probability(&[1000.0, 1000.0 + 2_f32.ln(), 1000.0], token)).exp();
        assert!((p(0) - 0.25).abs() < 1e-4 && (p(1) - 0.5).abs() < 1e-4);
        assert!(negative_log_probability(&[0.0], 5).is_infinite());
        assert!(negative_log_probability(&[f32::NAN, 0.0], 1).is_nan());
    }
}
