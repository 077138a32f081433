//! `experts`: the experts that a model's routers choose for a text.

mod blocks;
mod picture;

use std::path::PathBuf;

use clap::Args;
use gristmill_engine::model::spec::{MlpSpec, MoeSpec};
use gristmill_engine::{Batch, Limits, Outputs, Runner};
use gristmill_files::gguf::{WriteError, write_atomically};
use gristmill_text::tokenizer::EncodeOptions;
use serde::Serialize;

use crate::args::{DeviceArgs, TextArgs, Verbosity};
use crate::failure::Failure;
use crate::routing::TraceWriter;
use crate::source::{ModelArg, QuantizeArg};
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
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    log: Verbosity,
}

/// The counts of all layers.
#[derive(Debug, Serialize)]
struct Report {
    /// `general.name`, or the path.
    model: String,
    tokens: usize,
    /// The layers with experts.
    layers: Vec<LayerUsage>,
}

/// The use of one layer's experts.
#[derive(Debug, Serialize)]
struct LayerUsage {
    /// Its index in the model.
    layer: usize,
    /// Experts chosen for each token.
    top_k: usize,
    /// Tokens of each expert.
    counts: Vec<u64>,
    /// `−Σ p · ln p / ln E`.
    entropy: f64,
    /// The share of the least used expert, relative to an even distribution.
    least: f64,
    /// The share of the most used expert, relative to an even distribution.
    most: f64,
    /// Experts without a token.
    unused: usize,
}

impl LayerUsage {
    fn new(layer: usize, top_k: usize, counts: Vec<u64>) -> LayerUsage {
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
    fn shares(&self) -> Vec<f64> {
        let all: u64 = self.counts.iter().sum();
        let even = all as f64 / self.counts.len() as f64;
        self.counts.iter().map(|&count| count as f64 / even).collect()
    }
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
            write_atomically(path, |out| -> Result<(), Failure> {
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
        picture::write(&report, path)?;
    }
    if args.json {
        return console::print_json(&report);
    }
    console::print(blocks::Blocks { report: &report, columns: console::columns() })
}

/// Experts that a layer chooses for each token; `None` without experts.
fn top_k(mlp: &MlpSpec) -> Option<usize> {
    match mlp {
        MlpSpec::Moe(MoeSpec { routing, .. }) => Some(routing.top_k),
        _ => None,
    }
}

/// Counts the tokens of each expert of each layer, and writes the experts of each token. `progress` takes the tokens of each batch.
fn count(
    runner: &mut Runner,
    tokens: &[u32],
    ctx: usize,
    mut trace: Option<TraceWriter>,
    progress: &mut dyn FnMut(usize),
) -> Result<Vec<Vec<u64>>, Failure> {
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
