//! `--suite`: the models and workloads of a table in `docs/benchmarks.md`, in one command.

use std::path::PathBuf;

use clap::ValueEnum;
use gristmill_cpu::Level;
use gristmill_engine::Limits;
use gristmill_engine::machine::available_memory;
use gristmill_lab::bench::suite::{HEAD, chosen};
use gristmill_lab::bench::{Case, Machine, Measurement, Outcome, Report, machine};
use gristmill_lab::synthetic::Synthetic;

use super::{BenchArgs, cache, measure, synthetic};
use crate::args::DeviceArgs;
use crate::console;
use crate::failure::Failure;
use crate::load;
use crate::source::Source;

/// The suites.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Suite {
    /// Formats, contexts and batches on the CPU.
    Cpu,
}

/// Measures all cases of a suite, at the given level or at every level but `portable`.
pub(super) fn run(args: &BenchArgs, suite: Suite) -> Result<(), Failure> {
    let Suite::Cpu = suite;
    if !matches!(args.device.device.as_str(), "auto" | "cpu") {
        let asked = &args.device.device;
        return Err(Failure::new(format!("--suite cpu measures the CPU, but --device is {asked}; leave one out")));
    }
    let cases = chosen(&args.only)?;
    let levels: Vec<Level> = match args.device.cpu_level {
        Some(level) => vec![level],
        None => Level::available().filter(|level| !matches!(level, Level::Portable(_))).collect(),
    };
    let machines: Vec<(Level, Machine)> =
        levels.into_iter().map(|level| (level, machine::measure(level, args.device.threads()))).collect();
    let mut outcomes = Vec::new();
    if !args.json {
        machines.iter().try_for_each(|(_, machine)| console::print_line(machine))?;
        console::print_line(HEAD)?;
    }
    for case in cases {
        let file = file(case, args)?;
        for (level, machine) in &machines {
            let device = DeviceArgs { cpu_level: Some(*level), ..args.device.clone() };
            let mut take = |skipped, report| -> Result<(), Failure> {
                let outcome = Outcome { model: case.name(), level: level.name(), skipped, report };
                if !args.json {
                    console::print(&outcome)?;
                }
                outcomes.push(outcome);
                Ok(())
            };
            match &file {
                Ok(file) => measure_all(case, args, &device, file, machine, &mut |report| take(None, Some(report)))?,
                Err(why) => take(Some(why.clone()), None)?,
            }
        }
    }
    if args.json { console::print_json(&outcomes) } else { Ok(()) }
}

/// A model's file, removed when dropped if the suite wrote it and shall not keep it.
struct ModelFile {
    path: PathBuf,
    is_temporary: bool,
}

impl Drop for ModelFile {
    fn drop(&mut self) {
        if self.is_temporary {
            // A file that stays is found and used by the next run.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// The file of a case, or why it is skipped: memory does not hold it.
fn file(case: &Case, args: &BenchArgs) -> Result<Result<ModelFile, String>, Failure> {
    let model = Synthetic::parse(case.model, case.layers)?;
    let bytes = model.file_bytes()?;
    let free = available_memory().unwrap_or(u64::MAX);
    if bytes > free {
        let [bytes, free] = [bytes, free].map(console::bytes);
        return Ok(Err(format!("its {bytes} exceed the {free} of free memory")));
    }
    let was_written = model.is_written(&cache()?.join(model.file_name()));
    Ok(Ok(ModelFile { path: synthetic(args, &model)?, is_temporary: args.discard && !was_written }))
}

/// Measures all workloads of a case, and reports each at once.
fn measure_all(
    case: &Case,
    args: &BenchArgs,
    device: &DeviceArgs,
    file: &ModelFile,
    machine: &Machine,
    take: &mut dyn FnMut(Report) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let threads = device.threads();
    let repeats = args.repeats;
    let measurement = Measurement { threads, repeats, machine: *machine, routing: None };
    for &workload in case.workloads {
        let limits = Limits { kv_format: device.kv.into(), ..workload.limits()? };
        let source = Source::File(&file.path);
        let model = load::model(source, device, limits, &args.log)?;
        take(measure(&measurement, source, &model, workload, limits, None, &args.log)?)?;
    }
    Ok(())
}
