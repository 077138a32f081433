//! `quantize`: a model file into a smaller one.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use clap::Args;
use gristmill_engine::gguf::GgufFile;
use gristmill_engine::machine;
use gristmill_engine::quantize::{Keep, Mix, Planned, Quantizer, check_output};
use gristmill_kernels::cpu::MAX_THREADS;
use gristmill_kernels::format::Format;

use crate::args::Verbosity;
use crate::failure::Failure;
use crate::{console, load};

/// Write a model in a smaller format.
///
/// FORMAT is a mix or a format, named as llama.cpp does: F32 BF16 F16 Q8_0 Q6_K Q5_K_M Q5_K_S Q5_1 Q5_0 Q4_K_M Q4_K_S
/// IQ4_NL IQ4_XS Q4_1 Q4_0 MXFP4_MOE Q3_K_L Q3_K_M Q3_K_S Q2_K; Q5_K, Q4_K and Q3_K are short for the _M mixes, MXFP4
/// for MXFP4_MOE (experts in MXFP4, the rest in Q8_0). Norms, biases and routers stay as they are. Which weights a mix
/// treats differently is as in llama.cpp.
#[derive(Args)]
pub(crate) struct QuantizeArgs {
    /// The model to read: a GGUF file, best F16, BF16 or F32; of a split model, any part.
    #[arg(value_name = "IN.gguf")]
    input: PathBuf,
    /// The file to write.
    #[arg(value_name = "OUT.gguf")]
    output: PathBuf,
    /// The mix or format.
    #[arg(value_name = "FORMAT")]
    format: String,
    /// Give the tensors of these names another format; * stands for any characters, ? for one. May be given several
    /// times: of those that match, the last counts.
    #[arg(long, value_name = "PATTERN=FORMAT")]
    keep: Vec<String>,
    /// Replace an existing output.
    #[arg(short, long)]
    force: bool,
    /// Threads [default: one on each core that this process may use].
    #[arg(short, long, value_name = "N")]
    threads: Option<usize>,
    #[command(flatten)]
    say: Verbosity,
}

pub(crate) fn run(args: &QuantizeArgs) -> Result<(), Failure> {
    let mix = Mix::parse(&args.format)?;
    let keep = args.keep.iter().map(|text| Keep::parse(text)).collect::<Result<Vec<_>, _>>()?;
    let threads = args.threads.unwrap_or_else(machine::logical_cpus);
    if !(1..=MAX_THREADS).contains(&threads) {
        return Err(Failure::new(format!("--threads is {threads}; it must be between 1 and {MAX_THREADS}")));
    }
    let file = GgufFile::open(&args.input)?;
    check_output(file.paths(), &args.output, args.force)?;
    let quantizer = Quantizer::new(&file, mix, &keep)?;
    let bytes = quantizer.file_bytes();
    make_room(&args.output, bytes)?;
    warn(quantizer.tensors(), &args.say);
    args.say.detail(format_args!("{}; {threads} threads", formats(quantizer.tensors())));

    let stopped = Arc::new(AtomicBool::new(false));
    let flag = stopped.clone();
    // Without a handler an interrupt would leave the temporary file behind.
    let _ = ctrlc::set_handler(move || flag.store(true, Ordering::Relaxed));
    let bar = load::bar(&args.say, "quantising {bar:40} {bytes}/{total_bytes} {eta}");
    let start = Instant::now();
    let written = quantizer.write(&args.output, threads, &mut |progress| {
        bar.set_length(progress.total);
        bar.set_position(progress.done);
        if stopped.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    bar.finish_and_clear();
    written?;
    let (from, seconds) = (file.file_bytes(), start.elapsed().as_secs_f64());
    args.say.info(format_args!(
        "{}: {} from {}, {:.1} s, {}/s read",
        args.output.display(),
        console::bytes(bytes),
        console::bytes(from),
        seconds,
        console::bytes((from as f64 / seconds) as u64)
    ));
    if let Some(peak) = machine::peak_memory() {
        args.say.detail(format_args!("peak memory {}, pages of the mapped input included", console::bytes(peak)));
    }
    Ok(())
}

/// Refuses an output that its disk has no room for.
pub(crate) fn make_room(output: &Path, needed: u64) -> Result<(), Failure> {
    let folder = output.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let free = fs4::available_space(folder).map_err(|e| {
        Failure::new(format!("{}: {e}; name a folder that exists and can be written", folder.display()))
    })?;
    if needed > free {
        let (path, needed, free) = (output.display(), console::bytes(needed), console::bytes(free));
        return Err(Failure::new(format!("{path}: the model takes {needed} and {free} are free; name another place")));
    }
    Ok(())
}

/// Says what the user may not expect.
fn warn(tensors: &[Planned], say: &Verbosity) {
    warn_shapes(tensors, say);
    let again: Vec<&str> = tensors.iter().filter(|t| t.is_requantised()).map(|t| t.name.as_str()).collect();
    if !again.is_empty() {
        say.info(format_args!(
            "{} of {} tensors are quantised already and lose again; an F16 or BF16 file of this model gives a better one: {}",
            again.len(),
            tensors.len(),
            some(&again)
        ));
    }
}

/// Names the tensors whose rows do not fit the format that was asked for.
pub(crate) fn warn_shapes(tensors: &[Planned], say: &Verbosity) {
    let mut shapes: BTreeMap<(Format, Format), Vec<&str>> = BTreeMap::new();
    for tensor in tensors {
        if let Some(asked) = tensor.instead_of {
            shapes.entry((asked, tensor.to)).or_default().push(&tensor.name);
        }
    }
    for ((asked, to), names) in shapes {
        let (n, block) = (names.len(), asked.block_len());
        say.info(format_args!(
            "{n} of {} tensors become {to} instead of {asked}, since their rows are not multiples of {block}: {}",
            tensors.len(),
            some(&names)
        ));
    }
}

/// The first names.
fn some(names: &[&str]) -> String {
    let more = if names.len() > 3 { ", …" } else { "" };
    format!("{}{more}", names[..names.len().min(3)].join(", "))
}

/// `213 F32, 168 Q4_K, 38 Q6_K`.
pub(crate) fn formats(tensors: &[Planned]) -> String {
    let mut counts: BTreeMap<Format, usize> = BTreeMap::new();
    for tensor in tensors {
        *counts.entry(tensor.to).or_default() += 1;
    }
    counts.iter().map(|(format, n)| format!("{n} {format}")).collect::<Vec<_>>().join(", ")
}
