//! `bench`: the speed of a model, and its share of the machine's limit.

mod image;
mod suite;
#[cfg(test)]
mod tests;

use std::fs;
use std::ops::{ControlFlow, RangeInclusive};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use etcetera::BaseStrategy;
use gristmill_cpu::{Level, Profile};
use gristmill_engine::DraftSource;
use gristmill_engine::vision::Size;
use gristmill_engine::{Backend, Engine, Limits, Model};
use gristmill_lab::bench::{
    Bench, Beside, Measurement, Report, SweepPlan, Workload, beside, machine, profiled_backend, serve, sweep,
};
use gristmill_lab::routing::RoutingArg;
use gristmill_lab::synthetic::Synthetic;

use crate::args::DeviceArgs;
use crate::console;
use crate::draft::{DraftArgs, Without};
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::mmproj::MmprojArg;
use crate::numbers::{self, at_least};
use crate::source::{ModelArg, QuantizeArg, Source};
use crate::verbosity::Verbosity;
use crate::{load, output};
use suite::Suite;

/// Measure prefill and decode speed, also as a share of the machine's limit.
#[derive(Args)]
pub(crate) struct BenchArgs {
    #[command(flatten)]
    model: ModelArg,
    #[command(flatten)]
    quantize: QuantizeArg,
    /// Random weights in the shapes of a published model: qwen3-30b-a3b, qwen3-235b-a22b, qwen3-8b, mixtral-8x7b,
    /// olmoe-1b-7b, smollm2-135m, gpt-oss-20b, gpt-oss-120b, glm-4.5-air, minimax-m2, qwen3-next-80b-a3b,
    /// qwen3.6-35b-a3b, lfm2-8b-a1b, gemma4-26b-a4b, gemma4-e4b, qwen3-vl-30b-a3b, deepseek-v2-lite, glm-4.7-flash,
    /// deepseek-v3, kimi-k2, kimi-linear-48b, step-3.5-flash, mimo-v2-flash, minimax-m3, nemotron-3-nano-30b-a3b,
    /// granite-4-h-small, falcon-h1-7b, mini-moe or mini-oss. The suffix -mtp, as in qwen3.6-35b-a3b-mtp, adds a
    /// prediction head to a model other than Gemma 4, Step 3.5, MiMo, Granite 4 and Falcon-H1. FORMAT is a format of GGUF
    /// files, or a mix [default: Q4_K_M; MXFP4_MOE for gpt-oss: experts in MXFP4, the rest in Q8_0, as
    /// published]. GPTQ (4 bits in groups of 128) and FP8 (a scale for each row) are folders, of the Qwen 3 models.
    #[arg(long, value_name = "NAME[:FORMAT]", conflicts_with_all = ["model", "path", "quantize"])]
    synthetic: Option<String>,
    /// Layers of the synthetic model [default: as published].
    #[arg(
        long, value_name = "N", requires = "synthetic", allow_negative_numbers = true,
        value_parser = at_least::<u32>(1)
    )]
    layers: Option<u32>,
    /// The path of the synthetic model [default: a file in the cache]. If the file already contains this model, it is
    /// used without changes.
    #[arg(short, long, value_name = "FILE", requires = "synthetic")]
    output: Option<PathBuf>,
    /// Prompt tokens of each sequence; 0 skips prefill.
    #[arg(
        short, long, default_value_t = 512, value_name = "N", allow_negative_numbers = true,
        value_parser = at_least::<usize>(0)
    )]
    prompt: usize,
    /// Tokens to decode in each sequence; 0 skips decode.
    #[arg(
        short = 'n', long, default_value_t = 128, value_name = "N", allow_negative_numbers = true,
        value_parser = at_least::<usize>(0)
    )]
    decode: usize,
    /// Tokens of one forward pass in prefill [default: 512; on CUDA 8192, or less if its memory is short or the sequences
    /// have fewer tokens].
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = at_least::<usize>(1))]
    chunk: Option<usize>,
    /// Sequences in a batch.
    #[arg(
        short, long, default_value_t = 1, value_name = "N", allow_negative_numbers = true,
        value_parser = at_least::<usize>(1)
    )]
    batch: usize,
    /// Measure only decode, with every number of sequences from FROM to TO.
    #[arg(
        long,
        value_name = "FROM..TO",
        conflicts_with_all = ["batch", "prompt", "requests"],
        value_parser = sweep::sizes
    )]
    batch_sweep: Option<RangeInclusive<usize>>,
    /// Also measure a step that decodes each of these numbers of sequences and prefills N tokens of a prompt.
    #[arg(
        long, value_name = "N", requires = "batch_sweep", allow_negative_numbers = true,
        value_parser = at_least::<usize>(1)
    )]
    sweep_prompt: Option<usize>,
    /// Measure a step that decodes --batch sequences and prefills --prompt tokens, a step that only decodes, and a step
    /// that only prefills.
    #[arg(long, conflicts_with_all = ["batch_sweep", "requests", "profile", "decode"])]
    beside: bool,
    /// Force the experts of each token. FILE is a trace that `experts --trace` wrote. strong, weak and uniform generate
    /// experts: strong and weak with the reuse of published models, uniform without. A seed, as in weak:7, gives other
    /// experts. A pass then also copies 4 bytes to the device for each expert of each layer and token.
    #[arg(long, value_name = "FILE|NAME[:SEED]", conflicts_with_all = ["requests", "mtp_accept"])]
    routing: Option<RoutingArg>,
    /// Tokens in the KV cache of each sequence before the measurement.
    #[arg(
        short, long, default_value_t = 0, value_name = "N", allow_negative_numbers = true,
        value_parser = at_least::<usize>(0)
    )]
    depth: usize,
    /// Repetitions; the median is printed.
    #[arg(
        short, long, default_value_t = 5, value_name = "N", allow_negative_numbers = true,
        value_parser = at_least::<usize>(1)
    )]
    repeats: usize,
    /// Run this number of requests of these lengths through the engine instead, at most --batch at a time. Print the
    /// times to first tokens and between tokens, the engine's own time in a step, and the device's free memory before
    /// and after.
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = at_least::<usize>(1))]
    requests: Option<usize>,
    /// Requests of random lengths up to --prompt and --decode; one in eight is cancelled.
    #[arg(long, requires = "requests")]
    mixed: bool,
    /// Print the time on the CPU by operation: share, bytes, operations, rate, and share of the machine's limit. Also
    /// print the share of the time in which each thread works; otherwise it waits.
    #[arg(long, conflicts_with_all = ["requests", "batch_sweep"])]
    profile: bool,
    /// Measure the models and workloads of a table in docs/benchmarks.md instead, at --cpu-level, or at each level that
    /// this CPU has. The files need 30 GB in the cache, and 19 GB more if the full-size model fits into memory.
    #[arg(long, value_name = "NAME", conflicts_with_all = SUITE_CONFLICTS)]
    suite: Option<Suite>,
    /// Measure only models of the suite whose names contain this text. Can be repeated.
    #[arg(long, value_name = "MODEL", requires = "suite")]
    only: Vec<String>,
    /// Remove each file that the suite wrote after its model is measured.
    #[arg(long, requires = "suite")]
    discard: bool,
    /// Measure the vision tower of the model with --batch images of this size instead. A synthetic model has a tower in the
    /// shapes of Qwen 3.5's, and only this tower is written.
    #[arg(
        long, value_name = "WIDTHxHEIGHT", value_parser = image::size,
        conflicts_with_all = ["batch_sweep", "beside", "requests", "routing", "mtp_accept", "quantize"]
    )]
    image: Option<Size>,
    #[command(flatten)]
    mmproj: MmprojArg,
    /// Print JSON.
    #[arg(long, help_heading = "Output")]
    json: bool,
    /// Run the model's prediction heads, and accept draft tokens by a fixed pseudo-random sequence with this chance, as a
    /// text of that predictability would: a number for each place, the last one for all further places. It works on
    /// requests; without --requests there are 4 for each sequence.
    #[arg(
        long, value_name = "P[,P…]", value_delimiter = ',', allow_negative_numbers = true,
        value_parser = numbers::probability,
        conflicts_with_all = ["draft", "draft_model", "batch_sweep", "beside", "profile"]
    )]
    mtp_accept: Vec<f64>,
    #[command(flatten)]
    draft: DraftArgs,
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    log: Verbosity,
}

/// Tokens of one forward pass in prefill, where nothing chooses them.
const CHUNK: usize = 512;

/// The options that a suite determines itself.
const SUITE_CONFLICTS: [&str; 21] = [
    "model",
    "path",
    "quantize",
    "synthetic",
    "layers",
    "output",
    "prompt",
    "decode",
    "chunk",
    "batch",
    "depth",
    "batch_sweep",
    "sweep_prompt",
    "beside",
    "requests",
    "routing",
    "mtp_accept",
    "mixed",
    "profile",
    "image",
    "mmproj",
];

pub(crate) fn run(args: &BenchArgs) -> Result<(), Failure> {
    let replays = !args.mtp_accept.is_empty();
    let requests = args.requests.or(replays.then_some(4 * args.batch));
    if requests.is_none() && args.draft.is_given() {
        return Err(Failure::new("draft tokens are measured with requests: add --requests N"));
    }
    if let Some(suite) = args.suite {
        return suite::run(args, suite);
    }
    if let Some(size) = args.image {
        return image::run(args, size);
    }
    let written = |spec: &String| synthetic(args, &Synthetic::parse(spec, args.layers)?);
    let path = args.synthetic.as_ref().map(written).transpose()?;
    let source = match &path {
        Some(path) => Source::File(path),
        None => args.quantize.of(args.model.source()?)?,
    };
    if args.prompt == 0 && args.decode == 0 {
        return Ok(());
    }
    let BenchArgs { batch, depth, prompt, decode, .. } = *args;
    let chunk = args.chunk.unwrap_or(CHUNK);
    if let Some(sizes) = &args.batch_sweep {
        return measure_sweep(args, source, sizes.clone());
    }
    let workload = Workload { batch, depth, prompt, decode, chunk };
    if args.beside {
        return measure_beside(args, source, workload);
    }
    let limits = Limits { kv_format: args.device.kv.into(), ..workload.limits()? };
    let drafts = if replays { args.draft.as_mtp() } else { args.draft.or(Without::Off) };
    let device = drafts.on(&args.device);
    let profile = args.profile.then(|| Arc::new(Profile::default()));
    let (model, limits) = match &profile {
        Some(profile) => {
            let backend = profiled(&args.device, profile)?;
            (load::on_backend(source, backend, &args.device, limits, &args.log)?, limits)
        }
        None => {
            let batch_tokens = if args.chunk.is_some() { limits.batch_tokens } else { 0 };
            let (model, found) = load::model_and_limits(source, &device, Limits { batch_tokens, ..limits }, &args.log)?;
            (model, Limits { batch_tokens: found.batch_tokens, ..limits })
        }
    };
    let workload = Workload { chunk: args.chunk.unwrap_or(limits.batch_tokens), ..workload };
    if let Some(requests) = requests {
        let context = Some(prompt.saturating_add(decode));
        let output_rows = drafts.rows(batch);
        let limits = Limits { context, output_rows, ..limits };
        let engine = match replays {
            true => {
                let source = DraftSource::Replay(args.mtp_accept.clone());
                Engine::start_with_drafts(model, source, limits)
                    .map_err(|error| Failure::new(format!("--mtp-accept: {error}")))?
            }
            false => load::start(model, drafts, limits, &args.device, &args.log)?,
        };
        let served = serve(&engine, workload, requests, args.mixed, drafts.most(engine.model()))?;
        return if args.json { console::print_json(&served) } else { console::print_report(&served) };
    }
    let machine = machine::of(&model, args.device.cpu_level, args.device.threads())?;
    let threads = args.device.threads();
    let repeats = args.repeats;
    let routing = args.routing.as_ref();
    let measurement = Measurement { threads, repeats, machine, routing };
    let report = measure(&measurement, source, &model, workload, limits, profile, &args.log)?;
    load::tell_slots(model.backend(), &args.log);
    if args.json { console::print_json(&report) } else { console::print_report(&report) }
}

/// Measures decode with each of these numbers of sequences.
fn measure_sweep(args: &BenchArgs, source: Source, sizes: RangeInclusive<usize>) -> Result<(), Failure> {
    let BenchArgs { depth, decode, repeats, sweep_prompt: prompt, .. } = *args;
    if decode == 0 {
        return Ok(());
    }
    let plan = SweepPlan { sizes, steps: decode, repeats, depth, prompt };
    let workload = plan.workload(args.chunk.unwrap_or(CHUNK))?;
    let limits = Limits { kv_format: args.device.kv.into(), ..workload.limits()? };
    let model = load::model(source, &args.device, limits, &args.log)?;
    let routing = Measurement::forced(args.routing.as_ref(), &model, workload.batch)?;
    let mut bench = Bench::new(model, workload, limits, None, routing)?;
    let sweep = sweep::run(&mut bench, &plan, |repeat, sweep| match args.json {
        true => Ok(()),
        false => console::print_report(format_args!("repetition {repeat} of {repeats}\n{sweep}")),
    })?;
    if args.json { console::print_json(&sweep) } else { Ok(()) }
}

/// Measures a prompt next to decode.
fn measure_beside(args: &BenchArgs, source: Source, workload: Workload) -> Result<(), Failure> {
    if workload.prompt == 0 {
        return Err(Failure::new("--beside needs a prompt: --prompt N, at least 1"));
    }
    let all = beside::workload(workload)?;
    let limits = Limits { kv_format: args.device.kv.into(), ..all.limits()? };
    let model = load::model(source, &args.device, limits, &args.log)?;
    let routing = Measurement::forced(args.routing.as_ref(), &model, all.batch)?;
    let mut bench = Bench::new(model, all, limits, None, routing)?;
    let beside: Beside = beside::run(&mut bench, workload, args.repeats)?;
    if args.json { console::print_json(&beside) } else { console::print_report(&beside) }
}

/// A CPU whose operations are measured. Fails if the arguments name another device.
fn profiled(device: &DeviceArgs, profile: &Arc<Profile>) -> Result<Arc<Backend>, Failure> {
    if !matches!(device.device.as_str(), "auto" | "cpu") {
        let asked = &device.device;
        return Err(Failure::new(format!("--profile measures the CPU, but --device is {asked}; leave one out")));
    }
    Ok(profiled_backend(device.cpu_level.unwrap_or_else(Level::best), device.threads(), Arc::clone(profile))?)
}

/// Measures a model with a progress bar.
fn measure(
    measurement: &Measurement,
    source: Source,
    model: &Arc<Model>,
    workload: Workload,
    limits: Limits,
    profile: Option<Arc<Profile>>,
    log: &Verbosity,
) -> Result<Report, Failure> {
    let bar = load::bar(log, "measuring {bar:40} {pos}/{len}");
    bar.set_length((measurement.repeats as u64).saturating_add(1));
    let report = measurement.run(source.to_string(), model, workload, limits, profile, &|| bar.inc(1))?;
    bar.finish_and_clear();
    Ok(report)
}

/// Writes the synthetic model, unless the file already holds it.
fn synthetic(args: &BenchArgs, model: &Synthetic) -> Result<PathBuf, Failure> {
    let path = match &args.output {
        Some(path) => path.clone(),
        None => cache()?.join(model.file_name()),
    };
    if !model.is_written(&path) {
        write(model, &path, &args.log)?;
        args.log.info(format_args!("wrote {}", path.display()));
    }
    Ok(path)
}

/// Writes a synthetic model with a progress bar. A signal stops it.
fn write(model: &Synthetic, path: &Path, log: &Verbosity) -> Result<(), Failure> {
    let folder = output::folder(path);
    fs::create_dir_all(folder).map_err(|e| {
        Failure::new(format!("cannot make {}: {e}; name a place that can be written with -o", folder.display()))
    })?;
    output::check_space(path, model.file_bytes()?)?;
    let interrupt = Interrupt::watch()?;
    let bar = load::bar(log, "writing {bar:40} {bytes}/{total_bytes}");
    let written = model.write(path, &|done, total| {
        bar.set_length(total);
        // Threads may report out of order.
        bar.set_position(bar.position().max(done));
        if interrupt.signal().is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    bar.finish_and_clear();
    written.map_err(|error| Failure::stopped(&interrupt, error))
}

/// The folder of synthetic models.
fn cache() -> Result<PathBuf, Failure> {
    let base = etcetera::choose_base_strategy();
    let base =
        base.map_err(|_| Failure::new("there is no home directory for a cache; name the output with -o FILE"))?;
    Ok(base.cache_dir().join("gristmill").join("synthetic"))
}
