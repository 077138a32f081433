//! `perplexity`: how well a model predicts a text, and how far its predictions are from another model's.

mod divergence;
mod saved;
mod score;

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use gristmill_engine::{Limits, Runner};
use gristmill_text::tokenizer::{EncodeOptions, Tokenizer};
use serde::Serialize;

use crate::args::{DeviceArgs, TextArgs, Verbosity};
use crate::failure::Failure;
use crate::source::{ModelArg, QuantizeArg};
use crate::{console, load};
use divergence::{Divergence, Divergences};
use saved::{Recorder, Saved};
use score::Scorer;

/// Measure how well the model predicts a text.
///
/// The text is split into windows of --ctx tokens that do not overlap. The tokens in the second half of each window are
/// scored, as in llama.cpp's llama-perplexity. If the model adds a BOS token to texts, BOS replaces the first token of
/// each window.
///
/// To measure the loss of a quantisation, save the logits of the original model with --save-logits, and pass that file
/// as --kl-base with the quantised model. The output then contains the Kullback-Leibler divergence from the saved
/// logits.
#[derive(Args)]
pub(crate) struct PerplexityArgs {
    #[command(flatten)]
    model: ModelArg,
    #[command(flatten)]
    quantize: QuantizeArg,
    #[command(flatten)]
    text: TextArgs,
    /// Parse control tokens in the text, such as <|im_start|>. By default they are plain text, as in llama-perplexity.
    #[arg(long)]
    parse_special: bool,
    /// Write the logits of all scored tokens to this file: for each token, two bytes for each entry of the vocabulary.
    #[arg(long, value_name = "FILE")]
    save_logits: Option<PathBuf>,
    /// Compare with logits that --save-logits wrote for the same text, vocabulary and --ctx.
    #[arg(long, value_name = "FILE")]
    kl_base: Option<PathBuf>,
    #[command(flatten)]
    device: DeviceArgs,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    log: Verbosity,
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
    /// With `--kl-base`.
    #[serde(skip_serializing_if = "Option::is_none")]
    divergence: Option<Divergence>,
}

pub(crate) fn run(args: &PerplexityArgs) -> Result<(), Failure> {
    let (text, ctx) = args.text.read(4)?;
    let base = args.kl_base.as_deref().map(Saved::open).transpose()?;
    let limits = Limits {
        context: Some(ctx),
        sequences: 1,
        batch_tokens: ctx.min(512),
        output_rows: Some(score::BATCH_ROWS.min(ctx)),
        kv_format: args.device.kv.into(),
        ..Limits::default()
    };
    let source = args.quantize.of(args.model.source()?)?;
    let model = load::model(source, &args.device, limits, &args.log)?;
    let tokens = windows(model.tokenizer()?, &text, args.parse_special, ctx)?;
    let vocab = model.spec().vocab;
    if let Some(base) = &base {
        base.check(vocab, ctx, &tokens)?;
    }

    let start = Instant::now();
    let bar = load::bar(&args.log, "window {pos}/{len} {bar:40} {msg}");
    bar.set_length((tokens.len() / ctx) as u64);
    let mut scorer = Scorer::new(Runner::new(model.clone(), limits)?);
    let mut divergences = base.as_ref().map(Divergences::new);
    let mut score = |mut recorder: Option<&mut Recorder>| -> Result<(), Failure> {
        for window in tokens.chunks_exact(ctx) {
            scorer.window(window, &mut |row, next| {
                divergences.as_mut().map_or(Ok(()), |divergences| divergences.add(row, next))?;
                recorder.as_mut().map_or(Ok(()), |recorder| recorder.add(row))
            })?;
            bar.inc(1);
            bar.set_message(format!("perplexity {:.4}", scorer.mean_nll().exp()));
        }
        Ok(())
    };
    match &args.save_logits {
        None => score(None)?,
        Some(path) => saved::save(path, vocab, ctx, &tokens, |recorder| score(Some(recorder)))?,
    }
    bar.finish_and_clear();

    let (nll, seconds) = (scorer.mean_nll(), start.elapsed().as_secs_f64());
    let report = Report {
        perplexity: nll.exp(),
        nll,
        tokens_scored: scorer.scored(),
        windows: tokens.len() / ctx,
        ctx,
        seconds,
        divergence: divergences.map(Divergences::summary),
    };
    if args.json { console::print_json(&report) } else { print(&report, &args.log) }
}

/// The text as whole windows of `ctx` tokens, at least one. Each starts with BOS if the model adds BOS.
fn windows(tokenizer: &Tokenizer, text: &str, parse_special: bool, ctx: usize) -> Result<Vec<u32>, Failure> {
    let mut tokens = tokenizer.encode(text, EncodeOptions { add_special: true, parse_special })?;
    let count = tokens.len() / ctx;
    if count == 0 {
        let found = tokens.len();
        let remedy = "use a longer text, or a smaller --ctx";
        return Err(Failure::new(format!("the text has {found} tokens, one window of --ctx has {ctx}; {remedy}")));
    }
    tokens.truncate(count * ctx);
    if let Some(bos) = tokenizer.bos().filter(|_| tokenizer.adds_bos()) {
        tokens.iter_mut().step_by(ctx).for_each(|first| *first = bos);
    }
    Ok(tokens)
}

fn print(report: &Report, log: &Verbosity) -> Result<(), Failure> {
    let Report { perplexity, nll, tokens_scored, windows, ctx, seconds, .. } = report;
    console::print_line(format_args!("perplexity {perplexity:.4}"))?;
    if let Some(divergence) = &report.divergence {
        let Divergence { base_perplexity, mean, median, percentile_99, largest, same_top } = divergence;
        console::print_line(format_args!("base perplexity {base_perplexity:.4}"))?;
        console::print_line(format_args!(
            "KL divergence mean {mean:.6}, median {median:.6}, 99th percentile {percentile_99:.6}, largest {largest:.6}"
        ))?;
        console::print_line(format_args!("same most likely token {:.2}%", 100.0 * same_top))?;
    }
    let rate = (windows * ctx) as f64 / seconds;
    log.info(format_args!("nll {nll:.6} over {tokens_scored} tokens in {windows} windows of {ctx}, {rate:.1} tok/s"));
    Ok(())
}
