//! `fit`: which format of a model this machine runs, and how fast.

mod header;
mod table;

use std::collections::HashMap;
use std::fmt::Write;

use clap::Args;
use gristmill_convert::quantize::{Mix, Quantizer};
use gristmill_cpu::Level;
use gristmill_engine::model::spec::{MlpSpec, ModelSpec, MoeSpec};
use gristmill_engine::{DeviceId, Limits, ModelInfo, Plan, open_device};
use gristmill_files::gguf::GgufFile;
use gristmill_kernels::Backend;
use gristmill_kernels::format::Format;
use serde::Serialize;

use crate::args::{DeviceArgs, Verbosity};
use crate::bench::machine::memory_rate;
use crate::failure::Failure;
use crate::slots::{FileRates, Layers, ReadRates, TokenBytes};
use crate::{console, disk, kind, numbers};
use header::Header;
use table::{Beyond, Candidate, Conditions, Offload, Row, SlotPlan, recommend};

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
    #[arg(long, value_name = "TOKENS", allow_negative_numbers = true, value_parser = numbers::at_least::<usize>(1))]
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
    #[arg(long)]
    offline: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    log: Verbosity,
}

/// The answer.
#[derive(Debug, Serialize)]
struct Report {
    model: String,
    /// Experts of a layer, and those chosen for a token.
    experts: Option<(usize, usize)>,
    device: String,
    #[serde(flatten)]
    conditions: Conditions,
    /// Whether the rate was measured now, and not given.
    measured: bool,
    /// The rate of reads of experts from the file, if formats that do not fit can run so.
    #[serde(skip_serializing_if = "Option::is_none")]
    file_bytes_per_second: Option<f64>,
    formats: Vec<Row>,
    recommended: Option<String>,
    reason: String,
    /// The origin of the sizes and of the bytes of a token.
    assumption: String,
}

pub(crate) fn run(args: &FitArgs) -> Result<(), Failure> {
    let header = Header::read(args)?;
    let info = kind::info(&header.file)?;
    let opened = open_device(&args.device.load_options()?)?;
    if let Some(error) = opened.passed_over {
        args.log.info(format_args!("{error}; the CPU is used"));
    }
    let backend = opened.backend;
    let context = args.ctx.unwrap_or(info.spec.context_length.clamp(1, 8192));
    let limits = Limits { context: Some(context), kv_format: args.device.kv.into(), ..Limits::default() };
    let plan = Plan::new(&info, &limits, args.device.precision.into(), &backend)?;
    let conditions = Conditions {
        context,
        memory: args.memory.map(|gb| (gb * 1e9) as u64).or(plan.available),
        bandwidth: args.bandwidth.map_or_else(|| rate(args, &backend), |gb| Ok(gb * 1e9))?,
        state: plan.state,
        other: plan.scratch.saturating_add(plan.reserve),
        speed: args.speed,
    };
    let candidates = candidates(&header, &info, plan.weights.saturating_add(plan.mapped))?;
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
        assumption: header.assumption(),
    };
    if args.json { console::print_json(&report) } else { console::print(report.text()) }
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
    let measured = || is_gpu.then(|| memory_rate(level, args.device.threads()));
    let Some(layers) = Layers::of(&info.spec) else { return Ok(None) };
    if let Some(host) = args.host_bandwidth.map(|gb| gb * 1e9).or_else(measured) {
        return Ok(Some(Offload { layers, rates: Beyond::Host(ReadRates { device, host }) }));
    }
    // Only a file of its own is read: of a model of the hub, the header alone is there.
    if backend.device() != DeviceId::Cpu || header.own.is_none() || !header.file.is_readable() {
        return Ok(None);
    }
    let disk = disk::read_rate(&header.file, &info.tensor_uses())?;
    let rates = disk.map(|disk| Beyond::File(FileRates { memory: device, file: disk.bytes_per_second }));
    Ok(rates.map(|rates| Offload { layers, rates }))
}

/// Bytes in a second that the device reads from its memory.
fn rate(args: &FitArgs, backend: &Backend) -> Result<f64, Failure> {
    Ok(match backend.rates()? {
        Some(rates) => rates.read_bytes_per_second,
        None => memory_rate(args.device.cpu_level.unwrap_or_else(Level::best), args.device.threads()),
    })
}

/// Formats of a file or a synthetic model.
const FORMATS: [&str; 8] = ["Q8_0", "Q6_K", "Q5_K_M", "MXFP4_MOE", "Q4_K_M", "IQ4_XS", "Q3_K_M", "Q2_K"];

/// The formats of a model, the largest first. `loaded` are the bytes that the header's own tensors take in memory.
fn candidates(header: &Header, info: &ModelInfo, loaded: u64) -> Result<Vec<Candidate>, Failure> {
    let (file, uses) = (&header.file, info.tensor_uses());
    let own: u64 = file.tensors().iter().map(|tensor| tensor.bytes).sum();
    let token = TokenBytes::new(&uses, |name| file.tensor(name).map_or(0, |tensor| tensor.bytes));
    let active = token.active;
    let scaled = |bytes: u64, by: u64| (bytes as f64 * by as f64 / own.max(1) as f64) as u64;
    let mut found: Vec<Candidate> = header
        .published
        .iter()
        .map(|(format, bytes)| Candidate {
            format: format.clone(),
            file: *bytes,
            weights: scaled(loaded, *bytes),
            active: scaled(active, *bytes),
            experts: TokenBytes {
                active: scaled(token.active, *bytes),
                chosen: scaled(token.chosen, *bytes),
                experts: scaled(token.experts, *bytes),
            },
        })
        .collect();
    // What MLX has quantised is not quantised again.
    let codes = |format: Format| !format.is_float() && format != Format::MXFP4;
    let kept = !file.is_gguf() && file.tensors().iter().any(|tensor| codes(tensor.format));
    if found.is_empty() && !kept {
        let mxfp4 = file.tensors().iter().any(|tensor| tensor.format.name() == "MXFP4");
        for mix in FORMATS.iter().filter(|name| mxfp4 || **name != "MXFP4_MOE").filter_map(|name| Mix::named(name)) {
            let planned = Quantizer::new(file, mix, &[])?;
            let bytes: HashMap<&str, u64> =
                planned.tensors().iter().map(|tensor| (tensor.name.as_str(), tensor.bytes)).collect();
            let all: u64 = bytes.values().sum();
            let experts = TokenBytes::new(&uses, |name| bytes.get(name).copied().unwrap_or(0));
            found.push(Candidate {
                format: mix.name().to_owned(),
                file: planned.file_bytes(),
                weights: scaled(loaded, all),
                active: experts.active,
                experts,
            });
        }
        // A model that was published in MXFP4 gains nothing by larger formats, and no other model is meant for MXFP4.
        let published = found.iter().find(|candidate| candidate.format == "MXFP4_MOE").map(|candidate| candidate.file);
        found.retain(|candidate| published.is_none_or(|published| candidate.file <= published));
    }
    if let Some(own) = header.own {
        found.push(Candidate {
            format: own.to_owned(),
            file: file.file_bytes(),
            weights: loaded,
            active,
            experts: token,
        });
    }
    found.sort_by_key(|candidate| std::cmp::Reverse(candidate.file));
    Ok(found)
}

/// Experts of the first layer that has some, and those chosen for a token.
fn experts(spec: &ModelSpec) -> Option<(usize, usize)> {
    spec.layers.iter().find_map(|layer| match &layer.mlp {
        Some(MlpSpec::Moe(MoeSpec { experts, routing, .. })) => Some((*experts, routing.top_k)),
        _ => None,
    })
}

fn positive(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| "it must be a number greater than 0".to_owned())
}

impl Report {
    fn text(&self) -> String {
        let Conditions { context, memory, bandwidth, state, .. } = self.conditions;
        let experts = self.experts.map_or("dense".to_owned(), |(all, used)| format!("{used} of {all} experts a token"));
        let memory =
            memory.map_or("unknown memory".to_owned(), |memory| format!("{} of memory", console::bytes(memory)));
        let measured = if self.measured { "measured now" } else { "as given" };
        let mut out = format!("model: {}, {experts}\n", printable(&self.model));
        let _ = writeln!(
            out,
            "device: {}, {memory}, reads {}/s ({measured})",
            self.device,
            console::bytes(bandwidth as u64)
        );
        let token = console::bytes(state / context.max(1) as u64);
        let _ = writeln!(out, "cache: {} for {context} tokens, {token} a token", console::bytes(state));
        let _ = writeln!(
            out,
            "\n{:<10} {:>10} {:>10}  {:<4} {:>8} {:>14}",
            "format",
            "file",
            "memory",
            "fits",
            "tok/s",
            format!("at {context}")
        );
        for row in &self.formats {
            let fits = if row.fits { "yes" } else { "no" };
            let [file, memory] = [row.file_bytes, row.memory_bytes].map(console::bytes);
            let _ = writeln!(
                out,
                "{:<10} {file:>10} {memory:>10}  {fits:<4} {:>8.1} {:>14.1}",
                printable(&row.format),
                row.tokens_per_second,
                row.tokens_per_second_at_context
            );
        }
        let _ = writeln!(out, "\n{}", self.reason);
        out + &self.slots() + &self.assumption + "\n"
    }

    /// The formats that do not fit, with their experts in slots.
    fn slots(&self) -> String {
        let rows = || self.formats.iter().filter_map(|row| Some((row, row.slots.as_ref()?)));
        let Some((_, SlotPlan { expected, .. })) = rows().next() else { return String::new() };
        let (mut out, place, assumption) = match self.file_bytes_per_second {
            None => {
                let heading = "\nwith experts in host memory, and those chosen last in slots on the GPU:\n";
                (heading.to_owned(), "host", SLOTS_ASSUMPTION)
            }
            Some(rate) => {
                let rate = console::bytes(rate as u64);
                let heading = "with experts in the file, which gives";
                (
                    format!("\n{heading} {rate}/s (measured now), and those used last in memory:\n"),
                    "file",
                    FILE_ASSUMPTION,
                )
            }
        };
        let _ = write!(out, "{:<10} {:>10} {:>9}", "format", place, "slots");
        for it in expected {
            let _ = write!(out, " {:>15}", it.reuse);
        }
        out += "\n";
        for (row, SlotPlan { slots, experts, host_bytes, expected }) in rows() {
            let (host, slots) = (console::bytes(*host_bytes), format!("{slots}/{experts}"));
            let _ = write!(out, "{:<10} {host:>10} {slots:>9}", printable(&row.format));
            for it in expected {
                let text = format!("{:.0}% {:.1} tok/s", 100.0 * it.hits, it.tokens_per_second);
                let _ = write!(out, " {text:>15}");
            }
            out += "\n";
        }
        out + assumption
    }
}

/// The origin of the numbers of slots.
const SLOTS_ASSUMPTION: &str = "\
The columns are texts that use the same experts again as little as chance, as Gemma 4 26B (weak), and as
Qwen3-30B-A3B (strong): the share of choices in slots, and tokens per second from the rates above, with
the time of a layer that was measured on an H100 with 16 cores (docs/benchmarks.md).

";

/// The origin of the numbers of experts in the file.
const FILE_ASSUMPTION: &str = "\
The columns are texts that use the same experts again as little as chance, as Gemma 4 26B (weak), and as
Qwen3-30B-A3B (strong): the share of choices in memory, and tokens per second from the rates above.

";

/// A name of a file without control characters.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

impl Header {
    /// The origin of the numbers, in lines.
    fn assumption(&self) -> String {
        let common = "\
tok/s is the most that the memory allows one reply, with an empty context and with a full one: each
token reads its weights and its part of the cache from memory once. Measured rates are 55 to 90% of it
on CPUs and about a quarter on an H200 (docs/benchmarks.md), and may be above it for a model that fits
into the processor's caches. Memory is weights, cache of the context and scratch.";
        match self.published.is_empty() {
            true => common.to_owned(),
            false => format!(
                "{common}\nSizes are the hub's; the share of them that a token reads is that of {}.",
                printable(&self.name)
            ),
        }
    }
}

/// Opens a GGUF file for its header.
fn open(path: &std::path::Path) -> Result<GgufFile, Failure> {
    Ok(GgufFile::open(path)?)
}
