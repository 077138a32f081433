//! `embed`: vectors of texts.

use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use gristmill_engine::{EmbeddingRequest, Embeddings, Engine, Limits, Prompt};
use serde::Serialize;

use crate::args::{ContextArg, DeviceArgs};
use crate::failure::Failure;
use crate::source::{ModelOption, QuantizeArg, Source, TextArgument};
use crate::special::SpecialArgs;
use crate::verbosity::Verbosity;
use crate::{console, load, run};

/// Texts whose vectors are printed together.
const AT_ONCE: usize = 64;
/// Texts that share steps. Each has a sequence with a whole context.
const SEQUENCES: usize = 8;

/// Print vectors of texts.
///
/// A vector is pooled from the last hidden states and has length 1. The model file sets the pooling: the mean, the
/// first token or the last token. For a model that generates text it is the last token. Each line of stdout is a
/// vector: numbers with spaces between them, or an object with --json.
///
/// The first argument is the model if it ends in .gguf, has the form ORG/REPO, or is a file or folder. Otherwise it is
/// a text.
#[derive(Args)]
pub(crate) struct EmbedArgs {
    /// The model: a GGUF file (any part of a split model), a folder of Hugging Face or MLX, or ORG/REPO[:QUANT] of the
    /// hub [default: the built-in model].
    #[arg(value_name = "MODEL")]
    first: Option<OsString>,
    /// The texts, each in quotes. Without texts, each line of stdin is a text, unless stdin is a terminal.
    #[arg(value_name = "TEXT")]
    texts: Vec<String>,
    #[command(flatten)]
    model: ModelOption,
    #[command(flatten)]
    quantize: QuantizeArg,
    /// A file in which each line is a text; - reads stdin. These texts follow the texts of the command line.
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Print an object with `text` and `embedding` in each line.
    #[arg(long, help_heading = "Output")]
    json: bool,
    #[command(flatten)]
    special: SpecialArgs,
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    context: ContextArg,
    #[command(flatten)]
    log: Verbosity,
}

const TEXT: TextArgument = TextArgument { name: "text", alternative: "write it into a file for -f if it is a text" };

/// A line of `--json`.
#[derive(Serialize)]
struct Line<'a> {
    text: &'a str,
    embedding: &'a [f32],
}

pub(crate) fn run(args: &EmbedArgs) -> Result<(), Failure> {
    let (source, texts) = args.texts()?;
    let source = args.quantize.of(source)?;
    let sequences = texts.len().min(SEQUENCES);
    let kv_format = args.device.kv.into();
    let limits = Limits { context: args.context.ctx, sequences, kv_format, ..Limits::default() };
    let start = Instant::now();
    let engine = Engine::start(load::model(source, &args.device, limits, &args.log)?, limits)?;
    let load_time = start.elapsed();
    // All vectors are computed before the first is printed, so that a refused text leaves no partial output.
    let prompts: Vec<Prompt> = texts
        .iter()
        .zip(1..)
        .map(|(text, number)| tokens(&engine, args.special, text, number))
        .collect::<Result<_, _>>()?;
    let mut count = 0;
    let mut time = Duration::ZERO;
    for (texts, prompts) in texts.chunks(AT_ONCE).zip(prompts.chunks(AT_ONCE)) {
        let Embeddings { vectors, usage, .. } = engine.embed(EmbeddingRequest::new(prompts.to_vec()))?;
        (count, time) = (count + usage.prompt_tokens, time + usage.prefill);
        for (text, embedding) in texts.iter().zip(&vectors) {
            args.print(text, embedding)?;
        }
    }
    let rate = count as f64 / time.as_secs_f64();
    let texts = texts.len();
    args.log.info(format_args!("{texts} texts, {count} tokens at {rate:.1} tok/s, {}", run::costs(load_time)));
    Ok(())
}

/// The tokens of a text; a refusal says of which.
fn tokens(engine: &Engine, special: SpecialArgs, text: &str, number: usize) -> Result<Prompt, Failure> {
    let tokens = engine.prompt_tokens(&Prompt::Text { text: text.to_owned(), options: special.options() });
    Ok(Prompt::Tokens(tokens.map_err(|error| Failure::new(format!("text {number}: {error}")))?))
}

impl EmbedArgs {
    /// The model and at least one text.
    fn texts(&self) -> Result<(Source<'_>, Vec<String>), Failure> {
        let (source, words) = self.model.split_words(TEXT, self.first.as_deref(), &self.texts)?;
        let mut texts: Vec<String> = words.into_iter().map(str::to_owned).collect();
        let file = match &self.file {
            None if texts.is_empty() && !io::stdin().is_terminal() => Some(Path::new("-")),
            file => file.as_deref(),
        };
        if let Some(file) = file {
            texts.extend(console::read_text(file, console::LONGEST_TEXT)?.lines().map(str::to_owned));
        }
        match texts.is_empty() {
            true => {
                Err(Failure::new("there is no text; write it as the last argument, in quotes, or name a file with -f"))
            }
            false => Ok((source, texts)),
        }
    }

    fn print(&self, text: &str, embedding: &[f32]) -> Result<(), Failure> {
        if self.json {
            return console::print_line(serde_json::to_string(&Line { text, embedding })?);
        }
        let numbers: Vec<String> = embedding.iter().map(f32::to_string).collect();
        console::print_line(numbers.join(" "))
    }
}
