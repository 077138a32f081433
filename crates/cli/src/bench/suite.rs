//! `--suite`: the models and workloads of a table in `docs/benchmarks.md`, in one command.

use std::path::PathBuf;

use clap::ValueEnum;
use gristmill_cpu::Level;
use gristmill_engine::Limits;
use gristmill_engine::machine::available_memory;
use serde::Serialize;

use super::machine::{self, Machine};
use super::measure::Workload;
use super::report::{Report, Row};
use super::{BenchArgs, Setup, cache, measure, synthetic};
use crate::args::DeviceArgs;
use crate::console;
use crate::failure::Failure;
use crate::load;
use crate::source::Source;
use crate::synthetic::Synthetic;

/// The suites.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Suite {
    /// Formats, contexts and batches on the CPU.
    Cpu,
}

/// A model, cut to some layers or whole, and its workloads.
struct Case {
    model: &'static str,
    layers: Option<u32>,
    workloads: &'static [Workload],
}

const SHORT: Workload = Workload { batch: 1, depth: 0, prompt: 512, decode: 32, chunk: 512 };
const LONG: Workload = Workload { prompt: 4096, decode: 0, ..SHORT };
const DEEP: Workload = Workload { depth: 8192, prompt: 0, ..SHORT };
const BATCH: Workload = Workload { batch: 8, prompt: 0, ..SHORT };

const fn moe(model: &'static str) -> Case {
    Case { model, layers: Some(4), workloads: &[SHORT] }
}

const CPU: &[Case] = &[
    Case { model: "qwen3-30b-a3b:Q4_K_M", layers: Some(4), workloads: &[SHORT, LONG, DEEP, BATCH] },
    moe("qwen3-30b-a3b:Q8_0"),
    moe("qwen3-30b-a3b:Q4_0"),
    moe("qwen3-30b-a3b:Q6_K"),
    moe("qwen3-30b-a3b:Q5_K"),
    moe("qwen3-30b-a3b:Q3_K"),
    moe("qwen3-30b-a3b:Q2_K"),
    moe("qwen3-30b-a3b:IQ4_XS"),
    moe("qwen3-30b-a3b:IQ4_NL"),
    moe("gpt-oss-20b:MXFP4_MOE"),
    Case { model: "qwen3-30b-a3b:BF16", layers: Some(2), workloads: &[SHORT] },
    Case { model: "qwen3-30b-a3b:F16", layers: Some(2), workloads: &[SHORT] },
    Case { model: "qwen3-8b:Q4_K_M", layers: Some(8), workloads: &[SHORT] },
    Case { model: "smollm2-135m:Q8_0", layers: None, workloads: &[SHORT] },
    Case { model: "smollm2-135m:Q4_1", layers: None, workloads: &[SHORT] },
    Case { model: "qwen3-30b-a3b:Q4_K_M", layers: None, workloads: &[SHORT] },
];

/// One line of the results.
#[derive(Debug, Serialize)]
struct Outcome {
    model: String,
    level: &'static str,
    /// Why the model was not measured.
    skipped: Option<String>,
    report: Option<Report>,
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
        let file = case.file(args)?;
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
                Ok(file) => case.measure(args, &device, file, machine, &mut |report| take(None, Some(report)))?,
                Err(why) => take(Some(why.clone()), None)?,
            }
        }
    }
    if args.json { console::print_json(&outcomes) } else { Ok(()) }
}

/// The cases of these names: for each, the case that is called so, or all whose names contain it.
fn chosen(names: &[String]) -> Result<Vec<&'static Case>, Failure> {
    for name in names {
        if !CPU.iter().any(|case| case.name().contains(name)) {
            let known: Vec<String> = CPU.iter().map(Case::name).collect();
            return Err(Failure::new(format!("no model of the suite is called {name}; it has {}", known.join("; "))));
        }
    }
    let is_asked = |case: &&Case, name: &String| {
        case.name() == *name || case.name().contains(name) && !CPU.iter().any(|other| other.name() == *name)
    };
    Ok(CPU.iter().filter(|case| names.is_empty() || names.iter().any(|name| is_asked(case, name))).collect())
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

impl Case {
    fn name(&self) -> String {
        self.layers.map_or(self.model.to_owned(), |layers| format!("{}, {layers} layers", self.model))
    }

    /// The model's file, or why it is skipped: memory does not hold it.
    fn file(&self, args: &BenchArgs) -> Result<Result<ModelFile, String>, Failure> {
        let model = Synthetic::parse(self.model, self.layers)?;
        let (bytes, free) = (model.file_bytes()?, available_memory().unwrap_or(u64::MAX));
        if bytes > free {
            let [bytes, free] = [bytes, free].map(console::bytes);
            return Ok(Err(format!("its {bytes} exceed the {free} of free memory")));
        }
        let was_written = model.is_written(&cache()?.join(model.file_name()));
        Ok(Ok(ModelFile { path: synthetic(args, &model)?, is_temporary: args.discard && !was_written }))
    }

    /// Measures all workloads, and reports each at once.
    fn measure(
        &self,
        args: &BenchArgs,
        device: &DeviceArgs,
        file: &ModelFile,
        machine: &Machine,
        take: &mut dyn FnMut(Report) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let setup = Setup {
            threads: device.threads(),
            repeats: args.repeats,
            machine: *machine,
            routing: None,
            log: &args.log,
        };
        for &workload in self.workloads {
            let limits = Limits { kv_format: device.kv.into(), ..workload.limits()? };
            let source = Source::File(&file.path);
            let model = load::model(source, device, limits, &args.log)?;
            take(measure(&setup, source, model, workload, limits, None)?)?;
        }
        Ok(())
    }
}

const HEAD: &str =
    "\nmodel                                level     work                      tok/s         min .. max   reached";

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Outcome { model, level, skipped, report } = self;
        if let Some(why) = skipped {
            writeln!(f, "{model:36} {level:9} skipped: {why}")?;
        }
        let Some(Report { workload, prefill, decode, .. }) = report else { return Ok(()) };
        let mut line = |work: String, row: &Option<Row>| match row {
            Some(row) => writeln!(f, "{model:36} {level:9} {work:20} {}", row.brief()),
            None => Ok(()),
        };
        line(format!("prefill {}", workload.prompt), prefill)?;
        match (workload.batch, workload.depth) {
            (1, 0) => line("decode".to_owned(), decode),
            (1, depth) => line(format!("decode at {depth}"), decode),
            (batch, _) => line(format!("decode of {batch}"), decode),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_is_chosen_by_its_name_or_a_part_of_it() {
        let names = |asked: &[&str]| {
            let asked: Vec<String> = asked.iter().map(|name| (*name).to_owned()).collect();
            chosen(&asked).map(|cases| cases.iter().map(|case| case.name()).collect::<Vec<_>>())
        };
        assert_eq!(names(&[]).unwrap().len(), CPU.len());
        assert_eq!(names(&["qwen3-30b-a3b:Q4_K_M"]).unwrap(), ["qwen3-30b-a3b:Q4_K_M"]);
        assert_eq!(
            names(&["Q8_0", "qwen3-8b"]).unwrap(),
            ["qwen3-30b-a3b:Q8_0, 4 layers", "qwen3-8b:Q4_K_M, 8 layers", "smollm2-135m:Q8_0"]
        );
        let refused = names(&["Q9"]).unwrap_err();
        assert!(matches!(&refused, Failure::Message(text) if text.contains("smollm2-135m:Q4_1")), "{refused:?}");
    }
}
