//! Writing a model file: threads, room on the disk, what the formats become, progress, Ctrl-C.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gristmill_engine::quantize::Planned;
use gristmill_engine::{Progress, machine};
use gristmill_kernels::cpu::MAX_THREADS;
use gristmill_kernels::format::Format;

use crate::args::Verbosity;
use crate::failure::Failure;
use crate::{console, load};

/// The number of threads: as asked, or one on each core that this process may use.
pub(crate) fn threads(asked: Option<usize>) -> Result<usize, Failure> {
    let threads = asked.unwrap_or_else(machine::logical_cpus);
    match (1..=MAX_THREADS).contains(&threads) {
        true => Ok(threads),
        false => Err(Failure::new(format!("--threads is {threads}; it must be between 1 and {MAX_THREADS}"))),
    }
}

/// Runs `write` with a bar that shows its progress; Ctrl-C stops it.
pub(crate) fn with_progress<E>(
    say: &Verbosity,
    doing: &str,
    write: impl FnOnce(&mut dyn FnMut(Progress) -> ControlFlow<()>) -> Result<(), E>,
) -> Result<(), E> {
    let stopped = Arc::new(AtomicBool::new(false));
    let flag = stopped.clone();
    // Without a handler an interrupt would leave the temporary file behind.
    let _ = ctrlc::set_handler(move || flag.store(true, Ordering::Relaxed));
    let bar = load::bar(say, &format!("{doing} {{bar:40}} {{bytes}}/{{total_bytes}} {{eta}}"));
    let written = write(&mut |progress| {
        bar.set_length(progress.total);
        bar.set_position(progress.done);
        if stopped.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    bar.finish_and_clear();
    written
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
pub(crate) fn some(names: &[&str]) -> String {
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
