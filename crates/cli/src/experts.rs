//! `experts`: the experts that a model's routers choose for a text.

use std::path::PathBuf;

use clap::Args;
use gristmill_engine::{Limits, Runner};
use gristmill_files::gguf::write_atomically;
use gristmill_lab::LabError;
use gristmill_lab::experts::{Blocks, LayerUsage, Report, count, top_k, write_picture};
use gristmill_lab::routing::TraceWriter;
use gristmill_text::tokenizer::EncodeOptions;

use crate::args::{DeviceArgs, TextArgs};
use crate::failure::Failure;
use crate::source::{ModelArg, QuantizeArg};
use crate::verbosity::Verbosity;
use crate::{console, load};

/// Show how often each expert of each layer is used.
///
/// The model reads the text in windows of --ctx tokens, and gristmill counts the routers' choices. A share of 1 is the
/// share in an even distribution. The entropy of the shares is 1 if they are even.
#[derive(Args)]
pub(crate) struct ExpertsArgs {
    #[command(flatten)]
    model: ModelArg,
    #[command(flatten)]
    quantize: QuantizeArg,
    #[command(flatten)]
    text: TextArgs,
    /// Write the heat map, layer by expert, to this file.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Write the experts of each token to this file, a line of JSON for each: {"experts": [[[ID, WEIGHT], …], …]} with a
    /// list for each layer. `bench --routing FILE` then measures with these experts.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Print JSON.
    #[arg(long, help_heading = "Output")]
    json: bool,
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    log: Verbosity,
}

pub(crate) fn run(args: &ExpertsArgs) -> Result<(), Failure> {
    let (text, ctx) = args.text.read(1)?;
    let limits = Limits {
        context: Some(ctx),
        batch_tokens: ctx.min(512),
        kv_format: args.device.kv.into(),
        ..Limits::default()
    };
    let source = args.quantize.of(args.model.source()?)?;
    let model = load::model(source, &args.device, limits, &args.log)?;
    let top_k: Vec<Option<usize>> =
        model.spec().layers.iter().map(|layer| layer.mlp.as_ref().and_then(top_k)).collect();
    if top_k.iter().all(Option::is_none) {
        let remedy = "use a mixture-of-experts model";
        return Err(Failure::new(format!("{source} has no experts: every layer has one MLP; {remedy}")));
    }
    let options = EncodeOptions { add_special: true, parse_special: false };
    let tokens = model.tokenizer()?.encode(&text, options)?;
    if tokens.is_empty() {
        return Err(Failure::new("the text is empty; use a longer text"));
    }

    let bar = load::bar(&args.log, "reading {bar:40} {pos}/{len} tokens");
    bar.set_length(tokens.len() as u64);
    let mut runner = Runner::new(model.clone(), limits)?;
    let progress = &mut |done: usize| bar.inc(done as u64);
    let counts = match &args.trace {
        None => count(&mut runner, &tokens, ctx, None, progress)?,
        Some(path) => {
            let mut counts = Vec::new();
            write_atomically(path, |out| -> Result<(), LabError> {
                counts = count(&mut runner, &tokens, ctx, Some(TraceWriter { out }), progress)?;
                Ok(())
            })?;
            counts
        }
    };
    bar.finish_and_clear();

    let layers = (0..).zip(top_k).zip(counts);
    let layers = layers.filter_map(|((layer, k), counts)| Some(LayerUsage::new(layer, k?, counts)));
    let name = model.spec().name.clone().unwrap_or_else(|| source.to_string());
    let report = Report { model: name, tokens: tokens.len(), layers: layers.collect() };
    if let Some(path) = &args.svg {
        write_picture(&report, path)?;
    }
    if args.json {
        return console::print_json(&report);
    }
    console::print(Blocks { report: &report, columns: console::columns() })
}
