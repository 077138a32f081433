//! `convert`: a model as Hugging Face publishes it into one file.

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use gristmill_engine::convert::{ConvertOptions, Converter};
use gristmill_engine::quantize::{Mix, check_output};

use crate::args::Verbosity;
use crate::failure::Failure;
use crate::output::{formats, make_room, warn_shapes};
use crate::{console, output};

/// Make a GGUF file of a model as Hugging Face publishes it.
///
/// The folder holds config.json, model.safetensors (or its parts with model.safetensors.index.json), and tokenizer.json
/// or tokenizer.model; tokenizer_config.json, generation_config.json and chat_template.jinja are used if they are there.
/// The model is never in memory as a whole.
#[derive(Args)]
pub(crate) struct ConvertArgs {
    /// The folder of the model.
    #[arg(value_name = "HF_DIR")]
    folder: PathBuf,
    /// The file to write.
    #[arg(short, long, value_name = "OUT.gguf")]
    output: PathBuf,
    /// The type of the weights: f32, f16, bf16, or a mix or format as for `gristmill quantize` [default: the type that
    /// they have]. Norms, biases and routers are f32.
    #[arg(long = "type", value_name = "TYPE")]
    format: Option<String>,
    /// The pre-tokenizer, as tokenizer.ggml.pre names it, if tokenizer.json has one that is not recognised.
    #[arg(long, value_name = "NAME")]
    pre: Option<String>,
    /// The name of the model [default: that of the folder].
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Replace an existing output.
    #[arg(short, long)]
    force: bool,
    /// Threads [default: one on each core that this process may use].
    #[arg(short, long, value_name = "N")]
    threads: Option<usize>,
    #[command(flatten)]
    say: Verbosity,
}

pub(crate) fn run(args: &ConvertArgs) -> Result<(), Failure> {
    let threads = output::threads(args.threads)?;
    let mix = args.format.as_deref().map(Mix::parse).transpose()?;
    let options = ConvertOptions { mix, pre: args.pre.clone(), name: args.name.clone() };
    let converter = Converter::new(&args.folder, &options)?;
    check_output(converter.files(), &args.output, args.force)?;
    let bytes = converter.file_bytes();
    make_room(&args.output, bytes)?;
    for note in converter.notes() {
        args.say.info(format_args!("{note}"));
    }
    warn_shapes(converter.tensors(), &args.say);
    args.say.detail(format_args!("{}; {threads} threads", formats(converter.tensors())));

    let start = Instant::now();
    output::with_progress(&args.say, "converting", |progress| converter.write(&args.output, threads, progress))?;
    args.say.info(format_args!(
        "{}: {} in {} tensors, {:.1} s",
        args.output.display(),
        console::bytes(bytes),
        converter.tensors().len(),
        start.elapsed().as_secs_f64()
    ));
    Ok(())
}
