//! Loads a model file and starts an engine: memory plan, progress bar, load, start.

use std::io::{self, IsTerminal};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gristmill_collective::Collective;
use gristmill_cpu::Level;
use gristmill_engine::DraftSource;
use gristmill_engine::model::{RankPlan, is_heads_file, with_heads_of};
use gristmill_engine::{
    DEFAULT_CONTEXT, Engine, Limits, LoadOptions, Model, ModelInfo, Placed, PlacementNote, Plan, open_device,
};
use gristmill_files::gguf::GgufFile;
use gristmill_kernels::Backend;
use gristmill_kernels::tensor::DeviceId;
use gristmill_lab::bench::machine::memory_rate;
use gristmill_lab::slots::{FileRates, Layers, ReadRates, TokenBytes};
use gristmill_lab::{disk, slots};
use gristmill_server::LoadProgress;
use indicatif::ProgressBar;

use crate::args::DeviceArgs;
use crate::draft::{Drafts, Wanted};
use crate::failure::Failure;
use crate::mmproj::{Choice, MmprojArg, Projector, left_out};
use crate::source::Source;
use crate::verbosity::Verbosity;
use crate::{console, kind, ranks};

/// Plans the memory of a model within limits and loads it. Fails if the memory does not suffice.
pub(crate) fn model(
    source: Source,
    device: &DeviceArgs,
    limits: Limits,
    log: &Verbosity,
) -> Result<Arc<Model>, Failure> {
    Ok(model_and_limits(source, device, limits, log)?.0)
}

/// The same with the tokens of a batch that suit the model and its device if the limits have 0.
pub(crate) fn model_and_limits(
    source: Source,
    device: &DeviceArgs,
    limits: Limits,
    log: &Verbosity,
) -> Result<(Arc<Model>, Limits), Failure> {
    let (file, device) = with_heads(source.open(log)?, device, log)?;
    let (placed, _) = place(&file, None, &device, limits, log)?;
    let limits = placed.limits;
    Ok((load(file, None, placed, &device, log, &OtherModels::default())?, limits))
}

/// Opens the device, reads the model and its vision tower, and places its experts if both do not fit. Says what the user did
/// not ask for. Returns the tower too, if it is the model's.
fn place(
    file: &GgufFile,
    projector: Option<Projector>,
    device: &DeviceArgs,
    limits: Limits,
    log: &Verbosity,
) -> Result<(Placed, Option<Projector>), Failure> {
    let options = device.load_options()?;
    if let Some(backend) = &device.shared {
        let backend = backend.clone();
        let mut info = kind::info_for(file, &options)?;
        let projector = of_model(projector, &mut info, log)?;
        let mut limits = limits;
        if limits.batch_tokens == 0 {
            limits.batch_tokens = limits.usual_batch(&info, options.precision, &backend)?.max(limits.sequences);
        }
        return Ok((Placed::on(backend, info, options, limits), projector));
    }
    let group = device.ranks.map(ranks::join).transpose()?.map(|group| group as Arc<dyn Collective>);
    let options = LoadOptions { group, ..options };
    let opened = open_device(&options)?;
    let mut info = kind::info_for(file, &options)?;
    let projector = of_model(projector, &mut info, log)?;
    let placed = gristmill_engine::place(file, info, opened, options, limits)?;
    for note in &placed.notes {
        match note {
            PlacementNote::Experts(experts) => {
                log.info(format_args!("the model is larger than the memory: --experts-on {experts}"));
            }
            note => log.info(format_args!("{note}")),
        }
    }
    Ok((placed, projector))
}

/// The tower, which plans of the model count from now on. A tower of another model that the command line does not name is
/// left out.
pub(crate) fn of_model(
    projector: Option<Projector>,
    info: &mut ModelInfo,
    log: &Verbosity,
) -> Result<Option<Projector>, Failure> {
    let Some(projector) = projector else { return Ok(None) };
    match info.read_tower(&projector.file) {
        Ok(()) => Ok(Some(projector)),
        Err(error) if projector.choice == Choice::Named => Err(Failure::new(format!("--mmproj: {error}"))),
        Err(error) => {
            left_out(projector.choice, error, log);
            Ok(None)
        }
    }
}

/// Models that stay loaded while one is loaded.
#[derive(Clone, Debug, Default)]
pub(crate) struct OtherModels {
    /// Their memory.
    pub(crate) memory: Memory,
    /// Whether the default context is independent of the free memory: other models can be unloaded.
    pub(crate) keeps_context: bool,
    pub(crate) progress: LoadProgress,
}

/// Bytes of the host's memory that models have.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Memory {
    /// Of their files that are mapped. The system reports them as free.
    mapped: u64,
    /// All that `--cpu-memory` limits, with the mapped files.
    all: u64,
}

impl Memory {
    fn of(plan: &Plan, backend: &Backend) -> Memory {
        let all = if backend.device() == DeviceId::Cpu { plan.total() } else { plan.host };
        Memory { mapped: plan.mapped, all }
    }

    pub(crate) fn plus(self, other: Memory) -> Memory {
        Memory { mapped: self.mapped.saturating_add(other.mapped), all: self.all.saturating_add(other.all) }
    }

    /// Refuses a model next to others if together they have more than `--cpu-memory`.
    fn check_alongside(&self, others: &Memory, device: &DeviceArgs) -> Result<(), Failure> {
        match device.cpu_memory {
            Some(most) if others.all > 0 && self.plus(*others).all > most => {
                let [own, others, most] = [self.all, others.all, most].map(console::bytes);
                Err(Failure::Memory(format!(
                    "--cpu-memory is {most}: the model needs {own}, and loaded models have {others}"
                )))
            }
            _ => Ok(()),
        }
    }
}

/// A loaded model, the limits of its engine, and its memory.
pub(crate) type Loaded = (Arc<Model>, Limits, Memory);

/// The same as [`model`] next to other models, with the tokens of a batch that suit the model if the limits have 0, and
/// with its vision tower.
pub(crate) fn load_alongside(
    others: &OtherModels,
    source: Source,
    mmproj: &MmprojArg,
    device: &DeviceArgs,
    limits: Limits,
    log: &Verbosity,
) -> Result<Loaded, Failure> {
    let (file, device) = with_heads(source.open(log)?, device, log)?;
    let (mut placed, projector) = place(&file, mmproj.open(source, log)?, &device, limits, log)?;
    let limits = placed.limits;
    let planned = |limits| Plan::new(&placed.info, limits, placed.options.precision, &placed.backend);
    let plan = planned(&limits)?;
    let most = plan.trained.min(DEFAULT_CONTEXT).min(plan.short_factors.unwrap_or(usize::MAX));
    let most = most.min(limits.kv_tokens.unwrap_or(usize::MAX));
    let context = limits.context.or(others.keeps_context.then_some(most));
    let limits = Limits { context, ..limits };
    let memory = Memory::of(&planned(&limits)?, &placed.backend);
    memory.check_alongside(&others.memory, &device)?;
    placed.limits = limits;
    Ok((load(file, projector, placed, &device, log, others)?, limits, memory))
}

/// The same with the tokens of a batch that suit the model and its device, and its vision tower. Returns the limits too.
pub(crate) fn with_usual_batch(
    source: Source,
    mmproj: &MmprojArg,
    device: &DeviceArgs,
    limits: Limits,
    log: &Verbosity,
) -> Result<(Arc<Model>, Limits), Failure> {
    let (file, device) = with_heads(source.open(log)?, device, log)?;
    let projector = mmproj.open(source, log)?;
    let (placed, projector) = place(&file, projector, &device, Limits { batch_tokens: 0, ..limits }, log)?;
    let limits = placed.limits;
    Ok((load(file, projector, placed, &device, log, &OtherModels::default())?, limits))
}

/// The model with the prediction heads of the draft model, if that file has nothing else.
fn with_heads(file: GgufFile, device: &DeviceArgs, log: &Verbosity) -> Result<(GgufFile, DeviceArgs), Failure> {
    let Some(path) = &device.draft_model else { return Ok((file, device.clone())) };
    let heads = Source::of(Some(path)).open(log)?;
    let about = |error| Failure::new(format!("--draft-model {}: {error}", path.display()));
    if !is_heads_file(&heads).map_err(about)? {
        return Ok((file, device.clone()));
    }
    kind::check(&file)?;
    Ok((with_heads_of(&file, &heads).map_err(about)?, DeviceArgs { prediction_heads: true, ..device.clone() }))
}

/// Loads a model with its vision tower as [`load_alongside`] and [`with_usual_batch`] do, onto the open device of the arguments.
pub(crate) fn on_shared(
    file: GgufFile,
    projector: Option<Projector>,
    device: &DeviceArgs,
    limits: Limits,
    log: &Verbosity,
) -> Result<Arc<Model>, Failure> {
    let (placed, projector) = place(&file, projector, device, limits, log)?;
    load(file, projector, placed, device, log, &OtherModels::default())
}

/// The same on a device that is open.
pub(crate) fn on_backend(
    source: Source,
    backend: Arc<Backend>,
    device: &DeviceArgs,
    limits: Limits,
    log: &Verbosity,
) -> Result<Arc<Model>, Failure> {
    on_device(source.open(log)?, backend, device, limits, log)
}

/// Loads a file onto a device that is open.
fn on_device(
    file: GgufFile,
    backend: Arc<Backend>,
    device: &DeviceArgs,
    limits: Limits,
    log: &Verbosity,
) -> Result<Arc<Model>, Failure> {
    let options = device.load_options()?;
    let info = kind::info_for(&file, &options)?;
    load(file, None, Placed::on(backend, info, options, limits), device, log, &OtherModels::default())
}

fn load(
    file: GgufFile,
    mut projector: Option<Projector>,
    mut placed: Placed,
    device: &DeviceArgs,
    log: &Verbosity,
    others: &OtherModels,
) -> Result<Arc<Model>, Failure> {
    let limits = placed.limits;
    // On a GPU nothing is mapped.
    let planned = |placed: &Placed| -> Result<Plan, Failure> {
        let mut plan = Plan::new(&placed.info, &limits, placed.options.precision, &placed.backend)?;
        plan.available = plan.available.map(|free| free.saturating_sub(others.memory.mapped));
        Ok(plan)
    };
    let mut plan = planned(&placed)?;
    if let (Err(error), Some(Projector { choice, .. })) = (plan.check(), &projector)
        && *choice != Choice::Named
    {
        left_out(*choice, error, log);
        (projector, placed.info.tower) = (None, None);
        plan = planned(&placed)?;
    }
    log.detail(format_args!("memory: {}", describe(&plan)));
    if let Some(choice) = &placed.choice {
        log.detail(format_args!("split: {choice}"));
    }
    if !placed.others.is_empty() {
        for RankPlan { device, has, plan, .. } in placed.rank_plans(&file)? {
            log.detail(format_args!("{device}: {has}; {}", describe(&plan)));
            plan.check().map_err(|error| Failure::new(format!("--device: {device}: {error}")))?;
        }
    }
    if log.verbose && plan.streamed > 0 {
        log_disk_estimate(&file, &placed.info, &plan, device, log)?;
    } else if log.verbose && plan.slots > 0 {
        log_slot_estimate(&file, &placed.info, &plan, &placed.backend, device, log)?;
    }
    log.detail(format_args!("context: {} tokens, threads: {}", plan.context, device.threads()));
    plan.check()?;
    let bar = bar(log, "loading {wide_bar} {decimal_bytes}/{decimal_total_bytes}");
    let (progress, report) = (bar.clone(), others.progress.clone());
    placed.options.progress = Some(Box::new(move |p| {
        report.set(p.done, p.total);
        progress.set_length(p.total);
        progress.set_position(p.done);
        ControlFlow::Continue(())
    }));
    let start = Instant::now();
    let model = placed.load(file);
    bar.finish_and_clear();
    let model = Arc::new(with_tower(model?, projector, log)?);
    log.detail(format_args!("device: {}", model.device_name()));
    if let Some(sums) = model.sums() {
        log.detail(format_args!("sums over devices: {sums}"));
    }
    let (bytes, seconds) = (plan.weights, start.elapsed().as_secs_f64());
    let [all, rate] = [bytes, (bytes as f64 / seconds) as u64].map(console::bytes);
    log.detail(format_args!("weights: {all} loaded in {seconds:.2} s, {rate}/s"));
    make_ready(&model, &limits, log)?;
    ranks::follow(&model)?;
    for notice in model.notices().into_iter().chain(plan.notice()) {
        log.info(format_args!("warning: {notice}"));
    }
    Ok(model)
}

/// The model with its vision tower. A tower that only lies in the model's folder and does not fit is left out.
fn with_tower(model: Model, projector: Option<Projector>, log: &Verbosity) -> Result<Model, Failure> {
    let Some(Projector { file, choice }) = projector else { return Ok(model) };
    match model.load_tower(file) {
        Ok(tower) => Ok(model.with_loaded_tower(tower)),
        Err(error) if choice == Choice::Named => Err(Failure::new(format!("--mmproj: {error}"))),
        Err(error) => {
            left_out(choice, error, log);
            Ok(model)
        }
    }
}

/// Logs the speed that slots for experts allow, by rates that are measured now.
fn log_slot_estimate(
    file: &GgufFile,
    info: &ModelInfo,
    plan: &Plan,
    backend: &Backend,
    device: &DeviceArgs,
    log: &Verbosity,
) -> Result<(), Failure> {
    let (Some(layers), Some(rates)) = (Layers::of(&info.spec), backend.rates()?) else { return Ok(()) };
    let host = memory_rate(device.cpu_level.unwrap_or_else(Level::best), device.threads());
    let rates = ReadRates { device: rates.read_bytes_per_second, host };
    let bytes = TokenBytes::new(&info.tensor_uses(), |name| file.tensor(name).map_or(0, |tensor| tensor.bytes));
    let expected = slots::describe(&layers.expect(&bytes, plan.slots, &rates), "in slots");
    let [gpu, cpu] = [rates.device, rates.host].map(|rate| console::bytes(rate as u64));
    log.detail(format_args!("expected, if the GPU reads {gpu} and the CPU {cpu} a second (measured now): {expected}"));
    Ok(())
}

/// Logs the speed that experts in the model's file allow, by rates that are measured now.
fn log_disk_estimate(
    file: &GgufFile,
    info: &ModelInfo,
    plan: &Plan,
    device: &DeviceArgs,
    log: &Verbosity,
) -> Result<(), Failure> {
    let uses = info.tensor_uses();
    let (Some(layers), Some(disk)) = (Layers::of(&info.spec), disk::read_rate(file, &uses)?) else { return Ok(()) };
    let memory = memory_rate(device.cpu_level.unwrap_or_else(Level::best), device.threads());
    let bytes = TokenBytes::new(&uses, |name| file.tensor(name).map_or(0, |tensor| tensor.bytes));
    let rates = FileRates { memory, file: disk.bytes_per_second };
    let expected = slots::describe(&layers.expect_from_file(&bytes, plan.slots, &rates), "in memory");
    let through = if disk.is_direct {
        "past the page cache"
    } else {
        "through the page cache, because the file system refuses others"
    };
    let [memory, disk] = [rates.memory, rates.file].map(|rate| console::bytes(rate as u64));
    log.detail(format_args!("reads of the file: {through}"));
    log.detail(format_args!(
        "expected, if memory gives {memory} and the file {disk} a second (measured now): {expected}"
    ));
    Ok(())
}

/// Compiles the kernels that are missing from the device's cache.
fn make_ready(model: &Model, limits: &Limits, log: &Verbosity) -> Result<(), Failure> {
    let (start, mut kernels) = (Instant::now(), 0);
    let bar = bar(log, "compiling kernels {wide_bar} {pos}/{len}");
    let ready = model.make_ready(limits, |progress| {
        kernels = progress.total;
        if progress.done == 0 && !io::stderr().is_terminal() {
            log.info(format_args!("compiling {kernels} kernels, which this machine keeps for the next start"));
        }
        bar.set_length(progress.total);
        bar.set_position(progress.done);
    });
    bar.finish_and_clear();
    ready?;
    if kernels > 0 {
        log.detail(format_args!("kernels: {kernels} compiled in {:.2} s", start.elapsed().as_secs_f64()));
    }
    if let Some(report) = model.backend().code_report() {
        log.detail(format_args!("kernels: {report}"));
    }
    Ok(())
}

/// A model with an engine for one sequence.
pub(crate) fn engine(
    source: Source,
    device: &DeviceArgs,
    context: Option<usize>,
    drafts: Drafts<'_>,
    mmproj: &MmprojArg,
    log: &Verbosity,
) -> Result<(Engine, Duration), Failure> {
    let limits = Limits { context, output_rows: drafts.rows(1), kv_format: device.kv.into(), ..Limits::default() };
    let start = Instant::now();
    let (model, limits) = with_usual_batch(source, mmproj, &drafts.on(device), limits, log)?;
    Ok((self::start(model, drafts, limits, device, log)?, start.elapsed()))
}

/// Starts an engine with its source of draft tokens. A draft model shares the model's device and threads.
pub(crate) fn start(
    model: Arc<Model>,
    drafts: Drafts<'_>,
    limits: Limits,
    device: &DeviceArgs,
    log: &Verbosity,
) -> Result<Engine, Failure> {
    let source = match drafts.wanted {
        // Else the model has the heads of this file.
        Wanted::Model(path) if model.prediction_heads() == 0 => {
            let file = Source::of(Some(path)).open(log)?;
            let limits = Limits { output_rows: None, ..limits };
            DraftSource::Model(on_device(file, model.backend().clone(), &device.for_draft_model(), limits, log)?)
        }
        // Requests have no draft tokens then.
        _ => drafts.source(&model)?.unwrap_or(DraftSource::Lookup),
    };
    Ok(Engine::start_with_drafts(model, source, limits)?)
}

/// Writes with `--verbose` how many of the chosen experts were in slots so far, and what was read from the file.
pub(crate) fn tell_slots(backend: &Backend, log: &Verbosity) {
    let Some(usage) = backend.offload().slot_usage() else { return };
    if usage.freed_bytes > 0 {
        let freed = console::bytes(usage.freed_bytes);
        log.info(format_args!(
            "the GPU's memory was too little: {freed} of slots for experts were freed; use a lower --gpu-memory"
        ));
    }
    let share = 100.0 * usage.hits as f64 / (usage.hits + usage.misses).max(1) as f64;
    if usage.read_bytes > 0 {
        let seconds = usage.read_nanoseconds.max(1) as f64 / 1e9;
        let [bytes, rate] =
            [usage.read_bytes as f64, usage.read_bytes as f64 / seconds].map(|n| console::bytes(n as u64));
        log.detail(format_args!("file: {bytes} of experts were read, {rate} a second while reads were in flight"));
        return log.detail(format_args!("experts: {share:.1}% of the choices were in memory"));
    }
    if usage.hits == 0 {
        return;
    }
    log.detail(format_args!(
        "experts: {share:.1}% of the choices were in slots, {} were copied there",
        usage.insertions
    ));
}

/// A progress bar on stderr; hidden with `--quiet`, and on anything but a terminal.
pub(crate) fn bar(log: &Verbosity, template: &str) -> ProgressBar {
    if log.quiet { ProgressBar::hidden() } else { console::bar(template) }
}

/// A plan in one line.
pub(crate) fn describe(plan: &Plan) -> String {
    let part = |n: u64, what: &str| format!("{} {what}", console::bytes(n));
    let mut parts = vec![
        part(plan.weights, "weights"),
        part(plan.mapped, "mapped from the file"),
        part(plan.state, &format!("KV cache of {} tokens", plan.kv_tokens)),
        part(plan.scratch, "scratch"),
    ];
    parts.extend((plan.tower > 0).then(|| part(plan.tower, "vision tower")));
    parts.extend((plan.pictures > 0).then(|| part(plan.pictures, "images")));
    parts.extend((plan.reserve > 0).then(|| part(plan.reserve, "left to the driver")));
    parts.push(part(plan.total(), "in all"));
    parts.extend(plan.available.map(|free| part(free, "free")));
    let place = if plan.streamed > 0 { "in memory" } else { "in slots" };
    parts.extend((plan.slots > 0).then(|| format!("{} of {} experts of each layer {place}", plan.slots, plan.experts)));
    parts.extend((plan.streamed > 0).then(|| part(plan.streamed, "experts in the file")));
    parts.extend((plan.host > 0).then(|| part(plan.host, "experts in host memory")));
    parts.extend(plan.host_available.map(|free| part(free, "of it is free")));
    parts.join(", ")
}
