//! `quantize`: from a model file to a smaller one.

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use gristmill_convert::quantize::{Keep, Mix, Planned, Quantizer};
use gristmill_convert::{ConvertError, MlxQuantizer, MlxWidths};
use gristmill_engine::machine;

use crate::failure::Failure;
use crate::output::{OutputArgs, some};
use crate::source::Source;
use crate::verbosity::Verbosity;
use crate::{console, kind};

/// Write a model in a smaller format.
#[derive(Args)]
#[command(long_about = about())]
pub(crate) struct QuantizeArgs {
    /// The model to read: a GGUF file (any part of a split model), best in F16, BF16 or F32; ORG/REPO:QUANT of the hub;
    /// or a folder of Hugging Face.
    #[arg(value_name = "IN.gguf")]
    input: PathBuf,
    /// The file to write, or the folder with --mlx.
    #[arg(value_name = "OUT.gguf")]
    output: PathBuf,
    /// The mix or format.
    #[arg(value_name = "FORMAT", required_unless_present = "mlx")]
    format: Option<String>,
    /// Write a folder in MLX's format instead, with affine codes of 2, 3, 4, 5, 6 or 8 bits in groups of 32, 64 or 128.
    /// Routers and norms are not quantised.
    #[arg(long, value_name = "BITSbit:GROUP", value_parser = widths, conflicts_with_all = ["format", "keep", "force"])]
    mlx: Option<MlxWidths>,
    /// Set the format of tensors with matching names; * matches any characters, ? matches one. Can be repeated: the
    /// last match applies.
    #[arg(long, value_name = "PATTERN=FORMAT")]
    keep: Vec<String>,
    #[command(flatten)]
    to: OutputArgs,
}

fn about() -> String {
    let names: Vec<&str> = Mix::all().iter().map(Mix::name).collect();
    format!(
        "Write a model in a smaller format.\n\nFORMAT is a mix or a format, with llama.cpp's names: {}. Q5_K, Q4_K and Q3_K \
         are short for the _M mixes, and MXFP4 for MXFP4_MOE (experts in MXFP4, the rest in Q8_0). Norms, biases and routers \
         keep their format. A mix assigns formats to weights as llama.cpp does.\n\nWith --mlx, the input is a folder of \
         Hugging Face, and the output is a folder that mlx-lm can open: gristmill quantize --mlx 4bit:64 FOLDER OUT.",
        names.join(" ")
    )
}

fn widths(text: &str) -> Result<MlxWidths, ConvertError> {
    MlxWidths::parse(text)
}

/// Writes a folder as MLX quantises it.
fn as_mlx(args: &QuantizeArgs, widths: MlxWidths) -> Result<(), Failure> {
    let quantizer = MlxQuantizer::new(&args.input, widths)?;
    let threads = args.to.prepare_space(&args.output, quantizer.bytes())?;
    let start = Instant::now();
    args.to.with_progress("quantising", |progress| quantizer.write(&args.output, threads, progress))?;
    let (codes, others) = quantizer.counts();
    args.to.log.info(format_args!(
        "{}: {}, {codes} tensors in codes, {others} as they were, {:.1} s",
        args.output.display(),
        console::bytes(quantizer.bytes()),
        start.elapsed().as_secs_f64()
    ));
    Ok(())
}

pub(crate) fn run(args: &QuantizeArgs) -> Result<(), Failure> {
    if let Some(widths) = args.mlx {
        return as_mlx(args, widths);
    }
    // clap requires it without --mlx.
    let mix = Mix::parse(args.format.as_deref().unwrap_or_default())?;
    let keep = args.keep.iter().map(|text| Keep::parse(text)).collect::<Result<Vec<_>, _>>()?;
    let file = Source::of(Some(&args.input)).open(&args.to.log)?;
    kind::check_weights(&file)?;
    let quantizer = Quantizer::new(&file, mix, &keep)?;
    let bytes = quantizer.file_bytes();
    let log = &args.to.log;
    let threads = args.to.prepare(file.paths(), &args.output, bytes, quantizer.tensors())?;
    warn_again(quantizer.tensors(), log);

    let start = Instant::now();
    args.to.with_progress("quantising", |progress| quantizer.write(&args.output, threads, progress))?;
    let from = file.file_bytes();
    let seconds = start.elapsed().as_secs_f64();
    log.info(format_args!(
        "{}: {} from {}, {:.1} s, {}/s read",
        args.output.display(),
        console::bytes(bytes),
        console::bytes(from),
        seconds,
        console::bytes((from as f64 / seconds) as u64)
    ));
    if let Some(peak) = machine::peak_memory() {
        log.detail(format_args!("peak memory {}, pages of the mapped input included", console::bytes(peak)));
    }
    Ok(())
}

/// Names the tensors that the input has in a quantised format.
fn warn_again(tensors: &[Planned], log: &Verbosity) {
    let again: Vec<&str> = tensors.iter().filter(|t| t.is_requantised()).map(|t| t.name.as_str()).collect();
    if !again.is_empty() {
        log.info(format_args!(
            "{} of {} tensors are quantised already and lose again; an F16 or BF16 file of this model gives a better \
             one: {}",
            again.len(),
            tensors.len(),
            some(&again)
        ));
    }
}
