//! `perplexity`: how well a model predicts a text, and how far its predictions are from another model's.

use std::path::PathBuf;

use clap::Args;
use gristmill_engine::{Limits, Runner};
use gristmill_lab::perplexity::{BATCH_ROWS, Divergence, Options, Report, Saved, Watch, measure, windows};
use indicatif::ProgressBar;

use crate::args::{DeviceArgs, TextArgs};
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::source::{ModelArg, QuantizeArg};
use crate::verbosity::Verbosity;
use crate::{console, load};

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
    #[arg(long, help_heading = "Output")]
    json: bool,
    #[command(flatten)]
    log: Verbosity,
}

/// A progress bar, and the signals that stop a measurement which writes.
struct Progress {
    bar: ProgressBar,
    interrupt: Option<Interrupt>,
}

impl Watch for Progress {
    fn scored(&self, windows: usize, perplexity: f64) {
        self.bar.set_length(windows as u64);
        self.bar.inc(1);
        self.bar.set_message(format!("perplexity {perplexity:.4}"));
    }

    fn is_stopped(&self) -> bool {
        self.interrupt.as_ref().is_some_and(|interrupt| interrupt.signal().is_some())
    }
}

pub(crate) fn run(args: &PerplexityArgs) -> Result<(), Failure> {
    let (text, ctx) = args.text.read(4)?;
    let base = args.kl_base.as_deref().map(Saved::open).transpose()?;
    let limits = Limits {
        context: Some(ctx),
        sequences: 1,
        batch_tokens: ctx.min(512),
        output_rows: Some(BATCH_ROWS.min(ctx)),
        kv_format: args.device.kv.into(),
        ..Limits::default()
    };
    let source = args.quantize.of(args.model.source()?)?;
    let model = load::model(source, &args.device, limits, &args.log)?;
    let tokens = windows(model.tokenizer()?, &text, args.parse_special, ctx)?;
    let watch = Progress {
        bar: load::bar(&args.log, "window {pos}/{len} {bar:40} {msg}"),
        interrupt: args.save_logits.is_some().then(Interrupt::watch).transpose()?,
    };
    let options = Options { base: base.as_ref(), save: args.save_logits.as_deref() };
    let measured = measure(Runner::new(model, limits)?, &tokens, ctx, &options, &watch);
    let Progress { bar, interrupt } = watch;
    bar.finish_and_clear();
    let report = match interrupt {
        Some(interrupt) => measured.map_err(|error| Failure::stopped(&interrupt, error))?,
        None => measured?,
    };
    if args.json { console::print_json(&report) } else { print(&report, &args.log) }
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
