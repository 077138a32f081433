//! `convert`: from a Hugging Face folder to one GGUF file.

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use gristmill_convert::quantize::Mix;
use gristmill_convert::{ConvertOptions, Converter};

use crate::console;
use crate::failure::Failure;
use crate::output::OutputArgs;

/// Convert a Hugging Face folder to a GGUF file.
///
/// The folder contains config.json, model.safetensors (or its parts with model.safetensors.index.json), and
/// tokenizer.json or tokenizer.model. tokenizer_config.json, generation_config.json and chat_template.jinja are
/// optional. Tensors are converted one by one, so the model can be larger than memory.
#[derive(Args)]
pub(crate) struct ConvertArgs {
    /// The folder of the model.
    #[arg(value_name = "HF_DIR")]
    folder: PathBuf,
    /// The file to write.
    #[arg(short, long, value_name = "OUT.gguf")]
    output: PathBuf,
    /// The type of the weights: f32, f16, bf16, or a mix or format of `gristmill quantize` [default: the type in the
    /// folder]. Norms, biases and routers are f32.
    #[arg(long = "type", value_name = "TYPE")]
    format: Option<String>,
    /// The pre-tokenizer, a value of tokenizer.ggml.pre. Needed if the steps in tokenizer.json are unknown.
    #[arg(long, value_name = "NAME")]
    pre: Option<String>,
    /// The name of the model [default: the folder's name].
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Leave out the prediction heads (multi-token prediction). Without the option, the file has the heads of the folder.
    #[arg(long)]
    no_mtp: bool,
    #[command(flatten)]
    to: OutputArgs,
}

pub(crate) fn run(args: &ConvertArgs) -> Result<(), Failure> {
    let mix = args.format.as_deref().map(Mix::parse).transpose()?;
    let options = ConvertOptions { mix, pre: args.pre.clone(), name: args.name.clone(), without_heads: args.no_mtp };
    let converter = Converter::new(&args.folder, &options)?;
    let bytes = converter.file_bytes();
    let log = &args.to.log;
    let threads = args.to.prepare(converter.files(), &args.output, bytes, converter.tensors())?;
    for note in converter.notes() {
        log.info(format_args!("{note}"));
    }

    let start = Instant::now();
    args.to.with_progress("converting", |progress| converter.write(&args.output, threads, progress))?;
    log.info(format_args!(
        "{}: {} in {} tensors, {:.1} s",
        args.output.display(),
        console::bytes(bytes),
        converter.tensors().len(),
        start.elapsed().as_secs_f64()
    ));
    Ok(())
}
