//! Arguments that several subcommands share.

use std::env;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, ValueEnum};
use gristmill_cpu::{Level, MAX_THREADS};
use gristmill_cuda::ahead;
use gristmill_engine::check_sampling;
use gristmill_engine::model::{ExpertLoad, Split};
use gristmill_engine::{
    Backend, ExpertPlacement, KvFormat, LoadOptions, Model, Precision, Request, SamplingOptions, default_threads,
};
use gristmill_lab::experts::read_load;

use crate::bias::{BiasArgs, BiasOptions};
use crate::draft::DraftArgs;
use crate::failure::Failure;
use crate::numbers::MaxTokens;
use crate::ranks::RanksArg;
use crate::settings::SettingArgs;
use crate::verbosity::Verbosity;
use crate::{console, numbers, settings};

/// Device, threads and number formats.
#[derive(Args, Clone)]
pub(crate) struct DeviceArgs {
    /// Threads [default: one for each physical core that this process can use].
    #[arg(
        short, long, value_name = "N", allow_negative_numbers = true,
        value_parser = numbers::between(1, MAX_THREADS),
        help_heading = "Device"
    )]
    pub(crate) threads: Option<usize>,
    /// The device: auto, cpu, cuda, cuda:N, metal or metal:N. Several devices of one kind share a model: cuda:0,1, or cpu:0,1 with
    /// half of the threads each.
    #[arg(long, default_value = "auto", help_heading = "Device")]
    pub(crate) device: String,
    /// How several devices share a model: experts (each has some of the experts, and all other weights), tensor (each also has some
    /// of the attention heads and of the columns of dense MLPs), or layers (each has some of the layers, which saves memory but no
    /// time) [default: the fastest for which the memory suffices, by measured times of reading and of sums].
    #[arg(long, value_name = "HOW", help_heading = "Device")]
    pub(crate) split: Option<Split>,
    /// Share experts between the devices by how often they are chosen, as counted by `gristmill experts --json`, so that each device has
    /// as much to multiply. A device has at most twice as many experts as without the option.
    #[arg(long, value_name = "FILE", help_heading = "Device")]
    pub(crate) expert_load: Option<PathBuf>,
    /// Share a model between processes that a launcher has started, each with its --device: mpi for mpirun of Open MPI, on one
    /// machine or several. The first process runs the command, the others need the same options and model file.
    #[arg(long, value_name = "LAUNCHER", help_heading = "Device")]
    pub(crate) ranks: Option<RanksArg>,
    /// Format of keys and values in the KV cache. q8_0 needs 53% of the memory of f16.
    #[arg(long, value_name = "FORMAT", default_value = "f16", help_heading = "Device")]
    pub(crate) kv: KvArg,
    /// Precision of activations in products with weights. exact is slower.
    #[arg(long, value_name = "PRECISION", default_value = "fast", help_heading = "Device")]
    pub(crate) precision: PrecisionArg,
    /// Instruction set of the CPU [default: the best level that this CPU has, which `gristmill --version` prints]. With
    /// this option, --device auto means the CPU.
    #[arg(long, value_name = "NAME", value_parser = cpu_level, help_heading = "Device")]
    pub(crate) cpu_level: Option<Level>,
    /// On a GPU, choose kernels only by the weights. A text then does not depend on other requests, the batch size or
    /// the prefix cache. This is slower. On a CPU, texts depend on these only at level amx, which becomes avx512.
    #[arg(long, help_heading = "Device")]
    pub(crate) deterministic: bool,
    /// Where the experts of a model are stored and computed: device; cpu; cpu:N for the experts of the first N layers; slots:N for
    /// N experts of each layer on the device, those that were used last, and the others on the CPU; disk:N for N experts of each
    /// layer in host memory, those that were used last, and the others in the file; disk:N:L for the same with the experts of the
    /// first L layers on the device. cpu and slots need a GPU of CUDA, which computes everything else; disk works on CUDA too. With
    /// device, a model that does not fit gets slots:N on CUDA, or disk:N:L if it does not fit into host memory either, and disk:N on
    /// the CPU, with as many experts as fit.
    #[arg(long, value_name = "WHERE", default_value = "device", help_heading = "Device")]
    pub(crate) experts_on: ExpertPlacement,
    /// The most memory of a CUDA device to use, for example 12GB [default: all that is free].
    #[arg(long, value_name = "SIZE", value_parser = numbers::size, help_heading = "Device")]
    pub(crate) gpu_memory: Option<u64>,
    /// The most memory to use for models on the CPU, for example 24GB [default: all that is free]. With this option, --device auto
    /// means the CPU. With --device cuda or --gpu-memory: the most host memory for experts.
    #[arg(long, value_name = "SIZE", value_parser = numbers::size, help_heading = "Device")]
    pub(crate) cpu_memory: Option<u64>,
    #[command(flatten)]
    pub(crate) kernels: KernelsArg,
    /// See [`LoadOptions::prediction_heads`].
    #[arg(skip)]
    pub(crate) prediction_heads: bool,
    /// A draft model; the model's prediction heads, if the file has nothing else.
    #[arg(skip)]
    pub(crate) draft_model: Option<PathBuf>,
    /// A device that is open, in place of the named one: models share it.
    #[arg(skip)]
    pub(crate) shared: Option<Arc<Backend>>,
}

/// The folder of kernels that were compiled ahead.
#[derive(Args, Clone, Default)]
pub(crate) struct KernelsArg {
    /// A folder of CUDA kernels that `gristmill kernels` has written [default: share/gristmill/kernels next to the program or
    /// next to its folder, if it exists]. On other devices, the option changes nothing.
    #[arg(long, value_name = "FOLDER", help_heading = "Device")]
    kernels: Option<PathBuf>,
}

impl KernelsArg {
    /// The folders that a device reads.
    pub(crate) fn folders(&self) -> Result<Vec<PathBuf>, Failure> {
        match &self.kernels {
            Some(folder) if folder.is_dir() => Ok(vec![folder.clone()]),
            Some(folder) => {
                let folder = folder.display();
                Err(Failure::new(format!(
                    "--kernels {folder}: there is no such folder; write it with gristmill kernels"
                )))
            }
            None => Ok(env::current_exe().map(|program| ahead::installed(&program)).unwrap_or_default()),
        }
    }
}

/// [`Precision`] on the command line.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum PrecisionArg {
    /// Activations of 8 bits with one scale for 32 values; 16 bits if that is as fast.
    Fast,
    /// Activations of 32 bits.
    Exact,
}

impl From<PrecisionArg> for Precision {
    fn from(arg: PrecisionArg) -> Precision {
        match arg {
            PrecisionArg::Fast => Precision::Fast,
            PrecisionArg::Exact => Precision::Exact,
        }
    }
}

impl From<Precision> for PrecisionArg {
    fn from(precision: Precision) -> PrecisionArg {
        match precision {
            Precision::Fast => PrecisionArg::Fast,
            Precision::Exact => PrecisionArg::Exact,
        }
    }
}

/// [`KvFormat`] on the command line.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum KvArg {
    /// 16 bits for each value.
    F16,
    /// 8 bits for each value, and one scale for 32 values.
    #[value(name = "q8_0")]
    Q8_0,
}

impl From<KvArg> for KvFormat {
    fn from(arg: KvArg) -> KvFormat {
        match arg {
            KvArg::F16 => KvFormat::F16,
            KvArg::Q8_0 => KvFormat::Q8_0,
        }
    }
}

impl From<KvFormat> for KvArg {
    fn from(format: KvFormat) -> KvArg {
        match format {
            KvFormat::F16 => KvArg::F16,
            KvFormat::Q8_0 => KvArg::Q8_0,
        }
    }
}

impl DeviceArgs {
    /// A device that is open.
    pub(crate) fn on(backend: Arc<Backend>, kv: KvArg, precision: PrecisionArg, deterministic: bool) -> Self {
        let (threads, cpu_level, gpu_memory, cpu_memory, kernels, draft_model) = Default::default();
        DeviceArgs {
            threads,
            device: "auto".to_owned(),
            split: None,
            expert_load: None,
            ranks: None,
            kv,
            precision,
            cpu_level,
            deterministic,
            experts_on: ExpertPlacement::Device,
            gpu_memory,
            cpu_memory,
            kernels,
            prediction_heads: false,
            draft_model,
            shared: Some(backend),
        }
    }

    /// The number of threads.
    pub(crate) fn threads(&self) -> usize {
        threads(self.threads, default_threads(self.device().unwrap_or(&self.device), self.experts_on))
    }

    /// The device's name. Options of the CPU choose it.
    fn device(&self) -> Result<&str, Failure> {
        let limits_experts = self.gpu_memory.is_some() || self.device.starts_with("cuda");
        let limits_cpu = self.cpu_memory.is_some() && !limits_experts;
        let of_cpu = [("--cpu-level", self.cpu_level.is_some()), ("--cpu-memory", limits_cpu)];
        match (of_cpu.iter().find(|(_, is_set)| *is_set), self.device.as_str()) {
            (Some(_), "auto" | "cpu") => Ok("cpu"),
            (Some(_), device) if device.starts_with("cpu:") => Ok(device),
            (Some((option, _)), device) => {
                Err(Failure::new(format!("{option} is for the CPU, but --device is {device}; leave one out")))
            }
            (None, device) => Ok(device),
        }
    }

    /// Whether several devices or processes share the model.
    pub(crate) fn is_split(&self) -> bool {
        self.device.contains(',') || self.ranks.is_some()
    }

    fn read_load(&self, path: &Path) -> Result<Arc<ExpertLoad>, Failure> {
        let failed = |reason: String| Failure::new(format!("--expert-load {}: {reason}", path.display()));
        if !self.is_split() {
            return Err(failed(
                "one device has all experts; name several with --device, or leave the option out".to_owned(),
            ));
        }
        let file = File::open(path).map_err(|error| failed(format!("cannot be read ({error})")))?;
        Ok(Arc::new(read_load(file).map_err(failed)?))
    }

    /// These arguments for a draft model, whose experts are on the device.
    pub(crate) fn for_draft_model(&self) -> Self {
        Self { experts_on: ExpertPlacement::Device, ranks: None, expert_load: None, ..self.clone() }
    }

    /// Options for loading, without a progress callback. Fails if a CPU level is given for another device.
    pub(crate) fn load_options(&self) -> Result<LoadOptions, Failure> {
        Ok(LoadOptions {
            device: self.device()?.to_owned(),
            threads: Some(self.threads()),
            level: self.cpu_level.map(|level| level.name().to_owned()),
            deterministic: self.deterministic,
            experts: self.experts_on,
            split: self.split,
            expert_load: self.expert_load.as_deref().map(|path| self.read_load(path)).transpose()?,
            gpu_memory: self.gpu_memory,
            cpu_memory: self.cpu_memory,
            prediction_heads: self.prediction_heads,
            precision: self.precision.into(),
            kernels: self.kernels.folders()?,
            ..LoadOptions::default()
        })
    }
}

/// Reads the name of a level that this CPU has.
fn cpu_level(name: &str) -> Result<Level, String> {
    let supported = || Level::NAMES.iter().filter_map(|name| Level::named(name).ok());
    let names = || supported().map(Level::name).collect::<Vec<_>>().join(", ");
    let known = Level::NAMES.iter().find(|known| **known == name);
    known.and_then(|name| Level::named(name).ok()).ok_or_else(|| format!("the levels of this CPU are {}", names()))
}

/// The number of threads: `requested`, or one for each core.
pub(crate) fn threads(requested: Option<usize>, cores: usize) -> usize {
    requested.unwrap_or(cores.min(MAX_THREADS))
}

/// The length of the context.
#[derive(Args)]
pub(crate) struct ContextArg {
    /// Context length in tokens [default: the minimum of the model's training context, 8192, and what fits into
    /// memory]. A value above the training context prints a warning.
    #[arg(
        short, long, alias = "ctx-size", value_name = "TOKENS", allow_negative_numbers = true,
        value_parser = numbers::at_least::<usize>(1),
        help_heading = "Length and sampling"
    )]
    pub(crate) ctx: Option<usize>,
}

/// A text that the model reads in windows.
#[derive(Args)]
pub(crate) struct TextArgs {
    /// A file with the text; - reads stdin.
    #[arg(short, long, value_name = "TEXT")]
    file: PathBuf,
    /// Tokens in each window.
    #[arg(
        short, long, alias = "ctx-size", value_name = "TOKENS", default_value_t = 512, allow_negative_numbers = true,
        value_parser = numbers::whole,
        help_heading = "Length and sampling"
    )]
    ctx: i64,
}

impl TextArgs {
    /// The text and the window size in tokens, which must be at least `least`.
    pub(crate) fn read(&self, least: usize) -> Result<(String, usize), Failure> {
        match usize::try_from(self.ctx) {
            Ok(ctx) if ctx >= least => Ok((console::read_text(&self.file, console::LONGEST_TEXT)?, ctx)),
            _ => {
                let found = self.ctx;
                Err(Failure::new(format!("--ctx is {found}; it must be at least {least} (512 is usual)")))
            }
        }
    }
}

/// Sampling, and where generation stops.
#[derive(Args)]
pub(crate) struct SamplingArgs {
    /// The maximum number of tokens to generate; -1 for no limit [default: -1]. The end of the model's text and a full
    /// context also end generation.
    #[arg(
        short = 'n', long, aliases = ["n-predict", "predict"], value_name = "N", allow_negative_numbers = true,
        value_parser = numbers::max_tokens,
        help_heading = "Length and sampling"
    )]
    max_tokens: Option<MaxTokens>,
    #[command(flatten)]
    settings: SettingArgs,
    /// The seed of the random sampling. The same seed gives the same text [default: a random seed, which --verbose
    /// prints].
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = numbers::at_least::<u64>(0), help_heading = "Length and sampling")]
    seed: Option<u64>,
    /// Stop before this text. Can be repeated.
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true, help_heading = "Length and sampling")]
    stop: Vec<String>,
    #[command(flatten)]
    bias: BiasArgs,
    #[command(flatten)]
    pub(crate) draft: DraftArgs,
}

/// Checked options of a generation.
pub(crate) struct GenerationSettings {
    sampling: SamplingOptions,
    pub(crate) max_tokens: Option<usize>,
    stop: Vec<String>,
    bias: BiasOptions,
}

impl SamplingArgs {
    /// Checks the ranges before the model is loaded; a value out of its range is wrong usage.
    pub(crate) fn check(&self) -> Result<GenerationSettings, Failure> {
        self.checked().map_err(Failure::into_usage)
    }

    fn checked(&self) -> Result<GenerationSettings, Failure> {
        let sampling = self.or(SamplingOptions::default());
        check_sampling(&sampling)?;
        if self.stop.iter().any(String::is_empty) {
            return Err(Failure::new("--stop is empty; pass the text to stop before, or leave it out"));
        }
        let bias = self.bias.check()?;
        let max_tokens = self.max_tokens.and_then(|MaxTokens(limit)| limit);
        Ok(GenerationSettings { sampling, max_tokens, stop: self.stop.clone(), bias })
    }

    /// The settings on the command line, completed by `defaults`.
    fn or(&self, defaults: SamplingOptions) -> SamplingOptions {
        let mut options = SamplingOptions { seed: self.seed, ..defaults };
        self.settings.apply(&mut options);
        options
    }
}

impl GenerationSettings {
    /// Completes the settings of the command line by those recommended for the model.
    pub(crate) fn resolve(&mut self, args: &SamplingArgs, recommended: SamplingOptions, log: &Verbosity) {
        self.sampling = args.or(recommended);
        log.detail(format_args!("sampling: {}", settings::line(&self.sampling)));
    }

    /// Writes the options into a request to this model.
    pub(crate) fn apply(&self, request: &mut Request, model: &Model) -> Result<(), Failure> {
        request.sampling = self.sampling;
        request.max_tokens = self.max_tokens;
        request.stop = self.stop.clone();
        self.bias.apply(request, model)
    }

    /// Fails if a bias names no token of this model, or several.
    pub(crate) fn check_bias(&self, model: &Model) -> Result<(), Failure> {
        self.bias.apply(&mut Request::new(""), model)
    }
}
