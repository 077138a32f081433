//! `fit`: which format of a model this machine runs, and how fast.

mod header;

use clap::Args;
use gristmill_cpu::Level;
use gristmill_engine::model::RankPlan;
use gristmill_engine::{DeviceId, Limits, ModelInfo, Plan, open_device, place};
use gristmill_files::gguf::GgufFile;
use gristmill_kernels::Backend;
use gristmill_lab::bench::machine::memory_rate;
use gristmill_lab::disk;
use gristmill_lab::fit::{
    Beyond, Candidates, Conditions, Offload, Report, Row, assumption, candidates, experts, recommend,
};
use gristmill_lab::slots::{FileRates, Layers, ReadRates};

use crate::args::DeviceArgs;
use crate::failure::Failure;
use crate::mmproj::MmprojArg;
use crate::verbosity::Verbosity;
use crate::{console, kind, load, numbers};
use header::Header;

/// Show which formats of a model fit this machine, estimate their speed, and recommend one.
///
/// Decoding reads the weights from memory once for each token; in a mixture of experts, only the chosen experts. So the
/// speed is at most the measured memory bandwidth divided by these bytes. For a file, a folder or a synthetic model,
/// sizes are computed as gristmill quantize would write them. For a model of the hub, the published sizes are used, and
/// a few megabytes are downloaded.
#[derive(Args)]
pub(crate) struct FitArgs {
    /// The model: a GGUF file, a folder of Hugging Face or MLX, ORG/REPO of the hub, or the name of a synthetic model
    /// such as qwen3-30b-a3b.
    #[arg(value_name = "MODEL")]
    model: String,
    /// Context length in tokens [default: the minimum of 8192 and the model's training context].
    #[arg(long, value_name = "TOKENS", allow_negative_numbers = true, value_parser = numbers::at_least::<usize>(1), help_heading = "Length and sampling")]
    ctx: Option<usize>,
    /// Tokens per second that are fast enough. The best format that reaches this speed is recommended.
    #[arg(long, value_name = "TOK/S", default_value_t = 10.0, allow_hyphen_values = true, value_parser = positive)]
    speed: f64,
    /// Memory in GB of another machine.
    #[arg(long, value_name = "GB", allow_hyphen_values = true, value_parser = positive)]
    memory: Option<f64>,
    /// Memory bandwidth in GB/s of another machine.
    #[arg(long, value_name = "GB/S", allow_hyphen_values = true, value_parser = positive)]
    bandwidth: Option<f64>,
    /// Bandwidth in GB/s of another machine's host memory. Formats that do not fit into --memory, the memory of its GPU, then
    /// have their experts in host memory, and those chosen last on the GPU.
    #[arg(
        long, value_name = "GB/S", requires = "memory", requires = "bandwidth", allow_hyphen_values = true,
        value_parser = positive
    )]
    host_bandwidth: Option<f64>,
    /// Download nothing. Only models in the cache can be used.
    #[arg(long, help_heading = "Model")]
    offline: bool,
    /// Print JSON.
    #[arg(long, help_heading = "Output")]
    json: bool,
    #[command(flatten)]
    mmproj: MmprojArg,
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    log: Verbosity,
}

pub(crate) fn run(args: &FitArgs) -> Result<(), Failure> {
    let mut header = Header::read(args)?;
    let mut info = kind::info(&header.file)?;
    let options = args.device.load_options()?;
    let opened = open_device(&options)?;
    if let Some(error) = &opened.passed_over {
        args.log.info(format_args!("{error}; the CPU is used"));
    }
    let context = args.ctx.unwrap_or(info.spec.context_length.clamp(1, 8192));
    let limits = Limits { context: Some(context), kv_format: args.device.kv.into(), ..Limits::default() };
    let backend = opened.backend.clone();
    if !opened.others.is_empty() {
        // The report is of the first device, which has most.
        let placed = place(&header.file, info, opened, options, limits)?;
        if let Some(choice) = &placed.choice {
            args.log.info(format_args!("split: {choice}"));
        }
        for RankPlan { device, has, plan, .. } in placed.rank_plans(&header.file)? {
            args.log.info(format_args!("{device}: {has}; {}", load::describe(&plan)));
        }
        info = placed.info;
    }
    let planned = |info: &ModelInfo| Plan::new(info, &limits, args.device.precision.into(), &backend);
    let text = planned(&info)?;
    let weights = text.weights.saturating_add(text.mapped);
    load::of_model(header.projector.take(), &mut info, &args.log)?;
    let plan = planned(&info)?;
    let conditions = Conditions {
        context,
        memory: args.memory.map(|gb| (gb * 1e9) as u64).or(plan.available),
        bandwidth: args.bandwidth.map_or_else(|| rate(args, &backend), |gb| Ok(gb * 1e9))?,
        state: plan.state,
        images: plan.total().saturating_sub(text.total()),
        other: plan.total().saturating_sub(plan.state).saturating_sub(weights),
        speed: args.speed,
    };
    let Header { file, name, own, published, .. } = &header;
    let known = Candidates { file, own: *own, published };
    let candidates = candidates(&known, &info, weights)?;
    let offload = offload(args, &header, &info, &backend, conditions.bandwidth)?;
    let row = |candidate| Row::new(candidate, &conditions, offload.as_ref());
    let file_rate = match offload.as_ref().map(|offload| offload.rates) {
        Some(Beyond::File(rates)) => Some(rates.file),
        _ => None,
    };
    let formats: Vec<Row> = candidates.iter().map(row).collect();
    let (recommended, reason) = recommend(&formats, &conditions);
    let report = Report {
        model: info.spec.name.clone().unwrap_or_else(|| args.model.clone()),
        experts: experts(&info.spec),
        device: backend.name(),
        conditions,
        measured: args.bandwidth.is_none(),
        file_bytes_per_second: file_rate,
        recommended: recommended.map(|row| row.format.clone()),
        formats,
        reason,
        assumption: assumption((!published.is_empty()).then_some(name.as_str())),
    };
    if args.json { console::print_json(&report) } else { console::print_report(report.text()) }
}

/// Where experts can be that do not fit: in host memory on CUDA, and on another machine whose rates are given; in the model's file
/// on the CPU.
fn offload(
    args: &FitArgs,
    header: &Header,
    info: &ModelInfo,
    backend: &Backend,
    device: f64,
) -> Result<Option<Offload>, Failure> {
    let is_gpu = matches!(backend.device(), DeviceId::Cuda(_));
    let level = args.device.cpu_level.unwrap_or_else(Level::best);
    let measured = || {
        is_gpu.then(|| {
            args.log.info(format_args!("measuring how fast the memory of the CPU is read"));
            memory_rate(level, args.device.threads())
        })
    };
    let Some(layers) = Layers::of(&info.spec) else { return Ok(None) };
    if let Some(host) = args.host_bandwidth.map(|gb| gb * 1e9).or_else(measured) {
        return Ok(Some(Offload { layers, rates: Beyond::Host(ReadRates { device, host }) }));
    }
    // Only a file of its own is read: of a model of the hub, the header alone is there.
    if backend.device() != DeviceId::Cpu || header.own.is_none() || !header.file.is_readable() {
        return Ok(None);
    }
    args.log.info(format_args!("measuring how fast experts are read from the file"));
    let disk = disk::read_rate(&header.file, &info.tensor_uses())?;
    let rates = disk.map(|disk| Beyond::File(FileRates { memory: device, file: disk.bytes_per_second }));
    Ok(rates.map(|rates| Offload { layers, rates }))
}

/// Bytes in a second that the device reads from its memory.
fn rate(args: &FitArgs, backend: &Backend) -> Result<f64, Failure> {
    args.log.info(format_args!("measuring how fast the memory of {} is read", backend.name()));
    Ok(match backend.rates()? {
        Some(rates) => rates.read_bytes_per_second,
        None => memory_rate(args.device.cpu_level.unwrap_or_else(Level::best), args.device.threads()),
    })
}

fn positive(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| "it must be a number greater than 0".to_owned())
}

/// Opens a GGUF file for its header.
fn open(path: &std::path::Path) -> Result<GgufFile, Failure> {
    Ok(GgufFile::open(path)?)
}
