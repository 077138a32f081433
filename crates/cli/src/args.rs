//! Arguments that several subcommands share, and what becomes of them.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use gristmill_cpu::MAX_THREADS;
use gristmill_engine::tokenizer::Tokenizer;
use gristmill_engine::{Error, LoadOptions, Precision, SamplingOptions, machine};
use gristmill_kernels::kv::KvFormat;

use crate::bias::{BiasArgs, Biasing};
use crate::failure::Failure;
use crate::numbers::MaxTokens;
use crate::{console, numbers};

/// What the model runs on.
#[derive(Args)]
pub(crate) struct DeviceArgs {
    /// Threads [default: one on each physical core that this process may use].
    #[arg(short, long, value_name = "N", allow_negative_numbers = true, value_parser = numbers::between(1, MAX_THREADS))]
    pub(crate) threads: Option<usize>,
    /// The device: auto, cpu, cuda, cuda:N, metal or metal:N.
    #[arg(long, default_value = "auto")]
    pub(crate) device: String,
    /// How the cache keeps keys and values. q8_0 takes 53% of the memory.
    #[arg(long, value_name = "FORMAT", default_value = "f16")]
    pub(crate) kv: KvArg,
    /// What weights are multiplied with. exact is slower.
    #[arg(long, value_name = "PRECISION", default_value = "fast")]
    pub(crate) precision: PrecisionArg,
}

/// [`Precision`] on the command line.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum PrecisionArg {
    /// Activations of 8 bits, with a scale for 32; of 16 bits where that is as fast.
    Fast,
    /// Activations as they are, of 32 bits.
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

/// [`KvFormat`] on the command line.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum KvArg {
    /// 16 bits each.
    F16,
    /// 8 bits each, and a scale for 32.
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

impl DeviceArgs {
    /// The number of threads.
    pub(crate) fn threads(&self) -> usize {
        threads(self.threads, machine::physical_cores())
    }

    /// Options for loading, without a callback.
    pub(crate) fn load_options(&self) -> LoadOptions {
        let (device, threads) = (self.device.clone(), Some(self.threads()));
        LoadOptions { device, threads, precision: self.precision.into(), ..LoadOptions::default() }
    }
}

/// The number of threads: as asked, or one on each of the cores.
pub(crate) fn threads(asked: Option<usize>, cores: usize) -> usize {
    asked.unwrap_or(cores.min(MAX_THREADS))
}

/// A text that the model reads in windows.
#[derive(Args)]
pub(crate) struct TextArgs {
    /// The text; - reads it from stdin.
    #[arg(short, long, value_name = "TEXT")]
    file: PathBuf,
    /// Tokens of one window.
    #[arg(long, value_name = "TOKENS", default_value_t = 512, allow_negative_numbers = true, value_parser = numbers::whole)]
    ctx: i64,
}

impl TextArgs {
    /// The text, and the tokens of a window, of which there must be `least`.
    pub(crate) fn read(&self, least: usize) -> Result<(String, usize), Failure> {
        match usize::try_from(self.ctx) {
            Ok(ctx) if ctx >= least => Ok((console::read_text(&self.file)?, ctx)),
            _ => {
                let found = self.ctx;
                Err(Failure::new(format!("--ctx is {found}; it must be at least {least} (512 is usual)")))
            }
        }
    }
}

/// How much to tell on stderr.
#[derive(Args)]
pub(crate) struct Verbosity {
    /// Say nothing on stderr but errors.
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Say what is being done: memory plan, context, threads, seed.
    #[arg(short, long, conflicts_with = "quiet")]
    pub(crate) verbose: bool,
}

impl Verbosity {
    /// Writes a line to stderr with `--verbose`.
    pub(crate) fn detail(&self, line: std::fmt::Arguments) {
        if self.verbose {
            console::note(line);
        }
    }

    /// Writes a line to stderr unless `--quiet`.
    pub(crate) fn info(&self, line: std::fmt::Arguments) {
        if !self.quiet {
            console::note(line);
        }
    }
}

/// How tokens are drawn, and when to stop.
#[derive(Args)]
pub(crate) struct SamplingArgs {
    /// The most tokens to generate; -1 for no limit [default: until the model ends its text or the context is full].
    #[arg(short = 'n', long, value_name = "N", allow_negative_numbers = true, value_parser = numbers::max_tokens)]
    max_tokens: Option<MaxTokens>,
    /// Temperature; 0 always takes the most likely token.
    #[arg(long, value_name = "T", default_value_t = SamplingOptions::default().temperature, allow_hyphen_values = true, value_parser = numbers::number)]
    temp: f32,
    /// Keep the K most likely tokens; 0 keeps all.
    #[arg(long, value_name = "K", default_value_t = SamplingOptions::default().top_k, allow_negative_numbers = true, value_parser = numbers::at_least::<u32>(0))]
    top_k: u32,
    /// Keep the smallest set of tokens with at least this probability; 1 keeps all.
    #[arg(long, value_name = "P", default_value_t = SamplingOptions::default().top_p, allow_hyphen_values = true, value_parser = numbers::number)]
    top_p: f32,
    /// Drop tokens less likely than this share of the most likely; 0 keeps all.
    #[arg(long, value_name = "P", default_value_t = SamplingOptions::default().min_p, allow_hyphen_values = true, value_parser = numbers::number)]
    min_p: f32,
    /// Make generated tokens less likely to come again; 1 turns it off.
    #[arg(long, value_name = "X", default_value_t = 1.0, allow_hyphen_values = true, value_parser = numbers::number)]
    repeat_penalty: f32,
    /// Lower the logits of tokens that were generated.
    #[arg(long, value_name = "X", default_value_t = 0.0, allow_hyphen_values = true, value_parser = numbers::number)]
    presence_penalty: f32,
    /// Lower the logits of generated tokens each time they come.
    #[arg(long, value_name = "X", default_value_t = 0.0, allow_hyphen_values = true, value_parser = numbers::number)]
    frequency_penalty: f32,
    /// The same seed gives the same text [default: a random one, told with --verbose].
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = numbers::at_least::<u64>(0))]
    seed: Option<u64>,
    /// Stop before this text; may be given several times.
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    stop: Vec<String>,
    #[command(flatten)]
    bias: BiasArgs,
}

/// Sampling arguments, checked.
pub(crate) struct Generating {
    pub(crate) sampling: SamplingOptions,
    pub(crate) max_tokens: Option<usize>,
    pub(crate) stop: Vec<String>,
    pub(crate) bias: Biasing,
}

impl SamplingArgs {
    /// Checks the ranges, before a model is loaded for nothing.
    pub(crate) fn check(&self) -> Result<Generating, Failure> {
        let sampling = SamplingOptions {
            temperature: self.temp,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            repeat_penalty: self.repeat_penalty,
            presence_penalty: self.presence_penalty,
            frequency_penalty: self.frequency_penalty,
            seed: self.seed.unwrap_or_else(draw_seed),
        };
        sampling.check()?;
        if self.stop.iter().any(String::is_empty) {
            return Err(Failure::new("--stop is empty; give the text to stop before, or leave it out"));
        }
        let bias = self.bias.check()?;
        let max_tokens = self.max_tokens.and_then(|MaxTokens(limit)| limit);
        Ok(Generating { sampling, max_tokens, stop: self.stop.clone(), bias })
    }
}

/// A random seed below 2^53: readers of JSON that keep numbers as doubles read it as it is.
fn draw_seed() -> u64 {
    // The keys of a hash map are random: all the randomness that a seed needs.
    RandomState::new().build_hasher().finish() >> 11
}

/// The tokenizer of a file whose model need not be one that runs.
pub(crate) fn tokenizer(file: &gristmill_engine::gguf::GgufFile) -> Result<Tokenizer, Failure> {
    Ok(gristmill_engine::model::tokenizer(file)?.ok_or(Error::NoTokenizer)?)
}
