//! `kernels`: CUDA kernels of models, compiled ahead on a machine without a GPU.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use clap::Args;
use gristmill_cuda::ahead::{self, CARDS, Cards};
use gristmill_cuda::units::{Unit, architecture};
use gristmill_cuda::{Choice, Options};
use gristmill_engine::Limits;
use gristmill_files::gguf::GgufFile;
use gristmill_lab::synthetic::Synthetic;

use crate::args::{DeviceArgs, KvArg, PrecisionArg};
use crate::draft::{DraftArgs, Without};
use crate::failure::Failure;
use crate::mmproj::MmprojArg;
use crate::numbers;
use crate::source::{ModelArg, QuantizeArg, Source};
use crate::verbosity::Verbosity;
use crate::{console, load};

/// Compile the CUDA kernels of a model ahead.
///
/// On CUDA, NVRTC compiles a model's kernels at its first start, which takes a minute on some machines. This command compiles
/// them into a folder, and needs NVRTC, but neither a GPU nor a driver. Other machines use the folder with --kernels FOLDER, and
/// need no NVRTC then. Without that option, the folder share/gristmill/kernels next to the program is used, if it exists.
/// A kernel is used only if its source, options and architecture are equal; others are compiled as before.
#[derive(Args)]
pub(crate) struct KernelsArgs {
    #[command(flatten)]
    model: ModelArg,
    #[command(flatten)]
    quantize: QuantizeArg,
    #[command(flatten)]
    mmproj: MmprojArg,
    /// The shapes of a published model instead of a model, as in bench. Can be repeated.
    #[arg(long, value_name = "NAME[:FORMAT]", conflicts_with_all = ["model", "path", "quantize", "mmproj"])]
    synthetic: Vec<String>,
    /// The architectures, separated by commas, for example sm_90,sm_120 [default: sm_75, sm_80, sm_86, sm_89, sm_90, sm_100 and
    /// sm_120].
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = cards)]
    arch: Vec<&'static Cards>,
    /// The folder to write. Kernels that it already contains are kept.
    #[arg(short, long, value_name = "FOLDER")]
    output: PathBuf,
    /// The number of replies that are generated at the same time, as of serve.
    #[arg(
        long, value_name = "N", default_value_t = 8, allow_negative_numbers = true,
        value_parser = numbers::at_least::<usize>(1),
        help_heading = "Limits"
    )]
    parallel: usize,
    /// Format of keys and values in the KV cache.
    #[arg(long, value_name = "FORMAT", default_value = "f16", help_heading = "Device")]
    kv: KvArg,
    /// Precision of activations in products with weights.
    #[arg(long, value_name = "PRECISION", default_value = "fast", help_heading = "Device")]
    precision: PrecisionArg,
    /// Compile the kernels of --deterministic.
    #[arg(long, help_heading = "Device")]
    deterministic: bool,
    #[command(flatten)]
    log: Verbosity,
}

/// Reads an architecture: `sm_90`, `90` or `9.0`.
fn cards(text: &str) -> Result<&'static Cards, String> {
    let number = text.trim().trim_start_matches("sm_").trim_end_matches('a').replace('.', "");
    let found = CARDS.iter().find(|cards| cards.capability.to_string() == number);
    let known = || CARDS.iter().map(|cards| format!("sm_{}", cards.capability)).collect::<Vec<_>>().join(", ");
    found.ok_or_else(|| format!("it must be one of {}", known()))
}

pub(crate) fn run(args: &KernelsArgs) -> Result<(), Failure> {
    let source = args.quantize.of(args.model.source()?)?;
    let models: Vec<Synthetic> = args
        .synthetic
        .iter()
        .map(|name| Synthetic::parse(name, None).map_err(|error| Failure::new(format!("--synthetic: {error}"))))
        .collect::<Result<_, _>>()?;
    let all: Vec<&Cards> = if args.arch.is_empty() { CARDS.iter().collect() } else { args.arch.clone() };
    for cards in all {
        let mut units = BTreeSet::new();
        match &models[..] {
            [] => collect(args, cards, &source.open(&args.log)?, Some(source), &mut units)?,
            models => {
                models.iter().try_for_each(|model| collect(args, cards, &model.without_data()?, None, &mut units))?
            }
        }
        compile(args, cards, &units)?;
    }
    Ok(())
}

/// Compiles units, and prints a line.
fn compile(args: &KernelsArgs, cards: &Cards, units: &BTreeSet<Unit>) -> Result<(), Failure> {
    let (start, architecture) = (Instant::now(), architecture(cards.capability));
    let bar = load::bar(&args.log, &format!("{architecture} {{wide_bar}} {{pos}}/{{len}}"));
    bar.set_length(units.len() as u64);
    let compiled = ahead::compile(units, cards.capability, &args.output, &mut |done| bar.set_position(done as u64));
    bar.finish_and_clear();
    let compiled = compiled.map_err(Failure::new)?;
    let (bytes, seconds) = (console::bytes(compiled.bytes), start.elapsed().as_secs_f64());
    console::print_line(format_args!(
        "{architecture}: {} kernels compiled in {seconds:.1} s, {} were in the folder, {bytes}",
        compiled.new, compiled.kept
    ))
}

/// Collects the units that a model launches on cards, as `run` and `serve` load it, also with its prediction heads.
fn collect(
    args: &KernelsArgs,
    cards: &Cards,
    file: &GgufFile,
    source: Option<Source>,
    units: &mut BTreeSet<Unit>,
) -> Result<(), Failure> {
    // What it would say is about a device that is not here.
    let log = Verbosity { quiet: true, verbose: false };
    let choice = if args.deterministic { Choice::Deterministic } else { Choice::Fastest };
    let no_options = DraftArgs::default();
    for card in cards.each() {
        let device =
            DeviceArgs::on(Arc::new(card.backend(Options { choice })?), args.kv, args.precision, args.deterministic);
        for (sequences, without) in [(1, Without::Mtp), (args.parallel, Without::Off), (args.parallel, Without::Mtp)] {
            let drafts = no_options.or(without);
            let output_rows = drafts.rows(sequences);
            let kv_format = args.kv.into();
            let limits = Limits { sequences, batch_tokens: 0, output_rows, kv_format, ..Limits::default() };
            let projector = source.map_or(Ok(None), |source| args.mmproj.open(source, &args.log))?;
            load::on_shared(file.clone(), projector, &drafts.on(&device), limits, &log)?;
        }
        units.extend(card.units());
    }
    Ok(())
}
